"""A running machine: power, boots, and what hangs together with them. Its API side is `kubelet.py`."""

from __future__ import annotations

import asyncio
import logging
import signal
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox.machines import tree
from sandbox.machines.cards import UNINSTALL, Cards
from sandbox.machines.containers import Container, Runtime
from sandbox.machines.objects import Machine, first_boot_id
from sandbox.machines.processes import Place, Processes
from sandbox.machines.systemd import RUNTIMES, TRIGGERS, Systemd, Unit
from sandbox.pools import Timing

log = logging.getLogger("host")
DEFAULT_POLICY = "5"
# A guest's shutdown begins a moment after the command returned.
_SHUTDOWN_MOMENT = 0.05
# What a process that is asked to end gets, in seconds (systemd: 90).
STOP_PATIENCE = 1.0


class Host:
    """One machine. `changed` is told whenever something happened that its kubelet may have to act on."""

    def __init__(
        self, machine: Machine, nodes_root: Path, processes: Processes, timing: Timing, changed: Callable[[], None]
    ) -> None:
        self.machine, self.timing = machine, timing
        self.folder = nodes_root / machine.name
        self.root, self.run_folder = self.folder / "root", self.folder / "run"
        self.boot_id = first_boot_id(machine)
        self.on = self.shuts_down = False
        self._stopping: list[asyncio.Task[None]] = []
        # Seconds of the event loop's clock: since when the kubelet, or the runtime below it, has been silent.
        self.kubelet_gone: float | None = 0.0
        self.runtime_gone: float | None = 0.0
        self.lag_until = 0.0
        self.boots = 0
        self.policy = DEFAULT_POLICY
        # Set while the kubelet is down: whoever has streams through it loses them.
        self.kubelet_stops = asyncio.Event()
        self._processes, self._changed = processes, changed
        self._power: asyncio.Task[None] | None = None
        (self.run_folder / "faults").mkdir(parents=True, exist_ok=True)
        tree.build(self.root, machine, self.boot_id)
        self.runtime = Runtime(self._container_changed)
        self.systemd = Systemd(machine, self.run_folder / "journal.jsonl", self._unit_changed)
        self.cards = Cards(machine, self.root, self.runtime)
        self._place = Place(machine.name, self.root, self.run_folder / "jail", host=True)
        self._pod_place = Place(machine.name, self.root, self.run_folder / "pod-jail", host=False)

    # -- what others ask

    @property
    def runtime_active(self) -> bool:
        return self.on and self.systemd.active(RUNTIMES[self.machine.runtime_name])

    @property
    def kubelet_active(self) -> bool:
        return self.on and self.systemd.active("kubelet.service")

    def fault(self, name: str) -> str | None:
        """The value of a fault that somebody asked for, "" when it has none, or None."""
        path = self.run_folder / "faults" / name
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            return None

    @property
    def slowness(self) -> float:
        """Seconds that each step takes longer."""
        return float(self.fault("slow") or 0)

    # -- power

    def power_on(self) -> None:
        """Begin the machine's life: the first boot happened elsewhere, and cGPU may have been loaded in it."""
        if self.machine.cgpu_version:
            self.cards.install(self.machine.cgpu_version)
            self.cards.load(self.machine.cgpu_version, self.policy)
        self._come_up()

    def shut_down(self, *, again: bool) -> None:
        """A shutdown from inside the machine, with or without a start after it."""
        if again:
            self._begin(self._restart("guest", after=_SHUTDOWN_MOMENT))
        else:
            self._begin(self._stop())

    def restart(self, source: str, *, force: bool) -> None:
        """A restart from outside. A machine that is on its way down or up is left to it, unless by force."""
        busy = self._power is not None and not self._power.done()
        if force or not busy:
            self._begin(self._restart(source, force=force))

    def look_at_faults(self) -> None:
        """Make the file tree what the faults that were asked for say."""
        if self.cards.gpu is None:
            return
        if self.fault("uninstall-script-missing") is not None:
            self.cards.remove_script()
        elif not (self.root / UNINSTALL).exists() and self.cards.installed_version:
            self.cards.write_script()

    def _begin(self, change: Coroutine[Any, Any, None]) -> None:
        if self._power is not None:
            self._power.cancel()
        self._power = asyncio.get_running_loop().create_task(change)

    async def _restart(self, source: str, *, after: float = 0.0, force: bool = False) -> None:
        await asyncio.sleep(after)
        log.info("%s restarts, asked by %s", self.machine.name, source)
        lag_until = asyncio.get_running_loop().time() + self.timing.lag
        if not force:
            await self._shut_units_down()
        self._go_down(lag_until)
        await asyncio.sleep(self.timing.boot + self.slowness)
        while self.fault("reboot-never-returns") is not None:
            await asyncio.sleep(0.1)
        self.boots += 1
        self.boot_id = str(uuid.uuid4())
        self.cards.lost = int(self.fault("card-lost") or 1) if self.fault("card-lost") is not None else 0
        tree.write_boot(self.root, self.boot_id)
        self._come_up()

    async def _stop(self) -> None:
        await asyncio.sleep(_SHUTDOWN_MOMENT)
        await self._shut_units_down()
        self._go_down(lag_until=0.0)

    async def _shut_units_down(self) -> None:
        """Transient units are asked to end, and nothing can be started any more."""
        self.shuts_down = True
        for unit in list(self.systemd.units.values()):
            if unit.transient and unit.pid:
                self.stop_unit(unit)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE):
                await self.settle()

    def _go_down(self, lag_until: float) -> None:
        """Everything that runs ends at once. The API goes on showing what it last heard, until a time of the loop's."""
        now = asyncio.get_running_loop().time()
        self.on = self.shuts_down = False
        self.lag_until = lag_until
        self._stopping.clear()
        self.kubelet_gone = self.kubelet_gone or now
        self.kubelet_stops.set()
        self.systemd.power_off()
        self.runtime.power_off()
        self.cards.unload()
        self._processes.kill(self.machine.name)
        self._changed()

    def _come_up(self) -> None:
        self.on = True
        self.systemd.boot()
        self.cards.show()
        self._changed()

    def remove(self) -> None:
        """The instance is released."""
        if self._power is not None:
            self._power.cancel()
        self.on = False
        self.systemd.power_off()
        self._processes.kill(self.machine.name)
        self._processes.forget(self._place.jail, self._pod_place.jail)

    # -- what happens by itself

    def _unit_changed(self, name: str) -> None:
        now = asyncio.get_running_loop().time()
        self.kubelet_gone = None if self.kubelet_active else self.kubelet_gone or now
        self.runtime_gone = None if self.runtime_active else self.runtime_gone or now
        self.kubelet_stops.clear() if self.kubelet_active else self.kubelet_stops.set()
        self._changed()

    def _container_changed(self, container: Container) -> None:
        if not container.running:
            self._processes.kill(self.machine.name, container.cgroup)
        if container.cards or container.holds:
            self.cards.show()
        self._changed()

    def stop_unit(self, unit: Unit) -> None:
        """Stop a unit. A transient one's processes are asked to end first; `settle` waits for that."""
        if not unit.transient or unit.active != "active":
            self.systemd.stop(unit)
        elif unit.pid:
            self._stopping.append(asyncio.get_running_loop().create_task(self._end_unit(unit)))
        else:
            unit.stopping = True
            self.systemd.finish(unit, 0)

    async def _end_unit(self, unit: Unit) -> None:
        unit.stopping = True
        self._processes.kill(self.machine.name, unit.name, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_PATIENCE):
                await unit.done.wait()
        except TimeoutError:
            self._processes.kill(self.machine.name, unit.name)
            await unit.done.wait()

    async def settle(self) -> None:
        """Wait until the units that are being stopped have ended."""
        while self._stopping:
            await self._stopping.pop()

    def revive_docker(self) -> bool:
        """Connecting to docker's socket starts docker again where the socket unit listens. True when it runs then."""
        for socket, service in TRIGGERS.items():
            if self.systemd.active(socket):
                self.systemd.start(self.systemd.units[service])
        return self.runtime_active

    # -- processes

    def has_program(self, name: str) -> bool:
        return self._processes.has_program(self._place, name)

    async def start(
        self, argv: list[str], group: str, *, in_pod: str = "", folder: str = "/", **streams: Any
    ) -> asyncio.subprocess.Process:
        """Start a command as root on the host, or inside a pod's container (`in_pod` is the pod's uid)."""
        self.look_at_faults()
        place = self._pod_place if in_pod else self._place
        env = {"SANDBOX_POD": in_pod} if in_pod else {}
        return await self._processes.start(place, argv, group, folder=folder, env=env, **streams)

    async def run_unit(self, unit: Unit) -> int:
        """Run a transient unit's process to its end; its output goes to the journal or where its properties say."""
        target = unit.properties.get("StandardOutput", "journal")
        kind, _, path = target.partition(":")
        argv = ["/usr/bin/env", *(f"{key}={value}" for key, value in unit.environment.items()), *unit.argv]
        folder = unit.properties.get("WorkingDirectory", "/")
        if kind in ("file", "append", "truncate"):
            redirect = ">>" if kind == "append" else ">"
            argv = ["/bin/sh", "-c", f'exec {redirect}"$0" 2>&1 "$@"', path, *argv]
        process = await self.start(
            argv,
            unit.name,
            folder=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        unit.pid = process.pid
        reading = asyncio.create_task(self._to_journal(unit, process))
        status = await process.wait()
        # systemd ends a unit's other processes with its main one.
        self._processes.kill(self.machine.name, unit.name)
        # What still holds the output open shed the mark, and doesn't keep the unit alive.
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE):
                await reading
        return status

    async def _to_journal(self, unit: Unit, process: asyncio.subprocess.Process) -> None:
        if process.stdout is not None:
            async for line in process.stdout:
                text = line.decode(errors="replace").rstrip("\n")
                self.systemd.log(unit.name, unit.argv[0].rpartition("/")[2], text, process.pid)

    def kill(self, group: str) -> None:
        """Kill a group of processes of the machine."""
        self._processes.kill(self.machine.name, group)

    def age(self, since: float | None) -> float:
        """Seconds since a moment of the loop's clock; 0 when there is none."""
        return 0.0 if since is None else asyncio.get_running_loop().time() - since
