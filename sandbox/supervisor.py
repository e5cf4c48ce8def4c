"""The one process that owns a sandbox: it starts the others in order, watches them, and takes them with it.

It restarts nothing: a process that died is written down (``run/health.json``) and makes the sandbox unhealthy, since
a silent restart would hide what a test has to see. A guard beside it waits for its end and kills grandchildren that the
kernel's death signal doesn't reach.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import select
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from sandbox import control_plane, identities, pools
from sandbox.control_plane import Context, Process
from sandbox.errors import SandboxError
from sandbox.layout import Layout, locked, write_private
from sandbox.ports import free_ports, says_taken
from sandbox.processes import spawn, sweep, tail
from sandbox.seed import seed

START_TIMEOUT = 90.0
PORT_ATTEMPTS = 4
STOP_PATIENCE = 2.0
POLL = 0.05
WATCH_INTERVAL = 0.5


class Stopped(Exception):
    """Somebody asked the supervisor to end."""


class OwnerGone(Exception):
    """The process that this sandbox was started for has ended."""


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped


def _on_signals(action: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, action)


def ask(layout: Layout, port: int, path: str) -> bytes | None:
    """What the server on this port says when it is one of this sandbox (its certificate tells) and says 200."""
    try:
        tls = ssl.create_default_context(cafile=str(layout.pki / "ca.crt"))
        tls.load_cert_chain(layout.pki / "apiserver-client.crt", layout.pki / "apiserver-client.key")
        with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=tls)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.read() if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None


class Supervisor:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.context = Context(layout)
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.exited: dict[str, str] = {}
        self.started = time.monotonic()

    def report(self, line: str) -> None:
        """A line of progress, for ``up`` to print and the log to keep."""
        with (self.layout.run / "progress").open("a") as stream:
            stream.write(f"{time.monotonic() - self.started:5.1f} s  {line}\n")

    def start(self, *processes: Process) -> None:
        """Start processes side by side and return when all of them are ready."""
        for process in processes:
            self._launch(process)
        attempts = dict.fromkeys(processes, 1)
        until = time.monotonic() + START_TIMEOUT
        waiting = list(processes)
        while waiting:
            process = waiting.pop(0)
            if (code := self.children[process.name].poll()) is not None:
                if attempts[process] >= PORT_ATTEMPTS or not says_taken(tail(self.layout.log(process.name), 20)):
                    raise self._failed(process.name, f"ended with {_words(code)} while it started")
                attempts[process] += 1
                self._launch(process)
            elif self.is_ready(process):
                self.report(f"{process.name} is ready")
                continue
            elif time.monotonic() > until:
                raise self._failed(process.name, f"isn't ready after {START_TIMEOUT:.0f} s")
            waiting.append(process)
            time.sleep(POLL)

    def _launch(self, process: Process) -> None:
        self.context.ports.update(zip(process.ports, free_ports(len(process.ports)), strict=True))
        self.children[process.name] = spawn(
            process.command(self.context), self.layout.root, self.layout.log(process.name)
        )

    def is_ready(self, process: Process) -> bool:
        if process.health is None:
            return self.layout.ready_file(process.name).exists()
        return ask(self.layout, self.context.ports[process.ports[0]], process.health) is not None

    def _failed(self, process: str, problem: str) -> SandboxError:
        log = self.layout.log(process)
        return SandboxError(process, f"{problem}: {tail(log)[-400:]}", f"Read {log}", "SBX-START")

    def once(self, name: str, command: Sequence[str]) -> None:
        """Run a command to its end, like a process of the sandbox."""
        child = self.children[name] = spawn(command, self.layout.root, self.layout.log(name))
        code = child.wait()
        del self.children[name]
        if code:
            raise self._failed(name, f"ended with {_words(code)}")

    def kubectl(self, *arguments: str) -> None:
        self.once("kubectl", [str(self.layout.bin / "kubectl"), f"--kubeconfig={self.layout.kubeconfig}", *arguments])

    def bring_up(self) -> None:
        authority = control_plane.make_certificates(self.context)
        identities.make_default(self.layout)
        self.start(*control_plane.STORE)
        self.start(*control_plane.SERVERS)
        control_plane.make_kubeconfigs(self.context, authority)
        self.start(*control_plane.CLIENTS_OF_THE_API)
        for namespace in ("default", "kube-system"):
            self.kubectl("wait", "--for=create", "--timeout=30s", f"--namespace={namespace}", "serviceaccount/default")
        info = self.info()
        seed(info)
        self.report("the nodes are ready")
        self.write_health()
        write_private(self.layout.info_file, json.dumps(info, indent=1) + "\n")

    def info(self) -> dict[str, Any]:
        """What ``sandbox.json`` holds."""
        layout, cluster = self.layout, pools.load().cluster
        cloud = json.loads(layout.ready_file("cloud").read_text())["url"]
        return {
            "name": layout.name,
            "pid": os.getpid(),
            "bin": str(layout.bin),
            "kubeconfig": str(layout.kubeconfig),
            "server": self.context.server,
            "kubernetes_version": self.kubernetes_version(),
            "ports": self.context.ports,
            "audit_log": str(layout.audit_log),
            "credentials_file": str(layout.credentials),
            "cluster_id": cluster["cluster_id"],
            "region_id": cluster["region_id"],
            "endpoints": dict.fromkeys(("cs", "ram", "ecs", "sts"), cloud),
            "request_log": str(layout.cloud / "requests.jsonl"),
            "nodes_root": str(layout.nodes),
            "state": str(layout.root),
        }

    def kubernetes_version(self) -> str:
        """As the API server says it, without the leading v: given binaries may differ from our own."""
        answer = ask(self.layout, self.context.ports["kube-apiserver"], "/version")
        return str(json.loads(answer or b"{}").get("gitVersion", "")).removeprefix("v")

    def watch(self, owner: int | None) -> NoReturn:
        """Until somebody stops us or the owner ends: notice who died, and write it down once."""
        ended = [_descriptor(owner)] if owner else []
        while True:
            if select.select(ended, [], [], WATCH_INTERVAL)[0]:
                raise OwnerGone
            for name, child in list(self.children.items()):
                if (code := child.poll()) is not None:
                    del self.children[name]
                    self.exited[name] = f"ended with {_words(code)}"
                    self.write_health()

    def write_health(self) -> None:
        running = dict.fromkeys(self.children, "running")
        write_private(self.layout.run / "health.json", json.dumps({**running, **self.exited}))

    def stop(self) -> None:
        """End all children: ours may put their things in order, the others have nothing that anybody will need."""
        ours = {process.name for process in control_plane.PROCESSES if process.is_ours}
        for name, child in self.children.items():
            child.terminate() if name in ours else child.kill()
        until = time.monotonic() + STOP_PATIENCE
        for child in self.children.values():
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _descriptor(pid: int) -> int:
    """A descriptor that becomes readable when the process ends; unlike a pid it never means another process."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise OwnerGone from None


def _words(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


@contextmanager
def sole_owner(layout: Layout) -> Iterator[None]:
    """Hold the supervisor's lock; it frees itself when this process ends, however it ends."""
    with layout.supervisor_lock.open("a+") as stream:
        # Waits for a blink at most: only who asks whether the supervisor lives ever takes this lock too.
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield


def _remove(layout: Layout) -> None:
    """Leave nothing, unless an ``up`` or ``down`` is at work on the folder just now: then it is theirs."""
    with locked(layout.operation_lock, wait=False) as free:
        if free:
            layout.remove()
            layout.operation_lock.unlink(missing_ok=True)


def start_guard(state: Path) -> int:
    """Fork a process that waits for the end of this one and then kills what is left of the sandbox."""
    reader, writer = os.pipe()
    if guard := os.fork():
        os.close(reader)
        return guard
    _on_signals(signal.SIG_IGN)
    os.setsid()
    os.close(writer)
    os.read(reader, 1)
    try:
        sweep(state)
    finally:
        os._exit(0)


def main(state: Path, owner: int | None) -> int:
    """Run a sandbox until a signal, or until the process ``owner`` is gone: then its folder goes too."""
    layout = Layout(state)
    guard = start_guard(state)
    with sole_owner(layout):
        supervisor = Supervisor(layout)
        remove = False
        _on_signals(_stop)
        try:
            supervisor.bring_up()
            supervisor.watch(owner)
        except Stopped:
            return 0
        except OwnerGone:
            remove = True
            return 0
        except SandboxError as error:
            failure = {"subject": error.subject, "problem": error.problem, "cure": error.cure, "code": error.code}
            write_private(layout.run / "failure.json", json.dumps(failure))
            return 1
        finally:
            _on_signals(signal.SIG_IGN)
            supervisor.stop()
            sweep(state, spare=[guard])
            if remove:
                _remove(layout)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None))
