"""What one node pool needs so that it is as wanted, and the requests that bring it there.

A change sends complete lists: what others labelled or tainted stays.
Source: CS API reference (CreateClusterNodePool, ModifyClusterNodePool).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_labels
from ansible_collections.ack.ai_suite.plugins.module_utils.core.cloud import Label, NodePool, Taint
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_spec import Pool, with_max_pod
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Action
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Pod

SCALING = (
    "desired_size", "instance_types", "vswitch_ids", "security_group_ids", "image_type", "image_id", "key_pair",
    "system_disk_category", "system_disk_size", "instance_charge_type",
)  # fmt: skip
KUBERNETES = ("cpu_policy", "runtime", "runtime_version")


class Observed(msgspec.Struct, frozen=True):
    """``pools`` are those of the cluster, ``nodes`` those of the wanted pools, ``pods`` those on nodes whose mode a
    change would flip."""

    pools: tuple[NodePool, ...]
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """``pool`` is None where it has to be made; labels and taints are whole, settings are those that differ."""

    want: Pool
    pool: NodePool | None
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    settings: dict[str, Any]
    nodes: tuple[Node, ...] = ()

    @property
    def relabels(self) -> bool:
        if self.pool is None:
            return False
        return self.labels != self.pool.labels or self.taints != self.pool.kubernetes_config.taints

    @property
    def needed(self) -> bool:
        return self.pool is None or self.relabels or bool(self.settings)

    @property
    def mode(self) -> str:
        """How the pool's cards are to be given away; no mode and ``default`` are both whole cards."""
        return gpu_labels.mode_of(self.labels) or "default"

    @property
    def flipped(self) -> list[Node]:
        """The nodes whose mode would change with their labels."""
        modes = [(node, gpu_labels.mode_of(node.labels) or "default") for node in self.nodes]
        return [node for node, mode in modes if self.relabels and mode != self.mode]


def change_of(want: Pool, seen: Observed) -> Change:
    """What a pool needs. Raises AckError (POOL-AMBIGUOUS) when its name does not tell which pool is meant."""
    named = [pool for pool in seen.pools if pool.name == want.name]
    if len(named) > 1:
        ids = joined([pool.pool_id for pool in named])
        raise AckError(
            want.subject, f"the cluster has {len(named)} pools of that name: {ids}.",
            "Rename all but one in the console.", "POOL-AMBIGUOUS",
        )  # fmt: skip
    pool = named[0] if named else None
    have = pool.labels if pool else {}
    labels = {key: value for key, value in {**have, **want.labels}.items() if key not in want.absent_labels}
    return Change(
        want=want,
        pool=pool,
        labels=with_max_pod(labels, want.absent_labels),
        taints=_taints(want, pool.kubernetes_config.taints if pool else ()),
        settings=_settings(want, current(pool)),
        nodes=tuple(node for node in seen.nodes if pool and node.labels.get(gpu_labels.POOL_ID) == pool.pool_id),
    )


def current(pool: NodePool | None) -> dict[str, Any]:
    """The settings that a pool has. ACK may leave the size out of an old pool: then it is as many as there are."""
    if pool is None:
        return {}
    scaling, kubernetes = pool.scaling_group, pool.kubernetes_config
    have = {name: getattr(scaling, name) for name in SCALING} | {name: getattr(kubernetes, name) for name in KUBERNETES}
    return {**have, "desired_size": pool.status.total_nodes} if have["desired_size"] is None else have


def result(change: Change) -> NodePool:
    """The pool as it will be."""
    pool, settings = change.pool or NodePool(), change.settings
    labels = tuple(Label(key, value) for key, value in change.labels.items())
    info, kind = pool.nodepool_info, pool.nodepool_info.type or change.want.kind
    return msgspec.structs.replace(
        pool,
        nodepool_info=msgspec.structs.replace(info, name=change.want.name, type=kind),
        scaling_group=msgspec.structs.replace(pool.scaling_group, **_among(settings, SCALING)),
        kubernetes_config=msgspec.structs.replace(
            pool.kubernetes_config, labels=labels, taints=change.taints, **_among(settings, KUBERNETES)
        ),
    )


def action(change: Change) -> Action:
    """The one request that a pool needs."""
    want, pool = change.want, change.pool
    if pool is None:
        size = want.desired_size or 0
        return Action(
            "create", f"node pool {want.name} with {size} node(s)", {"name": want.name, "body": _creation(change)}
        )
    body: dict[str, Any] = _blocks(change.settings)
    if change.relabels:
        body["kubernetes_config"] = {**body.get("kubernetes_config", {}), **_lists(change)}
        if pool.status.total_nodes:
            body["update_nodes"] = True
    told = ", ".join([*change.settings, *(["labels and taints"] if change.relabels else [])])
    return Action(
        "change", f"node pool {want.name}: {told}", {"name": want.name, "pool_id": pool.pool_id, "body": body}
    )


def _settings(want: Pool, have: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ; lists are compared without their order."""
    wanted = {name: getattr(want, name) for name in (*SCALING, *KUBERNETES)}
    given = {name: value for name, value in wanted.items() if value is not None and value != ()}
    return {name: value for name, value in given.items() if not _equal(value, have.get(name))}


def _equal(wanted: Any, found: Any) -> bool:
    return sorted(wanted) == sorted(found or ()) if isinstance(wanted, tuple) else bool(wanted == found)


def _taints(want: Pool, have: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """A taint is told by key and effect; others' stay, in their order."""
    mine = {(taint.key, taint.effect): taint for taint in want.taints}
    kept = [mine.pop((taint.key, taint.effect), taint) for taint in have]
    return tuple(taint for taint in (*kept, *mine.values()) if taint.key not in want.absent_taints)


def _among(settings: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}


def _blocks(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
    blocks = {"scaling_group": _among(plain, SCALING), "kubernetes_config": _among(plain, KUBERNETES)}
    return {name: block for name, block in blocks.items() if block}


def _lists(change: Change) -> dict[str, Any]:
    """Labels and taints, both whole: which of them ACK keeps when only one is sent is nowhere written."""
    return {
        "labels": [{"key": key, "value": value} for key, value in change.labels.items()],
        "taints": [msgspec.to_builtins(taint) for taint in change.taints],
    }


def _creation(change: Change) -> dict[str, Any]:
    want, blocks = change.want, _blocks(change.settings)
    role = {"ram_role_name": want.ram_role_name} if want.ram_role_name else {}
    given = blocks.get("scaling_group", {})
    return {
        "nodepool_info": {"name": want.name, "type": want.kind or "ess"},
        "scaling_group": {"instance_charge_type": "PostPaid", "desired_size": 0, **given, **role},
        "kubernetes_config": {**blocks.get("kubernetes_config", {}), **_lists(change)},
    }
