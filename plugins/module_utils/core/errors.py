"""The one error that reaches a user: subject, problem, cure, stable code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class AckError(Exception):
    """A refusal or failure that a person can act on.

    ``code`` is stable and documented in ``docs/errors``; ``details`` is extra data for machines
    (findings, state of the run) and must never hold a secret.
    """

    def __init__(self, subject: str, problem: str, cure: str, code: str, **details: Any) -> None:
        super().__init__(f"{subject}: {problem} {cure} [{code}]")
        self.subject = subject
        self.problem = problem
        self.cure = cure
        self.code = code
        self.details: Mapping[str, Any] = details


def joined(names: Sequence[str], most: int = 3) -> str:
    """Names for a sentence: the first ``most``, then how many more there are."""
    shown = ", ".join(names[:most])
    rest = len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown
