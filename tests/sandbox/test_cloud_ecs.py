"""ECS: instances, restarts, commands, snapshots; and auto-repair, which restarts what stays NotReady."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

import pytest
from alibabacloud_tea_openapi.exceptions import ClientException

from sandbox.cloud.auto_repair import Repairs
from sandbox.machines.shell import MachineError
from tests.sandbox.cloud_rig import CLUSTER, REGION, Rig, pool_body, running, wait_for


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running(tmp_path) as rig:
        yield rig


def refused(rig: Rig, action: str, **parameters: Any) -> tuple[int, str]:
    with pytest.raises(ClientException) as raised:
        rig.rpc(action, **parameters)
    return raised.value.status_code, str(raised.value.code)


def gpu_node(rig: Rig) -> dict[str, Any]:
    return rig.nodes(rig.pool_id("gpu-cgpu"))[0]


def instances(rig: Rig, **query: Any) -> list[dict[str, Any]]:
    return list(rig.rpc("DescribeInstances", RegionId=REGION, **query)["Instances"]["Instance"])


def run(rig: Rig, content: str, *ids: str, **more: Any) -> str:
    targets = {f"InstanceId.{number}": each for number, each in enumerate(ids, 1)}
    answer = rig.rpc("RunCommand", RegionId=REGION, Type="RunShellScript", CommandContent=content, **targets, **more)
    return str(answer["InvokeId"])


def result(rig: Rig, invoke_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        answer = rig.rpc("DescribeInvocationResults", RegionId=REGION, InvokeId=invoke_id)
        return dict(answer["Invocation"]["InvocationResults"]["InvocationResult"][0])

    return dict(wait_for(look, lambda seen: seen["InvokeRecordStatus"] != "Running"))


def test_the_instances_of_pools_and_spare_ones_are_listed_and_filtered(rig: Rig) -> None:
    found = instances(rig)
    assert len(found) == 7
    tagged = instances(rig, Tag=[{"Key": "ack.aliyun.com", "Value": CLUSTER}])
    assert len(tagged) == 5
    (one,) = instances(rig, InstanceIds=[gpu_node(rig)["instance_id"]])
    assert (one["InstanceType"], one["GPUAmount"], one["Status"]) == ("ecs.gn6i-c4g1.xlarge", 1, "Running")
    address = one["VpcAttributes"]["PrivateIpAddress"]["IpAddress"][0]
    assert [each["InstanceId"] for each in instances(rig, PrivateIpAddresses=[address])] == [one["InstanceId"]]


def test_lists_come_by_page_numbers_and_by_tokens(rig: Rig) -> None:
    page = rig.rpc("DescribeInstances", RegionId=REGION, PageNumber=2, PageSize=5)
    assert (len(page["Instances"]["Instance"]), page["TotalCount"]) == (2, 7)
    first = rig.rpc("DescribeInstances", RegionId=REGION, MaxResults=5)
    rest = rig.rpc("DescribeInstances", RegionId=REGION, MaxResults=5, NextToken=first["NextToken"])
    assert (len(first["Instances"]["Instance"]), len(rest["Instances"]["Instance"]), rest["NextToken"]) == (5, 2, "")
    assert refused(rig, "DescribeInstances", RegionId=REGION, NextToken="x")[1] == "InvalidParameter.Value"
    assert refused(rig, "DescribeInstances", RegionId=REGION, InstanceIds="i-1")[1] == "InvalidParameter.Value"
    assert refused(rig, "DescribeInstances", RegionId="cn-nowhere") == (404, "InvalidRegionId.NotFound")
    assert refused(rig, "DescribeInstances") == (400, "MissingRegionId")


def test_a_restart_goes_to_the_machine_of_the_node(rig: Rig) -> None:
    node = gpu_node(rig)
    rig.rpc("RebootInstance", InstanceId=node["instance_id"])
    rig.rpc("RebootInstance", InstanceId=node["instance_id"], ForceStop=True)
    assert rig.fleet.reboots == [
        (node["node_name"], "RebootInstance", False),
        (node["node_name"], "RebootInstance", True),
    ]
    assert refused(rig, "RebootInstance", InstanceId="i-0") == (404, "InvalidInstanceId.NotFound")
    rig.fleet.delete(node["node_name"])
    assert refused(rig, "RebootInstance", InstanceId=node["instance_id"]) == (403, "IncorrectInstanceStatus")


def test_an_instance_that_is_still_being_made_is_not_restarted(rig: Rig) -> None:
    rig.fleet.ready = False
    pool = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=1))["nodepool_id"]
    (node,) = rig.nodes(pool)
    assert refused(rig, "RebootInstance", InstanceId=node["instance_id"]) == (403, "IncorrectInstanceStatus")


def test_a_command_runs_as_a_shell_script_and_its_output_comes_in_base64(rig: Rig) -> None:
    rig.fleet.answer = lambda argv, timeout: CompletedProcess(argv, 3, b"out \xc3\xbc\n", b"")
    node = gpu_node(rig)
    invoke_id = run(rig, "echo ü; exit 3", node["instance_id"], Timeout=30, WorkingDir="/root")
    seen = result(rig, invoke_id)
    assert (seen["InvokeRecordStatus"], seen["InvocationStatus"], seen["ExitCode"]) == ("Failed", "Failed", 3)
    assert base64.b64decode(seen["Output"]).decode() == "out ü\n"
    plain = rig.rpc("DescribeInvocationResults", RegionId=REGION, InvokeId=invoke_id, ContentEncoding="PlainText")
    assert plain["Invocation"]["InvocationResults"]["InvocationResult"][0]["Output"] == "out ü\n"
    (name, argv), *_ = rig.fleet.commands
    assert name == node["node_name"]
    assert argv[-2:] == ["/root", "echo ü; exit 3"]


def test_a_command_may_come_in_base64_and_ends_in_success(rig: Rig) -> None:
    content = base64.b64encode(b"uname -r").decode()
    invoke_id = run(rig, content, gpu_node(rig)["instance_id"], ContentEncoding="Base64")
    seen = result(rig, invoke_id)
    assert (seen["InvokeRecordStatus"], seen["InvocationStatus"], seen["ExitCode"]) == ("Finished", "Success", 0)
    assert rig.fleet.commands[0][1][-1] == "uname -r"
    (invocation,) = rig.rpc("DescribeInvocations", RegionId=REGION, InvokeId=invoke_id)["Invocations"]["Invocation"]
    assert (invocation["InvokeStatus"], invocation["CommandContent"]) == ("Finished", content)
    assert "Output" not in invocation["InvokeInstances"]["InvokeInstance"][0]


def test_a_command_is_running_until_the_machine_is_done(rig: Rig) -> None:
    gate = threading.Event()

    def slow(argv: list[str], timeout: float) -> CompletedProcess[bytes]:
        gate.wait(10)
        return CompletedProcess(argv, 0, b"", b"")

    rig.fleet.answer = slow
    invoke_id = run(rig, "sleep", gpu_node(rig)["instance_id"])
    (invocation,) = rig.rpc("DescribeInvocations", RegionId=REGION)["Invocations"]["Invocation"]
    assert (invocation["InvokeId"], invocation["InvokeStatus"]) == (invoke_id, "Running")
    gate.set()
    assert result(rig, invoke_id)["InvokeRecordStatus"] == "Finished"


def test_a_command_that_takes_too_long_or_finds_no_machine_says_so(rig: Rig) -> None:
    def late(argv: list[str], timeout: float) -> CompletedProcess[bytes]:
        raise TimeoutExpired(argv, timeout, output=b"half")

    rig.fleet.answer = late
    seen = result(rig, run(rig, "sleep", gpu_node(rig)["instance_id"], Timeout=1))
    assert (seen["InvocationStatus"], seen["ErrorCode"]) == ("Timeout", "TaskTimeout")
    assert base64.b64decode(seen["Output"]) == b"half"

    def off(argv: list[str], timeout: float) -> CompletedProcess[bytes]:
        raise MachineError("the machine is off")

    rig.fleet.answer = off
    seen = result(rig, run(rig, "true", gpu_node(rig)["instance_id"]))
    assert (seen["InvocationStatus"], seen["ErrorCode"]) == ("Error", "ClientNotRunning")
    spare = next(each["InstanceId"] for each in instances(rig) if not each["Tags"]["Tag"])
    assert result(rig, run(rig, "true", spare))["ErrorCode"] == "ClientNotRunning"


def test_long_output_keeps_its_end_and_tells_what_was_dropped(rig: Rig) -> None:
    rig.fleet.answer = lambda argv, timeout: CompletedProcess(argv, 0, b"x" * 30000 + b"end", b"")
    seen = result(rig, run(rig, "true", gpu_node(rig)["instance_id"]))
    output = base64.b64decode(seen["Output"])
    assert (len(output), seen["Dropped"]) == (24 * 1024, 30003 - 24 * 1024)
    assert output.endswith(b"end")


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"Type": "RunBatScript"}, (403, "InvalidCmdType.NotFound")),
        ({"CommandContent": "%%%", "ContentEncoding": "Base64"}, (400, "CmdContent.DecodeError")),
        ({"CommandContent": "x" * 24577}, (403, "CmdContent.ExceedLimit")),
        ({"InstanceId.1": "i-0"}, (404, "InvalidInstanceId.NotFound")),
        ({"Username": "root"}, (400, "InvalidParameter.Unknown")),
    ],
)
def test_a_wrong_command_is_refused(rig: Rig, more: dict[str, str], refusal: tuple[int, str]) -> None:
    right = {"RegionId": REGION, "Type": "RunShellScript", "CommandContent": "true"}
    right["InstanceId.1"] = gpu_node(rig)["instance_id"]
    assert refused(rig, "RunCommand", **(right | more)) == refusal
    assert rig.fleet.commands == []


def test_a_snapshot_of_the_system_disk_is_made_after_a_while(tmp_path: Path) -> None:
    with running(tmp_path, task_seconds=60) as rig:
        instance = gpu_node(rig)["instance_id"]
        (disk,) = rig.rpc("DescribeDisks", RegionId=REGION, InstanceId=instance)["Disks"]["Disk"]
        assert (disk["Type"], disk["Size"]) == ("system", 120)
        made = rig.rpc("CreateSnapshot", DiskId=disk["DiskId"], SnapshotName="before-cgpu", RetentionDays=7)

        def look() -> dict[str, Any]:
            answer = rig.rpc("DescribeSnapshots", RegionId=REGION, SnapshotIds=[made["SnapshotId"]])
            return dict(answer["Snapshots"]["Snapshot"][0])

        assert (look()["Status"], look()["Progress"]) == ("progressing", "0%")
        with rig.world.store.change() as data:
            data["snapshots"][made["SnapshotId"]]["started"] -= 60
        assert (look()["Status"], look()["Progress"], look()["SourceDiskId"]) == (
            "accomplished",
            "100%",
            disk["DiskId"],
        )
        assert refused(rig, "CreateSnapshot", DiskId="d-0") == (404, "InvalidDiskId.NotFound")


def test_an_instance_can_be_renamed_and_protected(rig: Rig) -> None:
    instance = gpu_node(rig)["instance_id"]
    rig.rpc("ModifyInstanceAttribute", InstanceId=instance, InstanceName="ours", DeletionProtection=True)
    (seen,) = instances(rig, InstanceName="ours")
    assert (seen["InstanceId"], seen["DeletionProtection"]) == (instance, True)


def test_instance_types_tell_their_cards(rig: Rig) -> None:
    answer = rig.rpc("DescribeInstanceTypes", InstanceTypes=["ecs.gn6i-c4g1.xlarge"])
    (kind,) = answer["InstanceTypes"]["InstanceType"]
    assert (kind["GPUAmount"], kind["GPUSpec"], kind["InstanceTypeFamily"]) == (1, "Tesla T4", "ecs.gn6i")
    family = rig.rpc("DescribeInstanceTypes", InstanceTypeFamily="ecs.g7")["InstanceTypes"]["InstanceType"]
    assert {each["GPUAmount"] for each in family} == {0}


class Watch:
    """Auto-repair under a clock that the test moves."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.repairs = rig, Repairs()

    def after(self, seconds: float) -> None:
        self.rig.offset += timedelta(seconds=seconds)
        with self.rig.world.store.change():
            self.repairs.step(self.rig.world)


def managed(rig: Rig, **management: Any) -> str:
    pool_id = rig.pool_id("gpu-cgpu")
    body = {"management": {"enable": True, "auto_repair": True, **management}}
    rig.finished(rig.call("ModifyClusterNodePool", nodepool_id=pool_id, body=body))
    return str(gpu_node(rig)["node_name"])


def test_auto_repair_restarts_a_node_that_stays_not_ready_and_uncordons_it_whoever_cordoned(rig: Rig) -> None:
    name, watch = managed(rig), Watch(rig)
    rig.fleet.patch(name, {"spec": {"unschedulable": True}})
    rig.fleet.set_ready(name, False)
    watch.after(1)
    watch.after(170)
    assert rig.fleet.reboots == []
    watch.after(20)
    watch.after(20)
    assert rig.fleet.reboots == [(name, "auto-repair", True)]
    assert rig.fleet.objects[name]["spec"]["unschedulable"] is True
    rig.fleet.set_ready(name, True)
    watch.after(1)
    assert "unschedulable" not in rig.fleet.objects[name]["spec"]


def test_auto_repair_leaves_a_node_alone_that_comes_back_in_time_with_its_cordon(rig: Rig) -> None:
    name, watch = managed(rig), Watch(rig)
    rig.fleet.patch(name, {"spec": {"unschedulable": True}})
    rig.fleet.set_ready(name, False)
    watch.after(1)
    rig.fleet.set_ready(name, True)
    watch.after(170)
    rig.fleet.set_ready(name, False)
    watch.after(100)
    watch.after(100)
    assert rig.fleet.reboots == []
    assert rig.fleet.objects[name]["spec"]["unschedulable"] is True


@pytest.mark.parametrize(
    "management",
    [{"auto_repair": False}, {"enable": False}, {"auto_repair_policy": {"restart_node": False}}],
)
def test_auto_repair_acts_only_on_pools_that_have_it_switched_on(rig: Rig, management: dict[str, Any]) -> None:
    name, watch = managed(rig, **management), Watch(rig)
    rig.fleet.set_ready(name, False)
    watch.after(1)
    watch.after(1000)
    watch.after(1000)
    assert rig.fleet.reboots == []
