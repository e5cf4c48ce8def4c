"""Versions as people and packages write them (cases V01 to V08).

``docker://19.3.5`` is 19.03.5, ``v1.20.4-aliyun.1`` is 1.20.4, ``1.6.20~ds1`` is 1.6.20: the leading dotted
integers count, shorter versions are padded with zeros, vendor and packaging tails do not lower a version.
Only alpha, beta and rc do. What cannot be read is None, a third answer: unknown never passes.
"""

from __future__ import annotations

import functools
import re
from typing import Any

_FORM = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)?v?(\d{1,18}(?:\.\d{1,18})*)(?!\d)\+?(.*)", re.IGNORECASE | re.DOTALL | re.ASCII
)
_PRE = re.compile(r"[-.~+]?(alpha|beta|rc|pre)(?![a-z])[-.]?(\d{0,18})", re.IGNORECASE | re.ASCII)
_RANK = {"alpha": 0, "beta": 1, "pre": 2, "rc": 2}
_RELEASE = (3, 0)


@functools.total_ordering
class Version:
    """A version that can be compared. ``str()`` gives back what was found, for the report."""

    __slots__ = ("_key", "text")

    def __init__(self, text: str, numbers: tuple[int, ...], pre: tuple[int, int]) -> None:
        self.text = text
        last = len(numbers)
        while last > 1 and numbers[last - 1] == 0:  # 1.20 and 1.20.0 are one version
            last -= 1
        self._key = (numbers[:last], pre)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key == other._key

    def __lt__(self, other: Version) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Version({self.text!r})"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The dotted integers without trailing zeros."""
        return self._key[0]

    def series(self, parts: int) -> tuple[int, ...]:
        """The first ``parts`` integers, padded with zeros: (535, 161) for 535.161.07."""
        return (self.numbers + (0,) * parts)[:parts]


def parse(found: Any) -> Version | None:
    """The version in ``found``, or None when there is none to read (``Unknown``, ``n/a``, empty, a float)."""
    # A YAML float has lost digits already: 1.20 became 1.2.
    return _read(found.strip()) if isinstance(found, str) else None


@functools.lru_cache(maxsize=4096)  # thousands of nodes have a handful of versions
def _read(text: str) -> Version | None:
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    pre = _PRE.match(match[2])
    rank = (_RANK[pre[1].lower()], int(pre[2] or 0)) if pre else _RELEASE
    return Version(text, tuple(int(part) for part in match[1].split(".")), rank)


def at_least(found: Any, minimum: str) -> bool | None:
    """Whether ``found`` reaches ``minimum``; None when that cannot be known."""
    have, need = parse(found), parse(minimum)
    if need is None:
        raise ValueError(f"the minimum {minimum!r} is no version")
    return None if have is None else have >= need
