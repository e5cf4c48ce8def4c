"""The next step of a node: what is seen of it decides alone, whoever asks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import node_state, node_steps, upgrade_settings
from ansible_collections.ack.ai_suite.plugins.module_utils.core.host_script import Status
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_state import Record
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_steps import (
    Advance,
    End,
    Evict,
    Replace,
    Restart,
    Start,
    Step,
    View,
    Wait,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Node, Pod

NOW = datetime(2026, 5, 4, 2, tzinfo=UTC)
WINDOW = {"start": "00:00", "duration": "24h", "timezone": "UTC"}
STATES = tuple(node_steps.LOOKS)
BEFORE_THE_UNINSTALL = ("cordoned", "drained", "installer_replaced")


def settings(**params: Any) -> upgrade_settings.Settings:
    return upgrade_settings.settings({"windows": [WINDOW], **params})


def node(*, ready: bool = True, boot: str = "old", cordoned: bool = True, gpu_mem: str = "15") -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": "n", "uid": "n", "labels": {"ack.node.gpu.schedule": "cgpu"}},
            "spec": {"unschedulable": cordoned},
            "status": {
                "conditions": [{"type": "Ready", "status": str(ready)}],
                "nodeInfo": {"bootID": boot},
                "allocatable": {"aliyun.com/gpu-mem": gpu_mem, "aliyun.com/gpu-count": "1"},
            },
        },
        Node,
    )


DS: DaemonSet = msgspec.convert(
    {
        "metadata": {
            "name": "cgpu-installer", "namespace": "kube-system", "uid": "ds",
            "annotations": {"deprecated.daemonset.template.generation": "2"},
        }
    },
    DaemonSet,
)  # fmt: skip


def installer_pod(generation: str, *, ready: bool = True, leaving: bool = False, created: str = "1") -> Pod:
    return msgspec.convert(
        {
            "metadata": {
                "name": f"installer-{generation}", "namespace": "kube-system", "uid": f"i{generation}",
                "labels": {"name": "cgpu-installer", "pod-template-generation": generation},
                "ownerReferences": [{"kind": "DaemonSet", "name": "cgpu-installer", "controller": True}],
                "deletionTimestamp": "2026-05-04T00:00:00Z" if leaving else None, "creationTimestamp": created,
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
        },
        Pod,
    )  # fmt: skip


def workload(name: str = "web", **metadata: Any) -> Pod:
    owner = {"kind": "ReplicaSet", "name": "web", "controller": True}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": [owner], **metadata},
            "status": {"phase": "Running"},
        },
        Pod,
    )


def step(
    state: str,
    *,
    waited: float = 0,
    on: Node | None = None,
    chosen: upgrade_settings.Settings | None = None,
    record: dict[str, Any] | None = None,
    **seen: Any,
) -> Step:
    since = NOW - timedelta(seconds=waited)
    given = {"boot_id": "old", "unit": "u", "resources": {"aliyun.com/gpu-mem": "15"}, **(record or {})}
    standing = Record(state, since, since, since, "1.5.20", "1.5.13", **given)  # type: ignore[arg-type]
    view = View(
        node=on or node(), record=standing, now=NOW, window_open=seen.pop("window_open", True),
        daemonsets=seen.pop("daemonsets", {"kube-system/cgpu-installer": DS}), **seen,
    )  # fmt: skip
    return node_steps.step(view, chosen or settings())


def next_state(taken: Step) -> str:
    assert isinstance(taken, Advance), taken
    return taken.record.state


def end(taken: Step) -> tuple[str, str, bool]:
    assert isinstance(taken, End), taken
    return taken.result, taken.reason, taken.failed


# --- the straight way ---


def test_a_node_without_pods_to_move_is_drained() -> None:
    assert next_state(step("cordoned", pods=(installer_pod("1"),))) == "drained"


def test_pods_are_evicted_until_the_last_is_gone_and_terminating_ones_are_waited_for() -> None:
    leaving = workload("bye", deletionTimestamp="2026-05-04T00:00:00Z")
    taken = step("cordoned", pods=(installer_pod("1"), workload(), leaving))
    assert isinstance(taken, Evict)
    assert [pod.name for pod in taken.pods] == ["web"]
    assert taken.text == "draining, 2 pods left"
    taken = step("cordoned", pods=(leaving,))
    assert isinstance(taken, Evict)
    assert taken.pods == ()


def test_the_installer_pod_of_the_old_revision_is_replaced_and_the_new_one_waited_for() -> None:
    taken = step("drained", pods=(installer_pod("1"),))
    assert isinstance(taken, Replace)
    assert taken.pod.name == "installer-1"
    for pods in [(installer_pod("1", leaving=True),), (), (installer_pod("2", ready=False),),
                 (installer_pod("1", leaving=True), installer_pod("2", created="2"))]:  # fmt: skip
        assert isinstance(step("drained", pods=pods), Wait)
    assert next_state(step("drained", pods=(installer_pod("2"),))) == "installer_replaced"


def test_the_old_boot_id_is_written_before_the_unit_is_started() -> None:
    taken = step("installer_replaced", record={"boot_id": ""}, pods=(installer_pod("2"),))
    assert next_state(taken) == "upgrading"
    assert isinstance(taken, Advance)
    assert taken.record.boot_id == "old"


def test_a_pod_that_came_meanwhile_is_drained_first() -> None:
    assert next_state(step("installer_replaced", pods=(workload(),))) == "cordoned"


def test_the_unit_is_started_once_and_its_end_leads_to_the_restart() -> None:
    assert isinstance(step("upgrading", host=Status("absent")), Start)
    assert isinstance(step("upgrading", host=Status("stopping", "kubelet")), Wait)
    assert isinstance(step("upgrading", host=None), Wait)
    assert next_state(step("upgrading", host=Status("uninstalled"))) == "rebooting"


def test_the_restart_is_asked_for_once_and_is_over_with_a_new_boot_id_and_ready() -> None:
    assert isinstance(step("rebooting"), Restart)
    asked = {"restarted": NOW}
    assert isinstance(step("rebooting", record=asked), Wait)  # Ready, but still the old boot
    assert isinstance(step("rebooting", record=asked, on=node(boot="new", ready=False)), Wait)
    assert next_state(step("rebooting", record=asked, on=node(boot="new"))) == "verifying"


def test_a_guest_that_restarts_itself_is_only_waited_for() -> None:
    assert isinstance(step("rebooting", chosen=settings(reboot="guest")), Wait)


def test_a_node_is_done_when_version_pod_and_resources_are_right() -> None:
    good = {"on": node(boot="new"), "pods": (installer_pod("2"),), "version": "1.5.20"}
    assert end(step("verifying", **good)) == ("done", "", False)
    for worse in ({"version": ""}, {"version": None}, {"pods": (installer_pod("1"),)}, {"pods": ()},
                  {"on": node(boot="new", ready=False)}, {"on": node(boot="new", gpu_mem="0")}):  # fmt: skip
        assert isinstance(step("verifying", **{**good, **worse}), Wait)


# --- failures before the uninstall: given back ---


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        (lambda s: step("cordoned", waited=901, pods=(workload(),), chosen=s), "not drained within 15m00s: shop/web"),
        (lambda s: step("cordoned", pods=(workload(ownerReferences=[]),), chosen=s), "web managed by no controller"),
        (lambda s: step("drained", waited=601, pods=(), chosen=s), "no ready cgpu-installer pod of the"),
        (lambda s: step("drained", waited=601, daemonsets={}, pods=(installer_pod("1"),), chosen=s), "no ready"),
        (lambda s: step("upgrading", host=Status("refused", "still on the GPU: x"), chosen=s), "still on the GPU: x"),
        (lambda s: step("upgrading", host=Status("absent"), on=node(boot="new"), chosen=s), "restarted before"),
    ],
)  # fmt: skip
def test_a_failure_before_the_uninstall_gives_the_node_back_or_keeps_it(taken: Any, reason: str) -> None:
    result, told, failed = end(taken(settings()))
    assert (result, failed) == ("restored", True)
    assert reason in told
    assert end(taken(settings(on_failure="keep")))[0] == "quarantined"


def test_a_drain_that_ran_out_of_time_names_the_refusal() -> None:
    taken = step("cordoned", waited=901, pods=(workload(),), refusals={"web": "the webhook said no"})
    assert "shop/web: the webhook said no" in end(taken)[1]


# --- failures after it: quarantined ---


@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        (lambda: step("upgrading", host=Status("failed", "exit status 1")), "exit status 1"),
        (lambda: step("upgrading", waited=901, host=Status("uninstalling")), "is uninstalling for 15m01s"),
        (lambda: step("upgrading", waited=901, host=None, chosen=settings(reboot="guest")), "did not restart"),
        (lambda: step("upgrading", host=Status("died", "while stopping", "old")), "was killed while stopping"),
        (lambda: step("rebooting", waited=1201, record={"restarted": NOW}), "did not restart after 20m01s"),
        (lambda: step("rebooting", waited=1201), "was not restarted after 20m01s"),
        (lambda: step("rebooting", waited=1201, on=node(boot="new", ready=False)), "restarted, but is not Ready"),
        (lambda: step("verifying", version="1.5.13"), "cGPU 1.5.13 is loaded, not 1.5.20"),
        (lambda: step("verifying", waited=601, version="", pods=(installer_pod("2"),)), "no cGPU module is loaded"),
        (
            lambda: step("verifying", waited=601, version="1.5.20", pods=(installer_pod("2"),), on=node(gpu_mem="0")),
            "aliyun.com/gpu-mem 0 of 15",
        ),
    ],
)
def test_a_failure_after_the_uninstall_quarantines_the_node(taken: Any, reason: str) -> None:
    result, told, failed = end(taken())
    assert (result, failed) == ("quarantined", True)
    assert reason in told
    assert taken().cure


# --- silence, restarts, windows ---


def test_a_unit_that_died_with_its_host_waits_until_the_api_knows_of_the_restart() -> None:
    assert isinstance(step("upgrading", host=Status("died", "while uninstalling", "new")), Wait)


def test_a_host_that_stays_silent_is_restarted_by_ecs() -> None:
    assert next_state(step("upgrading", waited=901, host=None)) == "rebooting"


@pytest.mark.parametrize("phase", ["started", "stopping", "uninstalling", "uninstalled", "died"])
def test_a_node_that_restarted_in_the_middle_goes_on_to_be_verified(phase: Any) -> None:
    assert next_state(step("upgrading", host=Status(phase), on=node(boot="new"))) == "rebooting"
    assert next_state(step("rebooting", on=node(boot="new"))) == "verifying"


@pytest.mark.parametrize("state", BEFORE_THE_UNINSTALL)
def test_at_the_end_of_the_window_a_node_before_the_uninstall_is_given_back_without_a_failure(state: str) -> None:
    result, reason, failed = end(step(state, window_open=False, pods=(workload(),)))
    assert (result, failed) == ("restored", False)
    assert "window closed" in reason


def test_a_node_whose_unit_never_started_is_given_back_at_the_end_of_the_window() -> None:
    assert end(step("upgrading", window_open=False, host=Status("absent")))[0] == "restored"


@pytest.mark.parametrize("state", sorted(node_state.PAST))
def test_a_node_past_the_uninstall_is_finished_also_outside_the_window(state: str) -> None:
    seen: dict[str, Any] = {"host": Status("uninstalled")} if state == "upgrading" else {}
    taken = step(state, window_open=False, **seen)
    assert not isinstance(taken, End)


@pytest.mark.parametrize("state", STATES)
def test_a_node_that_somebody_uncordoned_is_cordoned_again(state: str) -> None:
    taken = step(state, on=node(cordoned=False), host=Status("failed"))
    assert next_state(taken) == state


def test_every_state_that_stands_on_a_node_has_a_step_and_a_row_in_the_table() -> None:
    assert set(STATES) | {"quarantined"} == set(node_state.NAMES)
    assert set(node_state.NAMES) < {row.name for row in node_state.TABLE}


# --- the record ---


def test_the_record_holds_what_must_be_given_back() -> None:
    first = node_steps.first(node(cordoned=True), "1.5.20", "1.5.13", "u", NOW)
    assert (first.state, first.unschedulable, first.resources) == (
        "cordoned", True, {"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"},
    )  # fmt: skip


def test_a_quarantined_node_that_is_tried_again_keeps_what_was_true_before_it_failed() -> None:
    failed = Record("quarantined", NOW, NOW, NOW, "1.5.19", "1.5.13", reason="x", cure="y", boot_id="b",
                    resources={"aliyun.com/gpu-mem": "15"})  # fmt: skip
    again = node_steps.first(node(gpu_mem="0"), "1.5.20", "", "u2", NOW, failed)
    assert (again.state, again.unschedulable, again.resources, again.attempt) == (
        "cordoned", False, {"aliyun.com/gpu-mem": "15"}, 2,
    )  # fmt: skip
    assert (again.boot_id, again.reason, again.cure, again.target, again.unit) == ("", "", "", "1.5.20", "u2")


def test_time_outs_count_anew_when_a_run_takes_over_and_steps_keep_their_seconds() -> None:
    old = Record("cordoned", NOW - timedelta(hours=3), NOW - timedelta(hours=3), NOW, "1.5.20")
    taken = node_state.resumed(old, NOW)
    assert (taken.at, taken.since, taken.attempt) == (NOW, old.since, 2)
    assert node_state.advance(taken, "drained", NOW).steps == {"cordoned": 10800.0}


def test_a_record_survives_the_way_over_the_node() -> None:
    record = Record("rebooting", NOW, NOW, NOW, "1.5.20", "1.5.13", restarted=NOW, taints=(node_state.TAINT,))
    operations = node_state.write("run-1", record)
    annotations = {node_state.RECORD: operations[1]["value"], node_state.RUN: "run-1"}
    read = msgspec.convert({"metadata": {"name": "n", "annotations": annotations}}, Node)
    assert (node_state.record_of(read), node_state.owner(read)) == (record, "run-1")
