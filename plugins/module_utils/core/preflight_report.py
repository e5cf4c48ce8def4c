"""The report of preflight: a text for people, grouped, and plain data for machines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.columns import aligned
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight import Check, Report

_WIDTH = 108  # Ansible indents it by 8
_WORD = {"error": "ERROR", "warning": "WARNING", "info": "NOTE"}
_MARK = {**_WORD, "info": "note", "silenced": "silenced", "ok": "ok"}


def data(report: Report) -> dict[str, Any]:
    """The report as JSON has it; the same cluster gives the same bytes."""
    return {
        "ok": report.ok,
        "status": report.status,
        "scope": report.scope,
        "judged": {"nodes": report.nodes, "gpu_nodes": report.gpu_nodes, "pools": report.pools},
        "checks": [msgspec.to_builtins(check) for check in report.checks],
        "findings": [msgspec.to_builtins(finding) for finding in report.findings],
        "silenced": [{**msgspec.to_builtins(finding), "reason": reason} for finding, reason in report.silenced],
    }


def grouped(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings that differ in their subject alone as one, with ``subjects``: a fleet fits into an Ansible result."""
    kinds = []
    for finding, subjects in _grouped(findings):
        plain: dict[str, Any] = msgspec.to_builtins(finding)
        del plain["subject"]
        kinds.append({**plain, "subjects": subjects})
    return kinds


def text(report: Report, name: str) -> str:
    """One line a check, then each kind of finding once: how many subjects, three of their names, and the cure."""
    lines = [f"Preflight of {name}: {_outcome(report)}", ""]
    lines += aligned([_check(check) for check in report.checks])
    for finding, subjects in _grouped(report.findings):
        lines += ["", *_headed(f"{_WORD[finding.severity]} {finding.code}", subjects), *_explained(finding)]
    for (finding, reason), subjects in _grouped_silenced(report.silenced):
        lines += ["", *_headed(f"SILENCED {finding.code}", subjects), *_wrapped(f"reason: {reason}")]
    return "\n".join(lines)


def _outcome(report: Report) -> str:
    judged = [_counted(report.nodes, "node") + f" ({report.gpu_nodes} with GPU)"] if report.nodes else []
    judged += [_counted(report.pools, "pool specification")] if report.pools else []
    counts = [
        _counted(sum(finding.severity == severity for finding in report.findings), word)
        for severity, word in (("error", "error"), ("warning", "warning"), ("info", "note"))
    ]
    counts += [f"{len(report.silenced)} silenced"] if report.silenced else []
    return f"{report.status.upper()}. {', '.join(judged) or 'The cluster alone'}: {', '.join(counts)}"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _check(check: Check) -> list[str]:
    return ["  " + _MARK[check.worst], check.code, check.what, f"{check.passed} of {check.passed + check.failed}"]


def _grouped(findings: Sequence[Finding]) -> Iterator[tuple[Finding, list[str]]]:
    groups: dict[Finding, list[str]] = {}
    for finding in findings:
        groups.setdefault(msgspec.structs.replace(finding, subject=""), []).append(finding.subject)
    yield from groups.items()


def _grouped_silenced(
    silenced: Sequence[tuple[Finding, str]],
) -> Iterator[tuple[tuple[Finding, str], list[str]]]:
    groups: dict[tuple[Finding, str], list[str]] = {}
    for finding, reason in silenced:
        key = msgspec.structs.replace(finding, subject="", found="", required=""), reason
        groups.setdefault(key, []).append(finding.subject)
    yield from groups.items()


def _headed(title: str, names: Sequence[str]) -> list[str]:
    count = f" ({len(names)})" if len(names) > 1 else ""
    return _wrapped(f"{title}  {joined(names)}{count}", first="")


def _explained(finding: Finding) -> Iterator[str]:
    yield from _wrapped(f"found {finding.found}; required {finding.required}")
    yield from _wrapped(f"{finding.cure} [{finding.source}]")


def _wrapped(line: str, first: str = "    ") -> list[str]:
    return textwrap.wrap(line, _WIDTH, initial_indent=first, subsequent_indent="    ", break_on_hyphens=False)
