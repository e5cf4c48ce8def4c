"""What is refused before anything is changed, and what becomes of a node that fails, in every way of failing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import await_true
from tests.upgrade_rig import ALL_DAY, FAST, RECORD, STATE, Rig, fails, upgrade_sandbox


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with upgrade_sandbox(tmp_path_factory.mktemp("runs")) as own:
        yield own


@pytest.fixture(autouse=True)
def healthy(rig: Rig) -> Iterator[None]:
    yield
    rig.recover()


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
