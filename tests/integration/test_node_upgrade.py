"""The upgrade of nodes on a real control plane, verified with kubectl and the machines' own files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import await_true
from tests.upgrade_rig import ALL_DAY, FAST, IMAGE, RECORD, STATE, Rig, Run, kill, upgrade_sandbox


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


def fails(run: Run, *said: str) -> None:
    assert run.process.returncode != 0, run.output
    assert "Traceback" not in run.output
    for text in said:
        assert text in run.output, run.output


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


# --- refusals: before anything is changed ---


def test_every_problem_of_every_node_is_told_before_anything_is_changed(rig: Rig) -> None:
    one, two = rig.nodes
    rig.target(one, two)
    rig.fault(one, "uninstall-script-missing")
    naked = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "naked", "namespace": "demo"},
        "spec": {"nodeName": two, "containers": [{"name": "c", "image": "registry.example.test/c:1"}]},
    }  # fmt: skip
    rig.kubectl("create", "-f", "-", stdin=json.dumps(naked))
    try:
        run = rig.play("refused")
        fails(run, "UPG-REFUSED", f"UPG-NO-UNINSTALL {one}", f"UPG-DRAIN-BLOCKED {two}: found pod demo/naked",
              "Nothing was changed.")  # fmt: skip
        assert rig.writes("refused") == []
    finally:
        rig.kubectl("--namespace=demo", "delete", "pod", "naked", "--wait=true")


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"windows": [{**ALL_DAY[0], "timezone": None}]}, "UPG-WINDOW-ZONE"),
        ({"windows": [{**ALL_DAY[0], "start": 1320}]}, "UPG-WINDOW-TIME"),
        ({"target_version": 1.5}, "UPG-TARGET-FORM"),
        ({"target_version": "1.5.14"}, "UPG-TARGET-UNKNOWN"),
        ({"target_version": "1.5.19"}, "UPG-COMPONENT-OLD"),
        ({"nodes": ["ghost"]}, "UPG-NODE-UNKNOWN"),
        ({"uninstall_script": {"path": "/etc/hostname", "sha256": "0"}}, "UPG-SCRIPT"),
        ({"windwos": ALL_DAY}, "node_upgrade_windwos"),
    ],
)
def test_wrong_input_is_one_clear_error(rig: Rig, variables: dict[str, Any], code: str) -> None:
    user = f"wrong-{code.lower().replace('_', '-')}"
    fails(rig.play(user, **variables), code)
    assert rig.writes(user) == []


def test_a_node_without_an_installer_pod_is_refused(rig: Rig) -> None:
    node = rig.nodes[0]
    rig.target(node)
    ds = "--namespace=kube-system", "patch", "daemonset", "cgpu-installer", "--type=merge"
    selector = {"ack.node.gpu.schedule": "cgpu", "elsewhere": "true"}
    rig.kubectl(*ds, "--patch", json.dumps({"spec": {"template": {"spec": {"nodeSelector": selector}}}}))
    try:
        gone = "--namespace=kube-system", "wait", "--for=delete", "pod", "--selector=name=cgpu-installer"
        rig.kubectl(*gone, "--timeout=60s")
        fails(rig.play("blind", nodes=[node]), "UPG-NO-INSTALLER")
        assert rig.writes("blind") == []
    finally:
        rig.kubectl(*ds, "--patch", json.dumps({"spec": {"template": {"spec": {"nodeSelector": {"elsewhere": None}}}}}))
        await_true(lambda: len(_ready_installers(rig)) == 2, "the installers are back")


def _ready_installers(rig: Rig) -> list[str]:
    pods = rig.read("pods", "--namespace=kube-system", "--selector=name=cgpu-installer")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]


# --- failures ---


def test_a_drain_that_a_budget_forbids_is_given_back_with_the_budget_named(rig: Rig) -> None:
    node = _busy(rig)
    before, target = rig.version(node), rig.target(node)
    rig.budget(2)
    try:
        run = rig.play("budget", nodes=[node], target_version=target, drain={"timeout": "3s"})
    finally:
        rig.budget(1)
    fails(run, "UPG-NODES-FAILED", "not drained within 3s: demo/inference-",
          "budget demo/inference needs 2 healthy, has 2, allows 0")  # fmt: skip
    rig.assert_done(node, before)


def _busy(rig: Rig) -> str:
    """A node that runs a pod of the workload."""
    rig.kubectl("--namespace=demo", "wait", "--for=condition=Available", "deployment", "--all", "--timeout=60s")
    pods = rig.read("pods", "--namespace=demo", "--field-selector=status.phase=Running")["items"]
    return str(next(pod["spec"]["nodeName"] for pod in pods if "deletionTimestamp" not in pod["metadata"]))


def test_a_budget_that_yields_in_time_lets_the_drain_succeed(rig: Rig) -> None:
    node = _busy(rig)
    target = rig.target(node)
    rig.budget(2)
    run = rig.start("yielding", nodes=[node], target_version=target)
    await_true(lambda: "disruption budget" in run.output, "the budget's refusal is told")
    rig.budget(1)
    assert run.wait() == 0, run.output
    rig.assert_done(node, target)


def test_the_next_step_waits_until_a_pod_is_really_gone(rig: Rig) -> None:
    node = rig.nodes[0]
    rig.target(node)
    with rig.held_pod(node) as pod:
        run = rig.start("waiting", nodes=[node])
        await_true(
            lambda: rig.read("pod", pod, "--namespace=demo")["metadata"].get("deletionTimestamp"), "it terminates"
        )
        await_true(lambda: run.output.count("draining, 1 pod left") >= 1, "the run waits")
        assert rig.state(node) == "cordoned"
    assert run.wait() == 0, run.output


def test_a_host_that_ends_before_the_uninstall_gets_its_kubelet_back_and_the_node_is_given_back(rig: Rig) -> None:
    node = rig.nodes[0]
    before = rig.version(node)
    rig.target(*rig.nodes)
    rig.fault(node, "slow", "1")
    run = rig.start("stopped", nodes=rig.nodes)
    units = rig.machine(node, "var/lib/ai-suite")
    await_true(lambda: _status(units) == "phase=stopping", "the unit works")
    unit = json.loads(rig.node(node)["metadata"]["annotations"][RECORD])["unit"]
    rig.host(node, "systemctl", "stop", unit)
    rig.fault(node)
    run.wait()
    fails(run, f"{node}: given back: the host refused before the uninstall: stopped by a signal")
    assert f"{rig.nodes[1]}: cordoned" not in run.output  # the failure budget is spent
    rig.kubectl("wait", "--for=condition=Ready", "node", node, "--timeout=30s")
    rig.assert_done(node, before)


def _status(units: Path) -> str:
    """The first line of the newest unit's status."""
    newest = max(units.glob("*/status"), key=lambda file: file.stat().st_mtime, default=None)
    return newest.read_text().partition("\n")[0] if newest else ""


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("uninstall-fails", "uninstalling the old module failed: the uninstall script ended with exit status"),
        (
            "module-does-not-load",
            "no cGPU module is loaded after|no installer pod of the current revision is ready after",
        ),
    ],
)
def test_a_failure_after_the_uninstall_began_quarantines_the_node_until_it_is_retried(
    rig: Rig, fault: str, reason: str
) -> None:
    node = rig.nodes[0]
    target = rig.target(*rig.nodes)
    rig.fault(node, fault)
    run = rig.play(fault, nodes=rig.nodes, timing={"verify": "4s"})
    fails(run, "UPG-NODES-FAILED")
    found = rig.node(node)
    record = json.loads(found["metadata"]["annotations"][RECORD])
    assert (found["spec"]["unschedulable"], found["metadata"]["labels"][STATE]) == (True, "quarantined")
    assert {"key": "ai-suite.ack/quarantined", "effect": "NoSchedule"} in found["spec"]["taints"]
    assert re.search(reason, record["reason"])
    assert record["cure"]
    assert f"{rig.nodes[1]}: cordoned" not in run.output

    blocked = rig.play(f"{fault}-blocked", nodes=rig.nodes)
    fails(blocked, "UPG-NODES-FAILED")  # a nightly run stays red until somebody has mended the node
    assert "the failure budget is spent (1 quarantined before" in blocked.output
    assert "quarantined by an earlier run" in blocked.output
    assert "node_upgrade_retry_quarantined: true" in blocked.output
    assert rig.writes(f"{fault}-blocked") == []

    rig.fault(node)
    again = rig.play(f"{fault}-again", nodes=[node], retry_quarantined=True)
    assert again.process.returncode == 0, again.output
    rig.assert_done(node, target)


def test_the_operators_uninstall_script_is_used_where_the_host_has_none(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes[0]
    target = rig.target(node)
    script = tmp_path / "uninstall.sh"
    script.write_text("rmmod cgpu_km\n")
    checksum = hashlib.sha256(script.read_bytes()).hexdigest()
    rig.fault(node, "uninstall-script-missing")
    run = rig.play("supplier", nodes=[node], uninstall_script={"path": str(script), "sha256": checksum})
    assert run.process.returncode == 0, run.output
    rig.assert_done(node, target)


def test_a_node_that_does_not_come_back_is_quarantined(rig: Rig) -> None:
    node = rig.nodes[1]
    rig.target(node)
    rig.fault(node, "reboot-never-returns")
    run = rig.play("lost", nodes=[node], timing={**FAST, "boot": "5s"})
    fails(run, f"{node}: the node did not restart after 5s")
    assert rig.state(node) == "quarantined"
