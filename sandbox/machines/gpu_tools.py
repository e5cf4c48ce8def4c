"""The programs that show and change cards and modules: nvidia-smi, lsmod, modprobe, rmmod, fuser, lsof."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from sandbox.machines.containers import Container
from sandbox.machines.result import Result, fail, lines

if TYPE_CHECKING:
    from sandbox.machines.host import Host

_NO_DEVICES = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
TOOLKIT_VERSION = "1.13.5"


async def nvidia_smi(host: Host, arguments: list[str]) -> Result:
    """`-L`, `--query-gpu=`, `--query-compute-apps=`, `-r`; without arguments a short table."""
    if not host.cards.gpu:
        return fail("bash: nvidia-smi: command not found", 127)
    options = _options(arguments)
    if "-r" in options or "--gpu-reset" in options:
        return await _reset(host)
    if not host.cards.count:
        return Result("No devices were found\n", code=6)
    wanted = options.get("--id", options.get("-i", ""))
    indexes = [index for index in range(host.cards.count) if wanted in ("", str(index))]
    if "-L" in options or "--list-gpus" in options:
        name = host.machine.gpu_model
        return lines(*(f"GPU {index}: {name} (UUID: {_uuid(host, index)})" for index in indexes))
    if "--query-gpu" in options:
        return _csv(options, [_facts(host, index) for index in indexes])
    if "--query-compute-apps" in options:
        apps = [
            _app(host, index, one) for index in indexes for one in host.cards.holders(f"nvidia{index}") if one.cards
        ]
        return _csv(options, apps)
    rows = [f"| {index}  {host.machine.gpu_model}  {_facts(host, index)['memory.total']} |" for index in indexes]
    return lines(f"| NVIDIA-SMI {host.machine.driver}   Driver Version: {host.machine.driver} |", *rows)


def _options(arguments: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if not has_value and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        found[name] = value
    return found


async def _reset(host: Host) -> Result:
    if host.cards.version:
        # ACK's GPU FAQ: with cGPU loaded a reset hangs, until cGPU is uninstalled or the instance restarted.
        await asyncio.Event().wait()
    if host.cards.holders("nvidiactl"):
        return fail("The following GPUs could not be reset: GPU 00000000:00:07.0: In use by another client", 255)
    return lines("GPU 00000000:00:07.0 was successfully reset.", "All done.")


def _uuid(host: Host, index: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{host.machine.instance_id}/{index}')}"


def _facts(host: Host, index: int) -> dict[str, str]:
    gpu = host.cards.gpu
    total = gpu.memory_mib if gpu else 0
    shares = [one.cards[index] for one in host.cards.holders(f"nvidia{index}") if index in one.cards]
    used = min(sum((share << 10) or total for share in shares), total)
    return {
        "index": str(index),
        "count": str(host.cards.count),
        "name": host.machine.gpu_model,
        "gpu_name": host.machine.gpu_model,
        "uuid": _uuid(host, index),
        "gpu_uuid": _uuid(host, index),
        "driver_version": host.machine.driver,
        "memory.total": f"{total} MiB",
        "memory.used": f"{used} MiB",
        "memory.free": f"{total - used} MiB",
        "pci.bus_id": f"00000000:00:{7 + index:02X}.0",
        "utilization.gpu": "0 %",
        "mig.mode.current": "[N/A]",
    }


def _app(host: Host, index: int, container: Container) -> dict[str, str]:
    share = container.cards.get(index, 0)
    return {
        "pid": str(container.pid),
        "process_name": container.name,
        "name": container.name,
        "gpu_uuid": _uuid(host, index),
        "used_memory": f"{share << 10} MiB",
        "used_gpu_memory": f"{share << 10} MiB",
    }


def _csv(options: dict[str, str], rows: list[dict[str, str]]) -> Result:
    fields = (options.get("--query-gpu") or options.get("--query-compute-apps") or "").split(",")
    known = rows[0] if rows else {}
    for field in fields:
        if rows and field not in known:
            return Result(f'Field "{field}" is not a valid field to query.\n', code=2)
    style = options.get("--format", "csv").split(",")
    plain = "nounits" in style
    shown = [
        ", ".join(row[field].split(" ")[0] if plain and _has_unit(field) else row[field] for field in fields)
        for row in rows
    ]
    return lines(*([] if "noheader" in style else [", ".join(fields)]), *shown)


def _has_unit(field: str) -> bool:
    return field.startswith(("memory.", "used_", "utilization."))


def nvidia_container_cli(host: Host, arguments: list[str]) -> Result:
    if not host.cards.gpu:
        return fail("bash: nvidia-container-cli: command not found", 127)
    return lines(f"cli-version: {TOOLKIT_VERSION}", f"lib-version: {TOOLKIT_VERSION}")


def lsmod(host: Host, _: list[str]) -> Result:
    rows = [f"{name:<22} {size:>9}  {used} {by}".rstrip() for name, (size, used, by) in host.cards.modules().items()]
    return lines("Module                       Size  Used by", *rows)


async def modprobe(host: Host, arguments: list[str]) -> Result:
    """Load cGPU's module from the disk, or remove it (`-r`); other modules are there already."""
    names = [each.replace("-", "_") for each in arguments if not each.startswith("-")]
    if "-r" in arguments or "--remove" in arguments:
        return await rmmod(host, names)
    if not {"cgpu_km", "cgpu_procfs"} & set(names) or host.cards.version:
        return Result()
    version = host.cards.installed_version
    if not version:
        return fail(f"modprobe: FATAL: Module {names[0]} not found in directory /lib/modules/{host.machine.kernel}")
    if host.fault("module-does-not-load") is not None:
        return fail("modprobe: ERROR: could not insert 'cgpu_procfs': Operation not permitted")
    host.cards.load(version, host.policy)
    return Result()


async def rmmod(host: Host, arguments: list[str]) -> Result:
    """A module that somebody uses stays."""
    for name in [each.replace("-", "_") for each in arguments if not each.startswith("-")]:
        loaded = host.cards.modules()
        if name not in loaded:
            return fail(f"rmmod: ERROR: Module {name} is not currently loaded")
        if name == "cgpu_procfs":
            return fail("rmmod: ERROR: Module cgpu_procfs is in use by: cgpu_km")
        if loaded[name][1]:
            return fail(f"rmmod: ERROR: Module {name} is in use")
        if host.fault("uninstall-fails") is not None:
            return fail(f"rmmod: ERROR: could not remove module {name}: Device or resource busy")
        await asyncio.sleep(host.timing.uninstall)
        host.cards.unload()
    return Result()


def _held(host: Host, arguments: list[str]) -> dict[str, list[Container]]:
    # Where paths are rewritten, the machine's own folder stands before /dev.
    paths = [f"/dev/{each.rpartition('/')[2]}" for each in arguments if "/dev/nvidia" in each]
    return {path: found for path in paths if (found := host.cards.holders(path.removeprefix("/dev/")))}


def fuser(host: Host, arguments: list[str]) -> Result:
    """Names go to the errors and numbers to the output, as fuser has it; status 1 when nobody holds anything."""
    held = _held(host, arguments)
    if any(each.startswith("-") and "k" in each for each in arguments):
        for container in {one.id: one for found in held.values() for one in found}.values():
            host.runtime.stop(container)
    if any(each.startswith("-") and "s" in each for each in arguments):
        return Result(code=0 if held else 1)
    out = "".join("".join(f" {one.pid}" for one in found) + "\n" for found in held.values())
    return Result(out, "".join(f"{path}:\n" for path in held), 0 if held else 1)


def lsof(host: Host, arguments: list[str]) -> Result:
    """`lsof /dev/nvidia0`, `-t` for numbers alone."""
    held = _held(host, arguments)
    pids = sorted({one.pid for found in held.values() for one in found})
    if "-t" in arguments:
        return Result("".join(f"{pid}\n" for pid in pids), code=0 if pids else 1)
    rows = [f"{one.name[:9]:<9} {one.pid} root  mem  CHR  {path}" for path, found in held.items() for one in found]
    return Result(
        "".join(f"{row}\n" for row in ["COMMAND PID USER FD TYPE NAME", *rows]) if rows else "", code=0 if rows else 1
    )
