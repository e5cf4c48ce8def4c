"""The table of stand-ins: program name to what it does on a machine."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sandbox.machines import gpu_tools, systemd_run
from sandbox.machines.cri import crictl, docker
from sandbox.machines.result import Result, fail, lines
from sandbox.machines.systemctl import systemctl

if TYPE_CHECKING:
    from sandbox.machines.host import Host

Tool = Callable[["Host", list[str]], Result | Awaitable[Result]]


def _reboot(host: Host, arguments: list[str]) -> Result:
    host.shut_down(again=True)
    return Result()


def _power_off(host: Host, arguments: list[str]) -> Result:
    host.shut_down(again=False)
    return Result()


def _shutdown(host: Host, arguments: list[str]) -> Result:
    if "-c" in arguments:
        return Result()
    host.shut_down(again="-r" in arguments or "--reboot" in arguments)
    return Result()


def _uname(host: Host, arguments: list[str]) -> Result:
    flags = "".join(each.lstrip("-")[:1] if each.startswith("--") else each.lstrip("-") for each in arguments) or "s"
    parts = {
        "s": "Linux",
        "n": host.machine.name,
        "r": host.machine.kernel,
        "v": "#1 SMP",
        "m": "x86_64",
        "o": "GNU/Linux",
    }
    return lines(" ".join(value for flag, value in parts.items() if flag in flags or "a" in flags))


def _hostname(host: Host, arguments: list[str]) -> Result:
    return lines(host.machine.ip if {"-i", "-I"} & set(arguments) else host.machine.name)


def _nothing(host: Host, arguments: list[str]) -> Result:
    return Result()


TOOLS: dict[str, Tool] = {
    "systemctl": systemctl,
    "systemd-run": systemd_run.systemd_run,
    "journalctl": systemd_run.journalctl,
    "crictl": crictl,
    "docker": docker,
    "nvidia-smi": gpu_tools.nvidia_smi,
    "nvidia-container-cli": gpu_tools.nvidia_container_cli,
    "lsmod": gpu_tools.lsmod,
    "modprobe": gpu_tools.modprobe,
    "rmmod": gpu_tools.rmmod,
    "depmod": _nothing,
    "fuser": gpu_tools.fuser,
    "lsof": gpu_tools.lsof,
    "reboot": _reboot,
    "shutdown": _shutdown,
    "poweroff": _power_off,
    "halt": _power_off,
    "uname": _uname,
    "hostname": _hostname,
}


async def run(host: Host, name: str, arguments: list[str]) -> Result:
    """Run a stand-in; one that breaks says so, as a program would."""
    tool = TOOLS.get(name)
    if tool is None:
        return fail(f"bash: {name}: command not found", 127)
    await asyncio.sleep(host.slowness)
    answer = tool(host, arguments)
    return await answer if inspect.isawaitable(answer) else answer
