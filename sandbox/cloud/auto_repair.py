"""ACK's auto-repair of managed pools: a node that stays NotReady is cordoned, restarted and, once back, uncordoned.

It asks nobody: also a node that somebody else had cordoned is schedulable afterwards (design: what a real cluster does
to a plan). On ACK it acts after about 180 s, here after `auto_repair_after` of pools.yml.
"""

from __future__ import annotations

from typing import Any

from sandbox.cloud import inventory
from sandbox.cloud.cs_clusters import ready
from sandbox.cloud.fleet import ClusterError
from sandbox.cloud.world import World

Record = dict[str, Any]
LOOK_EVERY_SECONDS = 0.5


class Repairs:
    """Looks at the nodes of pools with `management.enable` and `auto_repair`; `step` is called all the time."""

    def __init__(self) -> None:
        self._looked = 0.0

    def step(self, world: World) -> None:
        now = world.now().timestamp()
        repaired = [pool_id for pool_id, pool in world.data["pools"].items() if _repairs(pool)]
        watched = [name for pool_id in repaired for name in _nodes(world, pool_id)]
        under_way = world.data["repairs"]
        if now - self._looked < LOOK_EVERY_SECONDS or not (watched or under_way):
            return
        self._looked = now
        try:
            nodes = world.fleet.nodes()
            for name in {*watched, *under_way}:
                _look_at(world, name, nodes.get(name), watched=name in watched)
        except ClusterError:
            return


def _look_at(world: World, name: str, node: Record | None, *, watched: bool) -> None:
    under_way, now = world.data["repairs"], world.now().timestamp()
    if node is None or (not watched and name not in under_way):
        under_way.pop(name, None)
        return
    if ready(node) == "Ready":
        repair = under_way.pop(name, None)
        if repair and repair["restarted"]:
            world.fleet.patch(name, {"spec": {"unschedulable": None}})
        return
    repair = under_way.setdefault(name, {"since": now, "restarted": False})
    if watched and not repair["restarted"] and now - repair["since"] >= world.settings.not_ready_seconds:
        world.fleet.patch(name, {"spec": {"unschedulable": True}})
        try:
            world.fleet.reboot(name, "auto-repair", force=True)
        except FileNotFoundError:
            return
        repair["restarted"] = True


def _repairs(pool: Record) -> bool:
    management = pool["management"]
    policy = management.get("auto_repair_policy", {})
    return bool(management.get("enable") and management.get("auto_repair") and policy.get("restart_node", True))


def _nodes(world: World, pool_id: str) -> list[str]:
    members = inventory.members(world, pool_id).values()
    return [inventory.node_of(each) for each in members if each["state"] == inventory.RUNNING]
