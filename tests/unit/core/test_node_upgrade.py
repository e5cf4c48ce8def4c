"""Which nodes are upgraded, in which order, and everything that forbids it before anything is changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import (
    maintenance_window,
    node_state,
    node_upgrade,
    upgrade_settings,
    upgrade_target,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.host_script import Probe
from ansible_collections.ack.ai_suite.plugins.module_utils.core.maintenance_window import Span
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_upgrade import Observed, Work
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import (
    DaemonSet,
    Node,
    Pod,
    PodDisruptionBudget,
    Snapshot,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings

NOW = datetime(2026, 5, 4, 2, tzinfo=UTC)  # a Monday
ALL_DAY = {"start": "00:00", "duration": "24h", "timezone": "UTC"}
SUNDAY = {"days": ["sun"], "start": "01:00", "duration": "3h", "timezone": "UTC"}


def settings(**params: Any) -> Settings:
    return upgrade_settings.settings({"windows": [ALL_DAY], **params})


def node(name: str, labels: dict[str, str] | None = None, **changes: Any) -> Node:
    given = {
        "metadata": {
            "name": name, "uid": name, "annotations": changes.pop("annotations", {}),
            "labels": {"ack.node.gpu.schedule": "cgpu"} if labels is None else labels,
        },
        "spec": {"providerID": f"cn-hangzhou.i-{name}"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"containerRuntimeVersion": "containerd://1.6.39", "osImage": "Alibaba Cloud Linux 3"},
        },
    }  # fmt: skip
    for path, value in changes.items():
        part: Any = given
        *parents, last = path.split("__")
        for parent in parents:
            part = part[parent]
        part[last] = value
    return msgspec.convert(given, Node)


def daemonset(name: str = "cgpu-installer", tag: str = "1.5.20", strategy: str = "OnDelete") -> DaemonSet:
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "kube-system", "uid": name,
                "annotations": {"deprecated.daemonset.template.generation": "2"},
            },
            "spec": {
                "template": {"spec": {"containers": [{"name": "c", "image": f"registry.example.test/acs/cgpu:{tag}"}]}},
                "updateStrategy": {"type": strategy},
            },
        },
        DaemonSet,
    )  # fmt: skip


def pod(name: str, on: str, *, gpu: bool = False, owner: str = "ReplicaSet", **labels: str) -> Pod:
    limits = {"aliyun.com/gpu-mem": "4"} if gpu else {}
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "namespace": "ai", "uid": name, "labels": labels,
                "ownerReferences": [{"kind": owner, "name": "o", "controller": True}] if owner else [],
            },
            "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"limits": limits}}]},
            "status": {"phase": "Running"},
        },
        Pod,
    )  # fmt: skip


OLD = Probe(version="1.5.13", uninstall=True, systemd_run=True)
NEW = Probe(version="1.5.20", uninstall=True, systemd_run=True)


def observed(
    *nodes: Node,
    probes: dict[str, Any] | None = None,
    pods: tuple[Pod, ...] = (),
    daemonsets: tuple[DaemonSet, ...] = (daemonset(),),
    pdbs: tuple[PodDisruptionBudget, ...] = (),
) -> Observed:
    asked = {each.name: OLD for each in nodes} if probes is None else probes
    return Observed(Snapshot(nodes=nodes, pods=pods, daemonsets=daemonsets, pdbs=pdbs), asked, NOW)


def work(chosen: Settings, seen: Observed) -> Work:
    return node_upgrade.work(chosen, seen)


def plan(chosen: Settings, seen: Observed) -> Plan:
    return node_upgrade.plan(chosen, work(chosen, seen))


def statuses(todo: Work) -> dict[str, str]:
    return {candidate.node.name: candidate.status for candidate in todo.candidates}


def started(todo: Work) -> list[str]:
    return [candidate.node.name for candidate in todo.start]


# --- which nodes ---


def test_only_isolated_nodes_are_ever_in_scope() -> None:
    nodes = [
        node("cgpu"), node("core", {"ack.node.gpu.schedule": "core_mem"}), node("old", {"cgpu": "true"}),
        node("whole", {"ack.node.gpu.schedule": "default"}), node("share", {"ack.node.gpu.schedule": "share"}),
        node("cpu", {}),
    ]  # fmt: skip
    todo = work(settings(), observed(*nodes, daemonsets=(daemonset(), daemonset("cgpu-core-installer"))))
    assert started(todo) == ["cgpu", "core", "old"]


def test_nodes_of_the_target_version_need_nothing() -> None:
    todo = work(settings(), observed(node("a"), node("b"), probes={"a": NEW, "b": OLD}))
    assert statuses(todo) == {"a": "current", "b": "pending"}
    assert plan(settings(), observed(node("a"), probes={"a": NEW})).actions == ()


def test_a_cluster_without_isolated_nodes_needs_nothing_and_no_component() -> None:
    assert plan(settings(), observed(node("cpu", {}), daemonsets=())).actions == ()


def test_a_node_with_the_skip_label_is_left_alone() -> None:
    skipped = node("a", {"ack.node.gpu.schedule": "cgpu", node_state.SKIP: "true"})
    assert statuses(work(settings(), observed(skipped))) == {"a": "skipped"}
    assert node_upgrade.to_probe(Snapshot(nodes=(skipped,)), settings()) == []


def record(state: str, **more: Any) -> dict[str, str]:
    text = msgspec.json.encode({
        "state": state, "since": NOW, "at": NOW, "started": NOW, "target": "1.5.20", "version": "1.5.13", **more
    }).decode()  # fmt: skip
    return {node_state.RECORD: text, node_state.RUN: "run-1"}


def test_nodes_of_a_killed_run_come_first_and_are_not_asked() -> None:
    nodes = (node("a"), node("z", annotations=record("upgrading")))
    found = plan(settings(), observed(*nodes))
    assert [f"{action.verb} {action.target}" for action in found.actions] == [
        "continue node z", "upgrade node a: 1.5.13 -> 1.5.20",
    ]  # fmt: skip
    assert [n.name for n in node_upgrade.to_probe(Snapshot(nodes=nodes), settings())] == ["a"]


def test_nodes_of_a_killed_run_are_finished_also_when_others_are_asked_for() -> None:
    todo = work(settings(nodes=["a"]), observed(node("a"), node("b"), node("z", annotations=record("rebooting"))))
    assert [candidate.node.name for candidate in (*todo.resume, *todo.start)] == ["z", "a"]


@pytest.mark.parametrize(
    "annotations", [{node_state.RECORD: "{", node_state.RUN: "x"}, {node_state.RUN: "x"}, {node_state.RECORD: "[]"}]
)
def test_a_state_that_cannot_be_read_is_refused(annotations: dict[str, str]) -> None:
    todo = work(settings(), observed(node("a", annotations=annotations)))
    assert [finding.code for candidate in todo.refused for finding in candidate.findings] == ["UPG-STATE"]


def test_a_quarantined_node_is_tried_again_only_when_asked_for() -> None:
    sick = node("a", annotations={node_state.RECORD: record("quarantined", reason="no boot")[node_state.RECORD]})
    assert statuses(work(settings(), observed(sick))) == {"a": "quarantined"}
    again = work(settings(retry_quarantined=True), observed(sick, probes={"a": NEW}))
    assert (statuses(again), again.quarantined) == ({"a": "pending"}, 0)
    assert node_upgrade.to_probe(Snapshot(nodes=(sick,)), settings(retry_quarantined=True)) == [sick]


def test_a_node_that_is_asked_for_must_exist_and_be_isolated() -> None:
    with pytest.raises(AckError, match="UPG-NODE-UNKNOWN") as caught:
        work(settings(nodes=["ghost", "cpu", "a"]), observed(node("a"), node("cpu", {})))
    assert [f["subject"] for f in caught.value.details["findings"]] == ["ghost", "cpu"]


def test_the_right_module_under_an_old_pod_is_a_warning() -> None:
    old = msgspec.convert(
        {
            "metadata": {
                "name": "p", "namespace": "kube-system",
                "labels": {"name": "cgpu-installer", "pod-template-generation": "1"},
            },
            "spec": {"nodeName": "a"}, "status": {"phase": "Running"},
        },
        Pod,
    )  # fmt: skip
    found = plan(settings(), observed(node("a"), probes={"a": NEW}, pods=(old,)))
    assert [(finding.code, finding.severity) for finding in found.findings] == [("UPG-POD-OLD", "warning")]
    assert found.actions == ()


# --- the target ---


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("registry.example.test/acs/cgpu:1.5.20", "1.5.20"),
        ("registry.example.test/acs/cgpu:v1.5.20", "1.5.20"),
        ("registry.example.test:5000/acs/cgpu", ""),
        ("registry.example.test:5000/acs/cgpu:1.5.20@sha256:00", "1.5.20"),
        ("cgpu@sha256:00", ""),
    ],
)
def test_the_tag_of_an_image(image: str, tag: str) -> None:
    assert upgrade_target.tag(image) == tag


def test_without_a_target_the_known_image_tag_is_the_target() -> None:
    assert work(settings(), observed(node("a"))).target == "1.5.20"


@pytest.mark.parametrize(
    ("params", "daemonsets", "code"),
    [
        ({}, (daemonset(tag="9d8f7e"),), "UPG-TARGET-NONE"),
        ({}, (), "UPG-COMPONENT-MISSING"),
        ({"target_version": "1.5.20"}, (daemonset("cgpu-core-installer"),), "UPG-COMPONENT-MISSING"),
        ({"target_version": "1.5.20"}, (daemonset(tag="1.5.13"),), "UPG-COMPONENT-OLD"),
    ],
)
def test_installers_that_do_not_bring_the_target_are_refused(
    params: dict[str, Any], daemonsets: tuple[DaemonSet, ...], code: str
) -> None:
    with pytest.raises(AckError) as caught:
        work(settings(**params), observed(node("a"), daemonsets=daemonsets))
    assert caught.value.code == code


def test_a_tag_that_is_no_known_version_is_taken_on_trust() -> None:
    todo = work(settings(target_version="1.5.20"), observed(node("a"), daemonsets=(daemonset(tag="9d8f7e"),)))
    assert started(todo) == ["a"]


def test_two_installers_of_two_versions_name_no_target() -> None:
    nodes = (node("a"), node("b", {"ack.node.gpu.schedule": "core_mem"}))
    both = (daemonset(), daemonset("cgpu-core-installer", tag="1.5.19"))
    with pytest.raises(AckError) as caught:
        work(settings(), observed(*nodes, daemonsets=both))
    assert caught.value.code == "UPG-TARGET-NONE"


def test_installers_that_roll_by_themselves_are_a_warning() -> None:
    _, findings = upgrade_target.resolve(
        settings(), [node("a")], {"cgpu-installer": daemonset(strategy="RollingUpdate")}
    )
    assert [(f.code, f.severity) for f in findings] == [("UPG-COMPONENT-ROLLING", "warning")]


# --- gates ---


@pytest.mark.parametrize(
    ("changes", "probe", "codes"),
    [
        ({}, "no cGPU installer pod runs on it", ["UPG-NO-INSTALLER"]),
        ({}, Probe("1.5.13", False, True), ["UPG-NO-UNINSTALL"]),
        ({}, Probe("1.5.13", True, False), ["UPG-NO-SYSTEMD"]),
        ({"status__conditions": []}, OLD, ["UPG-NODE-DOWN"]),
        ({"metadata__deletionTimestamp": "2026-05-01T00:00:00Z"}, OLD, ["UPG-NODE-DELETED"]),
        ({"status__nodeInfo__osImage": "ContainerOS 3.5.0"}, OLD, ["UPG-NODE-OS"]),
        ({"status__nodeInfo__containerRuntimeVersion": "cri-o://1.26"}, OLD, ["UPG-NODE-RUNTIME"]),
        ({"spec__providerID": "ack-hybrid://x"}, OLD, ["UPG-NODE-INSTANCE"]),
        ({"spec__providerID": "", "status__conditions": []}, "silent", [
            "UPG-NODE-DOWN", "UPG-NODE-INSTANCE", "UPG-NO-INSTALLER",
        ]),
    ],
)  # fmt: skip
def test_a_node_is_refused_before_its_cordon(changes: dict[str, Any], probe: Any, codes: list[str]) -> None:
    todo = work(settings(), observed(node("a", **changes), node("b"), probes={"a": probe, "b": OLD}))
    assert [finding.code for finding in todo.refused[0].findings] == codes
    assert started(todo) == ["b"]


def test_a_restart_by_the_guest_needs_no_instance() -> None:
    todo = work(settings(reboot="guest"), observed(node("a", spec__providerID="ack-hybrid://x")))
    assert started(todo) == ["a"]


def test_the_operators_uninstall_script_stands_in_for_a_missing_one() -> None:
    chosen = upgrade_settings.settings({"windows": [ALL_DAY]}, b"#!/bin/sh")
    assert started(work(chosen, observed(node("a"), probes={"a": Probe("1.5.13", False, True)}))) == ["a"]


def test_a_node_without_its_instance_is_refused() -> None:
    todo = node_upgrade.with_instances(work(settings(), observed(node("a"), node("b"))), frozenset({"i-b"}))
    assert (started(todo), [c.node.name for c in todo.refused]) == (["b"], ["a"])


def test_one_refused_node_stops_the_run_and_all_problems_are_told() -> None:
    seen = observed(node("a"), node("b"), node("c"), probes={"a": "silent", "b": OLD, "c": OLD},
                    pods=(pod("naked", "b", owner=""),))  # fmt: skip
    with pytest.raises(AckError) as caught:
        plan(settings(), seen)
    assert caught.value.code == "UPG-REFUSED"
    assert [f["code"] for f in caught.value.details["findings"]] == ["UPG-NO-INSTALLER", "UPG-DRAIN-BLOCKED"]
    assert "Nothing was changed." in str(caught.value)


def test_refused_nodes_are_left_out_when_asked_for() -> None:
    found = plan(settings(refused="skip"), observed(node("a"), node("b"), probes={"a": "silent", "b": OLD}))
    assert [action.target for action in found.actions] == ["node b: 1.5.13 -> 1.5.20"]
    assert [finding.code for finding in found.findings] == ["UPG-NO-INSTALLER"]


def test_a_refused_node_does_not_keep_a_killed_run_from_being_finished() -> None:
    seen = observed(node("a"), node("z", annotations=record("rebooting")), probes={"a": "silent"})
    assert [action.verb for action in plan(settings(), seen).actions] == ["continue"]


# --- order ---


def test_idle_nodes_come_first_then_those_with_the_fewest_gpu_pods_in_turns_over_the_zones() -> None:
    def in_zone(name: str, zone: str) -> Node:
        return node(name, {"ack.node.gpu.schedule": "cgpu", node_upgrade.ZONE: zone})

    nodes = [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b"), in_zone("b2", "b"), in_zone("a3", "a")]
    pods = (pod("p1", "a1", gpu=True), pod("p2", "a1", gpu=True), pod("p3", "b1", gpu=True), pod("cpu", "a2"))
    todo = work(settings(), observed(*reversed(nodes), pods=pods))
    assert started(todo) == ["a2", "b2", "a3", "b1", "a1"]


def test_a_list_of_nodes_is_the_order() -> None:
    todo = work(settings(nodes=["c", "a"]), observed(node("a"), node("b"), node("c")))
    assert started(todo) == ["c", "a"]


# --- may a node be started now? ---


def may_start(chosen: Settings, window: maintenance_window.State, failures: int = 0, quarantined: int = 0) -> str:
    todo = Work("1.5.20", window, {}, quarantined=quarantined, allowed=chosen.failures_allowed(40))
    return node_upgrade.may_start(todo, chosen, window, failures)


def open_for(left: timedelta) -> maintenance_window.State:
    return maintenance_window.State(NOW, Span(NOW - timedelta(hours=1), NOW + left), Span(NOW + timedelta(days=1), NOW))


def test_outside_a_window_nothing_starts_and_the_next_opening_is_named() -> None:
    chosen = settings(windows=[SUNDAY])
    found = plan(chosen, observed(node("a")))
    assert found.actions == ()
    assert (
        "outside the maintenance window; the next window opens 2026-05-10 01:00 UTC, in 5d23h"
        in found.facts["waiting_for"]
    )
    assert [row["status"] for row in found.facts["nodes"]] == ["pending"]
    assert found.facts["window"] == {
        "open": False, "closes": None, "seconds_left": 0, "next_opening": "2026-05-10T01:00:00Z",
        "skipped": [],
    }  # fmt: skip


def test_an_opening_that_daylight_saving_swallows_is_told() -> None:
    berlin = {"days": ["sun"], "start": "02:00", "duration": "1h", "timezone": "Europe/Berlin"}
    seen = msgspec.structs.replace(observed(node("a")), now=datetime(2026, 3, 28, 12, tzinfo=UTC))
    found = plan(settings(windows=[berlin]), seen)
    assert found.facts["window"]["skipped"] == ["2026-03-29 02:00 Europe/Berlin"]
    assert "opens 2026-04-05 00:00 UTC" in found.facts["waiting_for"]


def test_outside_a_window_nodes_of_a_killed_run_are_still_dealt_with() -> None:
    seen = observed(node("a"), node("z", annotations=record("rebooting")))
    assert [action.verb for action in plan(settings(windows=[SUNDAY]), seen).actions] == ["continue"]


@pytest.mark.parametrize(("left", "starts"), [(30, True), (29, False)])
def test_a_node_starts_only_if_what_is_left_of_the_window_holds_it(left: int, starts: bool) -> None:
    hindrance = may_start(settings(timing={"node": "30m"}), open_for(timedelta(minutes=left)))
    assert (hindrance == "") is starts
    if not starts:
        assert "closes in 29m00s, a node may take 30m00s; the next window opens" in hindrance


@pytest.mark.parametrize(
    ("most", "failures", "quarantined", "starts"),
    [
        (1, 0, 0, True), (1, 1, 0, False), (1, 0, 1, False), (3, 1, 1, True), (3, 2, 1, False),
        ("10%", 3, 0, True), ("10%", 4, 0, False),  # of 40 nodes
        ("1%", 0, 0, True), ("1%", 1, 0, False),  # at least one may fail
    ],
)  # fmt: skip
def test_the_failure_budget_counts_the_whole_run_and_what_is_quarantined(
    most: Any, failures: int, quarantined: int, starts: bool
) -> None:
    hindrance = may_start(settings(max_failures=most), open_for(timedelta(hours=4)), failures, quarantined)
    assert (hindrance == "") is starts
    assert starts or "the failure budget is spent" in hindrance


# --- wrong input ---


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"windows": [{**ALL_DAY, "timezone": None}]}, "UPG-WINDOW-ZONE"),
        ({"windows": [{**ALL_DAY, "start": 1320}]}, "UPG-WINDOW-TIME"),
        ({"windows": []}, "UPG-WINDOW-NONE"),
        ({"target_version": 1.5}, "UPG-TARGET-FORM"),
        ({"target_version": "latest"}, "UPG-TARGET-FORM"),
        ({"target_version": "1.5.14"}, "UPG-TARGET-UNKNOWN"),
        ({"known_versions": [1.6]}, "UPG-TARGET-FORM"),
        ({"windows": [{**ALL_DAY, "duration": "50m"}], "timing": {"node": "1h"}}, "UPG-WINDOW-SHORT"),
        ({"max_failures": 0}, "UPG-INPUT"),
        ({"max_failures": "half"}, "UPG-INPUT"),
        ({"timing": {"boot": 20}}, "UPG-INPUT"),
        ({"timing": {"boot": "20"}}, "UPG-INPUT"),
        ({"drain": {"timeout": 900}}, "UPG-INPUT"),
        ({"target_version": 1.5, "windows": []}, "UPG-INPUT"),
    ],
)
def test_wrong_input_is_one_error(params: dict[str, Any], code: str) -> None:
    with pytest.raises(AckError) as caught:
        settings(**params)
    assert caught.value.code == code


def test_a_new_version_can_be_made_known() -> None:
    assert settings(target_version="1.6.0", known_versions=["1.6.0"]).target == "1.6.0"


def test_settings_are_what_was_given() -> None:
    chosen = settings(drain={"timeout": "5m", "grace_period": 0, "force": True}, timing={"boot": "40m"}, reboot="guest")
    assert (chosen.drain.timeout, chosen.drain.grace_period, chosen.drain.force) == (timedelta(minutes=5), 0, True)
    assert (chosen.timing.boot, chosen.timing.verify, chosen.reboot) == (
        timedelta(minutes=40), timedelta(minutes=10), "guest",
    )  # fmt: skip
