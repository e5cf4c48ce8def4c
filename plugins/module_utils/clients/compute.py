"""ECS: the instances behind the nodes. Restart them, look at them, run a command on them by Cloud Assistant."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi import CloudError, OpenApi
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.pauses import Pauses
from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud

_PAGE = 100  # the most that ECS gives at once, and the most ids that it takes
_ENDED = ("Success", "Failed", "Timeout", "Error", "Stopped", "Terminated", "Aborted", "Undelivered", "Invalid")


class Instance(msgspec.Struct, frozen=True, rename="pascal"):
    """An ECS instance. ``status`` is Pending, Running, Starting, Stopping or Stopped."""

    instance_id: str
    instance_type: str = ""
    instance_name: str = ""
    status: str = ""
    region_id: str = ""
    zone_id: str = ""


class CommandResult(msgspec.Struct, frozen=True):
    """What a command left. ``status`` is Cloud Assistant's: Success, Failed, Timeout, Error, ...; ``rc`` -1: none."""

    status: str
    rc: int
    output: str


class Compute:
    """ECS in the region of the connection."""

    def __init__(self, connection: Connection, api: OpenApi | None = None) -> None:
        self._region = connection.region_id
        self._api = api or OpenApi(connection)

    def describe_instances(self, instance_ids: Sequence[str]) -> dict[str, Instance]:
        """The instances that exist, by id; an id that is unknown is simply absent."""
        found: dict[str, Instance] = {}
        for start in range(0, len(instance_ids), _PAGE):
            wanted = list(instance_ids[start : start + _PAGE])
            answer = self._read("DescribeInstances", InstanceIds=json.dumps(wanted), PageSize=_PAGE)
            for told in answer["Instances"]["Instance"]:
                instance = cloud.read(told, Instance)
                found[instance.instance_id] = instance
        return found

    def reboot_instance(self, instance_id: str, *, force: bool = False) -> None:
        """Ask for a restart and return at once; ``force`` is a power cycle. Not idempotent: two calls, two restarts."""
        self._api.rpc("ecs", "RebootInstance", {"InstanceId": instance_id, "ForceStop": force}, write=True)

    def run_command(self, instance_id: str, script: str, *, timeout: float = 60, name: str = "") -> CommandResult:
        """Run a shell script as root on an instance and wait for its end.

        Raises CloudError (CLD-COMMAND) when it has not ended ``timeout`` seconds (and what delivery takes) later.
        """
        answer = self._api.rpc(
            "ecs", "RunCommand",
            {
                "RegionId": self._region, "Type": "RunShellScript", "ContentEncoding": "Base64",
                "CommandContent": base64.b64encode(script.encode()).decode(), "InstanceId": [instance_id],
                "Timeout": max(10, round(timeout)), "Name": name or None,
            },
            write=True,
        )  # fmt: skip
        pauses = Pauses(timeout + 60)
        while True:
            result = self._result(answer["InvokeId"], instance_id)
            if result is not None:
                return result
            if not pauses.wait():
                raise CloudError(
                    f"Cloud Assistant command on {instance_id}", f"it did not end within {timeout:.0f} s.",
                    f"Look at invocation {answer['InvokeId']} in the ECS console.", "CLD-COMMAND",
                )  # fmt: skip

    def _result(self, invoke_id: str, instance_id: str) -> CommandResult | None:
        answer = self._read("DescribeInvocationResults", InvokeId=invoke_id, InstanceId=instance_id)
        results = answer["Invocation"]["InvocationResults"]["InvocationResult"]
        if not results or results[0]["InvocationStatus"] not in _ENDED:
            return None
        told = results[0]
        output = base64.b64decode(told.get("Output") or "").decode(errors="replace")
        rc = int(told["ExitCode"]) if told.get("ExitCode") is not None else -1
        return CommandResult(told["InvocationStatus"], rc, output)

    def _read(self, action: str, **parameters: Any) -> Any:
        return self._api.rpc("ecs", action, {"RegionId": self._region, **parameters})
