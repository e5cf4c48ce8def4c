"""What we read of Alibaba Cloud: only the fields that a rule needs, as the APIs spell them.

Source: the models of the SDK (CS 2015-12-15, RAM 2015-05-01). A null reads as not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True):
    """Base: equal records are equal by value."""


class Label(Record, frozen=True):
    key: str
    value: str = ""


class Taint(Record, frozen=True):
    key: str
    effect: str = ""
    value: str = ""


class KubernetesConfig(Record, frozen=True):
    labels: tuple[Label, ...] = ()
    taints: tuple[Taint, ...] = ()
    cpu_policy: str = ""
    runtime: str = ""
    runtime_version: str = ""


class ScalingGroup(Record, frozen=True):
    instance_types: tuple[str, ...] = ()
    vswitch_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    desired_size: int | None = None
    image_type: str = ""
    image_id: str = ""
    instance_charge_type: str = ""
    key_pair: str = ""
    system_disk_category: str = ""
    system_disk_size: int | None = None
    ram_role_name: str = ""


class PoolInfo(Record, frozen=True):
    name: str = ""
    nodepool_id: str = ""
    type: str = ""


class AutoScaling(Record, frozen=True):
    enable: bool = False


class PoolStatus(Record, frozen=True):
    """``state`` is active, scaling, removing, updating or deleting; the counts are of instances."""

    state: str = ""
    total_nodes: int = 0
    healthy_nodes: int = 0
    initial_nodes: int = 0
    removing_nodes: int = 0


class NodePool(Record, frozen=True):
    nodepool_info: PoolInfo = PoolInfo()
    scaling_group: ScalingGroup = ScalingGroup()
    kubernetes_config: KubernetesConfig = KubernetesConfig()
    auto_scaling: AutoScaling = AutoScaling()
    node_config: dict[str, Any] = {}
    status: PoolStatus = PoolStatus()

    @property
    def name(self) -> str:
        return self.nodepool_info.name

    @property
    def pool_id(self) -> str:
        return self.nodepool_info.nodepool_id

    @property
    def labels(self) -> dict[str, str]:
        return {label.key: label.value for label in self.kubernetes_config.labels}


class Cluster(Record, frozen=True):
    """DescribeClusterDetail."""

    cluster_id: str
    name: str = ""
    region_id: str = ""
    cluster_type: str = ""
    cluster_spec: str = ""
    profile: str = ""
    current_version: str = ""
    state: str = ""
    worker_ram_role_name: str = ""


class TaskError(Record, frozen=True):
    code: str = ""
    message: str = ""


class Task(Record, frozen=True):
    """DescribeTaskInfo. ``state``: running, success, fail (older documents: failed); also paused and canceled."""

    task_id: str = ""
    task_type: str = ""
    state: str = ""
    error: TaskError = TaskError()

    @property
    def ended(self) -> bool:
        return self.state in ("success", "fail", "failed", "canceled", "cancelled")


class PoolNode(Record, frozen=True):
    """One instance of DescribeClusterNodes.

    ``state`` is initial, running, removing or failed; ``node_status`` Ready, NotReady, Unknown or Offline.
    """

    instance_id: str = ""
    node_name: str = ""
    nodepool_id: str = ""
    state: str = ""
    node_status: str = ""
    error_message: str = ""


def read(told: Mapping[str, Any], kind: type[T]) -> T:
    """An answer of an API as a record: unknown fields are left out, nulls read as not told."""
    return msgspec.convert(without_nulls(told), kind, strict=False)


def without_nulls(value: Any) -> Any:
    """The same without the keys whose value is null, at any depth."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(each) for each in value]
    return value
