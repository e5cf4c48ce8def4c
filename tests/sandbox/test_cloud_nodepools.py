"""Node pools: what a call answers, and what its task then does to the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alibabacloud_tea_openapi.exceptions import ClientException

from tests.sandbox.cloud_rig import CLUSTER, REGION, ROLE, Rig, pool_body, running, wait_for

TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running(tmp_path) as rig:
        yield rig


def refused(rig: Rig, action: str, **more: Any) -> str:
    with pytest.raises(ClientException) as raised:
        rig.call(action, **more)
    return str(raised.value.code)


def create(rig: Rig, name: str = "gpu-new", size: int = 2, **kubernetes: Any) -> str:
    body = pool_body(name, desired_size=size) | {"kubernetes_config": kubernetes}
    answer = rig.call("CreateClusterNodePool", body=body)
    assert rig.finished(answer)["state"] == "success"
    return str(answer["nodepool_id"])


def modify(rig: Rig, pool_id: str, body: dict[str, Any]) -> dict[str, Any]:
    task = rig.finished(rig.call("ModifyClusterNodePool", nodepool_id=pool_id, body=body))
    assert task["state"] == "success", task
    return rig.pool(pool_id)


def node_names(rig: Rig, pool_id: str) -> list[str]:
    return sorted(each["node_name"] for each in rig.nodes(pool_id))


def pod(name: str, node: str, owner: str = "ReplicaSet") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "ownerReferences": [{"kind": owner}]}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


def test_the_pools_of_the_seed_are_there_with_their_nodes(rig: Rig) -> None:
    pools = {each["nodepool_info"]["name"]: each for each in rig.call("DescribeClusterNodePools")["nodepools"]}
    assert {name: pool["status"]["healthy_nodes"] for name, pool in pools.items()} == {
        "cpu": 2,
        "gpu-cgpu": 2,
        "gpu-whole": 1,
    }
    assert pools["gpu-cgpu"]["kubernetes_config"]["labels"] == [{"key": "ack.node.gpu.schedule", "value": "cgpu"}]
    named = rig.call("DescribeClusterNodePools", query={"NodepoolName": "cpu"})["nodepools"]
    assert [each["nodepool_info"]["name"] for each in named] == ["cpu"]


def test_a_new_pool_registers_nodes_with_its_labels_and_taints(rig: Rig) -> None:
    pool_id = create(rig, labels=[{"key": "ack.node.gpu.schedule", "value": "cgpu"}], taints=[TAINT])
    pool = rig.pool(pool_id)
    assert (pool["status"]["state"], pool["status"]["healthy_nodes"]) == ("active", 2)
    for name in node_names(rig, pool_id):
        node = rig.fleet.objects[name]
        assert node["metadata"]["labels"]["ack.node.gpu.schedule"] == "cgpu"
        assert node["metadata"]["labels"]["alibabacloud.com/nodepool-id"] == pool_id
        assert node["spec"]["taints"] == [TAINT]
        assert node["spec"]["providerID"].startswith(f"{REGION}.i-")


def test_a_pool_of_size_zero_has_no_nodes_and_its_task_succeeds(rig: Rig) -> None:
    pool_id = create(rig, size=0)
    assert rig.nodes(pool_id) == []
    assert rig.pool(pool_id)["scaling_group"]["desired_size"] == 0


def test_the_task_runs_until_the_nodes_are_ready_and_the_pool_shows_it(rig: Rig) -> None:
    rig.fleet.ready = False
    answer = rig.call("CreateClusterNodePool", body=pool_body("slow", desired_size=2))
    (one, other) = wait_for(lambda: rig.nodes(answer["nodepool_id"]), lambda nodes: len(nodes) == 2)
    wait_for(lambda: {one["node_name"], other["node_name"]} <= set(rig.fleet.objects))
    rig.fleet.set_ready(one["node_name"], True)
    task = wait_for(
        lambda: rig.task(answer["task_id"]),
        lambda task: {"success", "initial"} == {r["status"] for r in task["task_result"]},
    )
    assert task["state"] == "running"
    status = rig.pool(answer["nodepool_id"])["status"]
    assert (status["state"], status["initial_nodes"], status["healthy_nodes"]) == ("scaling", 1, 1)
    rig.fleet.set_ready(other["node_name"], True)
    assert rig.finished(answer)["state"] == "success"
    assert rig.pool(answer["nodepool_id"])["status"]["state"] == "active"


def test_a_list_that_is_sent_replaces_the_old_one_and_what_is_not_sent_stays(rig: Rig) -> None:
    pool_id = create(rig, size=0, labels=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}], taints=[TAINT])
    changed = modify(rig, pool_id, {"kubernetes_config": {"labels": [{"key": "c", "value": "3"}]}})
    assert changed["kubernetes_config"]["labels"] == [{"key": "c", "value": "3"}]
    assert changed["kubernetes_config"]["taints"] == [TAINT]
    assert changed["scaling_group"]["instance_types"] == ["ecs.gn6i-c4g1.xlarge"]
    # The typed models of the SDK send [] for each list that was not set: so a label wipes the taints.
    changed = modify(rig, pool_id, {"kubernetes_config": {"labels": [{"key": "c", "value": "4"}], "taints": []}})
    assert changed["kubernetes_config"]["taints"] == []


def test_existing_nodes_change_only_when_update_nodes_is_sent(rig: Rig) -> None:
    pool_id = create(rig, size=1, labels=[{"key": "old", "value": "1"}, {"key": "both", "value": "1"}], taints=[TAINT])
    (name,) = node_names(rig, pool_id)
    foreign = {"key": "theirs", "effect": "NoExecute"}
    rig.fleet.patch(name, {"metadata": {"labels": {"theirs": "x"}}, "spec": {"taints": [TAINT, foreign]}})
    wished = {"labels": [{"key": "both", "value": "2"}, {"key": "new", "value": "3"}], "taints": []}
    modify(rig, pool_id, {"kubernetes_config": wished})
    assert rig.fleet.objects[name]["metadata"]["labels"]["both"] == "1"
    modify(
        rig, pool_id, {"kubernetes_config": wished | {"labels": [{"key": "old", "value": "1"}]}, "update_nodes": True}
    )
    modify(rig, pool_id, {"kubernetes_config": wished, "update_nodes": True})
    labels = rig.fleet.objects[name]["metadata"]["labels"]
    assert {key: labels.get(key) for key in ("both", "new", "old", "theirs")} == {
        "both": "2",
        "new": "3",
        "old": None,
        "theirs": "x",
    }


def test_update_nodes_takes_the_pools_own_taints_from_nodes_and_leaves_others(rig: Rig) -> None:
    pool_id = create(rig, size=1, taints=[TAINT])
    (name,) = node_names(rig, pool_id)
    foreign = {"key": "theirs", "effect": "NoExecute"}
    rig.fleet.patch(name, {"spec": {"taints": [TAINT, foreign]}})
    other = {"key": "gpu", "value": "other", "effect": "NoSchedule"}
    modify(rig, pool_id, {"kubernetes_config": {"taints": [other]}, "update_nodes": True})
    assert rig.fleet.objects[name]["spec"]["taints"] == [foreign, other]


def test_a_larger_desired_size_adds_nodes_and_a_smaller_one_removes_the_oldest(rig: Rig) -> None:
    pool_id = create(rig, size=1)
    (first,) = node_names(rig, pool_id)
    assert modify(rig, pool_id, {"scaling_group": {"desired_size": 3}})["status"]["healthy_nodes"] == 3
    assert modify(rig, pool_id, {"scaling_group": {"desired_size": 2}})["status"]["total_nodes"] == 2
    assert first not in rig.fleet.objects
    assert modify(rig, pool_id, {"scaling_group": {"desired_size": 0}})["status"]["total_nodes"] == 0
    assert modify(rig, pool_id, {"scaling_group": {"desired_size": 1}})["status"]["healthy_nodes"] == 1
    assert first not in rig.fleet.objects


def test_scale_adds_to_what_is_there(rig: Rig) -> None:
    pool_id = create(rig, size=1)
    answer = rig.call("ScaleClusterNodePool", nodepool_id=pool_id, body={"count": 2})
    task = rig.finished(answer)
    assert (task["task_type"], task["state"]) == ("cluster_scaleout", "success")
    assert rig.pool(pool_id)["scaling_group"]["desired_size"] == 3
    assert len(rig.nodes(pool_id)) == 3


def test_a_removed_node_is_drained_and_its_instance_stays_unless_it_is_released(rig: Rig) -> None:
    pool_id = create(rig, size=2)
    kept, released = rig.nodes(pool_id)
    name = kept["node_name"]
    rig.fleet.bound[name] = [pod("web", name), pod("daemon", name, "DaemonSet")]
    query = {"instance_ids": [kept["instance_id"]], "drain_node": True, "release_node": False}
    assert rig.finished(rig.call("RemoveNodePoolNodes", nodepool_id=pool_id, query=query))["state"] == "success"
    assert name not in rig.fleet.objects
    assert [each["metadata"]["name"] for each in rig.fleet.bound[name]] == ["daemon"]
    query = {"nodes": [released["node_name"]], "release_node": True}
    assert rig.finished(rig.call("RemoveNodePoolNodes", nodepool_id=pool_id, query=query))["state"] == "success"
    known = [each["InstanceId"] for each in rig.rpc("DescribeInstances", RegionId=REGION)["Instances"]["Instance"]]
    assert kept["instance_id"] in known
    assert released["instance_id"] not in known
    assert rig.pool(pool_id)["scaling_group"]["desired_size"] == 0


def test_a_drain_that_a_budget_stops_leaves_the_node_cordoned_and_the_task_failed(tmp_path: Path) -> None:
    with running(tmp_path, drain_seconds=0.2) as rig:
        pool_id = create(rig, size=1)
        (node,) = rig.nodes(pool_id)
        rig.fleet.bound[node["node_name"]] = [pod("guarded", node["node_name"])]
        rig.fleet.stubborn.add("guarded")
        query = {"instance_ids": [node["instance_id"]], "drain_node": True}
        task = rig.finished(rig.call("RemoveNodePoolNodes", nodepool_id=pool_id, query=query))
        assert (task["state"], task["error"]["code"]) == ("fail", "DrainNodeTimeout")
        assert rig.fleet.objects[node["node_name"]]["spec"]["unschedulable"] is True
        assert rig.pool(pool_id)["status"]["healthy_nodes"] == 1


def test_nodes_leave_one_after_another_or_with_concurrency_together(rig: Rig) -> None:
    pool_id = create(rig, size=4)
    nodes = rig.nodes(pool_id)
    for node in nodes:
        rig.fleet.bound[node["node_name"]] = [pod(f"guarded-{node['instance_id']}", node["node_name"])]
        rig.fleet.stubborn.add(f"guarded-{node['instance_id']}")
    ids = [each["instance_id"] for each in nodes]

    def cordoned() -> int:
        return sum(1 for each in nodes if rig.fleet.objects[each["node_name"]]["spec"].get("unschedulable"))

    one_by_one = rig.call(
        "RemoveNodePoolNodes", nodepool_id=pool_id, query={"instance_ids": ids[:2], "drain_node": True}
    )
    wait_for(lambda: cordoned() == 1)
    together = {"instance_ids": ids[2:], "drain_node": True, "concurrency": True}
    at_once = rig.call("RemoveNodePoolNodes", nodepool_id=pool_id, query=together)
    wait_for(lambda: cordoned() == 3)
    rig.fleet.stubborn.clear()
    assert rig.finished(one_by_one)["state"] == rig.finished(at_once)["state"] == "success"
    assert rig.nodes(pool_id) == []


def test_an_instance_that_was_removed_comes_back_with_a_fresh_disk_and_the_pools_settings_of_now(rig: Rig) -> None:
    pool_id = rig.pool_id("gpu-cgpu")
    node = rig.nodes(pool_id)[0]
    with rig.world.store.change() as data:
        assert data["instances"][node["instance_id"]]["machine"]["cgpu_version"] == "1.5.13"
    query = {"instance_ids": [node["instance_id"]], "release_node": False}
    rig.finished(rig.call("RemoveNodePoolNodes", nodepool_id=pool_id, query=query))
    modify(rig, pool_id, {"kubernetes_config": {"labels": [{"key": "generation", "value": "2"}]}})
    body = {"instances": [node["instance_id"]], "format_disk": False}
    assert rig.finished(rig.call("AttachInstancesToNodePool", nodepool_id=pool_id, body=body))["state"] == "success"
    again = next(each for each in rig.nodes(pool_id) if each["instance_id"] == node["instance_id"])
    assert (again["node_name"], again["ip_address"]) == (node["node_name"], node["ip_address"])
    assert rig.fleet.objects[node["node_name"]]["metadata"]["labels"]["generation"] == "2"
    with rig.world.store.change() as data:
        assert data["instances"][node["instance_id"]]["machine"]["cgpu_version"] == ""
    assert rig.pool(pool_id)["scaling_group"]["desired_size"] == 2


def test_an_instance_outside_of_all_pools_can_be_attached_and_one_in_a_pool_can_not(rig: Rig) -> None:
    pool_id = create(rig, size=0, labels=[{"key": "a", "value": "b"}])
    instances = rig.rpc("DescribeInstances", RegionId=REGION)["Instances"]["Instance"]
    spare = next(each["InstanceId"] for each in instances if not each["Tags"]["Tag"])
    rig.finished(rig.call("AttachInstancesToNodePool", nodepool_id=pool_id, body={"instances": [spare]}))
    (node,) = rig.nodes(pool_id)
    assert node["instance_id"] == spare
    again = {"nodepool_id": pool_id, "body": {"instances": [spare]}}
    assert refused(rig, "AttachInstancesToNodePool", **again) == "InstanceInUse"
    unknown = {"nodepool_id": pool_id, "body": {"instances": ["i-unknown"]}}
    assert refused(rig, "AttachInstancesToNodePool", **unknown) == "InvalidInstanceId.NotFound"


def test_a_pool_with_nodes_is_deleted_only_by_force(rig: Rig) -> None:
    pool_id = create(rig, size=1)
    names = node_names(rig, pool_id)
    assert refused(rig, "DeleteClusterNodepool", nodepool_id=pool_id) == "NodePoolNotEmpty"
    answer = rig.call("DeleteClusterNodepool", nodepool_id=pool_id, query={"force": True})
    assert rig.finished(answer)["state"] == "success"
    assert refused(rig, "DescribeClusterNodePoolDetail", nodepool_id=pool_id) == "ErrorNodePoolNotFound"
    assert not set(names) & set(rig.fleet.objects)


def test_a_pool_that_is_busy_takes_no_second_change(rig: Rig) -> None:
    rig.fleet.ready = False
    answer = rig.call("CreateClusterNodePool", body=pool_body("busy", desired_size=1))
    pool_id = answer["nodepool_id"]
    for action, body in (("ModifyClusterNodePool", {}), ("ScaleClusterNodePool", {"count": 1})):
        assert refused(rig, action, nodepool_id=pool_id, body=body) == "NodePoolStateConflict"
    rig.call("CancelTask", task_id=answer["task_id"])
    assert rig.pool(pool_id)["status"]["state"] == "active"


def test_an_autoscaling_pool_starts_at_its_minimum_and_refuses_a_size(rig: Rig) -> None:
    body = pool_body("auto") | {"auto_scaling": {"enable": True, "min_instances": 1, "max_instances": 3, "type": "gpu"}}
    answer = rig.call("CreateClusterNodePool", body=body)
    rig.finished(answer)
    pool_id = answer["nodepool_id"]
    assert len(rig.nodes(pool_id)) == 1
    size = {"nodepool_id": pool_id, "body": {"scaling_group": {"desired_size": 2}}}
    assert refused(rig, "ModifyClusterNodePool", **size) == "NodePoolAutoScaling"
    kind = {"nodepool_id": pool_id, "body": {"auto_scaling": {"type": "cpu"}}}
    assert refused(rig, "ModifyClusterNodePool", **kind) == "InvalidParameter.NodePool"


@pytest.mark.parametrize(
    "change",
    [
        {"nodepool_info": {"name": ""}},
        {"scaling_group": {"instance_types": []}},
        {"scaling_group": {"instance_types": ["ecs.g7.xlarge"] * 11}},
        {"scaling_group": {"vswitch_ids": []}},
        {"scaling_group": {"instance_charge_type": "Free"}},
        {"scaling_group": {"system_disk_size": 10}},
        {"scaling_group": {"desired_size": -1}},
        {"kubernetes_config": {"cpu_policy": "dynamic"}},
        {"kubernetes_config": {"runtime": "rkt"}},
        {"kubernetes_config": {"labels": [{"key": "my label", "value": "x"}]}},
        {"kubernetes_config": {"labels": [{"key": "gpu", "value": "NVIDIA-TITAN-X-(Pascal)"}]}},
        {"kubernetes_config": {"labels": [{"key": "UPPER.example/a", "value": "x"}]}},
        {"kubernetes_config": {"labels": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}},
        {"kubernetes_config": {"taints": [{"key": "a", "value": "b", "effect": "Never"}]}},
        {"auto_scaling": {"enable": True, "min_instances": 3, "max_instances": 1}},
    ],
)
def test_a_setting_that_can_not_be_is_refused_and_nothing_changes(rig: Rig, change: dict[str, Any]) -> None:
    pool_id = create(rig, size=0)
    before = rig.pool(pool_id)
    assert refused(rig, "ModifyClusterNodePool", nodepool_id=pool_id, body=change) == "InvalidParameter.NodePool"
    assert rig.pool(pool_id) == before
    fresh = {key: {**value, **change.get(key, {})} for key, value in pool_body("fresh").items()}
    assert refused(rig, "CreateClusterNodePool", body={**change, **fresh}) == "InvalidParameter.NodePool"


def test_two_pools_of_one_name_are_refused(rig: Rig) -> None:
    assert refused(rig, "CreateClusterNodePool", body=pool_body("cpu")) == "NodePoolNameConflict"
    renamed = {"nodepool_id": rig.pool_id("gpu-whole"), "body": {"nodepool_info": {"name": "cpu"}}}
    assert refused(rig, "ModifyClusterNodePool", **renamed) == "NodePoolNameConflict"


def test_what_is_not_there_has_the_documented_codes(rig: Rig) -> None:
    assert refused(rig, "DescribeClusterNodePools", cluster_id="c0") == "ErrorClusterNotFound"
    assert refused(rig, "DescribeClusterNodePoolDetail", nodepool_id="np0") == "ErrorNodePoolNotFound"
    stranger = {"nodepool_id": rig.pool_id("cpu"), "query": {"instance_ids": ["i-1"]}}
    assert refused(rig, "RemoveNodePoolNodes", **stranger) == "InstanceNotInNodePool"


def test_nodes_are_listed_by_pages_states_names_and_labels(rig: Rig) -> None:
    first = rig.call("DescribeClusterNodes", query={"pageSize": "2"})
    assert (len(first["nodes"]), first["page"]) == (2, {"page_number": 1, "page_size": 2, "total_count": 5})
    second = rig.call("DescribeClusterNodes", query={"pageSize": "2", "pageNumber": "3"})
    assert len(second["nodes"]) == 1
    labelled = rig.call("DescribeClusterNodes", query={"nodeLabels": "ack.node.gpu.schedule=cgpu"})["nodes"]
    assert {each["nodepool_id"] for each in labelled} == {rig.pool_id("gpu-cgpu")}
    name = labelled[0]["node_name"]
    assert [each["node_name"] for each in rig.call("DescribeClusterNodes", query={"nodeNames": name})["nodes"]] == [
        name
    ]
    assert rig.call("DescribeClusterNodes", query={"state": "removing"})["nodes"] == []
    for query in ({"pageSize": "101"}, {"pageSize": "0"}, {"pageNumber": "0"}, {"pageNumber": "x"}, {"state": "odd"}):
        assert refused(rig, "DescribeClusterNodes", query=query) == "InvalidParameter.Paging"


def test_a_node_that_is_not_ready_and_one_that_is_gone_are_told_apart(rig: Rig) -> None:
    pool_id = rig.pool_id("cpu")
    one, other = node_names(rig, pool_id)
    rig.fleet.set_ready(one, False)
    rig.fleet.delete(other)
    states = {each["node_name"]: each["node_status"] for each in rig.nodes(pool_id)}
    assert states == {one: "NotReady", other: "Offline"}
    status = rig.pool(pool_id)["status"]
    assert (status["serving_nodes"], status["healthy_nodes"], status["offline_nodes"]) == (2, 0, 1)


def test_the_cluster_is_listed_and_described(rig: Rig) -> None:
    (listed,) = rig.call("DescribeClustersV1", query={"name": "sand"})["clusters"]
    detail = rig.call("DescribeClusterDetail")
    assert listed["cluster_id"] == detail["cluster_id"] == CLUSTER
    assert (detail["cluster_type"], detail["cluster_spec"], detail["state"]) == (
        "ManagedKubernetes",
        "ack.pro.small",
        "running",
    )
    assert rig.call("DescribeClustersV1", query={"region_id": "cn-beijing"})["clusters"] == []


def test_a_pool_may_have_a_role_of_its_own(rig: Rig) -> None:
    answer = rig.call("CreateClusterNodePool", body=pool_body("own-role", ram_role_name="AckSandboxPoolRole"))
    assert rig.pool(answer["nodepool_id"])["scaling_group"]["ram_policy"] == "AckSandboxPoolRole"
    assert rig.pool(create(rig, size=0))["scaling_group"]["ram_policy"] == ROLE
