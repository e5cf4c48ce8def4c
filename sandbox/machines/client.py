"""Talks to the process `sandbox.machines` over its socket. Also a program: each stand-in command is this file.

Only the standard library, and nothing of this repository: it runs inside a machine too, as `python -I -S client.py`,
many times a second.
"""

from __future__ import annotations

import json
import os
import socket
import sys

TYPE_CHECKING = False  # importing typing takes longer than all the rest
if TYPE_CHECKING:
    from typing import Any

SOCKET = "machines.sock"


class MachineError(Exception):
    """The machine can't be reached: it is off, unknown, or the process `sandbox.machines` does not run."""


def call(run_folder: str, request: Any, descriptors: list[int], timeout: float | None = None) -> Any:
    """Send one request with three open files (input, output, errors) and wait for the answer.

    Raises MachineError with the reason, and TimeoutError after `timeout` seconds.
    """
    folder = os.open(run_folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            # A socket's path may have 107 characters at most; a folder's descriptor makes any path short.
            connection.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], descriptors)
            answer = b""
            while not answer.endswith(b"\n"):
                part = connection.recv(65536)
                if not part:
                    raise MachineError("the machine went away")
                answer += part
    except (FileNotFoundError, ConnectionError) as problem:
        raise MachineError(f"the process sandbox.machines does not answer: {problem}") from problem
    finally:
        os.close(folder)
    reply = json.loads(answer)
    if reply.get("refused"):
        raise MachineError(reply["refused"])
    return reply


def main(arguments: list[str]) -> int:
    """`client.py ROLE NAME ARGS...`: ROLE is `pod` (a command that came by exec) or `tool` (one that stands in)."""
    role, name, *rest = arguments
    environment = {key: value for key, value in os.environ.items() if key.startswith("SANDBOX_")}
    request = {
        "op": role,
        "node": environment.get("SANDBOX_NODE", ""),
        "pod": environment.get("SANDBOX_POD", ""),
        "cgroup": environment.get("SANDBOX_CGROUP", ""),
        "argv": [name.rpartition("/")[2], *rest],
        "folder": os.getcwd(),  # noqa: PTH109 (importing pathlib takes longer than all the rest)
    }
    try:
        reply = call(environment["SANDBOX_RUN"], request, [0, 1, 2])
    except MachineError as problem:
        sys.stderr.write(f"{problem}\n")
        return 255
    return int(reply["exit"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
