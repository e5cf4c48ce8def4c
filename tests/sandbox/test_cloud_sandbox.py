"""The endpoint in a real sandbox: its pools are nodes, its restarts are restarts, its commands run on machines."""

from __future__ import annotations

import base64
import configparser
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alibabacloud_tea_openapi.exceptions import ClientException

from tests.sandbox.cloud_rig import REGION, Caller, pool_body, wait_for

Kubectl = Callable[..., str]
LABELS = [{"key": "ack.node.gpu.schedule", "value": "default"}, {"key": "team", "value": "a"}]


def caller(sandbox: Any, user: str) -> Caller:
    """A caller with the AccessKey that the sandbox wrote for a user."""
    profiles = configparser.ConfigParser()
    profiles.read(sandbox.credentials_file)
    key = profiles[user]
    host = sandbox.endpoints["cs"].removeprefix("http://")
    return Caller(host, key["access_key_id"], key["access_key_secret"])


@pytest.fixture(scope="module")
def api(sandbox: Any) -> Caller:
    return caller(sandbox, "default")


@pytest.fixture
def pool(api: Caller, request: pytest.FixtureRequest) -> Iterator[str]:
    """A pool of one node of the test's own."""
    body = pool_body(request.node.name[:63], desired_size=1) | {"kubernetes_config": {"labels": LABELS}}
    answer = api.finished_answer(api.call("CreateClusterNodePool", body=body))
    yield answer["nodepool_id"]
    api.finished_answer(api.call("DeleteClusterNodepool", nodepool_id=answer["nodepool_id"], query={"force": True}))


def node_of(api: Caller, pool_id: str) -> dict[str, Any]:
    (node,) = api.nodes(pool_id)
    return node


def seen(kubectl: Kubectl, name: str) -> dict[str, Any]:
    return dict(json.loads(kubectl("get", "node", name, "-o", "json")))


def is_ready(node: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])


def on_node(api: Caller, instance_id: str, script: str) -> dict[str, Any]:
    invoke_id = api.rpc(
        "RunCommand", RegionId=REGION, Type="RunShellScript", CommandContent=script, **{"InstanceId.1": instance_id}
    )["InvokeId"]

    def look() -> dict[str, Any]:
        answer = api.rpc("DescribeInvocationResults", RegionId=REGION, InvokeId=invoke_id)
        return dict(answer["Invocation"]["InvocationResults"]["InvocationResult"][0])

    return dict(wait_for(look, lambda result: result["InvokeRecordStatus"] != "Running", 60))


def test_a_pool_is_nodes_in_the_cluster_and_is_gone_from_it_afterwards(api: Caller, kubectl: Kubectl) -> None:
    body = pool_body("e2e-pool", desired_size=2) | {"kubernetes_config": {"labels": LABELS}}
    answer = api.finished_answer(api.call("CreateClusterNodePool", body=body))
    selector = f"--selector=alibabacloud.com/nodepool-id={answer['nodepool_id']}"
    nodes = json.loads(kubectl("get", "nodes", selector, "-o", "json"))["items"]
    assert [is_ready(node) for node in nodes] == [True, True]
    assert {node["metadata"]["labels"]["team"] for node in nodes} == {"a"}
    assert {node["metadata"]["name"] for node in nodes} == {n["node_name"] for n in api.nodes(answer["nodepool_id"])}
    api.finished_answer(api.call("DeleteClusterNodepool", nodepool_id=answer["nodepool_id"], query={"force": True}))
    assert json.loads(kubectl("get", "nodes", selector, "-o", "json"))["items"] == []


def test_update_nodes_reaches_the_nodes_and_leaves_what_others_put_there(
    api: Caller, kubectl: Kubectl, pool: str
) -> None:
    name = node_of(api, pool)["node_name"]
    kubectl("label", "node", name, "theirs=kept")
    kubectl("taint", "node", name, "theirs=kept:NoSchedule")
    taint = {"key": "ours", "value": "x", "effect": "NoSchedule"}
    change = {"labels": [LABELS[0], {"key": "team", "value": "b"}], "taints": [taint]}
    body = {"kubernetes_config": change, "update_nodes": True}
    api.finished_answer(api.call("ModifyClusterNodePool", nodepool_id=pool, body=body))
    node = seen(kubectl, name)
    assert (node["metadata"]["labels"]["team"], node["metadata"]["labels"]["theirs"]) == ("b", "kept")
    assert {each["key"] for each in node["spec"]["taints"]} == {"ours", "theirs"}


def test_a_restart_changes_the_boot_id(api: Caller, kubectl: Kubectl, pool: str) -> None:
    node = node_of(api, pool)
    before = seen(kubectl, node["node_name"])["status"]["nodeInfo"]["bootID"]
    api.rpc("RebootInstance", InstanceId=node["instance_id"])

    def back() -> bool:
        now = seen(kubectl, node["node_name"])
        return bool(now["status"]["nodeInfo"]["bootID"] != before and is_ready(now))

    wait_for(back, seconds=60)


def test_a_command_runs_as_root_on_the_machine_and_its_exit_status_comes_back(api: Caller, pool: str) -> None:
    instance_id = node_of(api, pool)["instance_id"]
    result = on_node(api, instance_id, "id -u; echo to-stderr >&2; exit 7")
    assert (result["InvocationStatus"], result["ExitCode"]) == ("Failed", 7)
    assert base64.b64decode(result["Output"]).decode().split() == ["0", "to-stderr"]


def test_a_drain_evicts_and_waits_for_the_budget(api: Caller, kubectl: Kubectl, pool: str) -> None:
    node = node_of(api, pool)
    kubectl("create", "namespace", "drain")
    guarded = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "guarded", "namespace": "drain", "labels": {"app": "g"}},
        "spec": {
            "nodeName": node["node_name"], "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "registry.example.test/pause:1"}],
        },
    }  # fmt: skip
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "g", "namespace": "drain"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "g"}}},
    }  # fmt: skip
    for each in (guarded, budget):
        kubectl("apply", "-f", "-", stdin=json.dumps(each))
    kubectl("-n", "drain", "wait", "--for=condition=Ready", "pod/guarded", "--timeout=60s")
    query = {"instance_ids": [node["instance_id"]], "drain_node": True, "release_node": True}
    answer = api.call("RemoveNodePoolNodes", nodepool_id=pool, query=query)
    wait_for(lambda: seen(kubectl, node["node_name"])["spec"].get("unschedulable"))
    assert api.task(answer["task_id"])["state"] == "running"
    kubectl("-n", "drain", "delete", "pdb", "g")
    assert api.finished(answer)["state"] == "success"
    assert kubectl("get", "node", node["node_name"], "--ignore-not-found") == ""
    kubectl("delete", "namespace", "drain", "--wait=false")


def test_auto_repair_restarts_a_machine_whose_kubelet_stopped_and_uncordons_the_node(
    api: Caller, kubectl: Kubectl, pool: str
) -> None:
    node = node_of(api, pool)
    name, management = node["node_name"], {"management": {"enable": True, "auto_repair": True}}
    api.finished_answer(api.call("ModifyClusterNodePool", nodepool_id=pool, body=management))
    before = seen(kubectl, name)["status"]["nodeInfo"]["bootID"]
    kubectl("cordon", name)
    assert on_node(api, node["instance_id"], "systemctl stop kubelet")["ExitCode"] == 0
    wait_for(lambda: not is_ready(seen(kubectl, name)), seconds=30)

    def repaired() -> bool:
        now = seen(kubectl, name)
        new_boot = now["status"]["nodeInfo"]["bootID"] != before
        return bool(new_boot and is_ready(now) and not now["spec"].get("unschedulable"))

    wait_for(repaired, seconds=60)


def test_a_temporary_kubeconfig_opens_the_cluster_in_the_callers_name(
    sandbox: Any, kubectl: Kubectl, tmp_path: Path
) -> None:
    sandbox.user("fetcher")
    answer = caller(sandbox, "fetcher").call("DescribeClusterUserKubeconfig", query={"TemporaryDurationMinutes": 15})
    path = tmp_path / "kubeconfig"
    path.write_text(answer["config"])
    assert '"username": "fetcher"' in kubectl("auth", "whoami", "-o", "json", kubeconfig=path).replace("'", '"')


def test_a_users_requests_are_told_apart_and_a_fault_is_asked_for_on_the_command_line(sandbox: Any) -> None:
    sandbox.user("someone")
    someone = caller(sandbox, "someone")
    sandbox.command("fault", "cloud", "throttle", "ListRoles", "--user", "someone")
    with pytest.raises(ClientException) as refused:
        someone.rpc("ListRoles")
    assert refused.value.code == "Throttling.User"
    someone.rpc("ListRoles")
    lines = [json.loads(line) for line in sandbox.request_log.read_text().splitlines()]
    assert [line["code"] for line in lines if line["user"] == "someone"] == ["Throttling.User", ""]


def test_the_clusters_version_is_the_one_that_runs(sandbox: Any, api: Caller) -> None:
    assert api.call("DescribeClusterDetail")["current_version"] == sandbox.kubernetes_version


def test_the_endpoints_own_writes_are_in_its_own_name(sandbox: Any, api: Caller, pool: str) -> None:
    name = node_of(api, pool)["node_name"]
    made = [
        entry["user"]["username"]
        for entry in sandbox.audit()
        if entry["verb"] == "create"
        and entry["objectRef"]["resource"] == "nodes"
        and entry["objectRef"]["name"] == name
    ]
    assert set(made) == {"sandbox:cloud"}


def test_a_node_that_leaves_and_comes_back_has_its_name_and_a_fresh_disk(
    api: Caller, kubectl: Kubectl, pool: str
) -> None:
    node = node_of(api, pool)
    assert on_node(api, node["instance_id"], "echo was-here > /root/mark && cat /root/mark")["ExitCode"] == 0
    query = {"instance_ids": [node["instance_id"]], "release_node": False}
    api.finished_answer(api.call("RemoveNodePoolNodes", nodepool_id=pool, query=query))
    assert kubectl("get", "node", node["node_name"], "--ignore-not-found") == ""
    assert on_node(api, node["instance_id"], "true")["ErrorCode"] == "ClientNotRunning"
    body = {"instances": [node["instance_id"]]}
    api.finished_answer(api.call("AttachInstancesToNodePool", nodepool_id=pool, body=body))
    assert is_ready(seen(kubectl, node["node_name"]))
    assert on_node(api, node["instance_id"], "cat /root/mark")["ExitCode"] == 1


def test_the_first_gpu_nodes_were_born_with_the_old_module(api: Caller) -> None:
    for node in api.nodes(api.pool_id("gpu-cgpu")):
        result = on_node(api, node["instance_id"], "cat /proc/cgpu_km/version")
        assert base64.b64decode(result["Output"]).decode().strip() == "1.5.13"
