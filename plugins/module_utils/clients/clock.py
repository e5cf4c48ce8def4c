"""The only place that knows what time it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds that never jump, for measuring a duration."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)
