"""Bring a sandbox up, take it down, say how it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from sandbox.errors import SandboxError
from sandbox.layout import Layout, locked
from sandbox.processes import environment, sweep, tail
from sandbox.supervisor import ask

Report = Callable[[str], None]
UP, UNHEALTHY, DOWN = "up", "unhealthy", "down"
POLL = 0.05
STOP_PATIENCE = 15.0


def up(layout: Layout, binaries: Mapping[str, Path], report: Report, owner: int | None = None) -> dict[str, Any]:
    """Start the sandbox and return what ``sandbox.json`` says; one that is up already stays as it is.

    With ``owner`` the sandbox goes down by itself, and leaves nothing, when the process of that id ends.
    """
    layout.refuse_foreign()
    with _turn(layout, report):
        if not (alive(layout) and layout.info_file.exists()):
            with _cleaned_up(layout):
                if not alive(layout):
                    _start_afresh(layout, binaries, owner)
                _follow(layout, report)
        _refuse_unhealthy(layout)
        return layout.info()


def down(layout: Layout, report: Report) -> bool:
    """Stop the sandbox and remove its folder. Returns False when there was nothing."""
    layout.refuse_foreign()
    with _turn(layout, report):
        existed = layout.exists()
        stop(layout)
        layout.remove()
        layout.operation_lock.unlink(missing_ok=True)
    return existed


def status(layout: Layout) -> dict[str, Any]:
    """``sandbox.json``, and ``health`` (up, unhealthy, down), ``processes`` (name: state), ``problems`` (sentences)."""
    if not alive(layout):
        return {"name": layout.name, "state": str(layout.root), "health": DOWN, "processes": {}, "problems": []}
    info = layout.read(layout.info_file)
    processes = layout.read(layout.run / "health.json") or {}
    problems = [f"{name} {state}, see {layout.log(name)}" for name, state in processes.items() if state != "running"]
    if info is None:
        problems.append("it is still starting")
    elif ask(layout, info["ports"]["kube-apiserver"], "/readyz") is None:
        problems.append(f"kube-apiserver doesn't answer, see {layout.log('kube-apiserver')}")
    found = info or {"name": layout.name, "state": str(layout.root)}
    return {**found, "health": UNHEALTHY if problems else UP, "processes": processes, "problems": problems}


def alive(layout: Layout) -> bool:
    """True while the supervisor lives: it holds a lock that the kernel frees with it, so a reused pid can't deceive."""
    if not layout.supervisor_lock.exists():
        return False
    with locked(layout.supervisor_lock, wait=False) as free:
        return not free


def stop(layout: Layout) -> None:
    """End the supervisor and whatever else of the sandbox runs; nothing running is fine."""
    until = time.monotonic() + STOP_PATIENCE
    number = signal.SIGTERM
    while alive(layout):
        if time.monotonic() > until:
            number, until = signal.SIGKILL, time.monotonic() + STOP_PATIENCE
        _signal_supervisor(layout, number)
        time.sleep(POLL)
    sweep(layout.root)


def _signal_supervisor(layout: Layout, number: signal.Signals) -> None:
    # Empty for the blink between the supervisor's lock and the writing of its pid.
    if pid := layout.supervisor_lock.read_text():
        with suppress(ProcessLookupError):
            os.kill(int(pid), number)


def _start_afresh(layout: Layout, binaries: Mapping[str, Path], owner: int | None) -> None:
    sweep(layout.root)
    layout.remove()
    layout.create()
    for name, path in binaries.items():
        (layout.bin / name).symlink_to(path)
    log = os.open(layout.log("supervisor"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    process = subprocess.Popen(
        [sys.executable, "-m", "sandbox.supervisor", str(layout.root), *([str(owner)] if owner else [])],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=layout.root,
        env=environment(layout.root),
        start_new_session=True,
    )
    os.close(log)
    while not layout.supervisor_lock.exists() or not layout.supervisor_lock.read_text():
        if process.poll() is not None:
            raise _supervisor_died(layout)
        time.sleep(POLL)


def _follow(layout: Layout, report: Report) -> None:
    """Pass on the supervisor's progress until the sandbox is ready; the reason when it gives up."""
    shown = 0
    progress = layout.run / "progress"
    while True:
        running = alive(layout)
        lines = progress.read_text().splitlines() if progress.exists() else []
        for line in lines[shown:]:
            report(line)
        shown = len(lines)
        if layout.info_file.exists():
            return
        if not running:
            raise _supervisor_died(layout)
        time.sleep(POLL)


def _supervisor_died(layout: Layout) -> SandboxError:
    if failure := layout.read(layout.run / "failure.json"):
        return SandboxError(**failure)
    log = layout.log("supervisor")
    return SandboxError(layout.subject, f"ended while it started: {tail(log)}", f"Read {log}", "SBX-START")


def _refuse_unhealthy(layout: Layout) -> None:
    found = status(layout)
    if found["health"] != UP:
        raise SandboxError(
            layout.subject,
            f"runs, but is {found['health']}: {'; '.join(found['problems'])}.",
            f"Start afresh: python -m sandbox down --name {layout.name}, then up.",
            "SBX-UNHEALTHY",
        )


@contextmanager
def _turn(layout: Layout, report: Report) -> Iterator[None]:
    """One ``up`` or ``down`` of a sandbox at a time."""
    with locked(layout.operation_lock, wait=False) as free:
        if free:
            yield
            return
    report("another command is at work on this sandbox: waiting for it")
    with locked(layout.operation_lock, wait=True):
        yield


@contextmanager
def _cleaned_up(layout: Layout) -> Iterator[None]:
    """A start that fails leaves no process, only logs; one that Ctrl-C or SIGTERM interrupts leaves nothing at all."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except SandboxError:
        sweep(layout.root)
        raise
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop(layout)
        layout.remove()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
