"""Errors that a person can act on; every code stands in ``docs/errors/sandbox.md``."""

from __future__ import annotations


class SandboxError(Exception):
    """One line: subject, problem, cure and a stable code (``SBX-...``)."""

    def __init__(self, subject: str, problem: str, cure: str, code: str) -> None:
        super().__init__(f"{subject}: {problem} {cure} [{code}]")
        self.subject = subject
        self.problem = problem
        self.cure = cure
        self.code = code
