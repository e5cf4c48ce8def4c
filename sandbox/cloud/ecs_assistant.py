"""ECS Cloud Assistant: RunCommand and its results. Commands run as root on the machines, each in a thread."""

from __future__ import annotations

import base64
import binascii
import threading
from subprocess import TimeoutExpired
from typing import Any

from sandbox.cloud import inventory
from sandbox.cloud.ecs import check_region, instance_of, paged
from sandbox.cloud.errors import error
from sandbox.cloud.world import Call, World, fresh_id, stamp
from sandbox.machines.shell import MachineError

Record = dict[str, Any]
LONGEST_COMMAND = LONGEST_OUTPUT = 24 * 1024
# The agent joins both streams; $1 is the folder (or empty), $2 the script.
_WRAPPER = 'exec 2>&1; [ -z "$1" ] || cd "$1" || exit 1; exec sh -c "$2"'


def run_command(world: World, call: Call) -> Record:
    check_region(world, call)
    if call.query["Type"] != "RunShellScript":
        raise error("InvalidCmdType.NotFound")
    script = _script(call)
    instances = {each: instance_of(world, each) for each in call.query["InstanceId"]}
    invoke_id, command_id = fresh_id("t-hz0")[:17], fresh_id("c-hz0")[:17]
    now = stamp(world.now())
    invocation = {
        "command_id": command_id, "script": script, "name": call.query.get("Name", f"cmd-{command_id}"),
        "description": call.query.get("Description", ""), "timeout": call.query.get("Timeout", 60),
        "folder": call.query.get("WorkingDir", ""), "created": now, "started": world.now().timestamp(),
        "results": {each: {"status": "Running", "created": now, "output": "", "dropped": 0} for each in instances},
    }  # fmt: skip
    world.data["invocations"][invoke_id] = invocation
    for instance_id, instance in instances.items():
        node = inventory.node_of(instance) if instance["pool_id"] else ""
        arguments = (world, invoke_id, instance_id, node)
        threading.Thread(target=_execute, args=arguments, name=f"cloud-command-{instance_id}", daemon=True).start()
    return {"CommandId": command_id, "InvokeId": invoke_id}


def describe_invocations(world: World, call: Call) -> Record:
    check_region(world, call)
    found = []
    for invoke_id, invocation in _newest_first(world, call):
        results = [
            _view(instance_id, result, call, output=call.query.get("IncludeOutput", False))
            for instance_id, result in invocation["results"].items()
            if call.query.get("InstanceId", instance_id) == instance_id
        ]
        status = _overall(invocation)
        if results and call.query.get("InvokeStatus", _record_status(status)) == _record_status(status):
            found.append({
                "InvokeId": invoke_id, "CommandId": invocation["command_id"], "CommandName": invocation["name"],
                "CommandDescription": invocation["description"], "CommandType": "RunShellScript",
                "CommandContent": _text(invocation["script"], call), "CreationTime": invocation["created"],
                "Timeout": invocation["timeout"], "WorkingDir": invocation["folder"], "RepeatMode": "Once",
                "InvokeStatus": _record_status(status), "InvocationStatus": status,
                "InvokeInstances": {"InvokeInstance": results},
            })  # fmt: skip
    return paged(call, found, "Invocations", "Invocation", largest=50)


def describe_invocation_results(world: World, call: Call) -> Record:
    check_region(world, call)
    found = [
        {
            "InvokeId": invoke_id, "CommandId": invocation["command_id"],
            "InvokeRecordStatus": _record_status(result["status"]),
            **_renamed(_view(instance_id, result, call, output=True)),
        }
        for invoke_id, invocation in _newest_first(world, call)
        for instance_id, result in invocation["results"].items()
        if call.query.get("InstanceId", instance_id) == instance_id
    ]  # fmt: skip
    wanted = call.query.get("InvokeRecordStatus")
    found = [each for each in found if wanted in (None, each["InvokeRecordStatus"])]
    return {"Invocation": paged(call, found, "InvocationResults", "InvocationResult", largest=50)}


def end_orphans(world: World) -> None:
    """Commands that ran when the endpoint was stopped: nobody waits for them any more."""
    for invocation in world.data["invocations"].values():
        for result in invocation["results"].values():
            if result["status"] == "Running":
                _finish(world, result, "Error", code="AgentInterrupted", info="the endpoint was restarted")


def _script(call: Call) -> str:
    content: str = call.query["CommandContent"]
    if len(content) > LONGEST_COMMAND:
        raise error("CmdContent.ExceedLimit")
    if call.query.get("ContentEncoding", "PlainText").lower() != "base64":
        return content
    try:
        return base64.b64decode(content, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise error("CmdContent.DecodeError") from None


def _execute(world: World, invoke_id: str, instance_id: str, node: str) -> None:
    """Run in a thread of its own, so outside of the store's lock but for the result."""
    invocation = world.data["invocations"][invoke_id]
    result = invocation["results"][instance_id]
    argv = ["sh", "-c", _WRAPPER, "sh", invocation["folder"], invocation["script"]]
    try:
        if not node:
            raise MachineError("the instance is in no node pool")
        done = world.fleet.shell(node, argv, timeout=invocation["timeout"])
    except TimeoutExpired as late:
        with world.store.change():
            _finish(world, result, "Timeout", output=late.output or b"", code="TaskTimeout", info="it took too long")
    except (MachineError, OSError) as problem:
        with world.store.change():
            _finish(world, result, "Error", code="ClientNotRunning", info=str(problem))
    else:
        with world.store.change():
            status = "Success" if done.returncode == 0 else "Failed"
            _finish(world, result, status, output=done.stdout + done.stderr, exit_code=done.returncode)


def _finish(
    world: World, result: Record, status: str, *, output: bytes = b"", exit_code: int | None = None, code: str = "",
    info: str = "",
) -> None:  # fmt: skip
    kept = output[-LONGEST_OUTPUT:]
    result |= {
        "status": status, "output": base64.b64encode(kept).decode(), "dropped": len(output) - len(kept),
        "exit_code": exit_code, "finished": stamp(world.now()), "error_code": code, "error_info": info,
    }  # fmt: skip


def _newest_first(world: World, call: Call) -> list[tuple[str, Record]]:
    invocations = world.data["invocations"].items()
    return [
        (key, each)
        for key, each in sorted(invocations, key=lambda item: -item[1]["started"])
        if call.query.get("InvokeId", key) == key
        and call.query.get("CommandId", each["command_id"]) == each["command_id"]
    ]


def _record_status(status: str) -> str:
    """The coarser of the two statuses that ECS tells."""
    return {"Success": "Finished", "Running": "Running"}.get(status, "Failed")


def _overall(invocation: Record) -> str:
    states = {each["status"] for each in invocation["results"].values()}
    if "Running" in states:
        return "Running"
    return "Success" if states == {"Success"} else "Failed" if "Success" not in states else "PartialFailed"


def _view(instance_id: str, result: Record, call: Call, *, output: bool) -> Record:
    shown: Record = {
        "InstanceId": instance_id, "InvocationStatus": result["status"], "StartTime": result["created"],
        "CreationTime": result["created"], "FinishTime": result.get("finished", ""), "Dropped": result["dropped"],
        "Repeats": 1, "ErrorCode": result.get("error_code", ""), "ErrorInfo": result.get("error_info", ""),
        "InstanceInvokeStatus": _record_status(result["status"]),
    }  # fmt: skip
    if result.get("exit_code") is not None:
        shown["ExitCode"] = result["exit_code"]
    if output:
        raw = base64.b64decode(result["output"])
        shown["Output"] = _text(raw.decode(errors="replace"), call)
    return shown


def _renamed(view: Record) -> Record:
    """DescribeInvocationResults says FinishedTime, and has neither CreationTime nor InstanceInvokeStatus."""
    renamed = {**view, "FinishedTime": view["FinishTime"]}
    for key in ("CreationTime", "FinishTime", "InstanceInvokeStatus"):
        del renamed[key]
    return renamed


def _text(text: str, call: Call) -> str:
    plain = call.query.get("ContentEncoding", "Base64").lower() == "plaintext"
    return text if plain else base64.b64encode(text.encode()).decode()
