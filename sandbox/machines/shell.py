"""A root shell on a node, for whoever runs beside the machines (Cloud Assistant's RunCommand, tests)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

from sandbox.machines.client import MachineError, call

__all__ = ["MachineError", "run"]


def run(nodes_root: Path, node: str, argv: list[str], *, timeout: float, stdin: bytes = b"") -> CompletedProcess[bytes]:
    """Run a command as root on a node, in its own file tree, as Cloud Assistant's agent does: it outlives pods.

    Raises MachineError when the machine is off or unknown, and subprocess.TimeoutExpired after `timeout` seconds (the
    command is then killed).
    """
    request = {"op": "host", "node": node, "argv": argv, "cgroup": "aliyun.service", "timeout": timeout}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        descriptors = [stream.fileno() for stream in (given, out, err)]
        reply = call(os.fspath(nodes_root.parent / "run" / "machines"), request, descriptors, timeout + 10)
        written = []
        for stream in (out, err):
            stream.seek(0)
            written.append(stream.read())
        if reply.get("timeout"):
            raise TimeoutExpired(argv, timeout, *written)
        return CompletedProcess(argv, reply["exit"], *written)
