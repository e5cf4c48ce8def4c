"""Free ports on loopback."""

from __future__ import annotations

import socket

import pytest

from sandbox import ports
from sandbox.errors import SandboxError


def test_chosen_ports_are_different_and_can_be_bound() -> None:
    chosen = ports.free_ports(50)
    assert len(set(chosen)) == 50
    for port in chosen:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_chosen_ports_lie_below_the_range_of_outgoing_connections() -> None:
    assert all(ports.LOWEST <= port <= ports.HIGHEST < 32768 for port in ports.free_ports(200))


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert not ports.is_free(listener.getsockname()[1])


def test_no_free_port_is_an_error_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(SandboxError) as refused:
        ports.free_ports(1)
    assert refused.value.code == "SBX-PORTS"


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("listen tcp 127.0.0.1:23000: bind: address already in use", True),
        ("OSError: [Errno 98] Address already in use", True),
        ("listen tcp 127.0.0.1:23000: bind: permission denied", True),
        ("failed to load certificate", False),
        ("", False),
    ],
)
def test_a_taken_port_is_told_from_other_failures(line: str, taken: bool) -> None:
    assert ports.says_taken(line) is taken
