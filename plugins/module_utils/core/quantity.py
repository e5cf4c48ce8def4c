"""Kubernetes quantities, by value and exactly (``1k`` = 1000, ``20480Mi`` = ``20Gi``, ``15000m`` = 15)."""

from __future__ import annotations

import re
from decimal import Decimal

_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_FORM = re.compile(
    r"([+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40}))(?:[eE]([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)


def quantity(text: str | int | float | None) -> Decimal | None:
    """The value of a quantity as the API writes it, or None for what is not one."""
    match = _FORM.fullmatch(str(text).strip()) if text is not None else None
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    return Decimal(number) * (Decimal(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])


def whole(text: str | int | float | None) -> int:
    """A quantity as an integer, rounded down; 0 for what is absent or no quantity."""
    value = quantity(text)
    return int(value) if value is not None else 0
