"""Real processes on the machines: started in its root folder, marked with whose they are, killed by the mark.

The mark is in the environment, which children inherit: so are found those that detached themselves (nohup, setsid).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.machines import jail, rewrite

NODE_MARK, GROUP_MARK = "SANDBOX_NODE", "SANDBOX_CGROUP"
# Whose sandbox it is: nodes have the same names in all of them, and without own namespaces all processes are in sight.
SANDBOX_MARK = "ACK_SANDBOX_OF"
_HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Place:
    """Where a command runs: a machine's own tree, as the host sees it or as a container does."""

    node: str
    tree: Path
    jail: Path
    host: bool


class Processes:
    """`isolated` says whether this process has own namespaces (isolation.py); else paths are rewritten (rewrite.py)."""

    def __init__(self, run_folder: Path, *, isolated: bool) -> None:
        self._socket_folder = run_folder
        self._proc = run_folder / "proc" if isolated else Path("/proc")
        self._isolated = isolated
        self._built: set[Path] = set()
        self._inherited = {key: os.environ[key] for key in (SANDBOX_MARK, "LANG") if key in os.environ}

    async def start(
        self, place: Place, argv: Sequence[str], group: str, *, folder: str = "/", env: dict[str, str], **streams: Any
    ) -> asyncio.subprocess.Process:
        """Start a command in a session of its own. `group` is its mark; `streams` as for subprocess."""
        variables = self._inherited | {"HOME": "/root", "PATH": _HOST_PATH, "TERM": "xterm"} | env
        variables |= {NODE_MARK: place.node, GROUP_MARK: group}
        if self._isolated:
            command = self._jailed(place, argv, folder, variables)
        else:
            command = rewrite.command(place.tree, argv, folder, variables, self._socket_folder, host=place.host)
        return await asyncio.create_subprocess_exec(*command, env=variables, start_new_session=True, cwd="/", **streams)

    def _jailed(self, place: Place, argv: Sequence[str], folder: str, variables: dict[str, str]) -> list[str]:
        if place.jail not in self._built:
            jail.remove(place.jail)
            jail.build(place.jail, place.tree, self._socket_folder, self._proc, host=place.host)
            self._built.add(place.jail)
        variables |= jail.environment()
        stand_ins = f"{jail.PLACE}/bin" if place.host else f"{jail.PLACE}/pod-bin"
        variables["PATH"] = f"{stand_ins}:{variables['PATH']}"
        elsewhere = [] if folder == "/" else ["env", "-C", folder]
        return ["chroot", os.fspath(place.jail), *elsewhere, *argv]

    def has_program(self, place: Place, name: str) -> bool:
        """True when a machine has a program of this name or path."""
        if "/" in name:
            return (place.tree / name.lstrip("/")).is_file() or Path(name).is_file()
        return shutil.which(name, path=f"{jail.BIN}:{_HOST_PATH}") is not None

    def forget(self, *jails: Path) -> None:
        """Take the root folders of a machine apart."""
        for folder in jails:
            if folder in self._built:
                self._built.discard(folder)
                jail.remove(folder)

    def kill(self, node: str, group: str = "", number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to what runs on a machine: all of it, or a group and the groups below it."""
        for pid in self._marked(node, group):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _marked(self, node: str, group: str) -> list[int]:
        wanted, found = {f"{NODE_MARK}={node}".encode()}, []
        if SANDBOX_MARK in self._inherited:
            wanted.add(f"{SANDBOX_MARK}={self._inherited[SANDBOX_MARK]}".encode())
        mark = f"{GROUP_MARK}={group}".encode()
        for name in os.listdir(self._proc):  # noqa: PTH208 (a thousand times a second faster)
            if not name.isdigit():
                continue
            try:
                variables = (self._proc / name / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted <= set(variables) and _below(mark, variables, everything=not group):
                found.append(int(name))
        return found


def _below(mark: bytes, variables: list[bytes], *, everything: bool) -> bool:
    return everything or any(each == mark or each.startswith(mark + b"/") for each in variables)
