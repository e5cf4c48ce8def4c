"""A run stops by itself: by a signal, without its parent, and without its Lease."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.guard import SIGNALS, Guard
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.progress import Progress


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_run_at_its_next_check_and_stands_repeated_ones(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Guard() as guard:
        guard.check()
        for _ in range(3):
            os.kill(os.getpid(), number)
        with pytest.raises(AckError, match=f"it got {number.name}.*UPG-INTERRUPTED"):
            guard.check()
    assert signal.getsignal(number) is before


def test_a_signal_ends_a_pause_at_once() -> None:
    with Guard() as guard:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        began = time.monotonic()
        with pytest.raises(AckError, match="SIGTERM"):
            guard.sleep(30)
        assert time.monotonic() - began < 2


def test_a_pause_without_a_reason_to_stop_takes_its_time() -> None:
    with Guard() as guard:
        began = time.monotonic()
        guard.sleep(0.25)
        assert 0.25 <= time.monotonic() - began < 2


def _worker(pipe: Connection) -> None:
    """As Ansible does it: a fork with a session of its own."""
    os.setsid()
    with Guard() as guard:
        said: list[str] = []
        progress = Progress("cluster", said.append, guard, timedelta(minutes=1))
        progress.say("with a parent")
        pipe.send("up")
        try:
            guard.sleep(30)
        except AckError as problem:
            progress.say("without a parent")
            pipe.send((problem.code, said))


def _parent(pipe: Connection) -> None:
    worker = get_context("fork").Process(target=_worker, args=(pipe,))
    worker.start()
    worker.join()


def test_a_worker_whose_parent_was_killed_stops_and_prints_nothing_more() -> None:
    context = get_context("fork")
    ours, theirs = context.Pipe()
    parent = context.Process(target=_parent, args=(theirs,))
    parent.start()
    assert ours.poll(10)
    assert ours.recv() == "up"
    parent.kill()
    parent.join()
    assert ours.poll(10)
    assert ours.recv() == ("UPG-INTERRUPTED", ["[cluster] with a parent"])


class _Lease:
    name = "lease"

    def __init__(self, renew: Callable[[], None]) -> None:
        self.renew = renew


def test_every_check_renews_the_leases_and_a_lost_one_ends_the_run() -> None:
    renewals: list[int] = []

    def renew() -> None:
        renewals.append(1)
        if len(renewals) == 3:
            raise AckError("Lease", "another run took it.", "Run again.", "UPG-LOST")

    with Guard() as guard:
        lease: Any = _Lease(renew)
        guard.leases.append(lease)
        guard.check()
        guard.check()
        with pytest.raises(AckError, match="UPG-LOST"):
            guard.check()


def test_waiting_is_told_when_it_changes_and_once_in_a_while() -> None:
    lines: list[str] = []
    with Guard() as guard:
        progress = Progress("cluster", lines.append, guard, timedelta(seconds=0.2))
        for _ in range(5):
            progress.waiting("n", "draining, 2 pods left")
        progress.waiting("n", "draining, 1 pod left")
        guard.sleep(0.25)
        progress.waiting("n", "draining, 1 pod left")
    assert lines == ["[cluster] n: draining, 2 pods left (0s)"] + ["[cluster] n: draining, 1 pod left (0s)"] * 2
