"""What a validator has to say: one finding per rule and subject, all of them in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError

Severity = Literal["error", "warning", "info"]


class Finding(msgspec.Struct, frozen=True, order=True):
    """One rule, broken by one subject. ``source`` names the document that the rule comes from."""

    code: str
    subject: str
    found: str
    required: str
    cure: str
    severity: Severity = "error"
    source: str = ""


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that forbid going on."""
    return tuple(finding for finding in findings if finding.severity == "error")


def refuse(subject: str, findings: Sequence[Finding], code: str) -> None:
    """Raise one AckError that lists every error among the findings; warnings never refuse."""
    wrong = errors(findings)
    if not wrong:
        return
    listed = "\n".join(f"  {f.code} {f.subject}: found {f.found}; required {f.required}. {f.cure}" for f in wrong)
    raise AckError(
        subject,
        f"{len(wrong)} thing(s) must be mended first:\n{listed}\n",
        "Nothing was changed.",
        code,
        findings=[msgspec.to_builtins(f) for f in findings],
    )
