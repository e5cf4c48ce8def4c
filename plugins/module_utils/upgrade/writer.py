"""All writes of a run to the cluster, each behind the guard.

Every write to a node is a JSON patch that tests the run's id on the node; the API refuses it (422) once another run has
taken the node over. A Lease alone does not protect: a process that was frozen past its expiry would go on writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube, KubeError
from ansible_collections.ack.ai_suite.plugins.module_utils.core import drain, node_state, run_history
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Pod
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.guard import Guard

NAMESPACE = "ai-suite"
HISTORY = "ai-suite-upgrade-history"
REPEATABLE = (404, 409, 422)  # it is gone, it changed, or a test of the patch failed: look again
BUSY = (0, 429, 500, 502, 503, 504)  # no answer, so perhaps it was written
_TRIES = 5
_PARALLEL = 16

Operations = list[node_state.Operation]


class Refused(msgspec.Struct, frozen=True):
    """An eviction that the API did not grant. ``final``: another try would not help."""

    pod: Pod
    text: str
    retry_after: float
    final: bool


class Writer:
    """One run's hand on the cluster."""

    def __init__(self, kube: Kube, guard: Guard, run: str) -> None:
        self._kube = kube
        self._guard = guard
        self._eviction = ""
        self._remembered = False
        self.run = run

    def check(self) -> None:
        """Before a write that goes past this class: to a host, or to the cloud."""
        self._guard.check()

    def ensure_namespace(self) -> None:
        """The place of the Leases and the history."""
        if self._kube.find(f"/api/v1/namespaces/{NAMESPACE}") is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            try:
                self._create("/api/v1/namespaces", body)
            except KubeError as problem:
                if problem.status != 409:
                    raise

    def node(self, node: Node, owner: str, build: Callable[[Node], Operations], *, leaves: bool = False) -> Node:
        """Patch a node that belongs to ``owner`` ("" for nobody); built anew when it changed under our hands.

        ``leaves``: it belongs to nobody afterwards. A write whose answer was lost is looked for before it is repeated.
        Raises AckError: UPG-NODE-LOST when it belongs to somebody else, UPG-NODE-GONE when it was deleted.
        """
        afterwards = "" if leaves else self.run
        for attempt in range(_TRIES):
            try:
                return msgspec.convert(self._patch(_path(node.name), build(node), "json"), Node)
            except KubeError as problem:
                if problem.status not in (*REPEATABLE, *BUSY):
                    raise
                refusal = problem
            if refusal.status in BUSY:
                self._guard.sleep(0.25 * 2**attempt)
            node = self.fresh(node.name)
            found = node_state.owner(node)
            if refusal.status in BUSY and found == afterwards != owner:
                return node
            if found != owner:
                raise _lost(node, self.run)
        raise refusal

    def fresh(self, name: str) -> Node:
        """A node as it is now."""
        found = self._kube.find(_path(name), Node)
        if found is None:
            raise AckError(f"node {name}", "it was deleted.", "Nothing is left to do for it.", "UPG-NODE-GONE")
        return found

    def evict(self, pods: Sequence[Pod], grace_period: int | None) -> list[Refused]:
        """Ask for the eviction of pods, all at once; returns those that were not granted."""
        if not pods:
            return []
        self._eviction = self._eviction or self._eviction_version()
        with ThreadPoolExecutor(_PARALLEL) as pool:
            answers = pool.map(lambda pod: self._evict(pod, grace_period), pods)
            return [answer for answer in answers if answer is not None]

    def _eviction_version(self) -> str:
        served: dict[str, Any] = self._kube.get("/api/v1")
        return drain.eviction_version(served["resources"], self._kube.version())

    def _evict(self, pod: Pod, grace_period: int | None) -> Refused | None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        try:
            self._create(path, drain.eviction_body(pod, self._eviction, grace_period))
        except KubeError as problem:
            answer = drain.answer(problem.status)
            if answer in ("later", "refused"):
                text = " ".join(problem.causes) or problem.problem
                return Refused(pod, text, problem.retry_after, answer == "refused")
        return None

    def delete_pod(self, pod: Pod) -> None:
        """Delete this very pod."""
        self._guard.check()
        try:
            self._kube.delete(
                f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", {"preconditions": {"uid": pod.metadata.uid}}
            )
        except KubeError as problem:
            if problem.status != 409:  # another pod has its name by now
                raise

    def history(self, entry: run_history.Entry) -> None:
        """Keep what this run did, beside the last ones; each run writes its own key only."""
        folder = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        if self._remembered:  # the key is there, and what was too old is gone
            self._patch(f"{folder}/{HISTORY}", {"data": run_history.change({}, entry)}, "merge")
            return
        found: dict[str, Any] | None = self._kube.find(f"{folder}/{HISTORY}")
        data = {"data": run_history.change((found or {}).get("data") or {}, entry)}
        if found is not None:
            self._patch(f"{folder}/{HISTORY}", data, "merge")
        else:
            self._create(folder, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": HISTORY}, **data})
        self._remembered = True

    # The guard is asked last of all: between it and the request there must be no other one that could take its time.

    def _create(self, path: str, body: Mapping[str, Any]) -> None:
        self._guard.check()
        self._kube.create(path, body)

    def _patch(self, path: str, body: Any, kind: str) -> dict[str, Any]:
        self._guard.check()
        return self._kube.patch(path, body, kind)


def _path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def _lost(node: Node, run: str) -> AckError:
    owner = node_state.owner(node)
    return AckError(
        f"node {node.name}",
        f"it belongs to run {owner} now, not to {run}." if owner else "somebody removed our state from it.",
        "Nothing more is written to it by this run." if owner else "Look whether it is as you want it.",
        "UPG-NODE-LOST",
    )
