"""`cloud/requests.jsonl`: one line for each request, secrets masked: what was sent, by whom, and whether it writes."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

SECRET_NAME = re.compile(r"password|secret|token|user_?data|commandcontent", re.IGNORECASE)
MASK = "***"
_NOT_SECRET = {"NextToken", "next_token", "ClientToken"}


class RequestLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)

    def write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(masked(entry), ensure_ascii=False) + "\n"
        with self._lock, self._path.open("a") as stream:
            stream.write(line)


def masked(value: Any, name: str = "") -> Any:
    """The value without what is secret by its name (a command may carry a secret, so its text is masked too)."""
    if isinstance(value, dict):
        return {key: masked(each, str(key)) for key, each in value.items()}
    if isinstance(value, list):
        return [masked(each, name) for each in value]
    if value not in (None, "") and not isinstance(value, bool) and name not in _NOT_SECRET and SECRET_NAME.search(name):
        return MASK
    return value
