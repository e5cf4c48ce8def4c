"""What a handler is given: the endpoint's records, the cluster's machines, the time, and the call itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandbox.cloud.faults import Fault
from sandbox.cloud.fleet import Fleet
from sandbox.cloud.store import Store

ACCOUNT_ID = "1234567890123456"


@dataclass(frozen=True)
class Settings:
    """Times are in seconds; the sandbox's are short where the real services take minutes."""

    state: Path
    task_seconds: float = 1.0  # a task shows `running` at least this long
    drain_seconds: float = 1800.0  # ACK gives up a drain after thirty minutes
    not_ready_seconds: float = 180.0  # NotReady for so long is what auto-repair acts upon
    replace_failed_seconds: float = 10.0  # after which Auto Scaling replaces an instance that failed to join
    tick_seconds: float = 0.1


@dataclass
class World:
    """Handlers run one at a time, under the store's lock."""

    store: Store
    fleet: Fleet
    settings: Settings
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def data(self) -> dict[str, Any]:
        return self.store.data

    @property
    def region_id(self) -> str:
        return str(self.data["cluster"]["region_id"])


@dataclass(frozen=True)
class Caller:
    """Who signed: a user with an AccessKey, or the session of a role that the user took on."""

    key_id: str
    user: str
    role: str = ""
    session: str = ""


@dataclass(frozen=True)
class Call:
    """One checked call; `path` holds the names of the path pattern, RPC parameters are all in `query`.

    `faults` are those that meet it.
    """

    action: str
    caller: Caller
    request_id: str
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any = None
    faults: Sequence[Fault] = ()


def stamp(when: datetime) -> str:
    """RAM, ECS and STS write times so: 2015-01-23T12:33:18Z."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp_local(when: datetime) -> str:
    """CS writes times with their zone: 2026-01-23T12:33:18+00:00."""
    return when.replace(microsecond=0).isoformat()


def fresh_id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex


def request_id() -> str:
    return str(uuid.uuid4()).upper()
