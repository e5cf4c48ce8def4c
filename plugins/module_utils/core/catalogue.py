"""The components of the cloud-native AI suite: what is known of each before anybody asks for it.

Source of the console's steps: "Manage the GPU sharing component".
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """What is known of a component before anybody asks for it."""

    namespace: str
    policy: bool = False  # its installers take a cGPU policy
    critical: tuple[str, ...] = ()  # DaemonSets that other pods must not preempt
    console: tuple[str, ...] = ()  # how to install it by hand, where no chart is at hand


CATALOGUE: Mapping[str, Entry] = {
    "ack-ai-installer": Entry(
        namespace="kube-system",
        policy=True,
        critical=("gpushare-device-plugin-ds", "gpushare-core-device-plugin-ds", "gpushare-mps-device-plugin-ds"),
        console=(
            "Log on to the ACK console, choose Clusters, click the cluster, then Applications > Cloud-native AI Suite.",
            "Suite not deployed: click Deploy, select Scheduling policies extension (batch, GPU sharing, topology).",
            "Suite deployed: find the component ack-ai-installer and click Deploy.",
            "Optional: click Advanced and set policy for cGPU (5, native scheduling, is the default).",
            "Click Deploy Cloud-native AI Suite (or OK). The component's Status becomes Deployed.",
        ),
    ),
}  # fmt: skip
