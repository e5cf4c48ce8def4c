"""One sandbox for a whole test session (one per worker under xdist), and the real kubectl and helm against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
Runner = Callable[..., str]


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

    def user(self, name: str, *groups: str) -> Path:
        """Make a user of its own, so that its writes can be told apart; returns the kubeconfig."""
        return Path(self.command("user", name, *(f"--group={group}" for group in groups)).strip())

    def audit(self, user: str = "") -> list[dict[str, Any]]:
        """What the API server wrote down, of one user or of all."""
        lines = [json.loads(line) for line in Path(self.info["audit_log"]).read_text().splitlines()]
        return [line for line in lines if user in ("", line["user"]["username"])]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof", action="store_true", help="also run what takes longer than CI allows")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "proof: takes longer than CI allows; runs with --proof")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--proof"):
        skip = pytest.mark.skip(reason="takes longer than CI allows; give --proof")
        for item in items:
            if "proof" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox of this process's own. It goes down with the process, also when that is killed."""
    name = f"pytest-{os.getpid()}"
    _run([sys.executable, "-m", "sandbox", "up", f"--name={name}", f"--with-process={os.getpid()}"])
    try:
        info = json.loads(_run([sys.executable, "-m", "sandbox", "status", "--json", f"--name={name}"]))
        yield Sandbox(info)
    finally:
        _run([sys.executable, "-m", "sandbox", "down", f"--name={name}"])


@pytest.fixture(scope="session")
def kubectl(sandbox: Sandbox) -> Runner:
    """``kubectl("get", "nodes", "-o", "name")``: the real kubectl as administrator, or with ``kubeconfig=``."""
    return _tool(sandbox, "kubectl")


@pytest.fixture(scope="session")
def helm(sandbox: Sandbox) -> Runner:
    """``helm("list", "-A")``: the real helm as administrator, or with ``kubeconfig=``."""
    return _tool(sandbox, "helm")


def _tool(sandbox: Sandbox, binary: str) -> Runner:
    def run(*arguments: str, kubeconfig: Path | None = None, stdin: str | None = None) -> str:
        where = f"--kubeconfig={kubeconfig or sandbox.kubeconfig}"
        return _run([str(sandbox.bin / binary), where, *arguments], stdin=stdin)

    return run


def _run(command: list[str], stdin: str | None = None) -> str:
    """Standard output of a command that must succeed; its standard error is part of the failure."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout
