"""The DaemonSets that load the cGPU module: which one serves a node, and which of its pods is alive.

``core_mem`` nodes belong to ``cgpu-core-installer``, all other isolated nodes to ``cgpu-installer``; both live in
``kube-system`` and carry their own name in the pod label ``name`` (ACK: "Upgrade the cGPU version of a node").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.ack.ai_suite.plugins.module_utils.core import workloads
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Pod

NAMESPACE = "kube-system"
INSTALLERS = ("cgpu-installer", "cgpu-core-installer")
_GENERATION = "deprecated.daemonset.template.generation"
SELECTOR = f"name in ({','.join(INSTALLERS)})"


def installer_of(node_labels: Mapping[str, str]) -> str:
    """The DaemonSet whose pod loads the module on a node with these labels."""
    return INSTALLERS[1] if node_labels.get("ack.node.gpu.schedule") == "core_mem" else INSTALLERS[0]


def is_installer(pod: Pod) -> bool:
    return pod.namespace == NAMESPACE and pod.labels.get("name") in INSTALLERS


def alive(pods: Iterable[Pod]) -> Pod | None:
    """The installer pod that can run commands: running, and not on its way out. The newest, if there are two."""
    able = [p for p in pods if is_installer(p) and p.status.phase == "Running" and not p.metadata.deletion_timestamp]
    return max(able, key=lambda pod: pod.metadata.creation_timestamp or "", default=None)


def of_revision(pod: Pod, ds: DaemonSet) -> bool:
    """Whether a pod was made from the DaemonSet's current template: with ``OnDelete`` old ones stay as they are."""
    wanted = ds.annotations.get(_GENERATION)
    if wanted is None:
        return workloads.image(pod) == workloads.image(ds)
    return pod.labels.get(workloads.GENERATION) == wanted
