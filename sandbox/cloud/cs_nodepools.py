"""CS: node pools, as far as a call answers at once; `pool_work` carries out the rest."""

from __future__ import annotations

from typing import Any

from sandbox.cloud import cs_fields, inventory, pool_rules, pool_work, tasks
from sandbox.cloud.cs_clusters import cluster_of, ready
from sandbox.cloud.errors import error
from sandbox.cloud.shapes import cut
from sandbox.cloud.world import Call, World, fresh_id, stamp_local

Record = dict[str, Any]
# Never shown again, so never kept.
_SECRETS = ("login_password",)


def describe_cluster_node_pools(world: World, call: Call) -> Record:
    cluster_of(world, call)
    nodes, name = world.fleet.nodes(), call.query.get("NodepoolName")
    pools = [each for each in world.data["pools"].values() if name in (None, each["nodepool_info"]["name"])]
    return {"nodepools": [cut(cs_fields.LISTED, _view(world, pool, nodes)) for pool in pools]}


def describe_cluster_node_pool_detail(world: World, call: Call) -> Record:
    return dict(cut(cs_fields.DETAIL, _view(world, _pool(world, call), world.fleet.nodes())))


def create_cluster_node_pool(world: World, call: Call) -> Record:
    cluster = cluster_of(world, call)
    pool = pool_rules.with_defaults(_without_secrets(call.body))
    pool_rules.check(pool)
    name, pool_id = pool["nodepool_info"]["name"], fresh_id("np")
    if any(each["nodepool_info"]["name"] == name for each in world.data["pools"].values()):
        raise error("NodePoolNameConflict", name=name)
    pool["nodepool_info"] |= {
        "nodepool_id": pool_id, "region_id": cluster["region_id"], "created": stamp_local(world.now()),
        "updated": stamp_local(world.now()),
    }  # fmt: skip
    pool["scaling_group"] |= {
        "scaling_group_id": fresh_id("asg-bp")[:22],
        "ram_policy": pool["scaling_group"].get("ram_role_name") or cluster["worker_ram_role_name"],
    }  # fmt: skip
    if pool["auto_scaling"].get("enable"):
        pool["scaling_group"]["desired_size"] = pool["auto_scaling"].get("min_instances", 0)
    pool["next_number"] = 0
    world.data["pools"][pool_id] = pool
    adding = [inventory.give_birth(world, pool) for _ in range(pool["scaling_group"]["desired_size"])]
    return _changed(call, pool_id, pool_work.begin(world, pool, pool_work.CREATE, call.faults, adding=adding))


def modify_cluster_node_pool(world: World, call: Call) -> Record:
    pool = _pool(world, call)
    change = _without_secrets(call.body)
    update_nodes, concurrency = change.pop("update_nodes", False), change.pop("concurrency", False)
    _check_idle(world, pool, concurrency)
    wished = pool_rules.merged(pool, change)
    pool_rules.check(wished)
    _check_change(world, pool, change, wished)
    before = {"labels": pool_rules.label_map(pool), "taints": pool["kubernetes_config"]["taints"]}
    pool.update(wished)
    pool["nodepool_info"]["updated"] = stamp_local(world.now())
    adding, removing = pool_work.to_size(world, pool)
    notes = {"adding": adding, "removing": removing, "release": True}
    if update_nodes:
        notes |= {"relabel": before, "nodes": list(inventory.members(world, call.path["nodepool_id"]))}
    task = pool_work.begin(world, pool, pool_work.UPDATE, call.faults, **notes)
    return _changed(call, call.path["nodepool_id"], task)


def scale_cluster_node_pool(world: World, call: Call) -> Record:
    pool = _pool(world, call)
    _check_idle(world, pool)
    _check_own_size(pool)
    if call.body["count"] < 1:
        raise error("InvalidParameter.NodePool", name="count", why="must be 1 or more")
    pool["scaling_group"]["desired_size"] += call.body["count"]
    pool_rules.check(pool)
    adding, _ = pool_work.to_size(world, pool)
    return {"task_id": tasks.answer_id(pool_work.begin(world, pool, pool_work.SCALE_OUT, call.faults, adding=adding))}


def attach_instances_to_node_pool(world: World, call: Call) -> Record:
    pool, wanted = _pool(world, call), call.body["instances"]
    _check_idle(world, pool)
    for instance_id in wanted:
        instance = world.data["instances"].get(instance_id)
        if instance is None:
            raise error("InvalidInstanceId.NotFound")
        if instance["pool_id"]:
            raise error("InstanceInUse", id=instance_id, pool=instance["pool_id"])
    for instance_id in wanted:
        inventory.reimage(world, instance_id, pool)
    pool["scaling_group"]["desired_size"] += len(wanted)
    return _accepted(call, pool_work.begin(world, pool, pool_work.ATTACH, call.faults, adding=wanted))


def remove_node_pool_nodes(world: World, call: Call) -> Record:
    pool, query = _pool(world, call), call.query
    _check_idle(world, pool, query.get("concurrency", False))
    members = inventory.members(world, call.path["nodepool_id"])
    by_node = {inventory.node_of(instance): instance_id for instance_id, instance in members.items()}
    wanted = [*query.get("instance_ids", []), *(by_node.get(name, name) for name in query.get("nodes", []))]
    for instance_id in wanted:
        if instance_id not in members:
            raise error("InstanceNotInNodePool", id=instance_id, pool=call.path["nodepool_id"])
    for instance_id in wanted:
        members[instance_id]["state"] = inventory.REMOVING
    pool["scaling_group"]["desired_size"] = max(0, pool["scaling_group"]["desired_size"] - len(wanted))
    task = pool_work.begin(
        world, pool, pool_work.REMOVE, call.faults, removing=wanted, drain=query.get("drain_node", False),
        release=query.get("release_node", False), at_once=query.get("concurrency", False),
    )  # fmt: skip
    return _accepted(call, task)


def delete_cluster_nodepool(world: World, call: Call) -> Record:
    pool = _pool(world, call)
    members = inventory.members(world, call.path["nodepool_id"])
    if members and not call.query.get("force", False):
        raise error("NodePoolNotEmpty", id=call.path["nodepool_id"])
    for task in tasks.unfinished(world, call.path["nodepool_id"]):
        tasks.finish(world, task, tasks.CANCELED, "the node pool is being deleted")
    for instance in members.values():
        instance["state"] = inventory.REMOVING
    task = pool_work.begin(
        world, pool, pool_work.DELETE, call.faults, removing=list(members), release=True, at_once=True
    )
    return _accepted(call, task)


def _pool(world: World, call: Call) -> Record:
    cluster_of(world, call)
    pool: Record | None = world.data["pools"].get(call.path["nodepool_id"])
    if pool is None:
        raise error("ErrorNodePoolNotFound", id=call.path["nodepool_id"])
    return pool


def _view(world: World, pool: Record, nodes: dict[str, Record]) -> Record:
    pool_id = pool["nodepool_info"]["nodepool_id"]
    members = list(inventory.members(world, pool_id).values())
    states = [each["state"] for each in members]
    health = [ready(nodes.get(inventory.node_of(each))) for each in members if each["state"] == inventory.RUNNING]
    status = {
        "state": pool_work.state_of(world, pool_id), "total_nodes": len(members), "serving_nodes": len(health),
        "healthy_nodes": health.count("Ready"), "offline_nodes": health.count("Offline"),
        "failed_nodes": states.count(inventory.FAILED), "initial_nodes": states.count(inventory.INITIAL),
        "removing_nodes": states.count(inventory.REMOVING), "conditions": [],
    }  # fmt: skip
    return {**pool, "status": status}


def _check_idle(world: World, pool: Record, concurrency: bool = False) -> None:
    pool_id = pool["nodepool_info"]["nodepool_id"]
    state = pool_work.state_of(world, pool_id)
    if state == "deleting" or (state != "active" and not concurrency):
        raise error("NodePoolStateConflict", id=pool_id, state=state)


def _check_own_size(pool: Record) -> None:
    if pool["auto_scaling"].get("enable"):
        raise error("NodePoolAutoScaling", id=pool["nodepool_info"]["nodepool_id"])


def _check_change(world: World, pool: Record, change: Record, wished: Record) -> None:
    if "desired_size" in change.get("scaling_group", {}):
        _check_own_size(wished)
    old_type, new_type = pool["auto_scaling"].get("type"), wished["auto_scaling"].get("type")
    if old_type and new_type != old_type:
        raise error("InvalidParameter.NodePool", name="auto_scaling.type", why="can't be changed")
    name = wished["nodepool_info"]["name"]
    if any(each["nodepool_info"]["name"] == name for each in world.data["pools"].values() if each is not pool):
        raise error("NodePoolNameConflict", name=name)


def _changed(call: Call, pool_id: str, task: Record) -> Record:
    return {"nodepool_id": pool_id, "request_id": call.request_id, "task_id": tasks.answer_id(task)}


def _accepted(call: Call, task: Record) -> Record:
    return {"request_id": call.request_id, "task_id": tasks.answer_id(task)}


def _without_secrets(body: Record) -> Record:
    scaling = {key: value for key, value in body.get("scaling_group", {}).items() if key not in _SECRETS}
    return {**body, **({"scaling_group": scaling} if "scaling_group" in body else {})}
