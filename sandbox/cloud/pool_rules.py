"""What CreateClusterNodePool and ModifyClusterNodePool refuse, and how a change is merged in (pure).

Sources: the API reference (limits in its field descriptions) and Kubernetes' own syntax of labels and taints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sandbox.cloud.errors import CloudError, error

Pool = dict[str, Any]
LARGEST_POOL = 500
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RUNTIMES = ("containerd", "docker", "Sandboxed-Container.runv")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def with_defaults(asked: Mapping[str, Any]) -> Pool:
    """A new pool's settings: what was asked, and what ACK fills in."""
    scaling = {
        "image_type": "AliyunLinux3", "multi_az_policy": "BALANCE", "scaling_policy": "release",
        "spot_strategy": "NoSpot", "system_disk_category": "cloud_essd", "system_disk_size": 120,
        "data_disks": [], "tags": [], "security_group_ids": [], "desired_size": asked.get("count", 0),
    }  # fmt: skip
    kubernetes = {
        "cpu_policy": "none", "runtime": "containerd", "runtime_version": "1.6.39", "labels": [], "taints": [],
        "unschedulable": False,
    }  # fmt: skip
    defaults: Pool = {
        "nodepool_info": {"type": "ess", "is_default": False},
        "scaling_group": scaling,
        "kubernetes_config": kubernetes,
        "auto_scaling": {"enable": False},
        "management": {"enable": False, "auto_repair": False, "auto_upgrade": False},
    }
    return merged(defaults, {key: value for key, value in asked.items() if key != "count"})


def merged(pool: Mapping[str, Any], change: Mapping[str, Any]) -> Pool:
    """Blocks are merged, and lists and plain values replaced: who sends a list sends all of it."""
    result = dict(pool)
    for key, value in change.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return result


def check(pool: Mapping[str, Any]) -> None:
    """Raises InvalidParameter.NodePool for the first setting that can't be."""
    scaling, kubernetes = pool["scaling_group"], pool["kubernetes_config"]
    _check_name(pool["nodepool_info"].get("name", ""))
    _require(1 <= len(scaling.get("instance_types", [])) <= 10, "scaling_group.instance_types", "1 to 10 are required")
    _require(1 <= len(scaling.get("vswitch_ids", [])) <= 8, "scaling_group.vswitch_ids", "1 to 8 are required")
    _require(
        scaling.get("instance_charge_type") in ("PostPaid", "PrePaid"),
        "scaling_group.instance_charge_type", "must be PostPaid or PrePaid",
    )  # fmt: skip
    _require(20 <= scaling["system_disk_size"] <= 2048, "scaling_group.system_disk_size", "must be 20 to 2048")
    _require(0 <= scaling["desired_size"] <= LARGEST_POOL, "scaling_group.desired_size", f"must be 0 to {LARGEST_POOL}")
    _require(kubernetes["cpu_policy"] in ("none", "static"), "kubernetes_config.cpu_policy", "must be none or static")
    _require(kubernetes["runtime"] in _RUNTIMES, "kubernetes_config.runtime", f"must be one of {', '.join(_RUNTIMES)}")
    _check_labels(kubernetes["labels"])
    _check_taints(kubernetes["taints"])
    _check_auto_scaling(pool["auto_scaling"])


def label_map(pool: Mapping[str, Any]) -> dict[str, str]:
    return {label["key"]: label.get("value", "") for label in pool["kubernetes_config"]["labels"]}


def _check_name(name: str) -> None:
    _require(1 <= len(name) <= 63, "nodepool_info.name", "must have 1 to 63 characters")


def _check_auto_scaling(scaling: Mapping[str, Any]) -> None:
    if scaling.get("enable"):
        least, most = scaling.get("min_instances", 0), scaling.get("max_instances", 0)
        _require(0 <= least <= most <= 2000, "auto_scaling", "0 <= min_instances <= max_instances <= 2000")


def _check_labels(labels: list[Mapping[str, str]]) -> None:
    for label in labels:
        key, value = label.get("key", ""), label.get("value", "")
        _require(_qualified(key), "kubernetes_config.labels", f"{key!r} is not a label key")
        fits = not value or bool(_NAME_PART.fullmatch(value))
        _require(fits, "kubernetes_config.labels", f"{value!r} is not a label value")
    keys = [label["key"] for label in labels]
    _require(len(keys) == len(set(keys)), "kubernetes_config.labels", "a key is there twice")


def _check_taints(taints: list[Mapping[str, str]]) -> None:
    for taint in taints:
        key, effect = taint.get("key", ""), taint.get("effect", "")
        _require(_qualified(key), "kubernetes_config.taints", f"{key!r} is not a taint key")
        _require(effect in _EFFECTS, "kubernetes_config.taints", f"the effect must be one of {', '.join(_EFFECTS)}")


def _qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    right_prefix = bool(_PREFIX.fullmatch(prefix)) and len(prefix) <= 253 if slash else True
    return right_prefix and bool(_NAME_PART.fullmatch(name))


def _require(fits: bool, name: str, why: str) -> None:
    if not fits:
        raise _refused(name, why)


def _refused(name: str, why: str) -> CloudError:
    return error("InvalidParameter.NodePool", name=name, why=why)
