"""What a kubelet reports of a node and of a pod. Pure: from the same containers follows the same status."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.machines.containers import Container

Object = dict[str, Any]
PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


@dataclass(frozen=True)
class Readiness:
    """A node's condition Ready."""

    status: str
    reason: str
    message: str


READY = Readiness("True", "KubeletReady", "kubelet is posting ready status")
RUNTIME_DOWN = Readiness("False", "KubeletNotReady", "container runtime is down")
# Written by the node controller of a real cluster, since a kubelet that is gone says nothing.
SILENT = Readiness("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")


@dataclass(frozen=True)
class Trouble:
    """Why a container can't be started now: a waiting reason of the kubelet's, and its message."""

    reason: str
    message: str


def stamp(moment: float) -> str:
    """A time as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def node_conditions(ready: Readiness, since: str, now: str) -> list[Object]:
    """All conditions; those of a silent node are unknown, as the node controller writes them."""
    shared = {"lastHeartbeatTime": now, "lastTransitionTime": since}
    main = {"type": "Ready", "status": ready.status, "reason": ready.reason, "message": ready.message, **shared}
    if ready is SILENT:
        others = [{**main, "type": kind} for kind, _, _ in PRESSURES]
    else:
        others = [
            {"type": kind, "status": "False", "reason": reason, "message": text, **shared}
            for kind, reason, text in PRESSURES
        ]
    return [main, *others]


def pod_status(
    pod: Object,
    containers: Mapping[str, Container],
    trouble: Mapping[str, Trouble],
    *,
    host_ip: str,
    pod_ip: str,
    began: float,
) -> Object:
    """The status of a pod from its containers by name; `trouble` names those that don't start."""
    spec = pod["spec"]
    statuses = [
        _container_status(each, containers.get(each["name"]), trouble.get(each["name"])) for each in spec["containers"]
    ]
    phase = _phase(spec, containers)
    ready = phase == "Running" and all(each["ready"] for each in statuses)
    changes = [one.finished or one.created for one in containers.values()] or [began]
    since = stamp(max(changes))
    why = {} if ready else {"reason": "PodCompleted" if phase in ("Succeeded", "Failed") else "ContainersNotReady"}
    conditions: list[Object] = [
        {"type": kind, "status": "True", "lastTransitionTime": stamp(began)}
        for kind in ("PodReadyToStartContainers", "Initialized", "PodScheduled")
    ]
    conditions += [
        {"type": kind, "status": str(ready), "lastTransitionTime": since, **why}
        for kind in ("ContainersReady", "Ready")
    ]
    conditions += [
        {"type": gate["conditionType"], "status": "True", "lastTransitionTime": since}
        for gate in spec.get("readinessGates") or []
    ]
    return {
        "phase": phase,
        "startTime": stamp(began),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": conditions,
        "initContainerStatuses": [_init_status(each, began) for each in spec.get("initContainers") or []],
        "containerStatuses": statuses,
    }


def _phase(spec: Object, containers: Mapping[str, Container]) -> str:
    if len(containers) < len(spec["containers"]):
        return "Pending"
    if any(one.running for one in containers.values()) or spec.get("restartPolicy", "Always") == "Always":
        return "Running"
    return "Failed" if any(one.exit_code for one in containers.values()) else "Succeeded"


def _container_status(spec: Object, container: Container | None, trouble: Trouble | None) -> Object:
    waiting = {"waiting": {"reason": trouble.reason, "message": trouble.message}} if trouble else None
    base: Object = {"name": spec["name"], "image": spec["image"], "imageID": "", "ready": False, "started": False}
    if container is None:
        return base | {"restartCount": 0, "state": waiting or {"waiting": {"reason": "ContainerCreating"}}}
    status = base | {
        "image": container.image,
        "imageID": f"{container.image.partition('@')[0]}@sha256:{'0' * 64}",
        "containerID": f"containerd://{container.id}",
        "restartCount": container.attempt,
    }
    if container.running:
        status |= {"ready": True, "started": True, "state": {"running": {"startedAt": stamp(container.created)}}}
        return status
    ended = {
        "terminated": {
            "exitCode": container.exit_code,
            "reason": "Completed" if container.exit_code == 0 else "Error",
            "startedAt": stamp(container.created),
            "finishedAt": stamp(container.finished),
            "containerID": f"containerd://{container.id}",
        }
    }
    return status | ({"state": waiting, "lastState": ended} if waiting else {"state": ended})


def _init_status(spec: Object, began: float) -> Object:
    sidecar = spec.get("restartPolicy") == "Always"
    moment = stamp(began)
    done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}}
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": "",
        "ready": True,
        "started": sidecar,
        "restartCount": 0,
        "state": {"running": {"startedAt": moment}} if sidecar else done,
    }
