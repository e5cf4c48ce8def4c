"""The endpoint's records, one JSON file, so that an endpoint that was restarted goes on where it was."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from sandbox.layout import write_private


class Store:
    """`data` is read and changed inside `with store.change():` only; what differs afterwards is on disk."""

    def __init__(self, path: Path, seed: Callable[[], dict[str, Any]]) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._saved = ""
        if path.exists():
            self._saved = path.read_text()
            self.data: dict[str, Any] = json.loads(self._saved)
        else:
            self.data = seed()
            self._save()

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """What was changed before an exception is kept: a half-done call of a real service leaves its traces too."""
        with self._lock:
            try:
                yield self.data
            finally:
                self._save()

    def _save(self) -> None:
        text = msgspec.json.encode(self.data).decode()
        if text != self._saved:
            write_private(self._path, text)
            self._saved = text
