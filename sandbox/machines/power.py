"""Who wants a machine to restart drops a request here; the process `sandbox.machines` obeys within 0.1 s."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """A wish: `source` is who asks, `force` is what pulling the plug is."""

    node: str
    source: str
    force: bool


def requests_folder(nodes_root: Path) -> Path:
    return nodes_root.parent / "run" / "machines" / "requests"


def request_reboot(nodes_root: Path, node: str, source: str, *, force: bool = False) -> None:
    """Ask for a restart of a machine; returns at once.

    `source` is who asks ("guest", "RebootInstance", "auto-repair"), for the machine's log. `force` also works on a
    machine that hangs. Raises FileNotFoundError when there is no such machine.
    """
    if not (nodes_root / node).is_dir():
        raise FileNotFoundError(f"there is no machine {node}")
    name = f"{time.time_ns()}-{uuid.uuid4().hex[:8]}"
    temporary = requests_folder(nodes_root) / f".{name}"
    temporary.write_text(json.dumps({"node": node, "source": source, "force": force}))
    temporary.rename(temporary.with_name(f"{name}.json"))


def take_requests(nodes_root: Path) -> list[Request]:
    """The requests that wait, oldest first; each is handed out once."""
    taken = []
    for path in sorted(requests_folder(nodes_root).glob("*.json")):
        taken.append(Request(**json.loads(path.read_text())))
        path.unlink()
    return taken
