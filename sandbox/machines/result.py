"""What a stand-in program prints, and its exit status."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    out: str = ""
    err: str = ""
    code: int = 0


def fail(text: str, code: int = 1) -> Result:
    """An error message and a status."""
    return Result(err=f"{text}\n", code=code)


def lines(*texts: str) -> Result:
    """Success, with these lines."""
    return Result("".join(f"{text}\n" for text in texts))
