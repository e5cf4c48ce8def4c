"""How the supervisor starts processes: ports that are taken, ends that come too early, answers from strangers."""

from __future__ import annotations

import http.server
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import supervisor as module
from sandbox.certificates import Authority
from sandbox.control_plane import Process
from sandbox.errors import SandboxError
from sandbox.layout import Layout
from sandbox.processes import marked, spawn, sweep
from sandbox.supervisor import Supervisor, ask
from tests.support import await_true

SERVER = f"""#!{sys.executable}
import http.server, ssl, sys
port, certificate, key = sys.argv[1:]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
server = http.server.HTTPServer(("127.0.0.1", int(port)), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    layout = Layout(tmp_path / "one")
    layout.create()
    authority = Authority(layout.pki)
    authority.serving("serving", ["127.0.0.1"])
    authority.client("apiserver-client", "admin")
    supervisor = Supervisor(layout)
    yield supervisor
    supervisor.stop()


def _process(supervisor: Supervisor, script: str, name: str = "server") -> Process:
    program = supervisor.layout.bin / name
    program.write_text(script)
    program.chmod(0o755)
    pki = supervisor.layout.pki
    return Process(
        name,
        lambda context: [str(context.ports[name]), str(pki / "serving.crt"), str(pki / "serving.key")],
        (name,),
        "/healthz",
    )


def test_a_process_whose_port_was_taken_is_started_again_on_another(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = _process(supervisor, SERVER)
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        taken = rival.getsockname()[1]
        offers = iter([[taken], module.free_ports(1)])
        monkeypatch.setattr(module, "free_ports", lambda count: next(offers))
        supervisor.start(process)
        assert supervisor.context.ports["server"] != taken
    assert supervisor.is_ready(process)


def test_a_port_that_is_always_taken_is_given_up_with_its_reason(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = _process(supervisor, "#!/bin/sh\necho 'bind: address already in use'\nexit 1\n")
    tried = []
    monkeypatch.setattr(module, "free_ports", lambda count: tried.append(count) or [20000])
    with pytest.raises(SandboxError, match="address already in use") as refused:
        supervisor.start(process)
    assert refused.value.code == "SBX-START"
    assert len(tried) == module.PORT_ATTEMPTS


def test_a_process_that_ends_for_another_reason_is_not_started_again(supervisor: Supervisor) -> None:
    process = _process(supervisor, f"#!/bin/sh\necho once >> {supervisor.layout.run}/starts\nkill -9 $$\n")
    with pytest.raises(SandboxError, match="ended with signal SIGKILL while it started"):
        supervisor.start(process)
    assert (supervisor.layout.run / "starts").read_text() == "once\n"


def test_a_process_that_never_gets_ready_is_named(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_TIMEOUT", 0.2)
    with pytest.raises(SandboxError, match="server: isn't ready after") as refused:
        supervisor.start(_process(supervisor, "#!/bin/sh\nexec sleep 600\n"))
    assert str(supervisor.layout.log("server")) in refused.value.cure


def test_the_answer_of_another_sandboxs_server_does_not_count(supervisor: Supervisor, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    certificate, key = other.serving("serving", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert ask(supervisor.layout, server.server_address[1], "/healthz") is None
        server.shutdown()


def test_at_the_end_our_processes_may_tidy_up_and_whoever_ignores_it_is_killed(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_PATIENCE", 1.0)
    scripts = {
        "cloud": "trap 'touch tidy; exit 0' TERM; touch cloud.on; while :; do sleep 0.02; done",
        "machines": "trap '' TERM; touch machines.on; exec sleep 600",
    }
    root = supervisor.layout.root
    for name, script in scripts.items():
        supervisor.children[name] = spawn(["/bin/sh", "-c", script], root, supervisor.layout.log(name))
    await_true(lambda: all((root / f"{name}.on").exists() for name in scripts), "both run")
    supervisor.stop()
    assert (root / "tidy").exists()
    assert supervisor.children["cloud"].returncode == 0
    assert supervisor.children["machines"].returncode == -signal.SIGKILL


def test_a_child_is_marked_with_its_sandbox_so_that_its_own_children_are_found(supervisor: Supervisor) -> None:
    log = supervisor.layout.log("x")
    child = spawn(["/bin/sh", "-c", "sleep 600 & wait"], supervisor.layout.root, log)
    await_true(lambda: len(marked(supervisor.layout.root)) == 2, "the child and its own child are marked")
    sweep(supervisor.layout.root)
    assert child.wait(10) == -signal.SIGKILL
    assert marked(supervisor.layout.root) == []
