"""Releases that an earlier run left in the middle (case H01): real helm processes are killed, on a real API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import component as clients
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from tests import component_rig
from tests.component_rig import CHART, NAME, NODES, VALUES, Rig, chart, hook, image
from tests.support import await_true

LEASE = f"ai-suite-component-{NAME}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Rig]:
    with component_rig.rig() as made:
        yield made


@pytest.fixture(autouse=True)
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed runs keep the tests waiting for 4 s instead of 15."""
    monkeypatch.setattr(clients, "LEASE", 4)


@pytest.fixture
def rig(cluster: Rig) -> Iterator[Rig]:
    cluster.clear()
    yield cluster
    cluster.clear()


def children(process: int) -> list[int]:
    found = subprocess.run(["pgrep", "--parent", str(process)], capture_output=True, text=True, check=False).stdout
    return [int(line) for line in found.split()]


def kill_run(rig: Rig, state: str, **given: object) -> None:
    """A run of ours that is held up by a hook, killed with the helm that it started."""
    run = rig.start(**given)
    await_true(lambda: rig.status() == state or run.poll() is not None, f"the release is {state}")
    assert run.poll() is None, "the run ended before it could be killed"
    for process in [*children(run.pid), run.pid]:
        os.kill(process, signal.SIGKILL)
    run.wait()
    assert rig.status() == state
    assert rig.kubectl("get", "lease", LEASE)


def kill_helm(rig: Rig, state: str, *arguments: str, stdin: str = "") -> None:
    """Somebody else's helm, killed in the middle."""
    command = [str(rig.sandbox.bin / "helm"), f"--kubeconfig={rig.sandbox.kubeconfig}", "--namespace=kube-system"]
    foreign = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert foreign.stdin is not None
    foreign.stdin.write(stdin.encode())
    foreign.stdin.close()
    await_true(lambda: rig.status() == state or foreign.poll() is not None, f"the release is {state}")
    assert foreign.poll() is None, "helm ended before it could be killed"
    foreign.kill()
    foreign.wait()


def test_a_first_install_of_ours_that_was_killed_is_completed_by_the_next_run(rig: Rig, tmp_path: Path) -> None:
    kill_run(rig, "pending-install", chart=chart(tmp_path, more=hook("pre-install", "10m")))
    started = time.monotonic()
    result = rig.run()
    assert time.monotonic() - started < clients.LEASE + 20
    assert "roll back release kube-system/ack-ai-installer to revision 1" in result["plan"][0]
    assert "a run of ours was interrupted" in result["plan"][0]
    assert [finding["code"] for finding in result["findings"]] == ["HLM-HOOKS"]
    assert rig.status() == "deployed"
    assert rig.get("daemonset", "cgpu-installer")["status"]["numberReady"] == len(NODES)
    assert rig.run()["changed"] is False
    assert LEASE not in rig.kubectl("get", "leases", "--output=name")


def test_an_upgrade_of_ours_that_was_killed_is_done_by_the_next_run(rig: Rig, tmp_path: Path) -> None:
    rig.run()
    kill_run(rig, "pending-upgrade", chart=chart(tmp_path, more=hook("pre-upgrade", "10m")), values=image("1.5.21"))
    checked = rig.run(check_mode=True, values=image("1.5.21"))
    assert "roll back" in checked["plan"][0]
    assert rig.writes() == []
    assert rig.run(values=image("1.5.21"))["changed"]
    assert rig.status() == "deployed"
    container = rig.get("daemonset", "cgpu-installer")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"].endswith(":1.5.21")
    assert rig.run(values=image("1.5.21"))["changed"] is False


def test_helm_ends_with_a_run_that_is_killed_alone_and_the_next_run_goes_on(rig: Rig, tmp_path: Path) -> None:
    run = rig.start(chart=chart(tmp_path, more=hook("pre-install", "10m")))
    await_true(lambda: rig.status() == "pending-install", "helm is at work")
    helm = children(run.pid)
    run.kill()
    run.wait()
    await_true(lambda: not any(Path(f"/proc/{process}").exists() for process in helm), "helm has ended")
    assert rig.status() == "failed"
    rig.run()
    assert rig.status() == "deployed"


def test_a_run_that_lives_is_waited_for_and_never_robbed(rig: Rig, tmp_path: Path) -> None:
    slow = chart(tmp_path, more=hook("pre-install", f"{clients.LEASE + 5}s"))
    first = rig.start(chart=slow, timeout=120)
    await_true(lambda: rig.status() == "pending-install", "the first run is at work")
    second = rig.run(chart=slow, timeout=120)
    assert first.wait(timeout=60) == 0
    assert (second["changed"], second["plan"]) == (False, [])
    assert rig.history() == [(1, "deployed")]


def test_somebody_elses_helm_is_left_alone_until_it_is_old_enough(rig: Rig, tmp_path: Path) -> None:
    rig.run()
    held = chart(tmp_path, more=hook("pre-upgrade", "10m"))
    kill_helm(rig, "pending-upgrade", "upgrade", NAME, str(held), "--reuse-values")
    with pytest.raises(AckError) as young:
        rig.run()
    assert rig.writes() == []
    assert young.value.code == "HLM-PENDING"
    assert f"helm rollback {NAME} 1 --namespace kube-system" in str(young.value)
    with pytest.raises(AckError, match=r"component_repair\.allowed"):
        rig.run(repair={"allowed": False, "after": 0})
    assert rig.run(repair={"after": 0})["changed"]
    assert rig.history()[-1][1] == "deployed"
    assert rig.run()["changed"] is False


def test_a_rollback_that_was_killed_is_repaired(rig: Rig, tmp_path: Path) -> None:
    held = chart(tmp_path, more=hook("pre-rollback", "10m"))
    rig.run(chart=held)
    rig.run(chart=held, values=image("1.5.21"))
    kill_helm(rig, "pending-rollback", "rollback", NAME, "1")
    assert rig.run(values=image("1.5.21"), repair={"after": 0})["changed"]
    assert rig.status() == "deployed"
    assert rig.run(values=image("1.5.21"))["changed"] is False


def test_a_first_install_that_failed_is_upgraded(rig: Rig, tmp_path: Path) -> None:
    broken = chart(tmp_path, edit=lambda text: text.replace("type: OnDelete", "type: Never"))
    command = [str(rig.sandbox.bin / "helm"), f"--kubeconfig={rig.sandbox.kubeconfig}", "--namespace=kube-system"]
    failed = subprocess.run([*command, "install", NAME, str(broken), "--values=-"],
                            input=json.dumps(VALUES), capture_output=True, text=True, check=False)  # fmt: skip
    assert failed.returncode != 0
    assert rig.status() == "failed"
    assert "it is failed" in rig.run()["plan"][0]
    assert rig.history()[-1] == (2, "deployed")
    assert rig.run()["changed"] is False


def test_a_removal_that_was_killed_is_finished_and_the_component_installed_again(rig: Rig, tmp_path: Path) -> None:
    rig.run(chart=chart(tmp_path, more=hook("pre-delete", "5s")))
    kill_helm(rig, "uninstalling", "uninstall", NAME)
    result = rig.run(repair={"after": 0}, timeout=60)
    assert [step.split()[0] for step in result["plan"]] == ["finish", "upgrade"]
    assert rig.history() == [(1, "deployed")]


def test_a_release_that_was_removed_with_its_history_is_installed_again(rig: Rig) -> None:
    rig.run()
    rig.helm("uninstall", NAME, "--keep-history", "--wait")
    assert rig.run(state="absent")["changed"] is False
    assert rig.run()["plan"] == [f"install component {NAME} 0.1.0"]
    assert rig.history()[-1] == (2, "deployed")


def test_a_half_born_component_can_be_removed(rig: Rig, tmp_path: Path) -> None:
    kill_run(rig, "pending-install", chart=chart(tmp_path, more=hook("pre-install", "10m")))
    assert rig.run(state="absent")["changed"]
    assert rig.status() == ""
    assert rig.run(state="absent")["changed"] is False


def test_a_helm_that_never_ends_is_stopped_and_leaves_a_failed_release(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(AckError) as late:
        rig.run(chart=chart(tmp_path, more=hook("pre-install", "10m")), timeout=2)
    assert late.value.code in ("HLM-FAILED", "HLM-TIMEOUT")
    assert rig.status() == "failed"
    assert rig.run(chart=CHART)["changed"]
    assert rig.status() == "deployed"
