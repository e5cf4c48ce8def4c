"""The socket of the machines: where commands and stand-ins come in, with their streams. `client.py` calls it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox.machines import tools
from sandbox.machines.client import SOCKET
from sandbox.machines.host import Host
from sandbox.machines.pods import LOGS, annotation
from sandbox.machines.result import Result, fail
from sandbox.machines.room import Room

log = logging.getLogger("server")
Reply = dict[str, Any]
_LIMIT = 1 << 20


class Refused(Exception):
    """The request can't be served; the text goes to whoever asked."""


class Server:
    def __init__(self, room: Room, folder: Path) -> None:
        self._room, self._folder = room, folder
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations: dict[str, Callable[[Reply, list[int]], Awaitable[Reply]]] = {
            "probe": self._probe,
            "pod": self._pod,
            "host": self._host,
            "tool": self._tool,
            "logs": self._logs,
        }

    def listen(self) -> None:
        """Open the socket; only this user may connect, since its folder is private."""
        (self._folder / SOCKET).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET}")
        os.close(folder)
        listener.listen(256)
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError):
            connection, _ = listener.accept()
            connection.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        descriptors: list[int] = []
        try:
            request = json.loads(await _receive(connection, descriptors))
            try:
                reply = await self._operations[request["op"]](request, descriptors)
            except Refused as refusal:
                reply = {"refused": str(refusal)}
            await asyncio.get_running_loop().sock_sendall(connection, json.dumps(reply).encode() + b"\n")
        except OSError:
            log.debug("a caller went away")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            connection.close()

    # -- who is meant

    def _known_host(self, node: str) -> Host:
        host = self._room.host(node)
        if host is None:
            raise Refused(f"there is no machine {node}")
        return host

    def _container(self, request: Reply) -> tuple[Host, dict[str, Any], str]:
        """The machine, pod and container name of an exec. Raises Refused as a kubelet would."""
        pod = self._room.pod(request["namespace"], request["name"])
        if pod is None:
            raise Refused(f"pod {request['name']}_{request['namespace']} does not exist")
        host = self._known_host(pod["spec"]["nodeName"])
        if not host.kubelet_active:
            raise Refused(f"error dialing backend: dial tcp {host.machine.ip}:10250: connect: connection refused")
        if not host.runtime_active:
            raise Refused(
                "rpc error: code = Unavailable desc = connection error: dial unix /run/containerd/containerd.sock"
            )
        name = request["container"] or pod["spec"]["containers"][0]["name"]
        container = host.runtime.newest(pod["metadata"]["uid"], name)
        if container is None or not container.running:
            raise Refused(f"container not found ({name!r}): it does not run")
        return host, pod, name

    # -- operations

    async def _probe(self, request: Reply, _: list[int]) -> Reply:
        self._container(request)
        return {"exit": 0}

    async def _pod(self, request: Reply, descriptors: list[int]) -> Reply:
        """A command in a container: by exec, or nsenter inside of one (then `pod` and `cgroup` say whose)."""
        if request.get("pod"):
            host = self._known_host(request["node"])
            pod, group = self._by_uid(request["pod"]), request["cgroup"]
        else:
            host, pod, name = self._container(request)
            group = f"pod/{pod['metadata']['uid']}/{name}"
        argv = request["argv"]
        if argv[0].rpartition("/")[2] == "nsenter":
            inner, refusal = enter_host(pod, group.rpartition("/")[2], argv[1:])
            if refusal:
                return _print(refusal, descriptors)
            process = await host.start(inner, group, **_streams(descriptors))
        else:
            uid = pod["metadata"]["uid"]
            process = await host.start(
                argv, group, in_pod=uid, folder=request.get("folder", "/"), **_streams(descriptors)
            )
        return await self._follow(host, process)

    def _by_uid(self, uid: str) -> dict[str, Any]:
        pod = self._room.pod_by_uid(uid)
        if pod is None:
            raise Refused("the pod is gone")
        return pod

    async def _follow(self, host: Host, process: asyncio.subprocess.Process) -> Reply:
        """Until the process ends, or the kubelet does, which carries the streams."""
        ended = asyncio.ensure_future(process.wait())
        cut = asyncio.ensure_future(host.kubelet_stops.wait())
        try:
            await asyncio.wait({ended, cut}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return {"exit": _exit_status(ended.result())}
            raise Refused("error reading from error stream: connection to the kubelet lost")
        finally:
            cut.cancel()

    async def _host(self, request: Reply, descriptors: list[int]) -> Reply:
        """A root command on the host, as Cloud Assistant runs it."""
        host = self._known_host(request["node"])
        if not host.on:
            raise Refused(f"the machine {request['node']} is not running")
        group = f"{request['cgroup']}/{id(request)}"
        process = await host.start(request["argv"], group, **_streams(descriptors))
        try:
            async with asyncio.timeout(request["timeout"]):
                status = await process.wait()
        except TimeoutError:
            host.kill(group)
            await process.wait()
            return {"timeout": True}
        return {"exit": _exit_status(status)}

    async def _tool(self, request: Reply, descriptors: list[int]) -> Reply:
        """A stand-in was called."""
        host = self._known_host(request["node"])
        name, *arguments = request["argv"]
        try:
            answer = await tools.run(host, name, arguments)
        except (ValueError, IndexError, KeyError) as problem:
            log.exception("%s %s", name, shlex.join(arguments))
            answer = fail(f"{name}: the sandbox's stand-in doesn't understand this: {problem!r}", 2)
        return _print(answer, descriptors)

    async def _logs(self, request: Reply, descriptors: list[int]) -> Reply:
        pod = self._room.pod(request["namespace"], request["name"])
        if pod is None:
            raise Refused(f"pod {request['name']} does not exist")
        host = self._known_host(pod["spec"]["nodeName"])
        if not host.kubelet_active:
            raise Refused(f"dial tcp {host.machine.ip}:10250: connect: connection refused")
        text = annotation(pod, LOGS)
        return _print(Result(f"{text}\n" if text else ""), [0, *descriptors])


def enter_host(pod: dict[str, Any], container: str, arguments: list[str]) -> tuple[list[str], Result | None]:
    """The command that an nsenter of process 1 leads to, or what nsenter says when the pod may not go there."""
    spec = pod["spec"]
    context = next((each.get("securityContext") or {} for each in spec["containers"] if each["name"] == container), {})
    rest, target = list(arguments), ""
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word in ("-t", "--target"):
            target = rest.pop(0) if rest else ""
        elif word.startswith(("-t", "--target=")):
            target = word.removeprefix("--target=").removeprefix("-t")
    if target != "1":
        return [], fail("nsenter: no target PID specified" if not target else f"nsenter: cannot open /proc/{target}/ns")
    if not spec.get("hostPID"):
        return [], fail("nsenter: process 1 is the container's own: the pod has no hostPID")
    if not context.get("privileged"):
        return [], fail("nsenter: reassociate to namespace 'ns/ipc' failed: Operation not permitted")
    return rest or ["sh"], None


def _streams(descriptors: list[int]) -> dict[str, Any]:
    return dict(zip(("stdin", "stdout", "stderr"), descriptors, strict=True))


def _exit_status(status: int) -> int:
    return status if status >= 0 else 128 - status


def _print(answer: Result, descriptors: list[int]) -> Reply:
    """Write what a program would have written; who closed its end doesn't read it."""
    for descriptor, text in zip(descriptors[1:], (answer.out, answer.err), strict=False):
        with suppress(OSError), os.fdopen(os.dup(descriptor), "wb", buffering=0) as stream:
            rest = text.encode()
            while rest:
                rest = rest[stream.write(rest) or 0 :]
    return {"exit": answer.code}


async def _receive(connection: socket.socket, descriptors: list[int]) -> bytes:
    """One line, and the descriptors that came with it."""
    loop, line = asyncio.get_running_loop(), b""
    while not line.endswith(b"\n"):
        readable = loop.create_future()
        loop.add_reader(connection, _set, readable)
        try:
            await readable
        finally:
            loop.remove_reader(connection)
        part, given, _, _ = socket.recv_fds(connection, 65536, 8)
        descriptors.extend(given)
        line += part
        if not part or len(line) > _LIMIT:
            raise OSError("no request")
    return line


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
