"""The last runs, as a ConfigMap keeps them: who, when, what for, and each node's steps with their seconds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

KEPT = 20
# A ConfigMap holds 1 MiB at most.
LARGEST = 900_000


class NodeEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a node."""

    result: str
    version: str = ""
    reason: str = ""
    steps: dict[str, float] = {}
    attempts: int = 1
    failed: bool = False


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run. ``ended`` is absent while it runs, and when it was killed."""

    run: str
    by: str
    target: str
    started: datetime
    ended: datetime | None = None
    result: str = "running"
    nodes: dict[str, NodeEntry] = {}


def change(data: Mapping[str, str], entry: Entry) -> dict[str, str | None]:
    """The change to the ConfigMap's data (a merge patch): our key anew, the oldest away. Run ids sort by time."""
    text = msgspec.json.encode(entry).decode()
    changed: dict[str, str | None] = {entry.run: text}
    others = sorted((key for key in data if key != entry.run), reverse=True)
    size = len(text)
    for place, key in enumerate(others, start=2):
        size += len(data[key])
        if place > KEPT or size > LARGEST:
            changed[key] = None
    return changed
