"""Faults on demand: `<state>/cloud/faults.json`, written here, obeyed by the endpoint (which never writes that file).

A fault meets calls of one action (or of all, `*`), of one user or of everybody, `count` times or until it is cleared.
"""

from __future__ import annotations

import argparse
import json
import uuid
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from sandbox.layout import locked, write_private

KINDS = {
    "throttle": "refuse the call with Throttling.User (retry hint: --seconds)",
    "error": "refuse the call with --code and --status",
    "delay": "answer only after --seconds",
    "apply-then-timeout": "carry the call out, then close the connection without an answer (after --seconds)",
    "task-fails": "the call is accepted, its task ends in `fail` with --code",
    "task-never-ends": "the call is accepted, its task stays `running`",
    "task-id-empty": "the call is carried out, its answer has an empty task_id",
}
ANY = "*"


@dataclass(frozen=True)
class Fault:
    """One fault. `count` 0 means until cleared; `seconds` is a delay or a retry hint, by kind."""

    kind: str
    action: str = ANY
    count: int = 1
    code: str = ""
    status: int = 0
    seconds: float = 0.0
    user: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown fault {self.kind!r}; known: {', '.join(KINDS)}")
        if self.kind == "error" and not self.code:
            raise ValueError("the fault `error` needs a code")

    def meets(self, action: str, user: str) -> bool:
        return self.action in (ANY, action) and self.user in ("", user)


def path_of(state: Path) -> Path:
    return Path(state) / "cloud" / "faults.json"


def read(state: Path) -> list[Fault]:
    """The faults asked for, oldest first. Raises ValueError when the file is not what this module writes."""
    try:
        found = json.loads(path_of(state).read_text())["faults"]
    except FileNotFoundError:
        return []
    except (json.JSONDecodeError, KeyError, TypeError) as broken:
        raise ValueError(f"{path_of(state)} is not a faults file: {broken}") from broken
    known = {each.name for each in fields(Fault)}
    if strange := sorted({key for each in found for key in each} - known):
        raise ValueError(f"{path_of(state)}: unknown keys {strange}")
    return [Fault(**each) for each in found]


def add(state: Path, fault: Fault) -> Fault:
    with locked(_lock_of(state), wait=True):
        _write(state, [*read(state), fault])
    return fault


def clear(state: Path, *, action: str = ANY, kind: str = "") -> int:
    """Forget the faults of an action (`*`: of all) and kind (empty: of all); returns how many were forgotten."""
    with locked(_lock_of(state), wait=True):
        before = read(state)
        kept = [each for each in before if not (action in (ANY, each.action) and kind in ("", each.kind))]
        _write(state, kept)
    return len(before) - len(kept)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `sandbox fault cloud`; `apply` obeys what it parsed."""
    parser.add_argument("kind", nargs="?", choices=sorted(KINDS), help="; ".join(f"{k}: {v}" for k, v in KINDS.items()))
    parser.add_argument("action", nargs="?", default=ANY, help="API action, e.g. CreatePolicy (default: every action)")
    parser.add_argument("--count", type=int, default=1, help="how many calls it meets; 0: until cleared (default 1)")
    parser.add_argument("--code", default="", help="error code, for error and task-fails")
    parser.add_argument("--status", type=int, default=0, help="HTTP status, for error and throttle")
    parser.add_argument("--seconds", type=float, default=0.0, help="delay or retry hint")
    parser.add_argument("--user", default="", help="only calls of this user (default: everybody's)")
    parser.add_argument("--clear", action="store_true", help="forget all faults, or those of the kind and action")


def apply(state: Path, options: argparse.Namespace) -> str:
    """Obey a parsed command line; returns the line to print."""
    if options.clear:
        return f"{clear(state, action=options.action, kind=options.kind or '')} fault(s) cleared"
    if options.kind is None:
        return "\n".join(json.dumps(asdict(each)) for each in read(state)) or "no faults"
    chosen = {key: getattr(options, key) for key in ("kind", "action", "count", "code", "status", "seconds", "user")}
    return json.dumps(asdict(add(state, Fault(**chosen))))


def _lock_of(state: Path) -> Path:
    return path_of(state).with_suffix(".lock")


def _write(state: Path, faults: list[Fault]) -> None:
    write_private(path_of(state), json.dumps({"faults": [asdict(each) for each in faults]}, indent=1) + "\n")
