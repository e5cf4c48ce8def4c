"""When what a release runs is up: nodes that are down are not waited for, and OnDelete keeps old pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import workloads
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Node, Pod


def daemonset(
    strategy: str = "OnDelete", *, desired: int, ready: int, updated: int | None = None, seen: int = 2
) -> DaemonSet:
    status = {"desiredNumberScheduled": desired, "numberReady": ready, "observedGeneration": seen}
    status["updatedNumberScheduled"] = desired if updated is None else updated
    meta = {"name": "ds", "namespace": "kube-system", "uid": "u", "generation": 2,
            "annotations": {"deprecated.daemonset.template.generation": "7"}}  # fmt: skip
    return msgspec.convert(
        {"metadata": meta, "spec": {"updateStrategy": {"type": strategy}}, "status": status}, DaemonSet
    )


def pod(node: str, *, ready: bool = True, generation: str = "7", waiting: str = "", owner: str = "u") -> Pod:
    owners = [{"kind": "DaemonSet", "name": "ds", "uid": owner, "controller": True}]
    state = {"waiting": {"reason": waiting}} if waiting else {}
    return msgspec.convert(
        {
            "metadata": {"name": f"ds-{node}", "labels": {workloads.GENERATION: generation}, "ownerReferences": owners},
            "spec": {"nodeName": node},
            "status": {"phase": "Running" if ready else "Pending",
                       "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                       "containerStatuses": [{"name": "c", "state": state}]},
        },
        Pod,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ds", "expected"),
    [
        (daemonset(desired=2, ready=2), True),
        (daemonset(desired=0, ready=0), True),
        (daemonset(desired=2, ready=2, updated=0), True),  # old installers stay, on purpose
        (daemonset("RollingUpdate", desired=2, ready=2, updated=1), False),
        (daemonset("RollingUpdate", desired=2, ready=2), True),
        (daemonset(desired=2, ready=1), False),
        (daemonset(desired=2, ready=2, seen=1), False),
    ],
)
def test_the_status_alone_often_tells(ds: DaemonSet, expected: bool) -> None:
    assert workloads.settled(ds) is expected


def test_a_pod_on_a_node_that_is_down_is_not_waited_for() -> None:
    ds = daemonset(desired=2, ready=1)
    assert workloads.unready(ds, [pod("a"), pod("b", ready=False)], {"b"}) == ""


def test_a_pod_on_a_node_that_is_up_is_waited_for_and_named_with_its_reason() -> None:
    ds = daemonset(desired=2, ready=1)
    told = workloads.unready(ds, [pod("a"), pod("b", ready=False, waiting="ImagePullBackOff")], set())
    assert told == "DaemonSet kube-system/ds: 1 of 2 pods are up; ds-b on b: ImagePullBackOff"


def test_old_pods_count_with_on_delete_and_not_with_rolling_update() -> None:
    pods = [pod("a", generation="6"), pod("b")]
    assert workloads.unready(daemonset(desired=2, ready=2), pods, set()) == ""
    told = workloads.unready(daemonset("RollingUpdate", desired=2, ready=2, updated=1), pods, set())
    assert "ds-a on a: not updated yet" in told


def test_pods_that_are_not_made_yet_are_waited_for() -> None:
    assert "the other pods are not made yet" in workloads.unready(daemonset(desired=2, ready=0), [pod("a")], set())


def test_pods_of_another_daemonset_with_the_same_labels_do_not_count() -> None:
    assert workloads.unready(daemonset(desired=1, ready=0), [pod("a", owner="other")], set()) != ""


def test_a_daemonset_that_the_controller_has_not_seen_is_not_up() -> None:
    assert "has not seen it" in workloads.unready(daemonset(desired=0, ready=0, seen=1), [], set())


@pytest.mark.parametrize(
    ("status", "up"),
    [({"observedGeneration": 1, "readyReplicas": 2, "updatedReplicas": 2}, True),
     ({"observedGeneration": 1, "readyReplicas": 2, "updatedReplicas": 1}, False),
     ({"observedGeneration": 0, "readyReplicas": 2, "updatedReplicas": 2}, False), ({}, False)],
)  # fmt: skip
def test_a_deployment_is_up_when_its_new_replicas_are(status: dict[str, Any], up: bool) -> None:
    live = {"kind": "Deployment", "metadata": {"name": "d", "namespace": "n", "generation": 1}, "spec": {"replicas": 2},
            "status": status}  # fmt: skip
    assert (workloads.replicas_missing(live) == "") is up


def test_nodes_without_a_ready_condition_are_down() -> None:
    node = msgspec.convert(
        {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, Node
    )
    assert workloads.not_ready([node]) == {"a"}
