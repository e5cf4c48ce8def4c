"""Free ports on loopback.

Nothing can reserve a port for another program, so between the choice and the bind somebody may be faster: who starts a
process chooses its ports at the last moment and, when the process ends over a taken port, chooses others.
"""

from __future__ import annotations

import random
import socket

from sandbox.errors import SandboxError

# Below the range that Linux gives to outgoing connections (32768 and up), so that none of those takes a chosen port.
LOWEST, HIGHEST = 20000, 32000
TAKEN = ("address already in use", "bind: permission denied")


def is_free(port: int) -> bool:
    """True when a listener could have the port now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_ports(count: int, *, tries: int = 2000) -> list[int]:
    """``count`` different ports that nobody listens on now, chosen at random so that neighbours rarely meet."""
    chosen: list[int] = []
    for _ in range(tries):
        if len(chosen) == count:
            break
        port = random.randint(LOWEST, HIGHEST)  # noqa: S311 (no secret)
        if port not in chosen and is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise SandboxError(
            "127.0.0.1",
            f"has no {count} free ports between {LOWEST} and {HIGHEST}.",
            "Stop sandboxes that nobody needs (python -m sandbox down --name NAME).",
            "SBX-PORTS",
        )
    return chosen


def says_taken(output: str) -> bool:
    """True when the last words of a process were that its port is taken."""
    return any(sign in output.lower() for sign in TAKEN)
