"""The machines behind the API: Node objects in the sandbox's cluster, and the power and shell of each machine.

`Fleet` is all that the endpoint knows of them; tests of pure HTTP behaviour give another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Protocol
from urllib.parse import urlencode

from sandbox.machines import power, shell
from sandbox.machines.objects import Machine, node_object

NODES = "/api/v1/nodes"
_MERGE_PATCH = "application/merge-patch+json"


class Fleet(Protocol):
    def nodes(self) -> dict[str, dict[str, Any]]:
        """All Node objects by name."""

    def create(self, machine: Machine) -> None:
        """Register the Node of a machine; one that exists is fine."""

    def delete(self, node: str) -> None:
        """Delete a Node object; one that is gone is fine."""

    def patch(self, node: str, patch: Mapping[str, Any]) -> None:
        """Merge-patch a Node object; one that is gone is fine."""

    def pods(self, node: str) -> list[dict[str, Any]]:
        """The pods bound to a node."""

    def evict(self, namespace: str, pod: str) -> bool:
        """Ask for an eviction; False when a budget forbids it now."""

    def reboot(self, node: str, source: str, *, force: bool) -> None:
        """Restart a machine. Raises FileNotFoundError when there is none."""

    def shell(self, node: str, argv: list[str], timeout: float) -> CompletedProcess[bytes]:
        """Run as root on a machine. Raises shell.MachineError and subprocess.TimeoutExpired."""

    def kubernetes_version(self) -> str:
        """The API server's version without the leading v."""


class ClusterError(Exception):
    """The API server refused, or gave no answer (status 0)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class ClusterFleet:
    """The fleet of a sandbox, through its kubeconfig and its nodes folder."""

    def __init__(self, kubeconfig: Path, nodes_root: Path) -> None:
        self._kubeconfig, self._nodes_root = kubeconfig, nodes_root
        self._client: Any = None

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["metadata"]["name"]: node for node in self._send("GET", NODES)["items"]}

    def create(self, machine: Machine) -> None:
        self._send("POST", NODES, node_object(machine), fine=(409,))

    def delete(self, node: str) -> None:
        self._send("DELETE", f"{NODES}/{node}", fine=(404,))

    def patch(self, node: str, patch: Mapping[str, Any]) -> None:
        self._send("PATCH", f"{NODES}/{node}", patch, content_type=_MERGE_PATCH, fine=(404,))

    def pods(self, node: str) -> list[dict[str, Any]]:
        selector = urlencode({"fieldSelector": f"spec.nodeName={node}"})
        return list(self._send("GET", f"/api/v1/pods?{selector}")["items"])

    def evict(self, namespace: str, pod: str) -> bool:
        eviction = {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace},
        }  # fmt: skip
        try:
            self._send("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", eviction, fine=(404,))
        except ClusterError as refused:
            if refused.status != 429:
                raise
            return False
        return True

    def reboot(self, node: str, source: str, *, force: bool) -> None:
        power.request_reboot(self._nodes_root, node, source, force=force)

    def shell(self, node: str, argv: list[str], timeout: float) -> CompletedProcess[bytes]:
        return shell.run(self._nodes_root, node, argv, timeout=timeout)

    def kubernetes_version(self) -> str:
        return str(self._send("GET", "/version")["gitVersion"]).removeprefix("v")

    def _send(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json",
        fine: tuple[int, ...] = (),
    ) -> dict[str, Any]:  # fmt: skip
        """One request; answers with a status in `fine` count as done. Raises ClusterError for all other refusals."""
        import urllib3

        client = self._connected()
        try:
            answer = client.rest_client.pool_manager.request(
                method,
                client.configuration.host + path,
                body=None if body is None else json.dumps(body).encode(),
                headers={"Accept": "application/json", "Content-Type": content_type},
                timeout=10,
                retries=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise ClusterError(0, f"{method} {path}: {problem}") from problem
        if answer.status >= 400 and answer.status not in fine:
            raise ClusterError(answer.status, f"{method} {path}: {answer.data.decode(errors='replace')[:300]}")
        return dict(json.loads(answer.data))

    def _connected(self) -> Any:
        if self._client is None:
            # Imported late: the client takes half a second, and most calls to the endpoint need no cluster.
            from kubernetes import client, config

            self._client = config.new_client_from_config(
                str(self._kubeconfig), client_configuration=client.Configuration()
            )
        return self._client
