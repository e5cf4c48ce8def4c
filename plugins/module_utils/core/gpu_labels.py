"""The node labels that say how a GPU node gives its cards away, and which of them go together.

Sources: ACK "Labels used by ACK to control GPUs" and "Manage the GPU sharing component"; Kubernetes' label syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding

SCHEDULE = "ack.node.gpu.schedule"
PLACEMENT = "ack.node.gpu.placement"
MAX_POD = "ack.node.gpu.max-pod"
LEGACY_ISOLATION = "cgpu"  # cgpu=true: dedicated clusters with ack-cgpu
LEGACY_SHARE = "gpushare"  # gpushare=true: the open-source plug-in

POOL_ID = "alibabacloud.com/nodepool-id"
DRIVER_REQUESTED = "ack.aliyun.com/nvidia-driver-version"
CARD_MODEL = "aliyun.accelerator/nvidia_name"
CARD_MEMORY = "aliyun.accelerator/nvidia_mem"
CARD_COUNT = "aliyun.accelerator/nvidia_count"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
REGION = "topology.kubernetes.io/region"

GPU_MEM = "aliyun.com/gpu-mem"
GPU_COUNT = "aliyun.com/gpu-count"
GPU_CORE = "aliyun.com/gpu-core.percentage"
GPU_TOPOLOGY = "aliyun.com/gpu"
GPU_WHOLE = "nvidia.com/gpu"

PODS_PER_CARD = 20  # a fixed limit of cGPU, and the only legal value of MAX_POD
PLACEMENTS = ("binpack", "spread")


class Mode(msgspec.Struct, frozen=True):
    """What a value of SCHEDULE means: whether cards are shared, whether cGPU isolates, what the node advertises."""

    shared: bool
    isolated: bool
    resources: tuple[str, ...]


MODES: Mapping[str, Mode] = {
    "default": Mode(False, False, (GPU_WHOLE,)),
    "cgpu": Mode(True, True, (GPU_MEM,)),
    "core_mem": Mode(True, True, (GPU_MEM, GPU_CORE)),
    "share": Mode(True, False, (GPU_MEM,)),
    "mps": Mode(True, False, (GPU_MEM,)),  # isolated as well, by NVIDIA's MPS: no module of cGPU to upgrade
    "topology": Mode(False, False, (GPU_TOPOLOGY,)),
    "mig": Mode(False, False, ()),
}
_WHOLE = MODES["default"]


def mode_of(labels: Mapping[str, str]) -> str:
    """The scheduling mode of a node: the label's value as it stands, else a legacy label's meaning, else ""."""
    if SCHEDULE in labels:
        return labels[SCHEDULE]
    if labels.get(LEGACY_ISOLATION) == "true":
        return "cgpu"
    return "share" if labels.get(LEGACY_SHARE) == "true" else ""


def has_isolation(labels: Mapping[str, str]) -> bool:
    """Whether the cGPU kernel module isolates this node's cards: ``cgpu``, ``core_mem`` or the old ``cgpu=true``."""
    return MODES.get(labels.get(SCHEDULE, ""), _WHOLE).isolated or labels.get(LEGACY_ISOLATION) == "true"


def shares_cards(labels: Mapping[str, str]) -> bool:
    """Whether pods share this node's cards, isolated or not."""
    return MODES.get(mode_of(labels), _WHOLE).shared


def why_not(old: str, new: str) -> str:
    """Why ACK does not support going from one mode to another on the same node; "" when it does.

    Documented: default to anything, cgpu and topology to default, cgpu to topology, nothing away from mig. What the
    documents leave open (other sharing modes) is treated like cgpu: leaving isolation needs the module uninstalled.
    """
    if old == new:
        return ""
    if new == "":
        return "" if old == "default" else "removing the label does not give whole cards back: write default"
    if new not in MODES:
        return f"{new!r} is no mode of {SCHEDULE}"
    if old in ("", "default"):
        return ""
    if old == "mig":
        return "a node in mode mig cannot be converted"
    if new in ("default", "topology"):
        return ""
    return f"{old} to {new} is not among the documented changes: go through a new node pool"


def label_findings(labels: Mapping[str, Any], subject: str) -> Iterator[Finding]:
    """Everything that is wrong with a set of node labels as somebody wrote them, each with its cure."""
    for key, value in labels.items():
        yield from _syntax(key, value, subject)
    for key, legal in _LEGAL_VALUES.items():
        value = labels.get(key)
        if isinstance(value, str) and value not in legal:
            yield Finding(
                "PRE-LABEL-VALUE", subject, f"{key}={value}", f"one of {', '.join(legal)}",
                "Write one of these values in the node pool's labels.",
                source='ACK "Labels used by ACK to control GPUs"',
            )  # fmt: skip
    rivals = rival_labels(labels)
    if rivals:
        yield Finding(
            "PRE-LABEL-RIVALS", subject, " and ".join(rivals), "one scheduling mode on a node",
            f"Keep {SCHEDULE} and remove the other label: each of them starts a device plug-in of its own.",
            source='ACK "Labels used by ACK to control GPUs"',
        )  # fmt: skip


def rival_labels(labels: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels that start different device plug-ins on one node, as ``key=value``; empty when they agree."""
    modes = {}
    if labels.get(SCHEDULE) is not None:
        modes[f"{SCHEDULE}={labels[SCHEDULE]}"] = labels[SCHEDULE]
    if labels.get(LEGACY_ISOLATION) == "true":
        modes[f"{LEGACY_ISOLATION}=true"] = "cgpu"
    if labels.get(LEGACY_SHARE) == "true":
        modes[f"{LEGACY_SHARE}=true"] = "share"
    return tuple(modes) if len(set(modes.values())) > 1 else ()


_LEGAL_VALUES: Mapping[str, tuple[str, ...]] = {
    SCHEDULE: tuple(MODES),
    PLACEMENT: PLACEMENTS,
    MAX_POD: (str(PODS_PER_CARD),),
}
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _syntax(key: str, value: Any, subject: str) -> Iterator[Finding]:
    if not isinstance(key, str) or not _legal_key(key):
        yield _malformed(subject, f"key {key!r}", "a name of at most 63 letters, digits, '-', '_', '.', after an "
                         "optional DNS prefix and '/'", "Correct the key.")  # fmt: skip
    if not isinstance(value, str):
        yield _malformed(subject, f"{key}: {value!r}, a {type(value).__name__}", "a string",
                         f'Quote it: {key}: "{str(value).lower()}"')  # fmt: skip
    elif value and not _NAME.fullmatch(value):
        yield _malformed(subject, f"{key}={value}", "at most 63 letters, digits, '-', '_', '.', beginning and ending "
                         "with a letter or digit", "Correct the value.")  # fmt: skip


def _legal_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return False
    return not slash or (len(prefix) <= 253 and _DOMAIN.fullmatch(prefix) is not None)


def _malformed(subject: str, found: str, required: str, cure: str) -> Finding:
    return Finding(
        "PRE-LABEL-SYNTAX", subject, found, required, cure, source="Kubernetes: label syntax and character set"
    )
