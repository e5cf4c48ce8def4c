"""The noun node_pool against the endpoint: what it sends, what it waits for, and that faults do no harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import node_pool as client
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.modules import node_pool
from tests.integration.cloud_operator import Operator
from tests.sandbox.cloud_rig import Rig, running, wait_for

MODE = "ack.node.gpu.schedule"
FRESH: dict[str, Any] = {
    "name": "fresh",
    "instance_types": ["ecs.gn6i-c4g1.xlarge"],
    "vswitch_ids": ["vsw-1"],
    "desired_size": 2,
    "labels": {MODE: "cgpu"},
}
# As Ansible gives it: every option of a pool is there.
UNSET = dict.fromkeys(node_pool._POOL)


class FleetAsCluster:
    """The nodes and pods of the endpoint's fleet, read as from Kubernetes."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def list(self, path: str, kind: Any, query: dict[str, str]) -> list[Any]:
        if path.endswith("/nodes"):
            wanted = query["labelSelector"].partition(" in (")[2].rstrip(")").split(",")
            found = [
                each
                for each in self._rig.fleet.nodes().values()
                if each["metadata"]["labels"].get("alibabacloud.com/nodepool-id") in wanted
            ]
        else:
            found = self._rig.fleet.pods(query["fieldSelector"].partition("=")[2])
        return [msgspec.json.decode(json.dumps(each), type=kind) for each in found]


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    with running(tmp_path / "endpoint") as rig:
        monkeypatch.setattr(client, "Kube", lambda connection: FleetAsCluster(rig))
        yield Operator(rig, tmp_path, node_pool.run, tables=None, timeout=20)


def run(operator: Operator, *pools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return operator.run(pools=[{**UNSET, **pool} for pool in pools], **more)


def pool_of(rig: Rig, name: str) -> dict[str, Any]:
    found = rig.call("DescribeClusterNodePools", query={"NodepoolName": name})["nodepools"]
    assert len(found) == 1, f"{len(found)} pools named {name}"
    return dict(found[0])


def labels_of(rig: Rig, pool: str) -> list[dict[str, str]]:
    pool_id = pool_of(rig, pool)["nodepool_info"]["nodepool_id"]
    keys = {MODE, "team", "theirs", "ack.node.gpu.max-pod"}
    nodes = rig.fleet.nodes().values()
    mine = [node["metadata"]["labels"] for node in nodes
            if node["metadata"]["labels"].get("alibabacloud.com/nodepool-id") == pool_id]  # fmt: skip
    return [{key: value for key, value in labels.items() if key in keys} for labels in mine]


def test_a_pool_is_made_its_nodes_are_ready_and_a_second_run_sends_no_write(operator: Operator) -> None:
    first = run(operator, FRESH)
    assert first["changed"] is True
    assert first["pools"][0]["ready"] == 2
    assert labels_of(operator.rig, "fresh") == [{MODE: "cgpu", "ack.node.gpu.max-pod": "20"}] * 2
    assert operator.writes() == ["CreateClusterNodePool"]
    second = run(operator, FRESH)
    assert (second["changed"], operator.writes()) == (False, ["CreateClusterNodePool"])


def test_a_pool_of_size_0_is_made_without_waiting_for_nodes(operator: Operator) -> None:
    result = run(operator, {**FRESH, "desired_size": 0})
    assert result["pools"][0] | {"pool_id": "", "labels": {}} == {
        "name": "fresh", "pool_id": "", "desired_size": 0, "ready": 0, "labels": {},
    }  # fmt: skip


def test_check_mode_shows_the_pool_and_sends_no_write(operator: Operator) -> None:
    result = run(operator, FRESH, check_mode=True)
    assert result["changed"] is True
    assert result["diff"]["after"]["fresh"]["labels"][MODE] == "cgpu"
    assert operator.writes() == []


def test_a_change_keeps_what_others_set_on_the_pool_and_on_its_nodes(operator: Operator) -> None:
    run(operator, FRESH)
    taint = {"key": "theirs", "value": "x", "effect": "PreferNoSchedule"}
    with operator.rig.world.store.change() as data:
        pool = next(each for each in data["pools"].values() if each["nodepool_info"]["name"] == "fresh")
        pool["kubernetes_config"]["labels"].append({"key": "theirs", "value": "x"})
        pool["kubernetes_config"]["taints"].append(taint)
    for name, node in operator.rig.fleet.objects.items():
        if node["metadata"]["labels"].get(MODE) == "cgpu":
            operator.rig.fleet.patch(name, {"metadata": {"labels": {"theirs": "x"}}})
    run(operator, {**FRESH, "labels": {**FRESH["labels"], "team": "a"}})
    wanted = {MODE: "cgpu", "ack.node.gpu.max-pod": "20", "theirs": "x", "team": "a"}
    assert labels_of(operator.rig, "fresh") == [wanted] * 2
    assert pool_of(operator.rig, "fresh")["kubernetes_config"]["taints"] == [taint]


def test_several_pools_are_worked_on_side_by_side(operator: Operator) -> None:
    others = [{**FRESH, "name": f"fresh-{number}"} for number in range(3)]
    result = run(operator, *others)
    assert [pool["ready"] for pool in result["pools"]] == [2, 2, 2]
    actions = [entry["action"] for entry in operator.rig.log()]
    assert actions.index("DescribeTaskInfo") > max(
        place for place, action in enumerate(actions) if action == "CreateClusterNodePool"
    )


def test_a_pool_grows_and_shrinks_when_that_is_accepted(operator: Operator) -> None:
    run(operator, FRESH)
    assert run(operator, {**FRESH, "desired_size": 3})["pools"][0]["ready"] == 3
    with pytest.raises(AckError, match="POOL-SHRINK"):
        run(operator, {**FRESH, "desired_size": 1})
    assert run(operator, {**FRESH, "desired_size": 1, "accept": ["shrink"]})["pools"][0]["ready"] == 1


@pytest.mark.parametrize(
    "pool",
    [
        {**FRESH, "labels": {MODE: True}},
        {**FRESH, "cpu_policy": "static"},
        {**FRESH, "kind": "edge"},
        {**FRESH, "instance_types": ["ecs.g7.xlarge"]},
        {**FRESH, "labels": {MODE: "cgpu", "gpushare": "true"}},
    ],
)
def test_wrong_input_is_one_clear_error_before_any_request(operator: Operator, pool: dict[str, Any]) -> None:
    with pytest.raises(AckError) as problem:
        run(operator, FRESH, pool | {"name": "wrong"})
    assert problem.value.code == "POOL-REFUSED"
    assert "pool wrong" in str(problem.value)
    assert operator.rig.log() == []


def test_a_wrong_pool_keeps_the_right_one_from_being_changed(operator: Operator) -> None:
    with pytest.raises(AckError, match="POOL-MODE-POPULATED"):
        run(operator, FRESH, {"name": "gpu-whole", "labels": {MODE: "cgpu"}})
    assert operator.writes() == []


def test_the_mode_of_nodes_changes_when_that_is_accepted_and_no_pod_holds_a_gpu(operator: Operator) -> None:
    want = {"name": "gpu-whole", "labels": {MODE: "cgpu"}, "accept": ["mode_change"]}
    node = operator.rig.nodes(operator.rig.pool_id("gpu-whole"))[0]["node_name"]
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    pod = {"metadata": {"name": "train", "namespace": "ai"}, "status": {"phase": "Running"},
           "spec": {"nodeName": node, "containers": [{"name": "c", "resources": limits}]}}  # fmt: skip
    operator.rig.fleet.bound[node] = [pod]
    with pytest.raises(AckError, match="ai/train"):
        run(operator, want)
    assert operator.writes() == []
    operator.rig.fleet.bound[node] = []
    run(operator, want)
    assert [labels[MODE] for labels in labels_of(operator.rig, "gpu-whole")] == ["cgpu"]


# --- faults ---


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "throttle", "count": 2},
        {"kind": "error", "code": "InternalError", "status": 500},
        {"kind": "apply-then-timeout"},
        {"kind": "task-id-empty"},
    ],
    ids=["throttled", "failed", "carried out, answer lost", "no task id"],
)
@pytest.mark.parametrize("action", ["CreateClusterNodePool", "ModifyClusterNodePool"])
def test_one_run_comes_through_a_fault_in_any_write(operator: Operator, action: str, fault: dict[str, Any]) -> None:
    want = FRESH
    if action == "ModifyClusterNodePool":
        run(operator, FRESH)
        want = {**FRESH, "desired_size": 3, "labels": {**FRESH["labels"], "team": "a"}}
    operator.rig.fault(action=action, **fault)
    result = run(operator, want)
    assert result["pools"][0]["ready"] == want["desired_size"]
    assert run(operator, want)["changed"] is False
    assert len(labels_of(operator.rig, "fresh")) == want["desired_size"]


def test_a_task_that_fails_is_told_and_the_next_run_goes_on(operator: Operator) -> None:
    operator.rig.fault("task-fails", "CreateClusterNodePool", code="QuotaExceeded")
    with pytest.raises(AckError) as problem:
        run(operator, FRESH)
    assert problem.value.code == "CLD-TASK-FAILED"
    assert "QuotaExceeded" in str(problem.value)
    wait_for(lambda: pool_of(operator.rig, "fresh")["status"]["healthy_nodes"] == 2)
    second = run(operator, FRESH)
    assert (second["changed"], second["pools"][0]["ready"]) == (False, 2)


def test_a_task_that_never_ends_is_told_and_the_next_run_waits_for_it(operator: Operator) -> None:
    operator.rig.fault("task-never-ends", "CreateClusterNodePool")
    for code in ("CLD-TASK-TIMEOUT", "POOL-BUSY"):
        with pytest.raises(AckError) as problem:
            run(operator, FRESH, timeout=1)
        assert problem.value.code == code
    task = next(key for key, each in operator.rig.world.data["tasks"].items() if each["never_ends"])
    operator.rig.call("CancelTask", task_id=task)
    wait_for(lambda: pool_of(operator.rig, "fresh")["status"]["state"] == "active")
    assert run(operator, FRESH)["changed"] is False
    assert operator.writes().count("CreateClusterNodePool") == 1


def test_nodes_that_do_not_become_ready_are_named_in_time(operator: Operator) -> None:
    run(operator, {**FRESH, "desired_size": 0})
    operator.rig.fleet.ready = False
    with pytest.raises(AckError) as problem:
        run(operator, {**FRESH, "desired_size": 1}, timeout=1)
    assert problem.value.code in ("CLD-TASK-TIMEOUT", "POOL-NOT-READY")
    operator.rig.fleet.ready = True
    for name in operator.rig.fleet.objects:
        operator.rig.fleet.set_ready(name, True)
    assert run(operator, {**FRESH, "desired_size": 1})["pools"][0]["ready"] == 1


def test_a_node_that_was_lost_long_ago_is_a_warning_and_is_not_waited_for(operator: Operator) -> None:
    run(operator, FRESH)
    name = operator.rig.nodes(pool_of(operator.rig, "fresh")["nodepool_info"]["nodepool_id"])[0]["node_name"]
    operator.rig.fleet.set_ready(name, False)
    result = run(operator, FRESH)
    assert result["changed"] is False
    told = [finding for finding in result["findings"] if finding["code"] == "POOL-NOT-READY"]
    assert name in told[0]["found"]
    assert operator.writes() == ["CreateClusterNodePool"]
