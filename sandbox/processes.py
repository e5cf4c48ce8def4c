"""Child processes that can't outlive their sandbox. Linux only: death signals and /proc are what makes it sure."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.layout import REPOSITORY

# Every process of a sandbox carries this variable with the sandbox's folder: so are also its grandchildren found.
MARK = "ACK_SANDBOX_OF"
_PR_SET_PDEATHSIG = 1


def require_linux() -> None:
    if sys.platform != "linux":
        raise SandboxError(
            "sandbox",
            f"needs Linux, and this is {sys.platform}.",
            "Run it in a Linux machine or container.",
            "SBX-LINUX",
        )


def environment(state: Path) -> dict[str, str]:
    """What the sandbox's processes see: this environment with the mark, and this repository on Python's path."""
    path = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        MARK: str(state),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        # kubectl keeps by host and port what an API server offers: the next sandbox on this port would inherit it.
        "KUBECACHEDIR": str(state / "kube-cache"),
    }


def die_with(parent: int) -> Callable[[], None]:
    """For ``preexec_fn``: the kernel kills the child when its parent dies, also when that has happened already."""

    def ask_the_kernel() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask_the_kernel


def spawn(command: Sequence[str], state: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a child that the kernel kills as soon as this process is gone, however it goes.

    The death signal is tied to the thread that starts the child: call it from the main thread.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=state,
            env=environment(state),
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 (single-threaded)
        )
    finally:
        os.close(descriptor)


def marked(state: Path) -> list[int]:
    """The processes that carry the mark of this sandbox, this one excepted."""
    wanted = f"{MARK}={state}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in variables:
            found.append(int(folder.name))
    return found


def sweep(state: Path, *, spare: Sequence[int] = (), patience: float = 5.0) -> None:
    """Kill whatever of a sandbox still runs, until nothing does (seconds of ``patience``)."""
    until = time.monotonic() + patience
    while left := [pid for pid in marked(state) if pid not in spare]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise SandboxError(
                str(state),
                f"has processes that don't die: {left}.",
                "Look at them with ps, and try again.",
                "SBX-STUCK",
            )
        time.sleep(0.02)


def tail(log: Path, lines: int = 1) -> str:
    """The last lines of a log that say something."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
