"""What an inventory asks of the upgrade of nodes, checked in one pass before anything else is looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import drain, versions, window_rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core import duration as lengths
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding, refuse
from ansible_collections.ack.ai_suite.plugins.module_utils.core.maintenance_window import Calendar

# cGPU versions that the "cGPU FAQ" lists; there is no public map from ack-ai-installer to them.
KNOWN = (
    "0.8.10", "0.8.12", "0.8.13", "0.8.17", "1.0.3", "1.0.5", "1.0.6", "1.0.7", "1.0.8", "1.0.9", "1.0.10",
    "1.5.2", "1.5.3", "1.5.5", "1.5.6", "1.5.7", "1.5.8", "1.5.9", "1.5.10", "1.5.11", "1.5.12", "1.5.13",
    "1.5.15", "1.5.16", "1.5.17", "1.5.18", "1.5.19", "1.5.20",
)  # fmt: skip


class Timing(msgspec.Struct, frozen=True):
    """How long things may take. ``poll`` is the pause between two looks at a node, ``progress`` between two lines."""

    node: timedelta = timedelta(minutes=30)
    installer: timedelta = timedelta(minutes=10)
    host: timedelta = timedelta(minutes=15)
    command: timedelta = timedelta(minutes=2)
    settle: timedelta = timedelta(seconds=30)
    boot: timedelta = timedelta(minutes=20)
    verify: timedelta = timedelta(minutes=10)
    poll: timedelta = timedelta(seconds=2)
    lease: timedelta = timedelta(seconds=30)
    progress: timedelta = timedelta(seconds=60)


class Settings(msgspec.Struct, frozen=True):
    """``target`` "" means: the version in the image tag of the installers. ``max_failures`` may be a percentage."""

    calendar: Calendar
    target: str = ""
    known: frozenset[str] = frozenset(KNOWN)
    nodes: tuple[str, ...] = ()
    max_failures: str = "1"
    on_failure: Literal["restore", "keep"] = "restore"
    refused: Literal["fail", "skip"] = "fail"
    incomplete: Literal["ok", "fail"] = "ok"
    retry_quarantined: bool = False
    reboot: Literal["ecs", "guest"] = "ecs"
    drain: drain.Options = drain.Options()
    timing: Timing = Timing()
    uninstall: bytes = b""

    def failures_allowed(self, nodes: int) -> int:
        """How many nodes may fail before no other is started; a percentage of all nodes is rounded down, 1 at least."""
        if self.max_failures.endswith("%"):
            return max(1, nodes * int(self.max_failures[:-1]) // 100)
        return int(self.max_failures)


_COUNT = re.compile(r"[1-9]\d*|([1-9]\d?|100)%")


def settings(params: Mapping[str, Any], uninstall: bytes = b"") -> Settings:
    """The settings in a module's parameters. Raises AckError that lists everything that is wrong with them."""
    calendar, findings = window_rules.calendar(params.get("windows"), params.get("blackouts"))
    known = frozenset((*KNOWN, *_versions("known_versions", params.get("known_versions") or (), findings)))
    target = _target(params.get("target_version"), known, findings)
    timing = _lengths("timing", params.get("timing") or {}, Timing, findings)
    _long_enough(calendar, timing, findings)
    eviction = dict(params.get("drain") or {})
    limit = _lengths("drain", {"timeout": eviction.pop("timeout", None)}, drain.Options, findings).timeout
    most = str(1 if params.get("max_failures") is None else params["max_failures"]).strip()
    if not _COUNT.fullmatch(most):
        findings.append(_finding("max_failures", most, "a number of 1 and more, or a percentage", "For example '10%'."))
    refuse("node_upgrade", findings, findings[0].code if len(findings) == 1 else "UPG-INPUT")
    chosen = {name: params[name] for name in ("on_failure", "refused", "incomplete", "reboot") if params.get(name)}
    return Settings(
        calendar=calendar,
        target=target,
        known=known,
        nodes=tuple(params.get("nodes") or ()),
        max_failures=most,
        retry_quarantined=bool(params.get("retry_quarantined")),
        drain=drain.Options(timeout=limit, **{name: value for name, value in eviction.items() if value is not None}),
        timing=timing,
        uninstall=uninstall,
        **chosen,
    )


def _finding(subject: str, found: Any, required: str, cure: str, code: str = "UPG-INPUT") -> Finding:
    return Finding(code, subject, repr(found), required, cure)


def _long_enough(calendar: Calendar, timing: Timing, findings: list[Finding]) -> None:
    """Windows that are all shorter than a node takes would start none, night after night.

    Windows given by their end are left to the run: they may be longer on some days, and adjoining ones are one.
    """
    known = [window.duration for window in calendar.windows if window.duration is not None]
    if known and len(known) == len(calendar.windows) and sum(known, timedelta()) < timing.node:
        longest = lengths.words(max(known))
        findings.append(
            _finding("windows", longest, f"{lengths.words(timing.node)}, what timing.node says that a node takes",
                     "Make a window longer, or timing.node shorter if nodes are faster.", "UPG-WINDOW-SHORT")
        )  # fmt: skip


def _versions(subject: str, given: Any, findings: list[Finding]) -> list[str]:
    """Versions as text: YAML has read an unquoted 1.10 as the number 1.1."""
    good = []
    for entry in given:
        if isinstance(entry, str) and versions.parse(entry) is not None:
            good.append(entry.removeprefix("v"))
        else:
            findings.append(
                _finding(
                    subject, entry, "a version as quoted text", "Quote it, for example '1.5.20'.", "UPG-TARGET-FORM"
                )
            )
    return good


def _target(given: Any, known: frozenset[str], findings: list[Finding]) -> str:
    if given is None or given == "":
        return ""
    read = _versions("target_version", [given], findings)
    if read and read[0] not in known:
        findings.append(
            _finding("target_version", given, "a known cGPU version",
                     "If it is new, add it to known_versions; the list is that of the cGPU FAQ.", "UPG-TARGET-UNKNOWN")
        )  # fmt: skip
    return read[0] if read else ""


def _lengths(subject: str, given: Mapping[str, Any], kind: type[Any], findings: list[Finding]) -> Any:
    read = {}
    for name, text in given.items():
        length = None if text is None else lengths.duration(text)
        if length is not None:
            read[name] = length
        elif text is not None:
            findings.append(_finding(f"{subject}.{name}", text, "a length of time", lengths.HELP))
    return kind(**read)
