"""Whether what a release runs is up: our own meaning of Helm's ``--wait``.

Helm waits in vain for the pods of a node that is down, and does not look at a DaemonSet with ``OnDelete`` at all.
Here a DaemonSet is up when every node that is Ready runs a ready pod of it; with ``RollingUpdate`` one of the current
template, with ``OnDelete`` of whatever template the node has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Pod

GENERATION = "pod-template-generation"
_DS_GENERATION = "deprecated.daemonset.template.generation"
REPLICATED = ("Deployment", "StatefulSet")


def daemonset(live: Mapping[str, Any]) -> DaemonSet:
    return msgspec.convert(live, DaemonSet)


def settled(ds: DaemonSet) -> bool:
    """Whether the status alone says that a DaemonSet is up; if not, its pods tell."""
    status = ds.status
    return (
        status.observed_generation >= ds.metadata.generation
        and status.number_ready >= status.desired_number_scheduled
        and (ds.spec.update_strategy.type == "OnDelete"
             or status.updated_number_scheduled >= status.desired_number_scheduled)
    )  # fmt: skip


def unready(ds: DaemonSet, pods: Sequence[Pod], down: Collection[str]) -> str:
    """Why a DaemonSet is not up, or "" when only nodes that are ``down`` keep it from that."""
    subject = f"DaemonSet {ds.namespace}/{ds.name}"
    status = ds.status
    if status.observed_generation < ds.metadata.generation:
        return f"{subject}: the controller has not seen it yet"
    own = [pod for pod in pods if pod.controller is not None and pod.controller.uid == ds.metadata.uid]
    wanted = ds.annotations.get(_DS_GENERATION)
    rolling = ds.spec.update_strategy.type != "OnDelete" and wanted is not None
    good, excused, waiting = 0, 0, []
    for pod in own:
        if pod.spec.node_name in down:
            excused += 1
        elif pod.ready and not (rolling and pod.labels.get(GENERATION) != wanted):
            good += 1
        else:
            waiting.append(_why(pod))
    missing = status.desired_number_scheduled - good - excused
    if missing <= 0:
        return ""
    told = f"{subject}: {good} of {status.desired_number_scheduled} pods are up"
    return told + (f"; {joined(sorted(waiting))}" if waiting else "; the other pods are not made yet")


def _why(pod: Pod) -> str:
    where = f"{pod.name} on {pod.spec.node_name or 'no node'}"
    for container in pod.status.container_statuses or ():
        reason = ((container.state or {}).get("waiting") or {}).get("reason")
        if reason:
            return f"{where}: {reason}"
    return f"{where}: {pod.status.reason or ('not updated yet' if pod.ready else pod.status.phase or 'not started')}"


def replicas_missing(live: Mapping[str, Any]) -> str:
    """Why a Deployment or StatefulSet is not up, or ""."""
    meta, spec, status = live.get("metadata") or {}, live.get("spec") or {}, live.get("status") or {}
    wanted = spec.get("replicas", 1)
    up = min(status.get("readyReplicas", 0), status.get("updatedReplicas", 0))
    if status.get("observedGeneration", 0) >= meta.get("generation", 0) and up >= wanted:
        return ""
    return f"{live.get('kind')} {meta.get('namespace')}/{meta.get('name')}: {up} of {wanted} replicas are up"


def environment(of: DaemonSet | Pod, name: str) -> str | None:
    """The value of an environment variable in the containers of a DaemonSet's template or a pod."""
    spec = of.spec.template.spec if isinstance(of, DaemonSet) else of.spec
    for container in spec.containers or ():
        for variable in container.env or ():
            if variable.name == name:
                return variable.value
    return None


def image(of: DaemonSet | Pod) -> str:
    """The image of the first container."""
    spec = of.spec.template.spec if isinstance(of, DaemonSet) else of.spec
    return next((container.image for container in spec.containers or ()), "")


def not_ready(nodes: Iterable[Any]) -> set[str]:
    """Names of the nodes that are down."""
    return {node.name for node in nodes if not node.ready}
