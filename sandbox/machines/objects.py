"""A machine's birth data, and the Node object that a kubelet of ACK registers for it. Pure."""

from __future__ import annotations

import hashlib
import json
import uuid
import zlib
from dataclasses import asdict, dataclass
from typing import Any

from sandbox.machines import instances
from sandbox.machines.status import PRESSURES

# A machine's birth data travel in this annotation of its Node; the process `machines` builds everything from it.
ANNOTATION = "sandbox.ack/machine"
SCHEDULE_LABEL = "ack.node.gpu.schedule"
NODES_PER_POOL = 2047
KUBELET_VERSION = "v1.34.3-aliyun.1"
# What the kubelet, the system and the eviction threshold keep for themselves on an ACK node.
RESERVED_CPU_MILLI, RESERVED_MEMORY_MIB = 100, 1800
DISK_GIB, PODS = 120, 64


@dataclass(frozen=True)
class Machine:
    """An ECS instance at birth: `runtime` is `<name>://<version>`, `cgpu_version` the module loaded then, or ""."""

    name: str
    instance_id: str
    instance_type: str
    region_id: str
    zone_id: str
    pool_id: str
    ip: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    image_type: str
    runtime: str
    kubelet_version: str
    gpu_model: str
    gpu_count: int
    gpu_mem_gib: int
    driver: str
    kernel: str
    os_image: str
    cgpu_version: str
    unschedulable: bool
    cpu_policy: str = "none"

    @property
    def runtime_name(self) -> str:
        return self.runtime.partition("://")[0]

    @property
    def provider_id(self) -> str:
        """`<region>.<instance>`, as cloud-provider-alibaba-cloud writes it."""
        return f"{self.region_id}.{self.instance_id}"


def new_machine(pool: dict[str, Any], region_id: str, number: int) -> Machine:
    """The machine number `number` (0, 1, ...) of a pool in the shape of the CS API; a number is never used twice.

    The key `sandbox` of the pool may say what no API says: cgpu_version, kubelet_version, driver, kernel, os_image,
    zone_id. Raises ValueError when the pool is full.
    """
    if not 0 <= number < NODES_PER_POOL:
        raise ValueError(f"a pool of the sandbox holds machines 0 to {NODES_PER_POOL - 1}, not {number}")
    extra = pool.get("sandbox") or {}
    scaling, kubernetes = pool["scaling_group"], pool.get("kubernetes_config") or {}
    pool_id = pool["nodepool_info"]["nodepool_id"]
    labels = {label["key"]: label.get("value", "") for label in kubernetes.get("labels") or []}
    kind_name = scaling["instance_types"][0]
    kind = instances.instance_type(kind_name)
    image_type = scaling.get("image_type") or "AliyunLinux3"
    image = instances.IMAGES.get(image_type, instances.IMAGES["AliyunLinux3"])
    runtime = kubernetes.get("runtime") or "containerd"
    driver = extra.get("driver") or labels.get(instances.DRIVER_LABEL) or instances.DEFAULT_DRIVER
    ip = _ip(pool_id, number)
    return Machine(
        name=f"{region_id}.{ip}",
        instance_id="i-bp1" + hashlib.sha256(f"{pool_id}/{number}".encode()).hexdigest()[:17],
        instance_type=kind_name,
        region_id=region_id,
        zone_id=extra.get("zone_id") or f"{region_id}-i",
        pool_id=pool_id,
        ip=ip,
        labels=labels,
        taints=list(kubernetes.get("taints") or []),
        image_type=image_type,
        runtime=f"{runtime}://{kubernetes.get('runtime_version') or '1.6.39'}",
        kubelet_version=extra.get("kubelet_version") or KUBELET_VERSION,
        gpu_model=kind.gpu.model if kind.gpu else "",
        gpu_count=kind.gpu_count,
        gpu_mem_gib=kind.gpu.memory_gib if kind.gpu else 0,
        driver=driver if kind.gpu else "",
        kernel=extra.get("kernel") or image.kernel,
        os_image=extra.get("os_image") or image.os_image,
        cgpu_version=extra.get("cgpu_version") or "",
        unschedulable=bool(kubernetes.get("unschedulable")),
        cpu_policy=kubernetes.get("cpu_policy") or "none",
    )


def machine_of(node: dict[str, Any]) -> Machine | None:
    """The birth data of a Node object; None when it is not one of the sandbox's machines."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    return Machine(**json.loads(text)) if text else None


def version(thing: dict[str, Any]) -> int:
    """How new an object is, as the API server counts."""
    return int(thing["metadata"]["resourceVersion"])


def node_object(machine: Machine) -> dict[str, Any]:
    """The Node as the kubelet registers it: not yet Ready, and without what device plug-ins advertise later."""
    capacity, allocatable = base_resources(machine)
    conditions = [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "the machine starts"},
        *({"type": kind, "status": "False", "reason": reason, "message": text} for kind, reason, text in PRESSURES),
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": node_labels(machine),
            "annotations": {
                ANNOTATION: json.dumps(asdict(machine), separators=(",", ":")),
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": {
            "providerID": machine.provider_id,
            **({"taints": machine.taints} if machine.taints else {}),
            **({"unschedulable": True} if machine.unschedulable else {}),
        },
        "status": {
            "addresses": addresses(machine),
            "capacity": capacity,
            "allocatable": allocatable,
            "conditions": conditions,
            "nodeInfo": node_info(machine, first_boot_id(machine)),
        },
    }


def addresses(machine: Machine) -> list[dict[str, str]]:
    """As on ACK, and ExternalIP 127.0.0.1, where the API server finds the kubelet's port."""
    return [
        {"type": "InternalIP", "address": machine.ip},
        {"type": "Hostname", "address": machine.name},
        {"type": "ExternalIP", "address": "127.0.0.1"},
    ]


def node_labels(machine: Machine) -> dict[str, str]:
    """The well-known labels, ACK's own, the cards' (docs: labels-used-by-ack-to-control-gpus), and the pool's."""
    labels = {
        "alibabacloud.com/nodepool-id": machine.pool_id,
        "alibabacloud.com/ecs-instance-id": machine.instance_id,
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/instance-type": machine.instance_type,
        "failure-domain.beta.kubernetes.io/region": machine.region_id,
        "failure-domain.beta.kubernetes.io/zone": machine.zone_id,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine.instance_type,
        "topology.diskplugin.csi.alibabacloud.com/zone": machine.zone_id,
        "topology.kubernetes.io/region": machine.region_id,
        "topology.kubernetes.io/zone": machine.zone_id,
    }
    gpu = instances.gpu_of(machine.gpu_model)
    if gpu:
        labels["aliyun.accelerator/nvidia_name"] = machine.gpu_model.replace(" ", "-")
        labels["aliyun.accelerator/nvidia_mem"] = f"{gpu.memory_mib}MiB"
        labels["aliyun.accelerator/nvidia_count"] = str(machine.gpu_count)
    return labels | machine.labels


def node_info(machine: Machine, boot_id: str) -> dict[str, str]:
    """`status.nodeInfo`."""
    identity = str(uuid.uuid5(uuid.NAMESPACE_DNS, machine.instance_id))
    return {
        "architecture": "amd64",
        "bootID": boot_id,
        "containerRuntimeVersion": machine.runtime,
        "kernelVersion": machine.kernel,
        "kubeProxyVersion": machine.kubelet_version,
        "kubeletVersion": machine.kubelet_version,
        "machineID": identity.replace("-", ""),
        "operatingSystem": "linux",
        "osImage": machine.os_image,
        "systemUUID": identity,
    }


def first_boot_id(machine: Machine) -> str:
    """The boot in which the machine was born: the same for whoever asks."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{machine.instance_id}/first-boot"))


def base_resources(machine: Machine) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity and allocatable without the cards, as Kubernetes quantities."""
    kind = instances.instance_type(machine.instance_type)
    memory = kind.memory_gib * 1024 - 400  # the kernel's own part
    capacity = {
        "cpu": str(kind.cpu),
        "memory": f"{memory}Mi",
        "ephemeral-storage": f"{DISK_GIB}Gi",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": str(PODS),
    }
    allocatable = capacity | {
        "cpu": f"{kind.cpu * 1000 - RESERVED_CPU_MILLI}m",
        "memory": f"{memory - RESERVED_MEMORY_MIB}Mi",
        "ephemeral-storage": f"{DISK_GIB - 10}Gi",
    }
    return capacity, allocatable


def _ip(pool_id: str, number: int) -> str:
    """An address in 10.0.0.0/8: 13 bits of the pool, 11 of the number."""
    bits = (zlib.crc32(pool_id.encode()) & 0x1FFF) << 11 | number + 1
    return f"10.{bits >> 16}.{bits >> 8 & 255}.{bits & 255}"
