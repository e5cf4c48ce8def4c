"""What tests of every room share: a sandbox, its tools, and waiting for a condition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox; ``info`` is what its ``sandbox.json`` says."""

    info: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            value = self.info[name]
        except KeyError:
            raise AttributeError(name) from None
        return Path(value) if isinstance(value, str) and value.startswith("/") else value

    def command(self, *arguments: str) -> str:
        """Run ``python -m sandbox COMMAND --name <this one> ...`` and return what it prints."""
        command, *rest = arguments
        return _run([sys.executable, "-m", "sandbox", command, f"--name={self.info['name']}", *rest])

    def run(self, binary: str, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """What the sandbox's own kubectl or helm prints, as administrator or with ``kubeconfig``."""
        where = f"--kubeconfig={kubeconfig or self.kubeconfig}"
        return _run([str(self.bin / binary), where, *arguments], stdin=stdin)

    def user(self, name: str, *groups: str) -> Path:
        """Make a user of its own, so that its writes can be told apart; returns the kubeconfig."""
        return Path(self.command("user", name, *(f"--group={group}" for group in groups)).strip())

    def audit(self, user: str = "") -> list[dict[str, Any]]:
        """What the API server wrote down, of one user or of all."""
        lines = [json.loads(line) for line in Path(self.info["audit_log"]).read_text().splitlines()]
        return [line for line in lines if user in ("", line["user"]["username"])]


@contextmanager
def fresh_sandbox(name: str, *, workload: bool = False) -> Iterator[Sandbox]:
    """A sandbox of this process's own. It goes down with the process, also when that is killed."""
    own = f"{name}-{os.getpid()}"
    _run([sys.executable, "-m", "sandbox", "up", f"--name={own}", f"--with-process={os.getpid()}"])
    try:
        if workload:
            _run([sys.executable, "-m", "sandbox.seed", f"--name={own}", "--with-workload"])
        yield Sandbox(json.loads(_run([sys.executable, "-m", "sandbox", "status", "--json", f"--name={own}"])))
    finally:
        _run([sys.executable, "-m", "sandbox", "down", f"--name={own}"])


def await_true(holds: Callable[[], Any], what: str, seconds: float = 60, pause: float = 0.05) -> Any:
    """Wait until a condition holds and return it; the failure says what was waited for."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)
    return found


def _run(command: list[str], stdin: str | None = None) -> str:
    """Standard output of a command that must succeed; its standard error is part of the failure."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout
