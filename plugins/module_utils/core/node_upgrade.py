"""Which nodes get another cGPU version, in which order, and what forbids it. Pure.

Sources: ACK, "Upgrade the cGPU version of a node" (the procedure) and "Manage the GPU sharing component" (which nodes
are isolated, off-peak).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import (
    drain,
    gpu_labels,
    installer,
    maintenance_window,
    node_gates,
    node_state,
    upgrade_target,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.duration import words
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding, errors, refuse
from ansible_collections.ack.ai_suite.plugins.module_utils.core.host_script import Probe
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Action, Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Node, Pod, Snapshot
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings

ZONE = "topology.kubernetes.io/zone"
_GPU = (gpu_labels.GPU_MEM, gpu_labels.GPU_CORE, gpu_labels.GPU_WHOLE, gpu_labels.GPU_TOPOLOGY)

Status = Literal["current", "pending", "refused", "in_progress", "quarantined", "skipped"]


class Observed(msgspec.Struct, frozen=True):
    """What a run looked at. ``probes`` holds, by node, what its host said, or a text why it could not be asked."""

    snapshot: Snapshot
    probes: dict[str, Probe | str]
    now: datetime


class Candidate(msgspec.Struct, frozen=True):
    """One isolated node, and what is to become of it."""

    node: Node
    status: Status
    version: str = ""
    gpu_pods: int = 0
    pods: drain.Sorted = drain.Sorted()
    findings: tuple[Finding, ...] = ()

    def row(self, target: str) -> dict[str, Any]:
        """For the table of the plan."""
        record = None if self.status not in ("in_progress", "quarantined") else node_state.record_of(self.node)
        return {
            "node": self.node.name,
            "status": self.status,
            "version": self.version or (record.version if record else ""),
            "target": target,
            "state": record.state if record else "",
            "reason": record.reason if record else "",
            "pods_to_move": len(self.pods.remaining),
            "gpu_pods": self.gpu_pods,
        }


class Work(msgspec.Struct, frozen=True):
    """What a run has to do: nodes that another run began first, then the others in order."""

    target: str
    window: maintenance_window.State
    installers: dict[str, DaemonSet]
    resume: tuple[Candidate, ...] = ()
    start: tuple[Candidate, ...] = ()
    refused: tuple[Candidate, ...] = ()
    quarantined: int = 0
    allowed: int = 1
    candidates: tuple[Candidate, ...] = ()


def isolated(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that have a cGPU module at all; no other is ever touched."""
    return [node for node in nodes if gpu_labels.has_isolation(node.labels)]


def to_probe(snapshot: Snapshot, settings: Settings) -> list[Node]:
    """The nodes whose hosts must be asked: in scope, and not in the middle of an upgrade."""
    retry = settings.retry_quarantined
    return [
        node for node in _scope(snapshot, settings)
        if node_state.SKIP not in node.labels and (retry or node_state.RECORD not in node.annotations)
    ]  # fmt: skip


def _scope(snapshot: Snapshot, settings: Settings) -> list[Node]:
    """The isolated nodes that are asked for; a node in the middle of an upgrade always is."""
    wanted = set(settings.nodes)
    return [
        node for node in isolated(snapshot.nodes)
        if not wanted or node.name in wanted or node_state.RUN in node.annotations
    ]  # fmt: skip


def work(settings: Settings, observed: Observed) -> Work:
    """Everything that this run would do now. Raises AckError where the cluster as a whole forbids it."""
    snapshot = observed.snapshot
    nodes = _scope(snapshot, settings)
    found = upgrade_target.installers(snapshot.daemonsets)
    target, findings = upgrade_target.resolve(settings, nodes, found)
    findings += _unknown_nodes(settings, snapshot)
    refuse("node_upgrade", findings, findings[0].code if len(errors(findings)) == 1 else "UPG-REFUSED")
    pods = _by_node(snapshot.pods)
    daemonsets = {f"{ds.namespace}/{ds.name}": ds for ds in snapshot.daemonsets}
    judged = tuple(_judge(node, settings, target, observed, pods.get(node.name, []), daemonsets) for node in nodes)
    by_status = {status: [c for c in judged if c.status == status] for status in ("pending", "refused", "in_progress")}
    return Work(
        target=target,
        window=maintenance_window.state(settings.calendar, observed.now),
        installers=found,
        resume=tuple(by_status["in_progress"]),
        start=tuple(in_order(by_status["pending"], settings.nodes)),
        refused=tuple(by_status["refused"]),
        quarantined=0 if settings.retry_quarantined else sum(c.status == "quarantined" for c in judged),
        allowed=settings.failures_allowed(len(nodes)),
        candidates=judged,
    )


def with_instances(todo: Work, found: frozenset[str]) -> Work:
    """The work without nodes whose ECS instance does not exist: it could not be restarted."""
    gone = [c for c in todo.start if c.node.instance_id not in found]
    refused = tuple(
        msgspec.structs.replace(candidate, status="refused", findings=(_no_instance(candidate.node),))
        for candidate in gone
    )
    names = {candidate.node.name: candidate for candidate in refused}
    return msgspec.structs.replace(
        todo,
        start=tuple(c for c in todo.start if c.node.name not in names),
        refused=(*todo.refused, *refused),
        candidates=tuple(names.get(c.node.name, c) for c in todo.candidates),
    )


def _no_instance(node: Node) -> Finding:
    return Finding("UPG-NODE-INSTANCE", node.name, f"no instance {node.instance_id}", "an instance of this account",
                   "Check ack_connection.region_id and the identity.")  # fmt: skip


def _unknown_nodes(settings: Settings, snapshot: Snapshot) -> list[Finding]:
    there, able = {node.name for node in snapshot.nodes}, {node.name for node in isolated(snapshot.nodes)}
    return [
        Finding("UPG-NODE-UNKNOWN", name, "not in the cluster" if name not in there else "no cGPU isolation",
                "a node with ack.node.gpu.schedule=cgpu or core_mem, or cgpu=true", "Remove it from nodes.")
        for name in settings.nodes if name not in able
    ]  # fmt: skip


def _by_node(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(pod.spec.node_name, []).append(pod)
    return found


def _judge(
    node: Node, settings: Settings, target: str, observed: Observed, pods: list[Pod], daemonsets: dict[str, DaemonSet]
) -> Candidate:
    try:
        record = node_state.record_of(node)
    except ValueError as problem:
        return Candidate(node, "refused", findings=(_unreadable(node, str(problem)),))
    if record is not None and (record.state != "quarantined" or not settings.retry_quarantined):
        return Candidate(node, "quarantined" if record.state == "quarantined" else "in_progress")
    if node_state.SKIP in node.labels:
        return Candidate(node, "skipped")
    if node_state.owner(node):
        return Candidate(node, "refused", findings=(_unreadable(node, f"{node_state.RUN} without a record"),))
    probe = observed.probes.get(node.name, "its host was not asked")
    version = probe.version if isinstance(probe, Probe) else ""
    if version == target and record is None:
        return Candidate(node, "current", version, findings=tuple(_old_pod(node, pods, daemonsets)))
    leaving = drain.classify(pods, daemonsets, settings.drain)
    findings = (
        *node_gates.gates(node, probe, settings),
        *drain.findings(node.name, leaving, observed.snapshot.pdbs),
    )
    return Candidate(node, "refused" if findings else "pending", version, _gpu_pods(pods), leaving, findings)


def _unreadable(node: Node, problem: str) -> Finding:
    return Finding("UPG-STATE", node.name, problem, "a state that can be read",
                   f"Look at the node, then remove its annotations {node_state.PREFIX}* and uncordon it.")  # fmt: skip


def _old_pod(node: Node, pods: list[Pod], daemonsets: Mapping[str, DaemonSet]) -> list[Finding]:
    """The right module under an old pod: the kubelet would bring the old image back at the next restart."""
    pod = installer.alive(pods)
    ds = daemonsets.get(f"{installer.NAMESPACE}/{installer.installer_of(node.labels)}")
    if pod is None or ds is None or installer.of_revision(pod, ds):
        return []
    return [
        Finding("UPG-POD-OLD", node.name, f"pod {pod.key} of an old revision", "the DaemonSet's current revision",
                f"kubectl -n {pod.namespace} delete pod {pod.name}: the module stays loaded.", "warning")
    ]  # fmt: skip


def _gpu_pods(pods: Sequence[Pod]) -> int:
    return sum(
        1 for pod in pods
        if not pod.finished and any(name in (c.resources.limits or {}) for c in pod.containers for name in _GPU)
    )  # fmt: skip


def in_order(candidates: Sequence[Candidate], wanted: Sequence[str] = ()) -> list[Candidate]:
    """As listed; else idle nodes first, then by number of GPU pods, in turns over the zones; stable by name."""
    if wanted:
        place = {name: number for number, name in enumerate(wanted)}
        return sorted(candidates, key=lambda c: place.get(c.node.name, len(place)))
    turns: dict[tuple[int, str], int] = {}
    keys = {}
    for candidate in sorted(candidates, key=lambda c: c.node.name):
        zone = (candidate.gpu_pods, candidate.node.labels.get(ZONE, ""))
        turns[zone] = turns.get(zone, -1) + 1
        keys[candidate.node.name] = (candidate.gpu_pods, turns[zone], zone[1], candidate.node.name)
    return sorted(candidates, key=lambda c: keys[c.node.name])


def may_start(todo: Work, settings: Settings, window: maintenance_window.State, failures: int) -> str:
    """Why no other node may be started now, or "" when one may."""
    if window.open is None:
        return f"outside the maintenance window; {opening(window)}"
    if window.left < settings.timing.node:
        told = f"the window closes in {words(window.left)}, a node may take {words(settings.timing.node)}"
        return f"{told}; {opening(window)}"
    if failures + todo.quarantined >= todo.allowed:
        held = f"{todo.quarantined} quarantined before, " if todo.quarantined else ""
        return f"the failure budget is spent ({held}{failures} failed in this run, {todo.allowed} stop it)"
    return ""


def opening(window: maintenance_window.State) -> str:
    """When the next window opens, for people: in its own words, UTC."""
    if window.following is None:
        return "no window opens in the next three years"
    opens = window.following.opens
    return f"the next window opens {opens:%Y-%m-%d %H:%M} UTC, in {words(opens - window.now)}"


def plan(settings: Settings, todo: Work) -> Plan:
    """The work as a plan: what this run does now, and the whole table in its facts.

    Raises AckError when nodes are refused and the settings do not say to skip them; not while nodes of a run that was
    killed wait to be finished.
    """
    if settings.refused == "fail" and not todo.resume:
        wrong = [finding for candidate in todo.refused for finding in candidate.findings]
        refuse("node_upgrade", wrong, wrong[0].code if len(wrong) == 1 else "UPG-REFUSED")
    hindrance = may_start(todo, settings, todo.window, 0)
    starting = () if hindrance else todo.start
    actions = [Action("continue", f"node {c.node.name}") for c in todo.resume]
    actions += [Action("upgrade", f"node {c.node.name}: {c.version or 'no module'} -> {todo.target}") for c in starting]
    changing = {c.node.name: c for c in (*todo.resume, *starting)}
    rows = [candidate.row(todo.target) for candidate in _listed(todo)]
    return Plan(
        actions=tuple(actions),
        findings=tuple(finding for candidate in todo.candidates for finding in candidate.findings),
        before={name: c.version or "in progress" for name, c in changing.items()},
        after=dict.fromkeys(changing, todo.target),
        facts={
            "target": todo.target,
            "nodes": rows,
            "waiting_for": hindrance if todo.start else "",
            "window": window_facts(settings.calendar, todo.window),
        },
    )


def _listed(todo: Work) -> list[Candidate]:
    first = [*todo.resume, *todo.start]
    names = {candidate.node.name for candidate in first}
    return first + [candidate for candidate in todo.candidates if candidate.node.name not in names]


def window_facts(calendar: maintenance_window.Calendar, window: maintenance_window.State) -> Mapping[str, Any]:
    """The state of the windows, for machines; times in UTC. ``skipped`` are openings that daylight saving swallows."""

    def iso(moment: datetime | None) -> str | None:
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None

    until = window.following.opens if window.following else window.now
    return {
        "open": window.open is not None,
        "closes": iso(window.open.closes if window.open else None),
        "seconds_left": int(window.left.total_seconds()),
        "next_opening": iso(window.following.opens if window.following else None),
        "skipped": [
            f"{start:%Y-%m-%d %H:%M} {rule.zone}"
            for rule in calendar.windows
            for start in maintenance_window.skipped(rule, window.now, until)
        ],
    }
