"""One run: takes the Lease, goes on with what another run began, starts nodes one after another, ends in order.

A loop of ticks: each looks at a node, asks the core for its next step, and takes it. Nothing blocks for long, so that
signals, a lost parent and a lost Lease are noticed, and the Leases are renewed only while the loop advances.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube, KubeError
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.lease import Lease
from ansible_collections.ack.ai_suite.plugins.module_utils.core import (
    maintenance_window,
    node_state,
    node_upgrade,
    run_history,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.duration import words
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_upgrade import Candidate, Work
from ansible_collections.ack.ai_suite.plugins.module_utils.core.run_history import NodeEntry
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.guard import Guard
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.job import Job
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.looks import Looks
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.progress import Progress
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.writer import BUSY, NAMESPACE, Writer

LEASE = "ai-suite-upgrade"
PARALLEL = 1  # one node after another
_SHORTEST = 0.1
_DONE = ("done", "current")


class Run:
    """A run of ``run`` (its id: also who holds the Leases) on behalf of ``by``."""

    def __init__(
        self, kube: Kube, looks: Looks, guard: Guard, progress: Progress, settings: Settings, run: str, by: str
    ) -> None:
        self._kube = kube
        self._looks = looks
        self._guard = guard
        self._progress = progress
        self._settings = settings
        self._writer = Writer(kube, guard, run)
        self._by = by
        self._active: list[Job] = []
        self._results: dict[str, NodeEntry] = {}
        self._failures = 0
        self._started = clock.now()

    # --- from beginning to end ---

    def execute(self, todo: Work, again: Callable[[], Work]) -> dict[str, Any]:
        """Do the work. ``again`` observes anew, after another run had to be waited for.

        Raises AckError: UPG-BUSY, UPG-INTERRUPTED, UPG-LOST; what happened to nodes is in the result.
        """
        try:
            self._writer.ensure_namespace()
            if self._hold(LEASE):
                todo = again()
            self._resume(todo)
            hindrance = self._loop(todo)
            self._keep_history(todo, final=True)
        finally:
            self._release()
        return self._outcome(todo, hindrance)

    def _hold(self, name: str, heir_of: str = "") -> bool:
        """Take a Lease; True when its former holder had to be watched until it was known to be dead."""
        lease = Lease(
            self._kube, NAMESPACE, name, self._writer.run, seconds=self._lease_seconds, noun="UPG"
        )  # fmt: skip
        hold = lease.hold()
        watched = hold is not None and hold.holder != heir_of
        # A holder with a longer Lease than ours is another program: it cannot be outwaited.
        patience = min(hold.seconds, self._lease_seconds) + 1 if hold is not None else 1
        if hold is not None and watched:
            self._progress.say(f"Lease {name} is held by {hold.holder}: watching for {patience} s whether it lives")
        self._guard.check()
        lease.acquire(patience, self._guard.sleep, heir_of)
        self._guard.leases.append(lease)
        return watched

    @property
    def _lease_seconds(self) -> int:
        return max(1, round(self._settings.timing.lease.total_seconds()))

    def _release(self) -> None:
        """Spare the next run the wait; a Lease that is not ours any more is left alone by ``release``."""
        for lease in reversed(self._guard.leases):
            with suppress(AckError):
                lease.release()
        self._guard.leases.clear()

    def _resume(self, todo: Work) -> None:
        """Take over every node that another run left in the middle."""
        for candidate in todo.resume:
            node = self._writer.fresh(candidate.node.name)
            record = node_state.record_of(node)
            if record is not None:
                self._adopt(node, node_state.owner(node), node_state.resumed(record, clock.now()))

    def _adopt(self, node: Node, owner: str, record: node_state.Record) -> None:
        self._hold(_node_lease(node.name), heir_of=owner)
        node = self._writer.node(node, owner, lambda _: node_state.adopt(owner, self._writer.run, record))
        self._progress.node(node.name, f"taken over from run {owner or 'unknown'} in state {record.state}")
        self._active.append(self._job(node, record))

    def _job(self, node: Node, record: node_state.Record) -> Job:
        return Job(node, record, self._looks, self._writer, self._progress, self._settings)

    # --- the loop ---

    def _loop(self, todo: Work) -> str:
        """Until nothing is active and nothing more may be started; returns why the rest was not started."""
        waiting = list(todo.start)
        idle = 0
        while True:
            hindrance = ""
            while waiting and not hindrance and len(self._active) < PARALLEL:
                hindrance = node_upgrade.may_start(todo, self._settings, self._window(), self._failures)
                if not hindrance:
                    if not self._start(waiting[0], todo):
                        break
                    waiting.pop(0)
            if not self._active and (hindrance or not waiting):
                return hindrance if waiting else ""
            idle = 0 if self._tick_all(todo) else idle + 1
            if self._active or waiting:
                self._guard.sleep(min(self._settings.timing.poll.total_seconds(), _SHORTEST * 2 ** min(idle, 16)))

    def _window(self) -> maintenance_window.State:
        return maintenance_window.state(self._settings.calendar, clock.now())

    def _tick_all(self, todo: Work) -> bool:
        """One tick of each node; True when something moved."""
        window_open = self._window().open is not None
        moved = False
        for job in list(self._active):
            try:
                moved |= job.tick(window_open)
            except KubeError as problem:
                if problem.status not in BUSY:
                    raise
                self._progress.waiting(job.node.name, f"the API does not answer: {problem.problem}")
            except AckError as problem:
                if problem.code not in ("UPG-NODE-LOST", "UPG-NODE-GONE"):
                    raise
                job.result = NodeEntry(
                    "lost", job.record.version, problem.problem, failed=problem.code == "UPG-NODE-LOST"
                )
            if job.result is not None:
                moved = True
                self._end(job, todo)
        return moved

    def _start(self, candidate: Candidate, todo: Work) -> bool:
        """Look at a node anew, and cordon it if everything still holds; False when the API does not answer now."""
        name = candidate.node.name
        try:
            self._hold(_node_lease(name))
            job = self._begin(name, todo)
        except KubeError as problem:
            if problem.status not in BUSY:
                raise
            self._progress.waiting(name, f"the API does not answer: {problem.problem}")
            return False
        except AckError as problem:
            if problem.code not in ("UPG-BUSY", "UPG-NODE-LOST", "UPG-NODE-GONE", "UPG-NODE-REFUSED"):
                raise
            self._progress.node(name, f"not started: {problem.problem}")
            failed = self._settings.refused == "fail"
            self._results[name] = NodeEntry("refused", candidate.version, problem.problem, failed=failed)
            self._failures += failed
            self._let_go(name)
            return True
        if job is None:
            self._results[name] = NodeEntry("current", todo.target)
            self._let_go(name)
            return True
        self._active.append(job)
        self._keep_history(todo)
        return True

    def _begin(self, name: str, todo: Work) -> Job | None:
        node = self._writer.fresh(name)
        record = node_state.record_of(node)
        if record is not None and node_state.owner(node) == self._writer.run:
            return self._job(node, record)  # cordoned already, by a patch whose answer was lost
        return Job.begin(node, todo, self._looks, self._writer, self._progress, self._settings)

    def _end(self, job: Job, todo: Work) -> None:
        self._active.remove(job)
        entry = job.result
        if entry is None:
            return
        self._results[job.node.name] = entry
        self._failures += entry.failed
        self._let_go(job.node.name)
        self._keep_history(todo)
        done = sum(result.result in _DONE for result in self._results.values())
        left = len(todo.resume) + len(todo.start) - len(self._results)
        window_left = self._window().left
        soon = timedelta() < window_left < maintenance_window.HORIZON
        closes = f", the window closes in {words(window_left)}" if soon else ""
        self._progress.say(f"{done} done, {self._failures} failed, {left} left{closes}")

    def _let_go(self, name: str) -> None:
        """Release the Lease of a node."""
        for lease in [lease for lease in self._guard.leases if lease.name == _node_lease(name)]:
            self._guard.leases.remove(lease)
            with suppress(AckError):  # it runs out by itself
                lease.release()

    # --- what is told afterwards ---

    def _keep_history(self, todo: Work, *, final: bool = False) -> None:
        """A history that cannot be written now is no reason to leave nodes in the middle."""
        result = "running" if not final else "failed" if self._failures else "done"
        try:
            self._writer.history(self._entry(todo, result, final=final))
        except KubeError as problem:
            self._progress.say(f"the history could not be written: {problem.problem}")

    def _entry(self, todo: Work, result: str, *, final: bool) -> run_history.Entry:
        return run_history.Entry(
            run=self._writer.run,
            by=self._by,
            target=todo.target,
            started=self._started,
            ended=clock.now() if final else None,
            result=result,
            nodes=self._results,
        )

    def _outcome(self, todo: Work, hindrance: str) -> dict[str, Any]:
        names = [candidate.node.name for candidate in (*todo.resume, *todo.start)]
        return {
            "run": self._writer.run,
            "results": {name: _plain(entry) for name, entry in self._results.items()},
            "failures": self._failures,
            "not_started": [name for name in names if name not in self._results],
            "waiting_for": hindrance,
            "requests": self._kube.requests,
        }


def _node_lease(node: str) -> str:
    return f"ai-suite-node-{node}"


def _plain(entry: NodeEntry) -> Mapping[str, Any]:
    return {
        "result": entry.result,
        "version": entry.version,
        "reason": entry.reason,
        "failed": entry.failed,
        "attempts": entry.attempts,
        "steps": entry.steps,
    }
