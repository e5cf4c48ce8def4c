"""Preflight: every rule over the cluster and all its machines in one pass, all findings at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_labels
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding, Severity
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_facts import Machine
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_rules import (
    RULES,
    WHO,
    Context,
    Rule,
    Verdict,
)

Scope = Literal["all", "cluster", "nodes"]
Status = Literal["ok", "warnings", "failed"]
_ORDER: Mapping[Severity, int] = {"error": 0, "warning": 1, "info": 2}
_LABELS = 'ACK "Labels used by ACK to control GPUs"; Kubernetes: label syntax and character set'
# Rules on labels as somebody wrote them live with the labels; here they only get their line in the report.
LABEL_RULES: Mapping[str, str] = {
    "PRE-LABEL-SYNTAX": "labels that Kubernetes accepts",
    "PRE-LABEL-VALUE": "scheduling labels with a documented value",
    "PRE-LABEL-RIVALS": "one scheduling mode on a node",
}
_GPU_KEYS = {
    gpu_labels.SCHEDULE,
    gpu_labels.PLACEMENT,
    gpu_labels.MAX_POD,
    gpu_labels.LEGACY_ISOLATION,
    gpu_labels.LEGACY_SHARE,
}


class Silence(msgspec.Struct, frozen=True):
    """A finding that an operator accepts, with the reason; ``subject`` and ``code`` may hold ``*``."""

    code: str
    reason: str
    subject: str = "*"

    def covers(self, finding: Finding) -> bool:
        name = finding.subject.partition(" ")[2]
        return fnmatchcase(finding.code, self.code) and any(
            fnmatchcase(told, self.subject) for told in (finding.subject, name)
        )


class Check(msgspec.Struct, frozen=True):
    """One line of the report: a rule, how many subjects passed it and how many did not, and the worst that stands."""

    code: str
    what: str
    source: str
    passed: int
    failed: int
    worst: Severity | Literal["ok", "silenced"]


class Report(msgspec.Struct, frozen=True):
    """What preflight says. ``ok`` is false when an error stands that nobody silenced."""

    scope: Scope
    status: Status
    nodes: int
    gpu_nodes: int
    pools: int
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    silenced: tuple[tuple[Finding, str], ...]

    @property
    def ok(self) -> bool:
        return self.status != "failed"


def judge(scope: Scope, machines: Sequence[Machine], context: Context, silences: Sequence[Silence] = ()) -> Report:
    """Judge the cluster (unless ``scope`` is nodes) and all machines; nodes and planned pools alike."""
    tally = _Tally()
    found: list[Finding] = []
    for rule in RULES:
        found.extend(_of_machines(rule, machines, context, tally))
        if rule.who == "cluster" and scope != "nodes":
            found.extend(_of_cluster(rule, context, tally))
    found.extend(_of_labels(machines, tally))
    if scope != "cluster" and not any(machine.exists for machine in machines):
        found.append(_NO_NODES)
    found.sort(key=lambda finding: (_ORDER[finding.severity], finding.code, finding.subject))
    standing, silenced = _silence(found, silences)
    return Report(
        scope=scope,
        status=_status(standing),
        nodes=sum(machine.exists for machine in machines),
        gpu_nodes=sum(machine.exists and machine.stake != "none" for machine in machines),
        pools=sum(not machine.exists for machine in machines),
        checks=tally.checks(standing),
        findings=tuple(standing),
        silenced=tuple(silenced),
    )


_NO_NODES = Finding(
    "PRE-NO-NODES", "cluster", "no node at all", "nodes to judge",
    "Create a node pool with nodes, or check that the kubeconfig or the file is of the right cluster.", "warning",
)  # fmt: skip


class _Tally:
    """Counts for the lines of the report."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def checks(self, standing: Sequence[Finding]) -> tuple[Check, ...]:
        rows = [(rule.code, rule.what, rule.source) for rule in RULES]
        rows += [(code, what, _LABELS) for code, what in LABEL_RULES.items()]
        worst = {finding.code: finding.severity for finding in reversed(standing)}  # the worst stand first
        return tuple(
            Check(
                code, what, source, self.passed[code], self.failed[code],
                worst.get(code, "silenced" if self.failed[code] else "ok"),
            )
            for code, what, source in rows
            if self.passed[code] or self.failed[code]
        )  # fmt: skip


def _of_cluster(rule: Rule, context: Context, tally: _Tally) -> Iterator[Finding]:
    verdict = rule.check(context.cluster, context)
    if verdict is not None:
        yield from _told(rule, verdict, "cluster", None, tally)


def _of_machines(rule: Rule, machines: Iterable[Machine], context: Context, tally: _Tally) -> Iterator[Finding]:
    concerned, check = WHO[rule.who], rule.check
    for machine in machines:
        verdict = check(machine, context) if concerned(machine) else None
        if verdict is not None:
            yield from _told(rule, verdict, machine.subject, machine, tally)


def _told(rule: Rule, verdict: Verdict, subject: str, machine: Machine | None, tally: _Tally) -> Iterator[Finding]:
    if verdict.state == "ok":
        tally.passed[rule.code] += 1
        return
    tally.failed[rule.code] += 1
    severity = verdict.severity or (rule.broken if verdict.state == "broken" else rule.unknown)
    if machine is not None and rule.who == "gpu":
        severity = _softened(severity, verdict, machine)
    yield Finding(rule.code, subject, verdict.found, verdict.required, verdict.cure or rule.cure, severity, rule.source)


def _softened(severity: Severity, verdict: Verdict, machine: Machine) -> Severity:
    """The component serves nodes that share cards. Whole cards by choice can't fail it; where no choice was made,
    only what is known to be wrong does."""
    harmless = machine.stake == "whole" or (machine.stake == "open" and verdict.state == "unknown")
    return "warning" if harmless and severity == "error" else severity


def _of_labels(machines: Iterable[Machine], tally: _Tally) -> Iterator[Finding]:
    """A pool's labels are judged whole, as somebody wrote them; of a node's, those that say how its cards are given."""
    for machine in machines:
        judged = {key: value for key, value in machine.labels.items() if not machine.exists or key in _GPU_KEYS}
        if not judged:
            continue
        found = list(gpu_labels.label_findings(judged, machine.subject))
        broken = {finding.code for finding in found}
        tally.failed.update(broken)
        tally.passed.update(code for code in LABEL_RULES if code not in broken)
        yield from found


def _silence(found: Iterable[Finding], silences: Sequence[Silence]) -> tuple[list[Finding], list[tuple[Finding, str]]]:
    standing, silenced = [], []
    for finding in found:
        reason = next((silence.reason for silence in silences if silence.covers(finding)), None)
        if reason is None:
            standing.append(finding)
        else:
            silenced.append((finding, reason))
    return standing, silenced


def silences(wanted: Iterable[Mapping[str, str]]) -> tuple[Silence, ...]:
    """An operator's silences. Raises AckError (PRE-SILENCE) for one without a reason or for a code that no rule has."""
    known = [rule.code for rule in RULES] + list(LABEL_RULES) + [_NO_NODES.code]
    made = []
    for told in wanted:
        silence = Silence(told["code"], told["reason"].strip(), told.get("subject") or "*")
        if not silence.reason:
            raise AckError(
                "preflight_silence", f"{silence.code} has no reason.", "Write why it is accepted.", "PRE-SILENCE"
            )
        if not any(fnmatchcase(code, silence.code) for code in known):
            codes = ", ".join(known)
            raise AckError("preflight_silence", f"no rule is {silence.code}.", f"Choose of {codes}.", "PRE-SILENCE")
        made.append(silence)
    return tuple(made)


def _status(standing: Iterable[Finding]) -> Status:
    worst = min((_ORDER[finding.severity] for finding in standing), default=2)
    statuses: tuple[Status, ...] = ("failed", "warnings", "ok")
    return statuses[worst]
