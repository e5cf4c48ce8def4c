"""What the tasks of node pools do: register nodes, drain and remove them, bring labels and taints to existing ones.

Every step looks at the cluster as it is and does what is missing, so that a step may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.cloud import inventory, tasks
from sandbox.cloud.cs_clusters import ready
from sandbox.cloud.faults import Fault
from sandbox.cloud.fleet import ClusterError
from sandbox.cloud.pool_rules import label_map
from sandbox.cloud.tasks import TaskFailed
from sandbox.cloud.world import World

Record = dict[str, Any]
CREATE, UPDATE, SCALE_OUT, ATTACH, REMOVE, DELETE = (
    "nodepool_create", "nodepool_update", "cluster_scaleout", "nodepool_attach", "nodepool_remove", "nodepool_delete",
)  # fmt: skip
_STATES = {
    CREATE: "scaling", UPDATE: "updating", SCALE_OUT: "scaling", ATTACH: "scaling", REMOVE: "removing",
    DELETE: "deleting",
}  # fmt: skip
NODES_A_STEP = 25


def state_of(world: World, pool_id: str) -> str:
    """active, or what the tasks make of it: deleting, removing, scaling, updating."""
    found = [_STATES[task["task_type"]] for task in tasks.unfinished(world, pool_id)]
    return next((state for state in ("deleting", "removing", "scaling", "updating") if state in found), "active")


def _carry_on(world: World, task: Record) -> bool:
    """Add, relabel, remove: each as far as it goes now; True when nothing is left."""
    nodes = world.fleet.nodes()
    results = [_add(world, task, nodes), _relabel(world, task, nodes), _remove(world, task, nodes)]
    return all(results)


def _delete(world: World, task: Record) -> bool:
    if not (_carry_on(world, task) and tasks.is_old_enough(world, task)):
        return False
    world.data["pools"].pop(task["target"]["id"], None)
    return True


def _abandon(world: World, task: Record) -> None:
    """What was to join has failed; what was to go stays."""
    for instance_id in task["result"]:
        if instance := world.data["instances"].get(instance_id):
            instance["state"] = _AFTERWARDS.get(instance["state"], instance["state"])


_AFTERWARDS = {inventory.INITIAL: inventory.FAILED, inventory.REMOVING: inventory.RUNNING}
tasks.KINDS |= {
    DELETE: tasks.Kind(_delete, _abandon),
    **{kind: tasks.Kind(_carry_on, _abandon) for kind in (CREATE, UPDATE, SCALE_OUT, ATTACH, REMOVE)},
}


def to_size(world: World, pool: Record) -> tuple[list[str], list[str]]:
    """Bring a pool to its desired size, as Auto Scaling does: new instances, and those that begin to go.

    What failed to join goes; of the others the oldest, when there are too many.
    """
    members = inventory.members(world, pool["nodepool_info"]["nodepool_id"])
    failed = [key for key, each in members.items() if each["state"] == inventory.FAILED]
    staying = [key for key, each in members.items() if each["state"] in (inventory.INITIAL, inventory.RUNNING)]
    surplus = len(staying) - pool["scaling_group"]["desired_size"]
    removing = [*failed, *staying[: max(0, surplus)]]
    for instance_id in removing:
        members[instance_id]["state"] = inventory.REMOVING
    return [inventory.give_birth(world, pool) for _ in range(-surplus)], removing


def replace_failed(world: World) -> None:
    """Auto Scaling keeps a pool at its desired size: instances that failed to join are replaced after a while."""
    late = world.now().timestamp() - world.settings.replace_failed_seconds
    for pool_id, pool in world.data["pools"].items():
        members = inventory.members(world, pool_id).values()
        overdue = any(each["state"] == inventory.FAILED and each["started"] < late for each in members)
        if overdue and state_of(world, pool_id) == "active":
            adding, removing = to_size(world, pool)
            begin(world, pool, SCALE_OUT, adding=adding, removing=removing, release=True, at_once=True)


def begin(world: World, pool: Record, task_type: str, faults: Sequence[Fault] = (), **notes: Any) -> Record:
    """A task on a pool; `notes` are what the steps below read: adding, removing, drain, release, at_once, relabel."""
    info = pool["nodepool_info"]
    return tasks.start(
        world, task_type, target={"id": info["nodepool_id"], "type": "nodepool"}, notes=notes, faults=faults,
        parameters={"nodepool_id": info["nodepool_id"], "nodepool_name": info["name"]},
        items=[*notes.get("adding", []), *notes.get("removing", [])],
    )  # fmt: skip


def _add(world: World, task: Record, nodes: dict[str, Record]) -> bool:
    waiting = 0
    for instance_id in task["notes"].get("adding", []):
        instance = world.data["instances"].get(instance_id)
        if instance is None or instance["state"] != inventory.INITIAL:
            continue
        node = nodes.get(inventory.node_of(instance))
        if ready(node) == "Ready":
            instance["state"] = inventory.RUNNING
            _done(world, task, instance_id, f"node {inventory.node_of(instance)} is Ready")
            continue
        waiting += 1
        if node is None and waiting <= NODES_A_STEP:
            world.fleet.create(inventory.machine_of(instance))
    return waiting == 0


def _remove(world: World, task: Record, nodes: dict[str, Record]) -> bool:
    instances, notes = world.data["instances"], task["notes"]
    going = [each for each in notes.get("removing", []) if _is_going(instances.get(each))]
    for instance_id in going if notes.get("at_once") else going[:1]:
        name = inventory.node_of(instances[instance_id])
        if not notes.get("drain") or name not in nodes or _drained(world, task, instance_id, nodes[name]):
            world.fleet.delete(name)
            _let_go(world, task, instance_id)
    return not any(_is_going(instances.get(each)) for each in going)


def _is_going(instance: Record | None) -> bool:
    return instance is not None and instance["state"] == inventory.REMOVING


def _let_go(world: World, task: Record, instance_id: str) -> None:
    instance = world.data["instances"][instance_id]
    if task["notes"].get("release"):
        del world.data["instances"][instance_id]
    else:
        instance.update(pool_id="", state=inventory.RUNNING)
    _done(world, task, instance_id, f"node {inventory.node_of(instance)} was removed")


def _drained(world: World, task: Record, instance_id: str, node: Record) -> bool:
    """Cordon and evict; ACK gives up after thirty minutes and leaves the node cordoned."""
    name, begun = node["metadata"]["name"], task["notes"].setdefault("drains", {})
    began = begun.setdefault(instance_id, world.now().timestamp())
    if not node["spec"].get("unschedulable"):
        world.fleet.patch(name, {"spec": {"unschedulable": True}})
    staying = [pod for pod in world.fleet.pods(name) if _must_go(pod)]
    for pod in staying:
        if "deletionTimestamp" not in pod["metadata"]:
            world.fleet.evict(pod["metadata"]["namespace"], pod["metadata"]["name"])
    if staying and world.now().timestamp() - began > world.settings.drain_seconds:
        task["result"][instance_id] = "failed"
        raise TaskFailed("DrainNodeTimeout", f"node {name} was not drained in time")
    return not staying


def _must_go(pod: Record) -> bool:
    owners = [each["kind"] for each in pod["metadata"].get("ownerReferences") or []]
    mirror = "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
    return "DaemonSet" not in owners and not mirror and pod["status"].get("phase") not in ("Succeeded", "Failed")


def _relabel(world: World, task: Record, nodes: dict[str, Record]) -> bool:
    """Bring the pool's labels and taints to the nodes that it had; others' labels and taints stay."""
    before, pool = task["notes"].get("relabel"), world.data["pools"].get(task["target"]["id"])
    if before is None or pool is None:
        return True
    left = []
    for instance_id in task["notes"]["nodes"]:
        instance = world.data["instances"].get(instance_id)
        node = nodes.get(inventory.node_of(instance)) if instance else None
        if node and (patch := _relabelling(pool, before, node)):
            left.append(instance_id)
            try:
                world.fleet.patch(node["metadata"]["name"], patch)
            except ClusterError as refused:
                if refused.status != 409:
                    raise
    return not left


def _relabelling(pool: Record, before: Record, node: Record) -> Record:
    """The merge patch that a node needs, empty when it is right already. Its version guards against a lost update."""
    labels, wanted = node["metadata"].get("labels") or {}, label_map(pool)
    changes: Record = {key: value for key, value in wanted.items() if labels.get(key) != value}
    changes |= {key: None for key in before["labels"] if key not in wanted and key in labels}
    taints = node["spec"].get("taints") or []
    ours = {(each["key"], each["effect"]) for each in [*before["taints"], *pool["kubernetes_config"]["taints"]]}
    others = [each for each in taints if (each["key"], each["effect"]) not in ours]
    right = [*others, *pool["kubernetes_config"]["taints"]]
    patch: Record = {}
    if changes:
        patch["metadata"] = {"labels": changes}
    if _as_set(right) != _as_set(taints):
        patch["spec"] = {"taints": right}
    if patch:
        patch.setdefault("metadata", {})["resourceVersion"] = node["metadata"]["resourceVersion"]
    return patch


def _as_set(taints: list[Record]) -> set[tuple[str, str, str]]:
    return {(each["key"], each.get("value", ""), each["effect"]) for each in taints}


def _done(world: World, task: Record, instance_id: str, message: str) -> None:
    task["result"][instance_id] = "done"
    tasks.event(world, task, "progress", "Normal", message)
