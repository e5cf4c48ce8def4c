"""A machine's processes are its own: another sandbox has nodes of the same names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.machines.processes import GROUP_MARK, NODE_MARK, SANDBOX_MARK, Processes


@pytest.fixture
def sleepers() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """A process of the same node and group in each of two sandboxes."""
    started = {
        sandbox: subprocess.Popen(
            ["sleep", "60"], env={**os.environ, SANDBOX_MARK: sandbox, NODE_MARK: "n", GROUP_MARK: "unit"}
        )
        for sandbox in ("/a", "/b")
    }
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def test_a_machine_that_goes_down_kills_nothing_of_another_sandbox(
    sleepers: dict[str, subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SANDBOX_MARK, "/a")
    Processes(tmp_path, isolated=False).kill("n")
    assert sleepers["/a"].wait(5) == -9
    assert sleepers["/b"].poll() is None
