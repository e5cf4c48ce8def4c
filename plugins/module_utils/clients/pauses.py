"""Waiting for something that takes seconds or minutes, without asking for it too often."""

from __future__ import annotations

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock

_FIRST, _LONGEST, _GROWTH = 0.5, 10.0, 1.4


class Pauses:
    """Pauses between two looks, within ``seconds``: half a second at first, ten in the end."""

    def __init__(self, seconds: float) -> None:
        self._until = clock.monotonic() + seconds
        self._pause = _FIRST

    def wait(self) -> bool:
        """Pause; False when the time is over instead."""
        left = self._until - clock.monotonic()
        if left <= 0:
            return False
        clock.sleep(min(self._pause, left))
        self._pause = min(self._pause * _GROWTH, _LONGEST)
        return True
