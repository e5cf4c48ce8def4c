"""What forbids the change of a node pool, and what is worth knowing about it.

The scheduling mode of a pool with nodes is not changed in passing: pods on those nodes hold cards by the old one.
Sources: CS API reference, ACK "Labels used by ACK to control GPUs".
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_labels, preflight_facts
from ansible_collections.ack.ai_suite.plugins.module_utils.core.cloud import NodePool
from ansible_collections.ack.ai_suite.plugins.module_utils.core.compatibility import Tables
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_change import Change, Observed, result
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_spec import API, LABELS, Pool, judged
from ansible_collections.ack.ai_suite.plugins.module_utils.core.quantity import whole
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Pod

# Settings that nodes get when they join, and keep.
_AT_BIRTH = ("instance_types", "image_type", "image_id", "runtime", "runtime_version", "cpu_policy", "key_pair",
             "system_disk_category", "system_disk_size")  # fmt: skip
_GPU_RESOURCES = (gpu_labels.GPU_WHOLE, gpu_labels.GPU_MEM, gpu_labels.GPU_CORE, gpu_labels.GPU_TOPOLOGY)
_NEW_POOL = "Make a new pool with that label and move the nodes there one by one."


def findings(change: Change, seen: Observed, region: str, tables: Tables) -> Iterator[Finding]:
    if change.pool is None:
        yield from _incomplete(change.want)
    else:
        yield from _fixed(change.want, change.pool)
        yield from _size(change.want, change.pool)
        yield from _mode(change, change.pool)
        yield from _holders(change, seen)
        yield from _drift(change, change.pool)
        yield from _later(change, change.pool)
    yield from judged(preflight_facts.pool(result(change)), region, tables)


def _incomplete(want: Pool) -> Iterator[Finding]:
    missing = [name for name in ("instance_types", "vswitch_ids") if not getattr(want, name)]
    if missing:
        yield Finding(
            "POOL-INCOMPLETE", want.subject, f"no such pool in the cluster, and not given: {', '.join(missing)}",
            "instance_types and vswitch_ids, so that it can be made", "Add them, or correct the name.", source=API,
        )  # fmt: skip


def _fixed(want: Pool, pool: NodePool) -> Iterator[Finding]:
    """Settings that only the making of a pool can set."""
    have = {"kind": pool.nodepool_info.type, "ram_role_name": pool.scaling_group.ram_role_name}
    for name, found in have.items():
        wanted = getattr(want, name)
        if wanted and found and wanted != found:
            yield Finding(
                "POOL-FIXED", want.subject, f"{name} {found}", f"{name} {wanted}",
                "ACK does not change it: make a new pool.", source=API,
            )  # fmt: skip


def _size(want: Pool, pool: NodePool) -> Iterator[Finding]:
    if want.desired_size is None:
        return
    if pool.auto_scaling.enable:
        yield Finding(
            "POOL-AUTOSCALES", want.subject, "a desired_size, and the pool scales by itself", "no desired_size",
            "Leave desired_size out.", source=API,
        )  # fmt: skip
        return
    total = pool.status.total_nodes - pool.status.removing_nodes
    have = total if pool.scaling_group.desired_size is None else pool.scaling_group.desired_size
    surplus = total - want.desired_size
    if want.desired_size < have and surplus > 0 and "shrink" not in want.accept:
        yield Finding(
            "POOL-SHRINK", want.subject, f"{surplus} of {total} node(s) would be released", "a size that loses no node",
            "ACK chooses which, and does not drain them: drain and remove nodes yourself, or set accept: [shrink].",
            source=API,
        )  # fmt: skip


def _mode(change: Change, pool: NodePool) -> Iterator[Finding]:
    """Documented transitions only, and in a pool that has nodes only when it is asked for in so many words."""
    old, total = gpu_labels.mode_of(pool.labels) or "default", pool.status.total_nodes
    if old == change.mode or not total:
        return
    subject, told = change.want.subject, f"{gpu_labels.SCHEDULE} from {old} to {change.mode} on {total} node(s)"
    why_not = gpu_labels.why_not(old, change.mode)
    if why_not:
        yield Finding("POOL-MODE-PATH", subject, told, why_not, _NEW_POOL, source=LABELS)
    elif "mode_change" not in change.want.accept:
        yield Finding(
            "POOL-MODE-POPULATED", subject, told, "a pool without nodes",
            f"{_NEW_POOL} Where no pod holds a GPU, accept: [mode_change] changes the nodes that are there.",
            source=LABELS,
        )  # fmt: skip
    if gpu_labels.has_isolation(pool.labels) and not gpu_labels.has_isolation(change.labels):
        yield Finding(
            "POOL-MODULE-STAYS", subject, f"{total} node(s) keep the cGPU module loaded",
            "the module uninstalled and the node restarted", "Replace the nodes, or uninstall and restart them.",
            "warning", LABELS,
        )  # fmt: skip


def _holders(change: Change, seen: Observed) -> Iterator[Finding]:
    """Bringing labels to nodes must not change a node's mode under a pod, also where the pool's own mode stays."""
    for node in change.flipped:
        pods = sorted(pod.key for pod in seen.pods if pod.spec.node_name == node.name and _holds_gpu(pod))
        if pods:
            old = gpu_labels.mode_of(node.labels) or "default"
            yield Finding(
                "POOL-MODE-PODS", f"node {node.name}", f"mode {old} would become {change.mode} under {joined(pods)}",
                "no pod that holds a GPU", f"Let these pods end first. {_NEW_POOL}", source=LABELS,
            )  # fmt: skip


def _holds_gpu(pod: Pod) -> bool:
    if pod.finished:
        return False
    containers = [*pod.containers, *(pod.spec.init_containers or ())]
    return any(whole((each.resources.limits or {}).get(name)) > 0 for each in containers for name in _GPU_RESOURCES)


def _drift(change: Change, pool: NodePool) -> Iterator[Finding]:
    """Nodes that differ from what their pool says now, before any change."""
    for node in change.nodes:
        wrong = {key: node.labels.get(key) for key, value in pool.labels.items() if node.labels.get(key) != value}
        if wrong:
            told = [f"{key}={value}" if value is not None else f"no {key}" for key, value in sorted(wrong.items())]
            yield Finding(
                "POOL-DRIFT", f"node {node.name}", ", ".join(told), f"as {change.want.subject} says",
                "Somebody changed the node's labels: change them back, or replace the node.", "warning", LABELS,
            )  # fmt: skip


def _later(change: Change, pool: NodePool) -> Iterator[Finding]:
    driver = gpu_labels.DRIVER_REQUESTED
    born = [name for name in _AT_BIRTH if name in change.settings]
    born += [driver] if driver in change.labels and change.labels[driver] != pool.labels.get(driver) else []
    if born and pool.status.total_nodes:
        yield Finding(
            "POOL-LATER", change.want.subject, f"{', '.join(born)} for nodes that join from now on",
            "nothing; for information", f"Replace the {pool.status.total_nodes} node(s) that are there to change them.",
            "info", API,
        )  # fmt: skip
