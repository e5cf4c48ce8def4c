"""`crictl` and `docker`: the containers of a machine as its runtime's command line shows and stops them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandbox.machines.containers import Container, Sandbox
from sandbox.machines.result import Result, fail, lines

if TYPE_CHECKING:
    from sandbox.machines.host import Host

_CRICTL_VALUES: tuple[str, ...] = (
    "-o",
    "--output",
    "--name",
    "--pod",
    "-p",
    "--label",
    "--state",
    "-s",
    "--namespace",
    "--timeout",
    "-t",
)
_CRICTL_VALUES += ("-r", "--runtime-endpoint", "--image-endpoint", "-i")
_DOCKER_VALUES: tuple[str, ...] = ("--filter", "-f", "--format", "-t", "--time", "-H", "--host")
_DOCKER_IS_DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


def parse(arguments: list[str], with_value: tuple[str, ...]) -> tuple[list[str], dict[str, list[str]]]:
    """Words, and options with their values; flags have none."""
    words: list[str] = []
    options: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, has_value, value = word.partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif name in with_value:
            options.setdefault(name, []).append(value if has_value else rest.pop(0) if rest else "")
        else:
            flags = [f"-{letter}" for letter in word[1:]] if not word.startswith("--") else [word]
            for flag in flags:
                options.setdefault(flag, [])
    return words, options


def _value(options: dict[str, list[str]], *names: str) -> str:
    return next((options[name][-1] for name in names if options.get(name)), "")


def crictl(host: Host, arguments: list[str]) -> Result:
    """`crictl ps|pods|stop|stopp|rm|rmp|inspect|version` with the filters that scripts use."""
    words, options = parse(arguments, _CRICTL_VALUES)
    if host.machine.runtime_name != "containerd":
        return fail("bash: crictl: command not found", 127)
    if not host.runtime_active:
        return fail(
            "FATA[0000] validate service connection: validate CRI v1 runtime API for endpoint "
            '"unix:///run/containerd/containerd.sock": rpc error: code = Unavailable desc = connection error: '
            "dial unix /run/containerd/containerd.sock: connect: no such file or directory"
        )
    verb, names = (words[0], words[1:]) if words else ("help", [])
    known = _CRICTL.get(verb)
    return known(host, names, options) if known else fail(f'No help topic for "{verb}"', 3)


def _chosen(host: Host, options: dict[str, list[str]]) -> list[Container]:
    everything = "-a" in options or "--all" in options
    state = _value(options, "--state", "-s").lower()
    labels = dict(each.partition("=")[::2] for each in options.get("--label", []))
    pod = _value(options, "--pod", "-p")
    name = _value(options, "--name")
    return [
        one
        for one in host.runtime.containers.values()
        if (everything or one.running or state == "exited")
        and (not state or state == ("running" if one.running else "exited"))
        and name in one.name
        and one.sandbox.id.startswith(pod)
        and all(_container_labels(one).get(key) == value for key, value in labels.items())
    ]


def _ps(host: Host, _: list[str], options: dict[str, list[str]]) -> Result:
    chosen = _chosen(host, options)
    if "-q" in options or "--quiet" in options:
        return lines(*(one.id for one in chosen))
    if _value(options, "-o", "--output") == "json":
        return lines(json.dumps({"containers": [_container_json(one) for one in chosen]}, indent=2))
    rows = [
        "  ".join(
            [one.id[:13], one.image, _state(one), one.name, str(one.attempt), one.sandbox.id[:13], one.sandbox.name]
        )
        for one in chosen
    ]
    return lines("CONTAINER  IMAGE  STATE  NAME  ATTEMPT  POD ID  POD", *rows)


def _pods(host: Host, _: list[str], options: dict[str, list[str]]) -> Result:
    name, namespace = _value(options, "--name"), _value(options, "--namespace")
    labels = dict(each.partition("=")[::2] for each in options.get("--label", []))
    state = _value(options, "--state", "-s").lower()
    chosen = [
        one
        for one in host.runtime.sandboxes.values()
        if name in one.name
        and namespace in ("", one.namespace)
        and (not state or state == ("ready" if one.ready else "notready"))
        and all(one.labels.get(key) == value for key, value in labels.items())
    ]
    if "-q" in options or "--quiet" in options:
        return lines(*(one.id for one in chosen))
    if _value(options, "-o", "--output") == "json":
        return lines(json.dumps({"items": [_sandbox_json(one) for one in chosen]}, indent=2))
    rows = [f"{one.id[:13]}  {'Ready' if one.ready else 'NotReady'}  {one.name}  {one.namespace}" for one in chosen]
    return lines("POD ID  STATE  NAME  NAMESPACE", *rows)


def _on_each(
    stored: Callable[[Host], dict[str, Any]], said: str, act: Callable[[Host, Any, bool], str]
) -> Callable[..., Result]:
    """A verb that does a thing with each id that is named, or with all (`-a`); `act` returns what is wrong, or ""."""

    def run(host: Host, names: list[str], options: dict[str, list[str]]) -> Result:
        names = list(stored(host)) if "-a" in options or "--all" in options else names
        force = "-f" in options or "--force" in options
        out, errors = "", ""
        for name in names:
            found = [one for key, one in stored(host).items() if key.startswith(name)]
            problem = act(host, found[0], force) if found else "not found"
            if problem:
                errors += f'"{name}": rpc error: {problem}\n'
            else:
                out += f"{said}{name}\n"
        return Result(out, errors, 1 if errors else 0)

    return run


def _containers(host: Host) -> dict[str, Any]:
    return host.runtime.containers


def _sandboxes(host: Host) -> dict[str, Any]:
    return host.runtime.sandboxes


def _stop(host: Host, container: Container, _: bool) -> str:
    host.runtime.stop(container)
    return ""


def _remove(host: Host, container: Container, force: bool) -> str:
    if container.running and not force:
        return "container is running, please stop it first"
    host.runtime.remove(container)
    return ""


def _stop_sandbox(host: Host, sandbox: Sandbox, _: bool) -> str:
    host.runtime.stop_sandbox(sandbox)
    return ""


def _remove_sandbox(host: Host, sandbox: Sandbox, force: bool) -> str:
    if sandbox.ready and not force:
        return "pod sandbox is running, please stop it first"
    host.runtime.remove_sandbox(sandbox)
    return ""


def _inspect(host: Host, names: list[str], _: dict[str, list[str]]) -> Result:
    found = [one for name in names for one in host.runtime.containers.values() if one.id.startswith(name)]
    if not found:
        return fail(f"no such container {' '.join(names)}")
    return lines(json.dumps({"status": _container_json(found[0]), "info": {"pid": found[0].pid}}, indent=2))


def _version(host: Host, names: list[str], options: dict[str, list[str]]) -> Result:
    version = host.machine.runtime.partition("://")[2]
    return lines("Version:  0.1.0", "RuntimeName:  containerd", f"RuntimeVersion:  {version}")


_CRICTL: dict[str, Callable[..., Result]] = {
    "ps": _ps,
    "pods": _pods,
    "stop": _on_each(_containers, "", _stop),
    "rm": _on_each(_containers, "", _remove),
    "stopp": _on_each(_sandboxes, "Stopped sandbox ", _stop_sandbox),
    "rmp": _on_each(_sandboxes, "Removed sandbox ", _remove_sandbox),
    "inspect": _inspect,
    "version": _version,
}


def _state(container: Container) -> str:
    return "Running" if container.running else "Exited"


def _container_labels(container: Container) -> dict[str, str]:
    return {
        "io.kubernetes.container.name": container.name,
        "io.kubernetes.pod.name": container.sandbox.name,
        "io.kubernetes.pod.namespace": container.sandbox.namespace,
        "io.kubernetes.pod.uid": container.sandbox.uid,
    }


def _container_json(container: Container) -> dict[str, Any]:
    return {
        "id": container.id,
        "podSandboxId": container.sandbox.id,
        "metadata": {"name": container.name, "attempt": container.attempt},
        "image": {"image": container.image, "annotations": {}},
        "imageRef": container.image,
        "state": "CONTAINER_RUNNING" if container.running else "CONTAINER_EXITED",
        "createdAt": str(int(container.created * 1e9)),
        "labels": _container_labels(container),
        "annotations": {"io.kubernetes.container.restartCount": str(container.attempt)},
    }


def _sandbox_json(sandbox: Sandbox) -> dict[str, Any]:
    return {
        "id": sandbox.id,
        "metadata": {"name": sandbox.name, "uid": sandbox.uid, "namespace": sandbox.namespace, "attempt": 0},
        "state": "SANDBOX_READY" if sandbox.ready else "SANDBOX_NOTREADY",
        "createdAt": str(int(sandbox.created * 1e9)),
        "labels": sandbox.labels,
        "annotations": {},
        "runtimeHandler": "",
    }


def docker(host: Host, arguments: list[str]) -> Result:
    """`docker ps|stop|rm|info|version` on machines whose runtime is docker; a call revives it through its socket."""
    if host.machine.runtime_name != "docker":
        return fail("bash: docker: command not found", 127)
    if not host.revive_docker():
        return fail(_DOCKER_IS_DOWN)
    words, options = parse(arguments, _DOCKER_VALUES)
    words = words[1:] if words[:1] == ["container"] else words
    verb, names = (words[0], words[1:]) if words else ("help", [])
    if verb in ("ps", "ls"):
        return _docker_ps(host, options)
    if verb in ("stop", "kill", "rm"):
        act = _remove if verb == "rm" else _stop
        names = [one.id for name in names for one in host.runtime.containers.values() if _docker_matches(one, name)]
        return _on_each(_containers, "", act)(host, names, options)
    version = host.machine.runtime.partition("://")[2]
    return lines(f"Server Version: {version}") if verb in ("info", "version") else Result()


def _docker_name(container: Container) -> str:
    sandbox = container.sandbox
    return f"k8s_{container.name}_{sandbox.name}_{sandbox.namespace}_{sandbox.uid}_{container.attempt}"


def _docker_matches(container: Container, name: str) -> bool:
    return container.id.startswith(name) or _docker_name(container) == name


def _docker_ps(host: Host, options: dict[str, list[str]]) -> Result:
    chosen = [one for one in host.runtime.containers.values() if one.running or "-a" in options or "--all" in options]
    for given in options.get("--filter", []) + options.get("-f", []):
        key, _, value = given.partition("=")
        if key == "name":
            chosen = [one for one in chosen if value in _docker_name(one)]
    if "-q" in options or "--quiet" in options:
        return lines(*(one.id if "--no-trunc" in options else one.id[:12] for one in chosen))
    age = [f"{int(time.time() - one.created)} seconds" for one in chosen]
    return lines(
        "CONTAINER ID   IMAGE   STATUS   NAMES",
        *(
            f"{one.id[:12]}   {one.image}   {'Up ' + age[i] if one.running else 'Exited'}   {_docker_name(one)}"
            for i, one in enumerate(chosen)
        ),
    )
