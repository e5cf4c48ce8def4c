"""Says how a long piece of work goes: in place on a terminal, one line now and then on a pipe."""

from __future__ import annotations

import sys
import time
from typing import TextIO

TERMINAL_INTERVAL, PIPE_INTERVAL = 0.5, 15.0


class Progress:
    """Lines of progress on ``stream`` (standard error); the latest ``update`` wins until its time has come."""

    def __init__(self, stream: TextIO | None = None, *, interval: float | None = None) -> None:
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.interval = interval if interval is not None else TERMINAL_INTERVAL if self.terminal else PIPE_INTERVAL
        self.began = self.shown = time.monotonic()
        self._open_line = False

    @property
    def elapsed(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        """A line that stays."""
        self._close_line()
        print(text, file=self.stream, flush=True)

    def update(self, text: str) -> None:
        """The state of now; most of them are never shown."""
        if time.monotonic() - self.shown < self.interval:
            return
        self.shown = time.monotonic()
        if self.terminal:
            self.stream.write(f"\r\033[K{text}")
            self.stream.flush()
            self._open_line = True
        else:
            self.say(text)

    def _close_line(self) -> None:
        if self._open_line:
            self.stream.write("\r\033[K")
            self._open_line = False


def clock(seconds: float) -> str:
    """75 as ``1:15``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def about(seconds: float) -> str:
    """A rough duration for a sentence: an estimate must not look like a measurement."""
    if seconds < 50:
        return "less than a minute"
    minutes = max(1, round(seconds / 60))
    return f"about {minutes} minute{'s' if minutes > 1 else ''}"
