"""What the endpoint knows at its first start: cluster and pools of pools.yml, and RAM before anybody worked."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sandbox.cloud import pool_rules, ram
from sandbox.cloud.addon_catalogue import CATALOGUE
from sandbox.cloud.inventory import RUNNING, record
from sandbox.cloud.world import stamp, stamp_local
from sandbox.machines.objects import new_machine
from sandbox.pools import Pools

Record = dict[str, Any]
_TRUST_ECS = json.dumps({
    "Version": "1",
    "Statement": [
        {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": ["ecs.aliyuncs.com"]}}
    ],
})  # fmt: skip
_SYSTEM_POLICIES = {
    "AdministratorAccess": ("Provides full access to Alibaba Cloud services and resources.", ["*"]),
    "AliyunCSFullAccess": ("Provides full access to Container Service via Management Console.", ["cs:*"]),
    "AliyunECSReadOnlyAccess": ("Provides read-only access to ECS.", ["ecs:Describe*", "ecs:List*"]),
    "AliyunLogFullAccess": ("Provides full access to Log Service via Management Console.", ["log:*"]),
}
# A role that a pool may have instead of the cluster's (`ram_role_name`).
POOL_ROLE = "AckSandboxPoolRole"
# Instances outside of all pools, for AttachInstancesToNodePool.
_SPARE_TYPES = ("ecs.gn6i-c4g1.xlarge", "ecs.gn6i-c4g1.xlarge")


def records(pools: Pools, now: datetime) -> Record:
    """The records of a new endpoint."""
    return {
        "cluster": _cluster(pools.cluster, now),
        "pools": {pool["nodepool_info"]["nodepool_id"]: _pool(pool, pools.cluster, now) for pool in pools.node_pools},
        "instances": _instances(pools, now),
        "addons": {
            name: {"version": addon.installed, "state": "active", "config": "{}"}
            for name, addon in CATALOGUE.items()
            if addon.installed
        },
        "ram": _ram(pools.cluster, stamp(now)),
        "tasks": {}, "invocations": {}, "snapshots": {}, "sessions": {}, "fault_uses": {}, "repairs": {},
    }  # fmt: skip


def _cluster(given: Record, now: datetime) -> Record:
    shown = (
        "cluster_id", "name", "region_id", "zone_id", "cluster_type", "cluster_spec", "profile", "current_version",
        "vpc_id", "vswitch_ids", "security_group_id", "worker_ram_role_name",
    )  # fmt: skip
    return {
        **{key: given[key] for key in shown},
        "init_version": given["current_version"], "next_version": "", "state": "running",
        "created": stamp_local(now), "updated": stamp_local(now), "resource_group_id": "rg-acfmsandbox0000",
        "cluster_domain": "cluster.local", "container_cidr": "", "service_cidr": "172.21.0.0/20", "proxy_mode": "ipvs",
        "network_mode": "vpc", "ip_stack": "ipv4", "timezone": "Asia/Shanghai", "deletion_protection": True,
        "node_cidr_mask": "", "private_zone": False, "tags": [],
        "maintenance_window": {"enable": False},
        "operation_policy": {"cluster_auto_upgrade": {"enabled": False}},
        "rrsa_config": {"enabled": False},
    }  # fmt: skip


def _pool(given: Record, cluster: Record, now: datetime) -> Record:
    pool = pool_rules.with_defaults(given)
    pool["nodepool_info"] |= {
        "region_id": cluster["region_id"], "created": stamp_local(now), "updated": stamp_local(now),
    }  # fmt: skip
    pool["scaling_group"] |= {
        "scaling_group_id": "asg-bp1" + pool["nodepool_info"]["nodepool_id"][2:17],
        "ram_policy": cluster["worker_ram_role_name"],
    }
    return {**pool, "next_number": pool["scaling_group"]["desired_size"]}


def _instances(pools: Pools, now: datetime) -> Record:
    region, found = pools.cluster["region_id"], []
    for pool in pools.node_pools:
        machines = [new_machine(pool, region, number) for number in range(pool["scaling_group"]["desired_size"])]
        found += [(each.instance_id, record(each, state=RUNNING, created=now)) for each in machines]
    for number, instance_type in enumerate(_SPARE_TYPES):
        spare = {"nodepool_info": {"nodepool_id": "spare"}, "scaling_group": {"instance_types": [instance_type]}}
        machine = new_machine(spare, region, number)
        found.append((machine.instance_id, record(machine, state=RUNNING, created=now, pool_id="")))
    return dict(found)


def _ram(cluster: Record, when: str) -> Record:
    policies = {
        name: ram.system_policy(
            name, description,
            json.dumps({"Version": "1", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}), when,
        )
        for name, (description, actions) in _SYSTEM_POLICIES.items()
    }  # fmt: skip
    described = "The ECS role of the worker nodes of a Container Service cluster"
    names = (cluster["worker_ram_role_name"], POOL_ROLE)
    return {"policies": policies, "roles": {name: ram.new_role(name, described, _TRUST_ECS, when) for name in names}}
