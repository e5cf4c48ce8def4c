"""What a noun decided: the actions to take, what it found, and the two sides of the diff."""

from __future__ import annotations

from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding


class Action(msgspec.Struct, frozen=True):
    """One write. ``verb`` and ``target`` are for people; ``body`` is what the client needs to do it."""

    verb: str
    target: str
    body: dict[str, Any] = {}


class Plan(msgspec.Struct, frozen=True):
    """Empty ``actions`` means that nothing is to be done: a second run must come here.

    ``before`` and ``after`` are what the diff shows: plain data, secrets already masked.
    """

    actions: tuple[Action, ...] = ()
    findings: tuple[Finding, ...] = ()
    before: Any = None
    after: Any = None
    facts: dict[str, Any] = {}
