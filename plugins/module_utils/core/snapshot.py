"""What we read of a cluster: only the fields that a rule needs, decoded once into frozen structs.

Lists come raw from the API (or from ``kubectl get ... -o json``) and are never turned into dictionaries:
at 5,000 nodes that is the difference between 0.2 s and 5 s.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError


class K8s(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all objects of the API: its field names are camelCase."""


class OwnerReference(K8s, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class Meta(K8s, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Object(K8s, frozen=True):
    """Anything with metadata: labels and annotations that are absent or null read as empty."""

    metadata: Meta = Meta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        return next((ref for ref in self.metadata.owner_references or () if ref.controller), None)


class NodeInfo(K8s, frozen=True):
    kubelet_version: str = ""
    container_runtime_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")
    architecture: str = ""
    operating_system: str = ""


class Address(K8s, frozen=True):
    type: str = ""
    address: str = ""


class Condition(K8s, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeStatus(K8s, frozen=True):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None
    addresses: list[Address] | None = None
    node_info: NodeInfo = NodeInfo()


class Taint(K8s, frozen=True):
    key: str = ""
    effect: str = ""
    value: str = ""
    time_added: str | None = None


class NodeSpec(K8s, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False
    taints: list[Taint] | None = None


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions or ())

    @property
    def allocatable(self) -> dict[str, str]:
        return self.status.allocatable or {}

    @property
    def capacity(self) -> dict[str, str]:
        return self.status.capacity or {}

    @property
    def internal_ip(self) -> str:
        return next((a.address for a in self.status.addresses or () if a.type == "InternalIP"), "")

    @property
    def instance_id(self) -> str:
        """The ECS instance of ``<region>.<instance>`` (with or without ``alicloud://``), or "" where there is none."""
        parts = self.spec.provider_id.removeprefix("alicloud://").split(".")
        return parts[1] if len(parts) == 2 and parts[1].startswith("i-") else ""


class Resources(K8s, frozen=True):
    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class EnvVar(K8s, frozen=True):
    name: str = ""
    value: str = ""


class Container(K8s, frozen=True):
    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    env: list[EnvVar] | None = None
    security_context: dict[str, Any] | None = None


class Volume(K8s, frozen=True):
    name: str = ""
    empty_dir: dict[str, Any] | None = None


class PodSpec(K8s, frozen=True):
    node_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    host_pid: bool = msgspec.field(default=False, name="hostPID")


class ContainerStatus(K8s, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: dict[str, Any] | None = None


class PodStatus(K8s, frozen=True):
    phase: str = ""
    reason: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions or ())

    @property
    def containers(self) -> list[Container]:
        return self.spec.containers or []

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class LabelSelectorRequirement(K8s, frozen=True):
    key: str = ""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = "Exists"
    values: list[str] | None = None


class LabelSelector(K8s, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether an object with these labels is selected; an empty selector selects all (policy/v1)."""
        if any(labels.get(key) != value for key, value in (self.match_labels or {}).items()):
            return False
        return all(_holds(requirement, labels) for requirement in self.match_expressions or ())


def _holds(requirement: LabelSelectorRequirement, labels: dict[str, str]) -> bool:
    present, values = requirement.key in labels, requirement.values or []
    match requirement.operator:
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "In":
            return present and labels[requirement.key] in values
        case "NotIn":
            return not present or labels[requirement.key] not in values


class PdbSpec(K8s, frozen=True):
    selector: LabelSelector | None = None  # null selects nothing
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PdbStatus(K8s, frozen=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(Object, frozen=True):
    spec: PdbSpec = PdbSpec()
    status: PdbStatus = PdbStatus()


class DaemonSetTemplate(K8s, frozen=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()


class UpdateStrategy(K8s, frozen=True):
    type: str = "RollingUpdate"


class DaemonSetSpec(K8s, frozen=True):
    selector: LabelSelector | None = None
    template: DaemonSetTemplate = DaemonSetTemplate()
    update_strategy: UpdateStrategy = UpdateStrategy()


class DaemonSetStatus(K8s, frozen=True):
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0
    observed_generation: int = 0


class DaemonSet(Object, frozen=True):
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class PageMeta(K8s, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")
    resource_version: str = ""


class Page(K8s, frozen=True):
    """The envelope of a list; items stay raw until their type is known."""

    items: list[msgspec.Raw] | None = None
    metadata: PageMeta = PageMeta()


class _Kind(K8s, frozen=True):
    kind: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """A cluster at one moment, as far as it was asked for."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    daemonsets: tuple[DaemonSet, ...] = ()
    server_version: str = ""


_KINDS: dict[str, tuple[str, Any]] = {
    "Node": ("nodes", Node),
    "Pod": ("pods", Pod),
    "PodDisruptionBudget": ("pdbs", PodDisruptionBudget),
    "DaemonSet": ("daemonsets", DaemonSet),
}


def from_json(text: bytes, name: str = "snapshot") -> Snapshot:
    """A snapshot from ``kubectl get nodes,pods,pdb,ds -A -o json``; kinds that no rule reads are skipped.

    Raises AckError (SNP-NOT-JSON) for what is no list of Kubernetes objects.
    """
    found: dict[str, list[Any]] = {field: [] for field, _ in _KINDS.values()}
    try:
        for raw in msgspec.json.decode(text, type=Page).items or ():
            field, kind = _KINDS.get(msgspec.json.decode(raw, type=_Kind).kind, ("", None))
            if kind is not None:
                found[field].append(msgspec.json.decode(raw, type=kind))
    except msgspec.MsgspecError as problem:
        raise AckError(
            name,
            f"it is no list of Kubernetes objects: {problem}.",
            "Make one with: kubectl get nodes,pods,pdb,ds -A -o json",
            "SNP-NOT-JSON",
        ) from None
    return msgspec.convert(found, Snapshot)
