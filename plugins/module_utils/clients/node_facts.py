"""What only a node itself can say: asked through its cGPU installer pod, many nodes at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.node_shell import NodeShell
from ansible_collections.ack.ai_suite.plugins.module_utils.core import installer
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_facts import QUESTION, Answer, answer
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Pod

_AT_ONCE = 16
_SECONDS = 20.0
_PODS = f"/api/v1/namespaces/{installer.NAMESPACE}/pods"
_DAEMONSETS = f"/apis/apps/v1/namespaces/{installer.NAMESPACE}/daemonsets"


def ask(kube: Kube, nodes: Iterable[str], patience: float) -> dict[str, Answer]:
    """Answers by node. A node that cannot be asked gets an answer with the reason.

    ``patience`` is how many seconds to wait for installer pods that are still starting, as on nodes that just joined;
    where no installer is installed nobody waits.
    """
    open_ = sorted(set(nodes))
    if not open_:
        return {}
    pods = _installer_pods(kube, open_, patience)
    shell = NodeShell(kube)

    def one(node: str) -> Answer:
        pod = pods.get(node)
        if pod is None:
            return Answer(problem="no cGPU installer pod runs on it")
        try:
            return answer(shell.run_in(pod, QUESTION, _SECONDS).stdout)
        except AckError as refused:
            return Answer(problem=refused.problem)

    with ThreadPoolExecutor(_AT_ONCE) as workers:
        return dict(zip(open_, workers.map(one, open_), strict=True))


def _installer_pods(kube: Kube, nodes: Iterable[str], patience: float) -> Mapping[str, Pod]:
    """Running installer pods by node, from one list; waited for while there is an installer that will bring them."""
    wanted, until = set(nodes), clock.monotonic() + patience
    pause = 0.25
    while True:
        by_node: dict[str, list[Pod]] = {}
        for pod in kube.list(_PODS, Pod, {"labelSelector": installer.SELECTOR}):
            by_node.setdefault(pod.spec.node_name, []).append(pod)
        found = {node: pod for node in wanted if (pod := installer.alive(by_node.get(node, ())))}
        left = until - clock.monotonic()
        if len(found) == len(wanted) or left <= 0 or not _installed(kube):
            return found
        clock.sleep(min(pause, left))
        pause = min(2 * pause, 4.0)


def _installed(kube: Kube) -> bool:
    return any(found.name in installer.INSTALLERS for found in kube.list(_DAEMONSETS, DaemonSet))
