"""A run that is killed at any step is continued by the next, and never writes beside it.

Each way of dying is tried at each state in which a node can stand: a run is killed as soon as the node shows the state,
the next one goes on and is killed in the next state, and the last one ends the upgrade. Every run is a user of its own,
so the audit log tells their writes apart.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.support import await_true
from tests.upgrade_rig import Rig, Run, kill, upgrade_sandbox

STATES = ("cordoned", "drained", "installer_replaced", "upgrading", "rebooting", "verifying")
# A state may pass faster than a signal is sent: then the kill came a state later, and this one is tried again.
MOST_RUNS = 24


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with upgrade_sandbox(tmp_path_factory.mktemp("runs")) as own:
        yield own


def kill_in(rig: Rig, run: Run, node: str, wanted: set[str], how: str) -> tuple[str, int]:
    """Kill a run when the node shows one of these states; the state in which it then stands, "" if the run ended."""
    with rig.watched(node) as states:
        seen_ours = False
        for state in states:
            seen_ours = seen_ours or bool(state)
            if state in wanted and run.worker():  # else it is what the former run left
                worker = kill(run, how)
                if how != "freeze":
                    run.wait_for_worker(worker)
                    run.wait()
                return rig.state(node), worker
            if seen_ours and not state:
                break
    run.wait()
    return "", 0


@pytest.mark.parametrize("how", ["kill both", "kill ansible-playbook", "terminate", "interrupt"])
def test_a_run_killed_in_any_state_is_continued_by_the_next(rig: Rig, how: str) -> None:
    node = rig.nodes[0]
    target, left, runs = rig.target(node), set(STATES), 0
    while True:
        user = f"{how.replace(' ', '-')}-{runs}"
        run = rig.start(user, nodes=[node], target_version=target)
        killed_in, _ = kill_in(rig, run, node, left, how) if left else ("", run.wait())
        left.discard(killed_in)
        runs += 1
        assert runs <= MOST_RUNS, f"never killed in {left}: {run.output}"
        if killed_in:
            continue
        assert run.process.returncode == 0, run.output
        rig.assert_done(node, target)
        if not left:
            break
        target = rig.target(node)
    for former, latter in pairwise([f"{how.replace(' ', '-')}-{number}" for number in range(runs)]):
        rig.assert_one_after_another(former, latter)


@pytest.mark.parametrize("how", ["terminate", "interrupt"])
def test_a_run_that_ends_in_order_releases_its_leases(rig: Rig, how: str) -> None:
    node = rig.nodes[0]
    run = rig.start(f"orderly-{how}", nodes=[node], target_version=rig.target(node))
    killed_in, _ = kill_in(rig, run, node, set(STATES), how)
    assert killed_in
    assert rig.read("leases", "--namespace=ai-suite")["items"] == []
    finisher = rig.play(f"orderly-{how}-finisher", nodes=[node])
    assert finisher.process.returncode == 0, finisher.output
    assert "taken over from run" in finisher.output
    assert "watching" not in finisher.output


def test_a_worker_frozen_past_its_lease_writes_nothing_beside_its_successor(rig: Rig) -> None:
    node = rig.nodes[0]
    left = set(STATES)
    for number in range(MOST_RUNS):
        if not left:
            return
        target = rig.target(node)
        frozen = rig.start(f"frozen-{number}", nodes=[node], target_version=target)
        stood_in, worker = kill_in(rig, frozen, node, left, "freeze")
        if not stood_in:
            continue
        left.discard(stood_in)
        owner = rig.owner(node)
        successor = rig.start(f"successor-{number}", nodes=[node], target_version=target)
        await_true(lambda owner=owner: rig.owner(node) != owner, "the successor took the node over")
        os.kill(worker, signal.SIGCONT)
        assert successor.wait() == 0, successor.output
        assert frozen.wait() != 0, frozen.output
        assert "UPG-LOST" in frozen.output or "UPG-NODE-LOST" in frozen.output
        rig.assert_done(node, target)
        rig.assert_one_after_another(f"frozen-{number}", f"successor-{number}")
    pytest.fail(f"never frozen in {left}")


def test_a_worker_frozen_for_a_moment_goes_on(rig: Rig) -> None:
    node = rig.nodes[0]
    target = rig.target(node)
    run = rig.start("moment", nodes=[node], target_version=target)
    _, worker = kill_in(rig, run, node, {"upgrading"}, "freeze")
    os.kill(worker, signal.SIGCONT)
    assert run.wait() == 0, run.output
    rig.assert_done(node, target)


def test_the_lost_terminal_of_a_run_stops_it(rig: Rig) -> None:
    node = rig.nodes[0]
    run = rig.start("hangup", nodes=[node], target_version=rig.target(node))
    with rig.watched(node) as states:
        next(state for state in states if state == "upgrading" and run.worker())
        worker = run.worker()
        os.killpg(run.process.pid, signal.SIGHUP)
        run.wait_for_worker(worker)
    finisher = rig.play("hangup-finisher", nodes=[node])
    assert finisher.process.returncode == 0, finisher.output
    rig.assert_one_after_another("hangup", "hangup-finisher")


def test_a_second_run_is_told_who_is_at_work_and_writes_nothing(rig: Rig) -> None:
    node = rig.nodes[0]
    target = rig.target(node)
    with rig.held_pod(node):
        # Long enough that a busy computer does not make the first run look dead.
        first = rig.start("first", nodes=[node], target_version=target, timing={"lease": "6s"})
        await_true(lambda: rig.state(node) == "cordoned", "the first run drains")
        second = rig.play("second", nodes=[node], target_version=target, timing={"lease": "6s"})
    assert first.wait() == 0, first.output
    assert second.process.returncode != 0
    assert "UPG-BUSY" in second.output
    assert "is at work since" in second.output
    assert rig.writes("second") == []
    rig.assert_done(node, target)
