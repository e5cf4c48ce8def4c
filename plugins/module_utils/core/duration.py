"""Lengths of time as people write them: ``90s``, ``15m``, ``4h``, ``1h30m``, ``2d``. A bare number has no unit."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

_FORM = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
HELP = "Write it as quoted text with a unit, for example '90s', '15m', '4h' or '1h30m'."


def duration(text: Any) -> timedelta | None:
    """The length of time in ``text``, or None for what is none: no text, no unit, or zero."""
    match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) or None


def words(length: timedelta | float) -> str:
    """A length of time for people, in the two largest units: ``42s``, ``3m05s``, ``2h10m``, ``1d04h``."""
    seconds = int(length.total_seconds() if isinstance(length, timedelta) else length)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 1:
        return f"{seconds}s"
    if hours < 1:
        return f"{minutes}m{seconds % 60:02}s"
    if days < 1:
        return f"{hours}h{minutes % 60:02}m"
    return f"{days}d{hours % 24:02}h"
