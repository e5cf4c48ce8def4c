"""The units of a machine: what systemd would do with them. `systemctl.py` holds the command lines."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.machines.instances import FABRIC_FAMILIES, family
from sandbox.machines.objects import Machine

RUNTIMES = {"containerd": "containerd.service", "docker": "docker.service"}
# A socket that starts its service again as soon as somebody connects.
TRIGGERS = {"docker.socket": "docker.service"}


@dataclass
class Unit:
    """A unit; `argv` only for transient ones. States are systemd's own words."""

    name: str
    enabled: str = "enabled"
    active: str = "inactive"
    sub: str = "dead"
    result: str = "success"
    exit_code: int = 0
    pid: int = 0
    argv: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    description: str = ""
    collect: bool = False
    remain: bool = False
    stopping: bool = False
    changed: float = 0.0
    invocation: str = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def transient(self) -> bool:
        return self.enabled == "transient"

    def enter(self, active: str, sub: str) -> None:
        self.active, self.sub, self.changed = active, sub, time.time()


def first_units(machine: Machine) -> dict[str, Unit]:
    """What is installed on a machine of its kind, all enabled."""
    names = ["kubelet.service", "containerd.service", "sshd.service", "aliyun.service"]
    if machine.runtime_name == "docker":
        names += ["docker.service", "docker.socket"]
    if machine.gpu_count and family(machine.instance_type) in FABRIC_FAMILIES:
        names.append("nvidia-fabricmanager.service")
    return {name: Unit(name, description=name.removesuffix(".service")) for name in names}


class Systemd:
    """`changed` is told the name of each unit that became active or ceased to be; `spawn` runs a transient unit."""

    def __init__(self, machine: Machine, journal: Path, changed: Callable[[str], None]) -> None:
        self.units = first_units(machine)
        self._journal = journal
        self._changed = changed
        self._tasks: set[asyncio.Task[None]] = set()

    def active(self, name: str) -> bool:
        unit = self.units.get(name)
        return unit is not None and unit.active == "active"

    def boot(self) -> None:
        """Start what is enabled."""
        for unit in self.units.values():
            if unit.enabled == "enabled":
                self.start(unit)

    def power_off(self) -> None:
        """Nothing is active any more, and transient units are gone: they lived in memory."""
        for task in self._tasks:
            task.cancel()
        self.units = {name: unit for name, unit in self.units.items() if not unit.transient}
        for unit in self.units.values():
            unit.enter("inactive", "dead")

    def start(self, unit: Unit) -> None:
        if unit.active != "active":
            unit.enter("active", "listening" if unit.name.endswith(".socket") else "running")
            unit.result, unit.exit_code = "success", 0
            self._changed(unit.name)

    def stop(self, unit: Unit) -> None:
        """A unit that is inactive stays so."""
        if unit.active == "active":
            unit.enter("inactive", "dead")
            self._changed(unit.name)

    def run(self, unit: Unit, spawn: Callable[[Unit], Awaitable[int]]) -> None:
        """Start a transient unit and follow it; `spawn` runs its process and returns the exit status."""
        self.units[unit.name] = unit
        unit.invocation = uuid.uuid4().hex
        unit.enter("active", "running")
        self.log(unit.name, "systemd", f"Started {unit.description or unit.name}.")
        task = asyncio.get_running_loop().create_task(self._follow(unit, spawn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, unit: Unit, spawn: Callable[[Unit], Awaitable[int]]) -> None:
        try:
            self.finish(unit, await spawn(unit))
        finally:
            unit.done.set()

    def finish(self, unit: Unit, status: int) -> None:
        """The main process ended. A failed unit stays known until it is reset; others vanish, as systemd has it."""
        # Death by the signal of a stop is a clean end.
        status = 0 if unit.stopping and status < 0 else status
        unit.exit_code = abs(status)
        unit.pid = 0
        if status == 0:
            unit.result = "success"
            if unit.remain and not unit.stopping:
                unit.enter("active", "exited")
                return
            unit.enter("inactive", "dead")
            self.log(unit.name, "systemd", f"{unit.name}: Deactivated successfully.")
        else:
            unit.result = "exit-code" if status > 0 else "signal"
            unit.enter("failed", "failed")
            how = f"code=exited, status={status}" if status > 0 else f"code=killed, status={-status}"
            self.log(unit.name, "systemd", f"{unit.name}: Main process exited, {how}")
            self.log(unit.name, "systemd", f"{unit.name}: Failed with result '{unit.result}'.")
        if unit.active == "inactive" or unit.collect:
            self.units.pop(unit.name, None)

    def reset_failed(self, name: str | None = None) -> bool:
        """Forget failed units: one or all. False when the named one isn't known."""
        if name and name not in self.units:
            return False
        for unit in [one for one in self.units.values() if one.active == "failed" and name in (None, one.name)]:
            if unit.transient:
                del self.units[unit.name]
            else:
                unit.enter("inactive", "dead")
        return True

    def log(self, unit: str, identifier: str, text: str, pid: int = 1) -> None:
        """Append to the journal, which is on the disk and outlives boots."""
        entry = {"time": time.time(), "unit": unit, "identifier": identifier, "pid": pid, "text": text}
        with self._journal.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")

    def journal(self) -> list[dict[str, object]]:
        if not self._journal.exists():
            return []
        return [json.loads(line) for line in self._journal.read_text().splitlines()]
