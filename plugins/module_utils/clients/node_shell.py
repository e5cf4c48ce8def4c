"""Commands on a node, as root in the host's namespaces, through the node's cGPU installer pod.

ACK documents this very way for reading the loaded version: ``nsenter -t 1 ... cat /proc/cgpu_km/version`` in the pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import ExecResult, Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.core import installer
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Pod

HOST = ("nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--")


class NodeShell:
    """A root shell on any node that has a running installer pod."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def run(self, node: str, argv: Sequence[str], timeout: float = 60) -> ExecResult:
        """Run a command on the host of a node; ``timeout`` is in seconds.

        Raises AckError: UPG-NO-INSTALLER when the node has no installer pod that runs, KUB-EXEC when the command
        could not be run or did not end in time. A command that fails is no error: see ``rc``.
        """
        return self.run_in(self.pod(node), argv, timeout)

    def run_in(self, pod: Pod, argv: Sequence[str], timeout: float = 60) -> ExecResult:
        """As ``run``, through an installer pod that the caller has found already."""
        return self._kube.exec(pod.namespace, pod.name, [*HOST, *argv], timeout=timeout)

    def pod(self, node: str) -> Pod:
        """The installer pod of a node."""
        found = installer.alive(
            self._kube.list(
                f"/api/v1/namespaces/{installer.NAMESPACE}/pods",
                Pod,
                {"labelSelector": installer.SELECTOR, "fieldSelector": f"spec.nodeName={node}"},
            )
        )
        if found is None:
            raise AckError(
                f"node {node}",
                "no cGPU installer pod runs on it, so no command can be run on its host.",
                "See kubectl -n kube-system get pods -o wide -l 'name in (cgpu-installer,cgpu-core-installer)', "
                "and install the component if its DaemonSets are missing.",
                "UPG-NO-INSTALLER",
            )
        return found
