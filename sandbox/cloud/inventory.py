"""The ECS instances on record, in node pools and outside of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sandbox.cloud.world import World, stamp_local
from sandbox.machines.objects import Machine, new_machine

Record = dict[str, Any]
INITIAL, RUNNING, REMOVING, FAILED = "initial", "running", "removing", "failed"


def record(machine: Machine, *, state: str, created: datetime, pool_id: str | None = None) -> Record:
    """`pool_id` None means the machine's own; "" an instance outside of all pools."""
    return {
        "machine": asdict(machine), "pool_id": machine.pool_id if pool_id is None else pool_id, "state": state,
        "created": stamp_local(created), "started": created.timestamp(), "name": f"worker-{machine.instance_id}",
    }  # fmt: skip


def machine_of(instance: Mapping[str, Any]) -> Machine:
    return Machine(**instance["machine"])


def node_of(instance: Mapping[str, Any]) -> str:
    """The name that the instance's Node has, or would have."""
    return str(instance["machine"]["name"])


def members(world: World, pool_id: str) -> dict[str, Record]:
    """The instances of a pool by id, the oldest first."""
    found = {key: each for key, each in world.data["instances"].items() if each["pool_id"] == pool_id}
    return dict(sorted(found.items(), key=lambda item: (item[1]["started"], item[0])))


def give_birth(world: World, pool: Record) -> str:
    """A new instance in a pool; returns its id. Its Node is registered by the task that asked for it."""
    machine = new_machine(_without_birthmarks(pool), world.region_id, pool["next_number"])
    pool["next_number"] += 1
    world.data["instances"][machine.instance_id] = record(machine, state=INITIAL, created=world.now())
    return machine.instance_id


def reimage(world: World, instance_id: str, pool: Record) -> None:
    """Put an instance into a pool: same id, address and type, a fresh system disk with what the pool says now."""
    instance = world.data["instances"][instance_id]
    old = machine_of(instance)
    of_type = {**pool, "scaling_group": {**pool["scaling_group"], "instance_types": [old.instance_type]}}
    fresh = new_machine(_without_birthmarks(of_type), world.region_id, 0)
    machine = replace(fresh, name=old.name, instance_id=old.instance_id, ip=old.ip)
    instance.update(machine=asdict(machine), pool_id=machine.pool_id, state=INITIAL)


def system_disk(instance_id: str) -> str:
    return "d-bp1" + hashlib.sha256(instance_id.encode()).hexdigest()[:17]


def _without_birthmarks(pool: Record) -> Record:
    """Only the sandbox's first nodes are born with an old module; on later ones the installer loads it."""
    extra = {key: value for key, value in (pool.get("sandbox") or {}).items() if key != "cgpu_version"}
    return {**pool, "sandbox": extra}
