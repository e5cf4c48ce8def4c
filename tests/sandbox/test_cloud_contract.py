"""The endpoint's tables and answers against the models of Alibaba Cloud's own SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.cloud import cs, cs_fields, ecs_operations, ram_operations, sts
from sandbox.cloud.operations import registry
from sandbox.cloud.registry import Operation
from tests.sandbox import sdk_models
from tests.sandbox.cloud_rig import CLUSTER, REGION, ROLE, SECRET, Rig, policy_text, pool_body, running

PACKAGES = {"CS": "alibabacloud_cs20151215", "RAM": "alibabacloud_ram20150501"}
# Shapes of ECS 7.11.8 and STS 1.2.0, whose packages are too large for a check of some field names.
RECORDED = json.loads((Path(__file__).parent / "ecs_sts_shapes.json").read_text())
TYPES = {"str": str, "int": int, "bool": bool, "float": float, "dict": dict}
# Fields of the SDK that the endpoint refuses, since it could not honour them.
LEFT_OUT = {
    "AttachPolicyToRole": {"ResourceGroupId"},
    "DetachPolicyFromRole": {"ResourceGroupId"},
}


def _recorded(shape: Any) -> Any:
    if isinstance(shape, dict):
        return {key: _recorded(each) for key, each in shape.items()}
    return [_recorded(shape[0])] if isinstance(shape, list) else TYPES[shape]


def _ids(operations: tuple[Operation, ...]) -> list[str]:
    return [each.action for each in operations]


@pytest.mark.parametrize("operation", cs.OPERATIONS, ids=_ids(cs.OPERATIONS))
def test_a_cs_call_has_the_method_path_and_fields_of_the_sdk(operation: Operation) -> None:
    call = sdk_models.call_of(PACKAGES["CS"], operation.action)
    assert (operation.method, operation.path) == (call.method, call.path)
    assert set(operation.query) == call.query
    if call.request:
        shape = sdk_models.shape_of(call.request)
        assert {key: shape[key] for key in call.query} == operation.query
    if isinstance(operation.body, dict):
        assert operation.body == {key: shape[key] for key in call.body}
    elif isinstance(operation.body, list):
        assert operation.body == next(iter(shape.values()))
    else:
        assert not call.body


@pytest.mark.parametrize("operation", ram_operations.OPERATIONS, ids=_ids(ram_operations.OPERATIONS))
def test_a_ram_call_has_the_fields_of_the_sdk(operation: Operation) -> None:
    call = sdk_models.call_of(PACKAGES["RAM"], operation.action)
    assert call.query - set(operation.query) == LEFT_OUT.get(operation.action, set())
    shape = sdk_models.shape_of(call.request)
    assert {key: shape[key] for key in operation.query} == operation.query


@pytest.mark.parametrize("operation", [*ecs_operations.OPERATIONS, *sts.OPERATIONS], ids=lambda each: each.action)
def test_an_ecs_or_sts_call_has_no_field_that_the_sdk_lacks(operation: Operation) -> None:
    shape = _recorded(RECORDED[operation.action]["request"])
    assert {key: shape[key] for key in operation.query} == operation.query


def test_what_a_pool_shows_is_what_the_sdk_reads() -> None:
    detail = sdk_models.call_of(PACKAGES["CS"], "DescribeClusterNodePoolDetail")
    listed = sdk_models.call_of(PACKAGES["CS"], "DescribeClusterNodePools")
    assert sdk_models.shape_of(sdk_models.answer_body(detail)) == cs_fields.DETAIL
    assert sdk_models.shape_of(sdk_models.answer_body(listed))["nodepools"] == [cs_fields.LISTED]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("contract")) as rig:
        yield rig


def _filled(shape: Any) -> Any:
    """A value with every field of a shape."""
    if isinstance(shape, dict):
        return {key: _filled(each) for key, each in shape.items()}
    if isinstance(shape, list):
        return [_filled(shape[0])]
    return {str: "text", int: 1, bool: True, float: 1.5, dict: {"a": "1"}}[shape]


def _full_pool() -> dict[str, Any]:
    body: dict[str, Any] = _filled(cs_fields.CREATE)
    del body["count"]
    body["scaling_group"] |= pool_body("x", desired_size=1, system_disk_size=40)["scaling_group"]
    body["kubernetes_config"] |= {
        "cpu_policy": "none", "runtime": "containerd", "labels": [{"key": "a", "value": "b"}],
        "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
    }  # fmt: skip
    body["auto_scaling"]["enable"] = False
    return body


Sample = Callable[[Rig, dict[str, Any]], Any]


def _pool_call(action: str, **more: Any) -> Sample:
    return lambda rig, made: rig.finished_answer(rig.call(action, nodepool_id=made["pool"], **more))


def _create(rig: Rig, made: dict[str, Any]) -> Any:
    answer = rig.call("CreateClusterNodePool", body=_full_pool())
    made["pool"], made["task"] = answer["nodepool_id"], answer["task_id"]
    return rig.finished_answer(answer)


def _attach(rig: Rig, made: dict[str, Any]) -> Any:
    with rig.world.store.change() as data:
        made["spare"] = next(key for key, each in data["instances"].items() if not each["pool_id"])
    return _pool_call("AttachInstancesToNodePool", body={"instances": [made["spare"]]})(rig, made)


def _remove(rig: Rig, made: dict[str, Any]) -> Any:
    return _pool_call("RemoveNodePoolNodes", query={"instance_ids": [made["spare"]]})(rig, made)


def _task_verb(verb: str) -> Sample:
    def call(rig: Rig, made: dict[str, Any]) -> Any:
        rig.fault("task-never-ends", "InstallClusterAddons")
        answer = rig.call("InstallClusterAddons", body=[{"name": "arms-prometheus"}])
        if verb == "Resume":
            rig.call("PauseTask", task_id=answer["task_id"])
        result = rig.call(f"{verb}Task", task_id=answer["task_id"])
        if verb != "Cancel":
            rig.call("CancelTask", task_id=answer["task_id"])
        return result

    return call


def _run_command(rig: Rig, made: dict[str, Any]) -> Any:
    answer = rig.rpc(
        "RunCommand",
        RegionId=REGION,
        Type="RunShellScript",
        CommandContent="true",
        **{"InstanceId.1": made["instance"]},
    )
    made["invoke"] = answer["InvokeId"]
    return answer


def _rpc(action: str, **query: Any) -> Sample:
    return lambda rig, made: rig.rpc(action, **query)


_POLICY = {"PolicyName": "contract", "PolicyType": "Custom"}
# In this order: later calls use what earlier ones made.
TOUR: dict[str, Sample] = {
    "DescribeClustersV1": lambda rig, made: rig.call("DescribeClustersV1"),
    "DescribeClusterDetail": lambda rig, made: rig.call("DescribeClusterDetail"),
    "DescribeClusterUserKubeconfig": lambda rig, made: rig.call(
        "DescribeClusterUserKubeconfig", query={"TemporaryDurationMinutes": 30, "PrivateIpAddress": True}
    ),
    "CreateClusterNodePool": _create,
    "DescribeClusterNodePools": lambda rig, made: rig.call("DescribeClusterNodePools"),
    "DescribeClusterNodePoolDetail": lambda rig, made: rig.pool(made["pool"]),
    "ModifyClusterNodePool": _pool_call("ModifyClusterNodePool", body={"update_nodes": True}),
    "ScaleClusterNodePool": _pool_call("ScaleClusterNodePool", body={"count": 1}),
    "AttachInstancesToNodePool": _attach,
    "DescribeClusterNodes": lambda rig, made: rig.call("DescribeClusterNodes"),
    "RemoveNodePoolNodes": _remove,
    "DeleteClusterNodepool": _pool_call("DeleteClusterNodepool", query={"force": True}),
    "DescribeTaskInfo": lambda rig, made: rig.task(made["task"]),
    "DescribeClusterTasks": lambda rig, made: rig.call("DescribeClusterTasks", query={"max_results": 2}),
    "ListAddons": lambda rig, made: rig.call("ListAddons", query={"cluster_id": CLUSTER}),
    "DescribeAddon": lambda rig, made: rig.call("DescribeAddon", addon_name="csi-plugin", query={"version": "v1.32.4"}),
    "ListClusterAddonInstances": lambda rig, made: rig.call("ListClusterAddonInstances"),
    "GetClusterAddonInstance": lambda rig, made: rig.call("GetClusterAddonInstance", instance_name="coredns"),
    "DescribeClusterAddonsVersion": lambda rig, made: rig.call("DescribeClusterAddonsVersion"),
    "UpgradeClusterAddons": lambda rig, made: rig.finished_answer(
        rig.call("UpgradeClusterAddons", body=[{"component_name": "coredns"}])
    ),
    "ModifyClusterAddon": lambda rig, made: rig.call(
        "ModifyClusterAddon", component_id="coredns", body={"config": '{"replicas":3}'}
    ),
    "UnInstallClusterAddons": lambda rig, made: rig.finished_answer(
        rig.call("UnInstallClusterAddons", body=[{"name": "logtail-ds", "cleanup_cloud_resources": True}])
    ),
    "InstallClusterAddons": lambda rig, made: rig.finished_answer(
        rig.call("InstallClusterAddons", body=[{"name": "logtail-ds", "config": "{}"}])
    ),
    "CancelTask": _task_verb("Cancel"),
    "PauseTask": _task_verb("Pause"),
    "ResumeTask": _task_verb("Resume"),
    "CreatePolicy": _rpc(
        "CreatePolicy", PolicyName="contract", PolicyDocument=policy_text("cs:*"), Description="d", Tag=[{"Key": "k"}]
    ),
    "CreatePolicyVersion": _rpc(
        "CreatePolicyVersion", PolicyName="contract", PolicyDocument=policy_text("ecs:*"), SetAsDefault=True
    ),
    "GetPolicy": _rpc("GetPolicy", **_POLICY),
    "ListPolicies": _rpc("ListPolicies", MaxItems=2),
    "ListPolicyVersions": _rpc("ListPolicyVersions", **_POLICY),
    "GetPolicyVersion": _rpc("GetPolicyVersion", **_POLICY, VersionId="v1"),
    "SetDefaultPolicyVersion": _rpc("SetDefaultPolicyVersion", PolicyName="contract", VersionId="v1"),
    "DeletePolicyVersion": _rpc("DeletePolicyVersion", PolicyName="contract", VersionId="v2"),
    "AttachPolicyToRole": _rpc("AttachPolicyToRole", **_POLICY, RoleName=ROLE),
    "ListPoliciesForRole": _rpc("ListPoliciesForRole", RoleName=ROLE),
    "ListEntitiesForPolicy": _rpc("ListEntitiesForPolicy", **_POLICY),
    "GetRole": _rpc("GetRole", RoleName=ROLE),
    "ListRoles": _rpc("ListRoles"),
    "DetachPolicyFromRole": _rpc("DetachPolicyFromRole", **_POLICY, RoleName=ROLE),
    "DeletePolicy": _rpc("DeletePolicy", PolicyName="contract"),
    "DescribeInstances": _rpc("DescribeInstances", RegionId=REGION, MaxResults=2),
    "DescribeInstanceTypes": _rpc("DescribeInstanceTypes", **{"InstanceTypes.1": "ecs.gn6i-c4g1.xlarge"}),
    "DescribeDisks": _rpc("DescribeDisks", RegionId=REGION),
    "RebootInstance": lambda rig, made: rig.rpc("RebootInstance", InstanceId=made["instance"]),
    "ModifyInstanceAttribute": lambda rig, made: rig.rpc(
        "ModifyInstanceAttribute", InstanceId=made["instance"], InstanceName="n"
    ),
    "CreateSnapshot": lambda rig, made: rig.rpc("CreateSnapshot", DiskId=made["disk"], SnapshotName="s"),
    "DescribeSnapshots": _rpc("DescribeSnapshots", RegionId=REGION),
    "RunCommand": _run_command,
    "DescribeInvocations": lambda rig, made: rig.rpc(
        "DescribeInvocations", RegionId=REGION, InvokeId=made["invoke"], IncludeOutput=True
    ),
    "DescribeInvocationResults": lambda rig, made: rig.rpc(
        "DescribeInvocationResults", RegionId=REGION, InvokeId=made["invoke"]
    ),
    "GetCallerIdentity": _rpc("GetCallerIdentity"),
    "AssumeRole": _rpc("AssumeRole", RoleArn=f"acs:ram::1234567890123456:role/{ROLE}", RoleSessionName="s1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(rig: Rig) -> dict[str, Any]:
    instance = rig.nodes(rig.pool_id("gpu-cgpu"))[0]["instance_id"]
    disks = rig.rpc("DescribeDisks", RegionId=REGION, InstanceId=instance)["Disks"]["Disk"]
    made = {"instance": instance, "disk": disks[0]["DiskId"]}
    return {action: sample(rig, made) for action, sample in TOUR.items()}


def test_the_tour_makes_every_call() -> None:
    assert set(TOUR) == {each.action for each in registry().operations}


@pytest.mark.parametrize("operation", registry().operations, ids=lambda each: each.action)
def test_an_answer_loses_nothing_in_the_sdks_model(operation: Operation, answers: dict[str, Any]) -> None:
    answer = answers[operation.action]
    if operation.product in PACKAGES:
        call = sdk_models.call_of(PACKAGES[operation.product], operation.action)
        model = sdk_models.answer_body(call)
        if model is None:
            assert operation.action == "DescribeClusterAddonsVersion" or answer is None
            return
        assert sdk_models.lost(model, answer) == []
        shape = sdk_models.shape_of(model)
    else:
        shape = _recorded(RECORDED[operation.action]["answer"])
        assert _unknown(shape, answer) == []
    assert sdk_models.misfits(shape, answer) == []


def _unknown(shape: Any, value: Any, where: str = "") -> list[str]:
    if isinstance(shape, dict) and isinstance(value, dict):
        return [
            found
            for key, each in value.items()
            for found in (_unknown(shape[key], each, f"{where}.{key}") if key in shape else [f"{where}.{key}"])
        ]
    if isinstance(shape, list) and isinstance(value, list):
        return [found for each in value for found in _unknown(shape[0], each, f"{where}[]")]
    return []


def test_a_pool_that_was_created_with_every_field_shows_every_field(answers: dict[str, Any]) -> None:
    shown = answers["DescribeClusterNodePoolDetail"]
    sent = _full_pool()
    missing = {
        f"{block}.{key}" for block, value in sent.items() if isinstance(value, dict) for key in value
        if key not in shown.get(block, {})
    }  # fmt: skip
    assert missing == {"scaling_group.login_password"}


def test_the_typed_client_of_the_sdk_itself_is_served(rig: Rig) -> None:
    from alibabacloud_cs20151215 import models
    from alibabacloud_cs20151215.client import Client
    from alibabacloud_tea_openapi.utils_models import Config

    config = Config(
        access_key_id="LTAItester", access_key_secret=SECRET, endpoint=f"127.0.0.1:{rig.server.port}",
        protocol="http", region_id=REGION,
    )  # fmt: skip
    client = Client(config)
    detail = client.describe_cluster_detail(CLUSTER).body
    assert (detail.cluster_id, detail.worker_ram_role_name) == (CLUSTER, ROLE)
    pools = client.describe_cluster_node_pools(CLUSTER, models.DescribeClusterNodePoolsRequest()).body.nodepools
    assert [pool.nodepool_info.name for pool in pools][:3] == ["cpu", "gpu-cgpu", "gpu-whole"]
