"""Paging as the services do it (pure): page numbers, and opaque markers."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from sandbox.cloud.errors import error


def page(items: Sequence[Any], number: int, size: int, *, largest: int) -> list[Any]:
    """One page; numbers start at 1. Raises InvalidParameter.Paging."""
    if number < 1:
        raise error("InvalidParameter.Paging", name="the page number", expected="1 or more")
    if not 1 <= size <= largest:
        raise error("InvalidParameter.Paging", name="the page size", expected=f"1 to {largest}")
    return list(items[(number - 1) * size : number * size])


def slice_after(items: Sequence[Any], marker: str, size: int) -> tuple[list[Any], str]:
    """The items behind a marker, and the marker of the rest (empty: that was all). Raises ValueError."""
    start = int(base64.b64decode(marker, validate=True).decode().removeprefix("at:")) if marker else 0
    if not 0 <= start <= len(items):
        raise ValueError(marker)
    end = start + size
    return list(items[start:end]), base64.b64encode(f"at:{end}".encode()).decode() if end < len(items) else ""
