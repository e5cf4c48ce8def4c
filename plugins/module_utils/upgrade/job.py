"""One node of a run: looks at it, asks the core for the next step, and takes it."""

from __future__ import annotations

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi import CloudError
from ansible_collections.ack.ai_suite.plugins.module_utils.core import (
    drain,
    node_gates,
    node_state,
    node_steps,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.host_script import Probe, Procedure
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_state import Record
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_steps import View
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_upgrade import Work
from ansible_collections.ack.ai_suite.plugins.module_utils.core.run_history import NodeEntry
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Node, Pod
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.looks import Looks
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.progress import Progress
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.writer import Writer

# After an answer to RebootInstance was lost: until a host that was asked to restart is certainly on its way.
_UNSURE = 30.0
# How often a unit is started that does not show up on its host.
_STARTS = 3


class Job:
    """The node as it was last seen, and what a run may forget: pauses between evictions. ``result`` ends it."""

    def __init__(
        self, node: Node, record: Record, looks: Looks, writer: Writer, progress: Progress, settings: Settings
    ) -> None:
        self.node = node
        self.record = record
        self.result: NodeEntry | None = None
        self._looks = looks
        self._writer = writer
        self._progress = progress
        self._settings = settings
        self._daemonsets: dict[str, DaemonSet] = {}
        self._refusals: dict[str, str] = {}
        self._pauses: dict[str, tuple[int, float]] = {}
        self._starts = 0
        self._not_before = 0.0
        self._fresh = True

    @classmethod
    def begin(
        cls, node: Node, todo: Work, looks: Looks, writer: Writer, progress: Progress, settings: Settings
    ) -> Job | None:
        """Cordon a node, if everything that was true of it still is; None when it has its target by now.

        Raises AckError: UPG-NODE-REFUSED, UPG-NODE-LOST (somebody else took it), UPG-NODE-GONE.
        """
        before = node_state.record_of(node)
        pods, daemonsets = looks.pods(node.name), looks.daemonsets()
        probe = looks.host.probe(pods)
        version = probe.version if isinstance(probe, Probe) else ""
        if version == todo.target and before is None:
            return None
        leaving = drain.classify(pods, daemonsets, settings.drain)
        wrong = [*node_gates.gates(node, probe, settings), *drain.findings(node.name, leaving, looks.pdbs())]
        if wrong:
            raise AckError(
                f"node {node.name}", joined([f"{f.found} ({f.cure})" for f in wrong]), "Mend it.", "UPG-NODE-REFUSED"
            )
        unit = f"ai-suite-{writer.run}-{node.name}".replace(".", "-")  # systemd takes what follows a dot for a type
        record = node_steps.first(node, todo.target, version, unit, clock.now(), before)
        node = writer.node(node, "", lambda now: node_state.claim(now, writer.run, record))
        progress.node(node.name, f"cordoned, cGPU {version or 'none'} -> {todo.target}")
        job = cls(node, record, looks, writer, progress, settings)
        job._daemonsets = daemonsets
        return job

    def tick(self, window_open: bool) -> bool:
        """Take steps until the node must be waited for; True when any was taken."""
        moved = False
        while self.result is None and self._step(self._look(window_open)):
            moved = True
        return moved

    # --- looking ---

    def _look(self, window_open: bool) -> View:
        name = self.node.name
        if not self._fresh:
            self.node = self._writer.fresh(name)
        self._fresh = False
        wanted = node_steps.LOOKS[self.record.state]
        if "pods" in wanted and not self._daemonsets:
            self._daemonsets = self._looks.daemonsets()
        pods: tuple[Pod, ...] = self._looks.pods(name) if "pods" in wanted else ()
        return View(
            node=self.node,
            record=self.record,
            now=clock.now(),
            window_open=window_open,
            daemonsets=self._daemonsets,
            pods=pods,
            pdbs=tuple(self._looks.pdbs()) if self._refusals and "pods" in wanted else (),
            refusals=self._refusals,
            host=self._looks.host.status(self.node, self.record.unit) if "host" in wanted else None,
            version=self._looks.host.version(pods) if "version" in wanted and self.node.ready else None,
        )

    # --- acting ---

    def _step(self, view: View) -> bool:
        """Take the next step; False when there is nothing to do but wait."""
        match node_steps.step(view, self._settings):
            case node_steps.Advance(record):
                self._advance(record)
                return True
            case node_steps.Evict(pods, text):
                self._evict(pods)
                self._progress.waiting(self.node.name, text)
                return False
            case node_steps.Replace(pod):
                self._writer.delete_pod(pod)
                self._progress.node(self.node.name, f"installer pod {pod.name} of the old revision deleted")
                return False
            case node_steps.Start():
                self._start()
                return False
            case node_steps.Restart():
                return self._restart()
            case node_steps.End() as end:
                self._end(end)
                return True
            case node_steps.Wait(text):
                self._progress.waiting(self.node.name, text)
        return False

    def _write(self, record: Record) -> None:
        run = self._writer.run
        self.node = self._writer.node(self.node, run, lambda _: node_state.write(run, record))
        self.record = record
        self._fresh = True

    def _advance(self, record: Record) -> None:
        again = record.state == self.record.state
        self._write(record)
        text = "somebody uncordoned it: cordoned again" if again else record.state.replace("_", " ")
        self._progress.node(self.node.name, text)

    def _evict(self, pods: tuple[Pod, ...]) -> None:
        """Those that are due: a refused eviction is tried again after a pause that grows."""
        moment = clock.monotonic()
        due = [pod for pod in pods if self._pauses.get(pod.metadata.uid, (0, 0.0))[1] <= moment]
        for pod in due:
            self._refusals.pop(pod.metadata.uid, None)
        for refused in self._writer.evict(due, self._settings.drain.grace_period):
            uid = refused.pod.metadata.uid
            if refused.final:
                self.give_up(f"{refused.pod.key} cannot be evicted: {refused.text}")
                return
            tries = self._pauses.get(uid, (0, 0.0))[0]
            self._pauses[uid] = (tries + 1, moment + drain.pause(tries, refused.retry_after))
            self._refusals[uid] = f"{refused.pod.key}: {refused.text}"

    def give_up(self, reason: str) -> None:
        """Give the node back, or keep it, as the settings say of a failure before the uninstall."""
        self._end(node_steps.given_back(self._settings, reason))

    def _start(self) -> None:
        """Start the unit. The next look tells whether it runs; one that never does is no unit that could run."""
        self._writer.check()
        procedure = Procedure(
            self.record.unit,
            node_gates.runtime(self.node) or "containerd",
            self._settings.reboot == "guest",
            self._settings.timing.command,
            self._settings.timing.settle,
            self._settings.uninstall,
        )
        problem = self._looks.host.start(self.node.name, procedure)
        self._starts += 1
        if problem and self._starts > _STARTS:
            self.give_up(f"the unit {procedure.unit} could not be started on its host: {problem}")
        elif self._starts == 1:
            self._progress.node(self.node.name, "its host stops kubelet and containers, and uninstalls the old module")

    def _restart(self) -> bool:
        """Ask for the restart, then write that it was asked for; False when it could not be asked for now.

        The request is not idempotent. A run that died between the two, or an answer that was lost, leaves it unknown:
        the host itself is asked first, and one that is still in its old boot half a minute later was not restarted.
        """
        if clock.monotonic() < self._not_before:
            return False
        if self.record.attempt > 1 or self._not_before:
            host = self._looks.host.status(self.node, self.record.unit)
            if host is None and (clock.now() - self.record.at).total_seconds() < _UNSURE:
                self._progress.waiting(self.node.name, "asking the host whether it has restarted already")
                return False
            asked = host is not None and host.boot_id not in ("", self.record.boot_id)
        else:
            asked = False
        if not asked:
            self._writer.check()
            try:
                self._looks.host.restart(self.node)
            except CloudError as problem:
                if problem.code in ("CLD-CREDENTIALS", "CLD-CONFIG", "CLD-FORBIDDEN"):
                    raise
                self._not_before = clock.monotonic() + _UNSURE
                self._progress.waiting(self.node.name, f"the restart could not be requested: {problem.problem}")
                return False
        self._write(msgspec.structs.replace(self.record, restarted=clock.now()))
        self._progress.node(self.node.name, "restart of the instance requested")
        return True

    def _end(self, end: node_steps.End) -> None:
        run, record = self._writer.run, self.record
        final = node_state.advance(record, "quarantined", clock.now(), reason=end.reason, cure=end.cure)
        if end.result == "quarantined":
            self._writer.node(self.node, run, lambda now: node_state.quarantine(now, run, final), leaves=True)
        else:
            self._writer.node(self.node, run, lambda now: node_state.finish(now, run, record), leaves=True)
        version = record.target if end.result == "done" else record.version
        self.result = NodeEntry(end.result, version, end.reason, final.steps, record.attempt, end.failed)
        kept = ", a cordon from before stays" if record.unschedulable and end.result != "quarantined" else ""
        told = {"done": f"done, cGPU {record.target}{kept}", "restored": f"given back{kept}: {end.reason}"}
        self._progress.node(self.node.name, told.get(end.result, f"quarantined: {end.reason}. {end.cure}"))
