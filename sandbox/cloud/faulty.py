"""Which of the faults asked for meet a call, each used up by its count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandbox.cloud import faults
from sandbox.cloud.errors import CODES, CloudError
from sandbox.cloud.faults import Fault

TASK_KINDS = ("task-fails", "task-never-ends", "task-id-empty")


class FaultBox:
    """Reads the faults file when it changed. How often each was met is kept in the endpoint's own records."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._seen: tuple[int, int, int] | None = None
        self._faults: list[Fault] = []

    def take(self, data: dict[str, Any], action: str, user: str, *, makes_task: bool) -> list[Fault]:
        """The faults that meet this call, counted as used. Those about tasks wait for a call that makes one."""
        uses = data["fault_uses"]
        known = self._read()
        for gone in uses.keys() - {each.id for each in known}:
            del uses[gone]
        met = [
            each
            for each in known
            if each.meets(action, user)
            and (makes_task or each.kind not in TASK_KINDS)
            and not (each.count and uses.get(each.id, 0) >= each.count)
        ]
        for each in met:
            uses[each.id] = uses.get(each.id, 0) + 1
        return met

    def _read(self) -> list[Fault]:
        try:
            status = faults.path_of(self._state).stat()
        except FileNotFoundError:
            return []
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._faults, self._seen = faults.read(self._state), seen
        return self._faults


def refusal(met: list[Fault]) -> CloudError | None:
    """The error that the first refusing fault asks for."""
    for fault in met:
        if fault.kind in ("throttle", "error"):
            code = fault.code or "Throttling.User"
            known = CODES.get(code)
            message = known.message.format_map(_Gaps()) if known else "A fault that was asked for."
            return CloudError(code, message, fault.status or (known.status if known else 500), fault.seconds)
    return None


def seconds(met: list[Fault], kind: str) -> float:
    """How long the faults of a kind last together; -1 when there is none."""
    found = [each.seconds for each in met if each.kind == kind]
    return sum(found) if found else -1.0


class _Gaps(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"
