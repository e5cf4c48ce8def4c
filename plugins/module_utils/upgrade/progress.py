"""Lines for the people who watch: at once when something happens, and once in a while when nothing does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.core.duration import words
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.guard import Guard


class Progress:
    """``emit`` prints one line; ``every`` is the longest silence while something is waited for."""

    def __init__(self, host: str, emit: Callable[[str], None], guard: Guard, every: timedelta) -> None:
        self._host = host
        self._emit = emit
        self._guard = guard
        self._every = every.total_seconds()
        self._last: dict[str, tuple[str, float]] = {}
        self._began: dict[str, float] = {}

    def say(self, text: str) -> None:
        """One line, unless nobody is there to read it: a pipe without a reader would hold us up."""
        if not self._guard.orphaned:
            self._emit(f"[{self._host}] {text}")

    def node(self, name: str, text: str) -> None:
        """A step of a node, with the time since it was begun."""
        began = self._began.setdefault(name, clock.monotonic())
        self._last[name] = (text, clock.monotonic())
        self.say(f"{name}: {text} ({words(clock.monotonic() - began)})")

    def waiting(self, name: str, text: str) -> None:
        """What a node waits for: said when it changes, and again after ``every``."""
        last, since = self._last.get(name, ("", 0.0))
        if text != last or clock.monotonic() - since >= self._every:
            self.node(name, text)
