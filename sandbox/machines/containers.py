"""The containers of a machine, as its runtime knows them. They run nothing: they stand, hold cards, and end."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

# Above what Linux gives out, so that a kill of such a number can never hit a real process.
_FIRST_PID = 5_000_001
_pids = itertools.count(_FIRST_PID)


def new_id() -> str:
    return secrets.token_hex(32)


@dataclass
class Sandbox:
    """A pod sandbox: what containers of one pod share."""

    uid: str
    name: str
    namespace: str
    labels: dict[str, str]
    id: str = field(default_factory=new_id)
    ready: bool = True
    created: float = field(default_factory=time.time)


@dataclass
class Container:
    """`cards` maps a card's index to its share in GiB (0: all of it); `isolated` asks cGPU for an instance.

    `holds` are further cards whose device files it keeps open, as a device plug-in does.
    """

    sandbox: Sandbox
    name: str
    image: str
    attempt: int
    cards: dict[int, int] = field(default_factory=dict)
    isolated: bool = False
    holds: tuple[int, ...] = ()
    id: str = field(default_factory=new_id)
    pid: int = field(default_factory=lambda: next(_pids))
    created: float = field(default_factory=time.time)
    running: bool = True
    exit_code: int = 0
    finished: float = 0.0

    @property
    def devices(self) -> set[int]:
        """The cards whose device files it holds open."""
        return {*self.cards, *self.holds} if self.running else set()

    @property
    def cgroup(self) -> str:
        """What its processes are marked with."""
        return f"pod/{self.sandbox.uid}/{self.name}"


class Runtime:
    """Keeps sandboxes and containers; `changed` is told of each container that started or ended."""

    def __init__(self, changed: Callable[[Container], None]) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Container] = {}
        self._changed = changed

    def sandbox_of(self, uid: str) -> Sandbox | None:
        """The live sandbox of a pod."""
        return next((one for one in self.sandboxes.values() if one.uid == uid and one.ready), None)

    def of_pod(self, uid: str) -> Iterator[Container]:
        return (one for one in self.containers.values() if one.sandbox.uid == uid)

    def newest(self, uid: str, name: str) -> Container | None:
        """The last attempt of a container of a pod, running or not."""
        attempts = [one for one in self.of_pod(uid) if one.name == name]
        return max(attempts, key=lambda one: one.attempt, default=None)

    def running(self) -> list[Container]:
        return [one for one in self.containers.values() if one.running]

    def add_sandbox(self, pod: dict[str, Any]) -> Sandbox:
        """A new sandbox for a pod; ended ones of it are forgotten."""
        meta = pod["metadata"]
        self.sandboxes = {key: one for key, one in self.sandboxes.items() if one.ready or one.uid != meta["uid"]}
        sandbox = Sandbox(meta["uid"], meta["name"], meta["namespace"], dict(meta.get("labels") or {}))
        self.sandboxes[sandbox.id] = sandbox
        return sandbox

    def start(self, container: Container) -> Container:
        """Start a container; older attempts of it are forgotten, as the kubelet's garbage collection does."""
        for old in [one for one in self.of_pod(container.sandbox.uid) if one.name == container.name]:
            del self.containers[old.id]
        self.containers[container.id] = container
        self._changed(container)
        return container

    def stop(self, container: Container, exit_code: int = 137) -> None:
        """End a container; one that has ended stays as it is."""
        if container.running:
            container.running, container.exit_code, container.finished = False, exit_code, time.time()
            self._changed(container)

    def stop_sandbox(self, sandbox: Sandbox) -> None:
        for container in list(self.of_pod(sandbox.uid)):
            if container.sandbox is sandbox:
                self.stop(container)
        sandbox.ready = False

    def remove(self, container: Container) -> None:
        self.stop(container)
        self.containers.pop(container.id, None)

    def remove_sandbox(self, sandbox: Sandbox) -> None:
        self.stop_sandbox(sandbox)
        for container in [one for one in self.containers.values() if one.sandbox is sandbox]:
            self.remove(container)
        self.sandboxes.pop(sandbox.id, None)

    def power_off(self) -> None:
        """Everything ends at once; what was there is still known after the boot."""
        for sandbox in self.sandboxes.values():
            self.stop_sandbox(sandbox)
