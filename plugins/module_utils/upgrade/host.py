"""The host of a node: by exec through its installer pod, and by ECS where its kubelet is stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.compute import Compute
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import ExecResult
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.node_shell import NodeShell
from ansible_collections.ack.ai_suite.plugins.module_utils.core import host_script, installer
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.host_script import Probe, Procedure, Status
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Pod

# Short enough that a node which does not answer costs no Lease, and long enough for a busy one.
TIMEOUT = 10
_PATIENCE = 1.0
_PARALLEL = 16


class _Question(threading.Thread):
    """A command through Cloud Assistant. It may take a minute, so the loop does not wait for it."""

    def __init__(self, ecs: Compute, instance_id: str, command: str) -> None:
        super().__init__(daemon=True)
        self._ecs = ecs
        self._asked = (instance_id, command)
        self.answer: Status | None = None
        self.start()

    def run(self) -> None:
        try:
            result = self._ecs.run_command(*self._asked, timeout=TIMEOUT)
        except AckError:
            return  # no Cloud Assistant, or no right to use it: the time-out decides
        if result.rc == 0:
            self.answer = host_script.read_status(result.output)


class Host:
    """Hosts of one cluster. ``ecs`` is None where the guests restart themselves and nothing is asked of the cloud."""

    def __init__(self, shell: NodeShell, ecs: Compute | None) -> None:
        self._shell = shell
        self._ecs = ecs
        self._questions: dict[str, _Question] = {}
        self._told: dict[str, Status | None] = {}  # the last answer counts while the next is on its way

    def probes(self, nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, Probe | str]:
        """What the hosts of many nodes say, side by side; a text for one that could not be asked."""
        by_node: dict[str, list[Pod]] = {}
        for pod in pods:
            if installer.is_installer(pod):
                by_node.setdefault(pod.spec.node_name, []).append(pod)
        names = [node.name for node in nodes]
        with ThreadPoolExecutor(_PARALLEL) as pool:
            return dict(zip(names, pool.map(lambda name: self.probe(by_node.get(name, [])), names), strict=True))

    def probe(self, pods: Iterable[Pod]) -> Probe | str:
        pod = installer.alive(pods)
        if pod is None:
            return "no cGPU installer pod runs on it"
        try:
            answer = self._shell.run_in(pod, host_script.probe(), TIMEOUT)
        except AckError as problem:
            return f"its host cannot be asked: {problem.problem.rstrip('.')}"
        if answer.rc:
            return f"its host cannot be asked: {_told(answer)}"
        return host_script.read_probe(answer.stdout)

    def start(self, node: str, procedure: Procedure) -> str:
        """Start the unit; a second start finds the first. What went wrong, or "".

        The answer is not the last word: the unit may have stopped the very pod that started it before it could say so.
        """
        try:
            answer = self._shell.run(node, host_script.start(procedure), TIMEOUT)
        except AckError as problem:
            return problem.problem
        return _told(answer) if answer.rc else ""

    def status(self, node: Node, unit: str) -> Status | None:
        """How far the unit is; None when the host cannot be asked now, or has not answered yet."""
        command = host_script.status_command(unit)
        try:
            if node.ready:
                answer = self._shell.run(node.name, ["sh", "-c", command], TIMEOUT)
                self._told[node.name] = None if answer.rc else host_script.read_status(answer.stdout)
                return self._told[node.name]
        except AckError:
            pass  # its kubelet is stopped, and the API does not know it yet
        if self._ecs is None or not node.instance_id:
            return None
        question = self._questions.get(node.name) or _Question(self._ecs, node.instance_id, command)
        self._questions[node.name] = question
        question.join(_PATIENCE)
        if not question.is_alive():
            del self._questions[node.name]
            self._told[node.name] = question.answer
        return self._told.get(node.name)

    def version(self, pods: Iterable[Pod]) -> str | None:
        """The loaded cGPU version, "" when none is; None when the host cannot be asked now."""
        pod = installer.alive(p for p in pods if p.ready)
        if pod is None:
            return None
        try:
            answer = self._shell.run_in(pod, host_script.read_version(), TIMEOUT)
        except AckError:
            return None
        return "" if answer.rc else answer.stdout.strip()

    def restart(self, node: Node) -> None:
        if self._ecs is not None:
            self._ecs.reboot_instance(node.instance_id)


def _told(answer: ExecResult) -> str:
    return ((answer.stderr or answer.stdout).strip().splitlines() or [f"exit status {answer.rc}"])[-1]
