"""Who wants a machine to restart drops a request here; the process `sandbox.machines` obeys within 0.1 s."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path


def requests_folder(nodes_root: Path, node: str) -> Path:
    return nodes_root / node / "run" / "requests"


def request_reboot(nodes_root: Path, node: str, source: str, *, force: bool = False) -> None:
    """Ask for a restart of a machine; returns at once.

    `source` is who asks ("guest", "RebootInstance", "auto-repair"), for the machine's log. `force` is what pulling the
    plug is: it also works on a machine that hangs. Raises FileNotFoundError when there is no such machine.
    """
    folder = requests_folder(nodes_root, node)
    request = {"action": "reboot", "source": source, "force": force, "time": time.time()}
    name = f"{time.time_ns()}-{uuid.uuid4().hex[:8]}"
    temporary = folder / f".{name}"
    temporary.write_text(json.dumps(request))
    temporary.rename(folder / f"{name}.json")


def take_requests(nodes_root: Path, node: str) -> list[dict[str, object]]:
    """The requests that wait for a machine, oldest first; each is handed out once."""
    taken = []
    for path in sorted(requests_folder(nodes_root, node).glob("*.json")):
        taken.append(json.loads(path.read_text()))
        path.unlink()
    return taken
