"""The upgrade of nodes on a real control plane, verified with kubectl and the machines' own files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support import await_true
from tests.upgrade_rig import IMAGE, STATE, Rig, fails, kill, upgrade_sandbox


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with upgrade_sandbox(tmp_path_factory.mktemp("runs")) as own:
        yield own


@pytest.fixture(autouse=True)
def healthy(rig: Rig) -> Iterator[None]:
    yield
    rig.recover()


def closed() -> list[dict[str, Any]]:
    """A window that is certainly not open now."""
    other_day = (datetime.now(UTC) + timedelta(days=3)).strftime("%a").lower()
    return [{"days": [other_day], "start": "10:00", "duration": "1h", "timezone": "UTC"}]


def closing(seconds: int) -> list[dict[str, Any]]:
    """A window of a quarter of an hour that closes in so many seconds."""
    start = (datetime.now(UTC) - timedelta(minutes=15)).replace(second=0, microsecond=0)
    length = (datetime.now(UTC) - start).total_seconds() + seconds
    return [{"start": f"{start:%H:%M}", "duration": f"{length:.0f}s", "timezone": "UTC"}]


def installer_pod(rig: Rig, node: str) -> dict[str, Any]:
    found = rig.read("pods", "--namespace=kube-system", "--selector=name=cgpu-installer",
                     f"--field-selector=spec.nodeName={node}")["items"]  # fmt: skip
    assert len(found) == 1
    return dict(found[0])


def history(rig: Rig) -> list[dict[str, Any]]:
    data = rig.read("configmap", "ai-suite-upgrade-history", "--namespace=ai-suite")["data"]
    return [json.loads(data[key]) for key in sorted(data)]


# --- the whole way ---


def test_check_mode_shows_the_nodes_in_order_and_writes_nothing(rig: Rig) -> None:
    target = rig.target(*rig.nodes)
    run = rig.play("checker", "--check", "--diff", nodes=rig.nodes[::-1])
    assert run.process.returncode == 0, run.output
    shown = re.findall(r"(cn-hangzhou\S+): \S+ -> (\S+), pending", run.output)
    assert shown == [(node, target) for node in rig.nodes[::-1]]
    assert "changed=1" in run.output
    assert (rig.writes("checker"), rig.cloud_writes("checker")) == ([], [])


def test_nodes_are_upgraded_one_after_another_and_nothing_is_left_behind(rig: Rig) -> None:
    target = rig.target(*rig.nodes)
    boots = {node: rig.node(node)["status"]["nodeInfo"]["bootID"] for node in rig.nodes}
    run = rig.play("upgrader")
    assert run.process.returncode == 0, run.output
    for node in rig.nodes:
        rig.assert_done(node, target)
        assert rig.node(node)["status"]["nodeInfo"]["bootID"] != boots[node]
        assert installer_pod(rig, node)["spec"]["containers"][0]["image"] == f"{IMAGE}:{target}"
    assert {
        entry["objectRef"]["name"] for entry in rig.writes("upgrader") if entry["objectRef"]["resource"] == "nodes"
    } == {*rig.nodes}
    restarts = [entry["action"] for entry in rig.cloud_writes("upgrader") if entry["action"] != "RunCommand"]
    assert restarts == ["RebootInstance"] * 2
    assert_never_two_cordoned(rig, "upgrader")
    rig.kubectl("--namespace=demo", "wait", "--for=condition=Available", "deployment", "--all", "--timeout=60s")


def assert_never_two_cordoned(rig: Rig, user: str) -> None:
    cordoned: set[str] = set()
    for entry in rig.writes(user):
        if entry["objectRef"]["resource"] != "nodes":
            continue
        for operation in entry["requestObject"]:
            if operation["path"] == "/spec/unschedulable":
                name = entry["objectRef"]["name"]
                cordoned.add(name) if operation["value"] else cordoned.discard(name)
        assert len(cordoned) <= 1


def test_the_history_tells_who_when_what_and_each_step(rig: Rig) -> None:
    last = history(rig)[-1]
    assert (last["result"], set(last["nodes"])) == ("done", set(rig.nodes))
    assert last["ended"] > last["started"]
    steps = last["nodes"][rig.nodes[0]]["steps"]
    assert list(steps) == ["cordoned", "drained", "installer_replaced", "upgrading", "rebooting", "verifying"]


def test_a_second_run_changes_nothing_and_sends_no_write(rig: Rig) -> None:
    run = rig.play("again")
    assert run.process.returncode == 0, run.output
    assert "changed=0" in run.output
    assert (rig.writes("again"), rig.cloud_writes("again")) == ([], [])


def test_progress_goes_to_standard_error_while_it_works(rig: Rig) -> None:
    node = rig.nodes[0]
    rig.target(node)
    with rig.held_pod(node):
        run = rig.start("talker", nodes=[node], timing={"progress": "1s"})
        await_true(lambda: run.output.count("draining, 1 pod left") >= 2, "a line a second while it waits")
        assert run.process.poll() is None
    assert run.wait() == 0, run.output
    assert re.search(rf"^\[sandbox\] {re.escape(node)}: done, cGPU", run.output, re.MULTILINE)


def test_a_guest_restarts_itself_and_the_cloud_is_not_asked(rig: Rig) -> None:
    node = rig.nodes[0]
    target = rig.target(node)
    run = rig.play("guest", nodes=[node], reboot="guest")
    assert run.process.returncode == 0, run.output
    rig.assert_done(node, target)
    assert rig.cloud_writes("guest") == []


def test_without_cloud_assistant_the_silence_of_the_host_is_its_answer(rig: Rig) -> None:
    node = rig.nodes[0]
    target = rig.target(node)
    rig.sandbox.command("fault", "cloud", "error", "RunCommand", "--code=Forbidden.RAM", "--status=403", "--count=0")
    try:
        run = rig.play("silent", nodes=[node], timing={"host": "6s"})
    finally:
        rig.sandbox.command("fault", "cloud", "--clear")
    assert run.process.returncode == 0, run.output
    rig.assert_done(node, target)


# --- windows ---


def test_outside_the_window_nothing_starts_and_the_next_opening_is_named(rig: Rig) -> None:
    rig.target(*rig.nodes)
    run = rig.play("early", windows=closed())
    assert run.process.returncode == 0, run.output
    assert re.search(
        r"not done: 2 nodes; outside the maintenance window; the next window opens 20\S+ 10:00 UTC", run.output
    )
    assert "changed=0" in run.output
    assert rig.writes("early") == []
    strict = rig.play("strict", windows=closed(), incomplete="fail")
    fails(strict, "UPG-INCOMPLETE")


def test_outside_the_window_a_node_before_the_uninstall_is_given_back(rig: Rig) -> None:
    node = rig.nodes[0]
    before, target = rig.version(node), rig.target(node)
    with rig.held_pod(node):
        run = rig.start("cut-before", nodes=[node], target_version=target)
        await_true(lambda: rig.state(node) == "cordoned", "the run drains")
        kill(run, "kill both")
        run.wait()
        closer = rig.play("closer-before", nodes=[node], target_version=target, windows=closed())
    assert closer.process.returncode == 0, closer.output
    assert f"{node}: given back: the window closed while it was cordoned" in closer.output
    rig.assert_done(node, before)


def test_outside_the_window_a_node_past_the_uninstall_is_finished(rig: Rig) -> None:
    node = rig.nodes[0]
    target = rig.target(node)
    run = rig.start("cut-past", nodes=[node], target_version=target)
    with rig.watched(node) as states:
        next(seen for seen in states if seen == "rebooting")
        kill(run, "kill both")
    run.wait()
    assert rig.state(node) in ("rebooting", "verifying")
    closer = rig.play("closer-past", nodes=rig.nodes, target_version=target, windows=closed())
    assert closer.process.returncode == 0, closer.output
    assert f"{rig.nodes[1]}: cordoned" not in closer.output
    rig.assert_done(node, target)


def test_a_drain_that_is_running_at_the_end_of_the_window_is_given_back(rig: Rig) -> None:
    node = rig.nodes[0]
    before = rig.version(node)
    rig.target(node)
    with rig.held_pod(node):
        run = rig.play("late", windows=closing(12), nodes=[node], timing={"node": "1s"})
    assert run.process.returncode == 0, run.output
    assert f"{node}: given back: the window closed while it was cordoned" in run.output
    rig.assert_done(node, before)


def test_a_node_is_not_started_when_the_window_is_too_short_for_it(rig: Rig) -> None:
    rig.target(rig.nodes[0])
    run = rig.play("short", windows=closing(30), timing={"node": "10m"})
    assert run.process.returncode == 0, run.output
    assert "a node may take 10m00s; the next window opens" in run.output
    assert rig.writes("short") == []


# --- what others did stays ---


def test_a_cordon_that_was_there_before_stays(rig: Rig) -> None:
    node = rig.nodes[0]
    target = rig.target(node)
    rig.kubectl("cordon", node)
    try:
        run = rig.play("careful", nodes=[node])
        assert run.process.returncode == 0, run.output
        found = rig.node(node)
        assert found["spec"]["unschedulable"] is True
        assert rig.version(node) == target
        assert STATE not in found["metadata"]["labels"]
    finally:
        rig.kubectl("uncordon", node)


def test_a_node_that_somebody_uncordons_in_the_middle_is_cordoned_again(rig: Rig) -> None:
    node = rig.nodes[0]
    target = rig.target(node)
    with rig.held_pod(node):
        run = rig.start("stubborn", nodes=[node])
        await_true(lambda: rig.state(node) == "cordoned", "the run drains")
        rig.kubectl("uncordon", node)
        await_true(lambda: rig.node(node)["spec"].get("unschedulable"), "cordoned again")
    assert run.wait() == 0, run.output
    assert "somebody uncordoned it: cordoned again" in run.output
    rig.assert_done(node, target)


def test_a_node_whose_lease_somebody_else_holds_is_not_started(rig: Rig) -> None:
    node = rig.nodes[0]
    rig.target(node)
    lease = {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": f"ai-suite-node-{node}", "namespace": "ai-suite"},
        "spec": {
            "holderIdentity": "disk-swap", "leaseDurationSeconds": 3600,
            "acquireTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        },
    }  # fmt: skip
    rig.kubectl("create", "-f", "-", stdin=json.dumps(lease))
    try:
        run = rig.play("patient", nodes=[node])
        fails(run, "not started: disk-swap is at work since")
        assert [entry for entry in rig.writes("patient") if entry["objectRef"]["resource"] == "nodes"] == []
    finally:
        rig.kubectl("--namespace=ai-suite", "delete", "lease", f"ai-suite-node-{node}")
