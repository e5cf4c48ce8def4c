"""What a node advertises for its cards: which device plug-in serves which mode, and what it says. Pure.

Source: ACK's labels page (modes and their resources, one mode a node, the others' resources are 0) and the names of the
DaemonSets that ack-ai-installer brings (see docs/sandbox-machines.md).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MEM, CORE, COUNT, TOPOLOGY = (
    "aliyun.com/gpu-mem",
    "aliyun.com/gpu-core.percentage",
    "aliyun.com/gpu-count",
    "aliyun.com/gpu",
)
WHOLE = "nvidia.com/gpu"
ALL = (WHOLE, MEM, CORE, COUNT, TOPOLOGY)
# ACK's own plug-in for whole cards is on every GPU node from the beginning; the others come with ack-ai-installer.
BUILT_IN = ""


@dataclass(frozen=True)
class Mode:
    plugin: str
    resources: tuple[str, ...]


MODES = {
    "": Mode(BUILT_IN, (WHOLE,)),
    "default": Mode(BUILT_IN, (WHOLE,)),
    "cgpu": Mode("gpushare-device-plugin-ds", (MEM, COUNT)),
    "share": Mode("gpushare-device-plugin-ds", (MEM, COUNT)),
    "core_mem": Mode("gpushare-core-device-plugin-ds", (MEM, CORE, COUNT)),
    "mps": Mode("gpushare-mps-device-plugin-ds", (MEM, COUNT)),
    "topology": Mode("gputopo-device-plugin-ds", (TOPOLOGY,)),
}
PLUGINS = {mode.plugin for mode in MODES.values()} - {BUILT_IN}


def advertised(
    mode: str, cards: int, gib_per_card: int, plugins: Collection[str], before: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity and allocatable of the card resources, given which plug-ins run now.

    `before` is the capacity that the kubelet told last: what a plug-in that is gone had advertised stays in the
    capacity, and nothing of it is allocatable. A resource that was never advertised is left out.
    """
    amounts = {WHOLE: cards, TOPOLOGY: cards, COUNT: cards, MEM: cards * gib_per_card, CORE: cards * 100}
    known = MODES.get(mode, Mode("none", ()))
    served = known.resources if known.plugin == BUILT_IN or known.plugin in plugins else ()
    if not served and known.plugin and not any(name in before for name in known.resources):
        # The component isn't installed: the label alone changes nothing, and ACK's own plug-in still has the cards.
        served = MODES[""].resources
    capacity, allocatable = {}, {}
    for name in ALL:
        if name in served:
            capacity[name] = allocatable[name] = str(amounts[name])
        elif name in before or (name == WHOLE and cards):
            keeps = name in known.resources
            capacity[name], allocatable[name] = (before.get(name, "0") if keeps else "0"), "0"
    return capacity, allocatable
