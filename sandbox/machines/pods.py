"""What the kubelet of a machine decides for one pod: its cards, its delays, what stands in its way. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sandbox.machines.containers import Runtime
from sandbox.machines.gpu_scheduler import allocation, wants
from sandbox.machines.resources import MEM, PLUGINS, TOPOLOGY, WHOLE
from sandbox.machines.status import Trouble

Object = dict[str, Any]
SYSTEM = "kube-system"
INSTALLERS = ("cgpu-installer", "cgpu-core-installer")
# Annotations with which a test says what a pod's program does: seconds, or "90s", "5m", "2h".
RUNS_FOR, EXIT_CODE, STOPS_AFTER, LOGS = (
    f"sandbox.ack/{name}" for name in ("runs-for", "exit-code", "stops-after", "logs")
)
_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600}
_ISOLATED_MODES = ("cgpu", "core_mem", "mps")


@dataclass(frozen=True)
class Need:
    """The cards of one container: index to share in GiB (0: whole), whether cGPU isolates it, what it holds besides."""

    cards: dict[int, int]
    isolated: bool = False
    holds: tuple[int, ...] = ()


def annotation(pod: Object, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def label(pod: Object, name: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(name, ""))


def seconds(text: str, default: float) -> float:
    """A duration as annotated; the default when there is none, or none that can be read."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text)
    return float(found[1]) * _UNITS[found[2]] if found else default


def is_installer(pod: Object) -> bool:
    return pod["metadata"]["namespace"] == SYSTEM and label(pod, "name") in INSTALLERS


def plugin_of(pod: Object) -> str:
    """The device plug-in that a pod is, or ""."""
    name = label(pod, "name")
    return name if pod["metadata"]["namespace"] == SYSTEM and name in PLUGINS else ""


def image_version(image: str) -> str:
    """What stands behind the colon: `registry.example.test/acs/cgpu-installer:1.5.20` is 1.5.20."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2].removeprefix("v")


def need_of(pod: Object, index: int, runtime: Runtime, cards: int, mode: str, *, module: bool) -> Need | Trouble:
    """The cards that a container gets, or why it can't have them."""
    spec = pod["spec"]["containers"][index]
    if plugin_of(pod):
        return Need({}, holds=tuple(range(cards)))
    limits = (spec.get("resources") or {}).get("limits") or {}
    whole = int(limits.get(WHOLE, 0)) + int(limits.get(TOPOLOGY, 0))
    if whole:
        taken = {card for one in runtime.running() for card in one.cards}
        free = [card for card in range(cards) if card not in taken][:whole]
        if len(free) < whole:
            return Trouble("UnexpectedAdmissionError", "Allocate failed due to no free GPU, which is unexpected")
        return Need(dict.fromkeys(free, 0))
    if index not in wants(pod):
        return Need({})
    shares = allocation(pod).get(index)
    if shares is None:
        # What the open-source device plug-in answers for a pod that no GPU scheduler saw.
        given = f"no-gpu-has-{limits.get(MEM)}GiB-to-run"
        return Trouble("CreateContainerError", f"nvidia-container-cli: device error: {given}: unknown device: unknown")
    if any(card >= cards for card in shares):
        return Trouble("CreateContainerError", f"nvidia-container-cli: device error: {max(shares)}: unknown device")
    disabled = any(each["name"] == "CGPU_DISABLE" and each.get("value") == "true" for each in spec.get("env") or [])
    return Need(shares, isolated=module and mode in _ISOLATED_MODES and not disabled)
