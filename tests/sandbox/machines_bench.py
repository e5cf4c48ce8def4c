"""One machine on the bench: powered on, with its socket, without a Kubernetes API and without own namespaces."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from sandbox import pools
from sandbox.machines import shell, tools
from sandbox.machines.host import Host
from sandbox.machines.objects import Machine, new_machine
from sandbox.machines.processes import Processes
from sandbox.machines.result import Result
from sandbox.machines.server import Server

QUICK = pools.Timing(
    lag=0.05, boot=0.1, not_ready_after=0.1, installer=0.05, plugin=0.05, uninstall=0.0, auto_repair_after=1.0
)


class Bench:
    """Everything happens on the loop's own thread; `tool` and `run` may be called from the test's."""

    def __init__(self, host: Host, nodes_root: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.host, self._nodes_root, self._loop = host, nodes_root, loop

    def do(self, act: Callable[[], Any]) -> Any:
        """Call something of the machine's on its thread."""

        async def call() -> Any:
            return act()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(30)

    def tool(self, name: str, *arguments: str) -> Result:
        """Run a stand-in without a process around it."""
        return asyncio.run_coroutine_threadsafe(tools.run(self.host, name, list(arguments)), self._loop).result(30)

    def run(self, *argv: str, timeout: float = 30.0) -> CompletedProcess[bytes]:
        """A root command on the host."""
        return shell.run(self._nodes_root, self.host.machine.name, list(argv), timeout=timeout)


class _Room:
    """As much of a room as the server asks for."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def host(self, node: str) -> Host | None:
        return self._host if node == self._host.machine.name else None


@contextmanager
def bench(state: Path, pool: str = "gpu-cgpu", **changes: Any) -> Iterator[Bench]:
    """A machine of one of the first pools, with `changes` to its birth data."""
    given = pools.load()
    machine: Machine = replace(new_machine(given.pool(pool), given.cluster["region_id"], 0), **changes)
    run_folder = state / "run" / "machines"
    run_folder.mkdir(parents=True)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Host:
        if sys.version_info < (3, 12):
            watcher = asyncio.PidfdChildWatcher()
            watcher.attach_loop(asyncio.get_running_loop())
            asyncio.set_child_watcher(watcher)
        host = Host(machine, state / "nodes", Processes(run_folder, isolated=False), QUICK, lambda: None)
        Server(_Room(host), run_folder).listen()  # type: ignore[arg-type]
        host.power_on()
        return host

    async def stop(host: Host) -> None:
        host.remove()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    try:
        host = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
        yield Bench(host, state / "nodes", loop)
        asyncio.run_coroutine_threadsafe(stop(host), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
