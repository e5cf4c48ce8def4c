"""Node pools: the plan for all that are wanted, and whether their nodes are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ansible_collections.ack.ai_suite.plugins.module_utils.core.cloud import NodePool, Taint
from ansible_collections.ack.ai_suite.plugins.module_utils.core.compatibility import Tables
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding, refuse
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_change import (
    Change,
    Observed,
    action,
    change_of,
    current,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_rules import findings
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_spec import API, Pool
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan

Standing = Literal["ready", "coming", "short"]


def decide(wanted: Sequence[Pool], seen: Observed, region: str, tables: Tables) -> Plan:
    """What to ask of ACK for all pools. Raises AckError (POOL-REFUSED) with everything that forbids it."""
    changes = [change_of(want, seen) for want in wanted]
    found = tuple(finding for change in changes for finding in findings(change, seen, region, tables))
    refuse("node pools", found, "POOL-REFUSED")
    needed = [change for change in changes if change.needed]
    return Plan(
        actions=tuple(action(change) for change in needed),
        findings=found,
        before={change.want.name: _before(change) for change in needed},
        after={change.want.name: _after(change) for change in needed},
    )


def flipped(wanted: Sequence[Pool], seen: Observed) -> list[str]:
    """The nodes whose scheduling mode would change: only their pods have to be known."""
    return [node.name for want in wanted for node in change_of(want, seen).flipped]


def standing(pool: NodePool, *, changed: bool) -> Standing:
    """Whether a pool's nodes are there and Ready, still coming, or fewer than wanted with nothing under way."""
    status, size = pool.status, pool.scaling_group.desired_size or 0
    if status.state != "active" or status.initial_nodes or status.removing_nodes:
        return "coming"
    if status.healthy_nodes >= size or pool.auto_scaling.enable:
        return "ready"
    return "coming" if changed else "short"


def shortage(pool: NodePool, missing: Sequence[str]) -> Finding:
    """What to say of a pool whose nodes are not all Ready; ``missing`` tells of those that are not."""
    size = pool.scaling_group.desired_size or 0
    told = f"{pool.status.healthy_nodes} Ready, pool {pool.status.state}"
    return Finding(
        "POOL-NOT-READY", f"pool {pool.name}", f"{told}: {'; '.join(missing)}" if missing else told,
        f"{size} node(s) Ready", "Look at these instances in the console; run again when they are mended or replaced.",
        "warning", API,
    )  # fmt: skip


def _before(change: Change) -> dict[str, Any] | None:
    if change.pool is None:
        return None
    have = current(change.pool)
    shown = {name: _listed(have.get(name)) for name in change.settings}
    if change.relabels:
        shown |= _lists(change.pool.labels, change.pool.kubernetes_config.taints)
        shown["nodes"] = {node.name: _decided(change, node.labels) for node in change.nodes}
    return shown


def _after(change: Change) -> dict[str, Any]:
    shown = {name: _listed(value) for name, value in change.settings.items()}
    if change.pool is None or change.relabels:
        shown |= _lists(change.labels, change.taints)
    if change.relabels:
        shown["nodes"] = {node.name: _decided(change, change.labels) for node in change.nodes}
    return shown


def _decided(change: Change, labels: Mapping[str, str]) -> dict[str, str]:
    """Those of a node's labels that its pool decides, before or after."""
    keys = {*change.labels, *(change.pool.labels if change.pool else ())}
    return {key: labels[key] for key in sorted(keys) if key in labels}


def _lists(labels: Mapping[str, str], taints: Sequence[Taint]) -> dict[str, Any]:
    return {
        "labels": dict(sorted(labels.items())),
        "taints": sorted(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints),
    }


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
