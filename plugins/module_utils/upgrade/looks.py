"""What a run reads: the whole cluster once, then node by node only what the next step needs."""

from __future__ import annotations

from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.core import node_upgrade
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_upgrade import Observed
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import (
    DaemonSet,
    Node,
    Pod,
    PodDisruptionBudget,
    Snapshot,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.host import Host


class Looks:
    """Reads of one cluster; nothing here writes."""

    def __init__(self, kube: Kube, host: Host) -> None:
        self._kube = kube
        self._policy = ""
        self.host = host

    def everything(self, settings: Settings) -> Observed:
        """A snapshot, and what the hosts of the nodes in scope say: one command a host, side by side."""
        nodes = self._kube.list("/api/v1/nodes", Node)
        if not node_upgrade.isolated(nodes):
            return Observed(Snapshot(nodes=tuple(nodes)), {}, clock.now())
        snapshot = Snapshot(
            nodes=tuple(nodes),
            pods=tuple(self._kube.list("/api/v1/pods", Pod)),
            pdbs=tuple(self.pdbs()),
            daemonsets=tuple(self._daemonsets()),
        )
        probes = self.host.probes(node_upgrade.to_probe(snapshot, settings), snapshot.pods)
        return Observed(snapshot, probes, clock.now())

    def pods(self, node: str) -> tuple[Pod, ...]:
        return tuple(self._kube.list("/api/v1/pods", Pod, {"fieldSelector": f"spec.nodeName={node}"}))

    def pdbs(self) -> list[PodDisruptionBudget]:
        """Servers before 1.21 know budgets as policy/v1beta1 only."""
        if not self._policy:
            group: dict[str, Any] = self._kube.get("/apis/policy")
            served = [version["version"] for version in group["versions"]]
            self._policy = "v1" if "v1" in served else "v1beta1"
        return self._kube.list(f"/apis/policy/{self._policy}/poddisruptionbudgets", PodDisruptionBudget)

    def daemonsets(self) -> dict[str, DaemonSet]:
        return {f"{ds.namespace}/{ds.name}": ds for ds in self._daemonsets()}

    def _daemonsets(self) -> list[DaemonSet]:
        return self._kube.list("/apis/apps/v1/daemonsets", DaemonSet)
