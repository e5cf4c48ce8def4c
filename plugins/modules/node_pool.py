#!/usr/bin/python
"""Node pools of an ACK cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_pool
short_description: Create and change node pools of an ACK cluster, with their GPU scheduling labels
description:
  - Brings node pools to what is asked for, waits for the tasks of ACK, and until the nodes are there and Ready.
  - A change sends complete lists, so that labels and taints that others set stay; they are brought to the nodes that
    are there as well.
  - All pools are checked before the first is changed. Refused are isolation labels where cGPU cannot isolate (pool that
    is not of ECS instances, CPU policy static, region without isolation), instance types without a supported card,
    labels with an illegal syntax or value, and two scheduling modes at once.
  - The scheduling mode (C(ack.node.gpu.schedule)) of a pool with nodes is not changed in passing. Make a new pool and
    move the nodes.
  - Pools with cGPU isolation get the label C(ack.node.gpu.max-pod=20), its only legal value.
extends_documentation_fragment:
  - ack.ai_suite.connection
options:
  pools:
    description: The pools. What is left out stays as it is, or is left to ACK where a pool is made.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the pool, by which it is found.
        type: str
        required: true
      kind:
        description: Type of the pool; V(ess), ECS instances, for a new one. Cannot be changed.
        type: str
        choices: [ess, edge, hybrid, lingjun]
      desired_size:
        description: Number of nodes, from V(0). A new pool has none unless it is told.
        type: int
      instance_types:
        description: Instance types, at most ten. Required for a new pool.
        type: list
        elements: str
      vswitch_ids:
        description: Where the nodes are placed. Required for a new pool.
        type: list
        elements: str
      security_group_ids:
        description: Security groups of the nodes.
        type: list
        elements: str
      labels:
        description:
          - Node labels to set, for example C(ack.node.gpu.schedule=cgpu). Others stay. Quote the values.
          - C(ack.aliyun.com/nvidia-driver-version) chooses the driver of nodes that join later.
        type: dict
      absent_labels:
        description: Keys of labels to remove. To leave a scheduling mode, set it to V(default) instead.
        type: list
        elements: str
      taints:
        description: Taints to set; a taint is told by key and effect. Others stay.
        type: list
        elements: dict
        suboptions:
          key:
            description: Its key.
            type: str
            required: true
          value:
            description: Its value, quoted.
            type: raw
          effect:
            description: Its effect.
            type: str
            choices: [NoSchedule, NoExecute, PreferNoSchedule]
            required: true
      absent_taints:
        description: Keys of taints to remove.
        type: list
        elements: str
      cpu_policy:
        description: CPU policy of the kubelet. V(static) and GPU sharing exclude each other.
        type: str
        choices: [none, static]
      runtime:
        description: Container runtime, for example V(containerd).
        type: str
      runtime_version:
        description: Its version, quoted.
        type: raw
      image_type:
        description: Operating system, for example V(AliyunLinux3).
        type: str
      image_id:
        description: A particular image instead.
        type: str
      key_pair:
        description: Name of the SSH key pair of the nodes.
        type: str
      system_disk_category:
        description: Kind of the system disk, for example V(cloud_essd).
        type: str
      system_disk_size:
        description: Its size in GiB, 20 to 2048.
        type: int
      instance_charge_type:
        description: How the instances are paid. A new pool pays as it goes.
        type: str
        choices: [PostPaid, PrePaid]
      ram_role_name:
        description: RAM role of the nodes, if not the cluster's. Cannot be changed.
        type: str
      accept:
        description:
          - What is refused unless it is accepted here.
          - V(mode_change) changes the scheduling mode of nodes that are there, where no pod on them holds a GPU and ACK
            documents the change.
          - V(shrink) lets ACK release nodes, which it does not drain.
        type: list
        elements: str
        choices: [mode_change, shrink]
  tables:
    description: Changes of the tables of regions and instance families, as in M(ack.ai_suite.preflight_info).
    type: dict
    suboptions:
      replace:
        description: Tables to use instead.
        type: dict
      extend:
        description: Entries to add to tables.
        type: dict
  timeout:
    description: Seconds that ACK's tasks, and then the nodes, may take each.
    type: int
    default: 1200
attributes:
  check_mode:
    description: Reads, and writes nothing. It does not wait for pools that ACK works on.
    support: full
  diff_mode:
    description: Shows the settings, labels and taints that change, also node by node.
    support: full
author: ack.ai_suite maintainers
"""

EXAMPLES = r"""
- name: A pool with cGPU memory isolation, with two nodes
  ack.ai_suite.node_pool:
    pools:
      - name: gpu-shared
        instance_types: [ecs.gn6i-c4g1.xlarge]
        vswitch_ids: [vsw-bp1example]
        desired_size: 2
        labels:
          ack.node.gpu.schedule: cgpu
          ack.node.gpu.placement: binpack

- name: Remove a label of an older tool from a pool and its nodes
  ack.ai_suite.node_pool:
    pools:
      - name: gpu-shared
        absent_labels: [gpushare]
"""

RETURN = r"""
plan:
  description: What was done, or would be.
  returned: success
  type: list
  elements: str
  sample: ["create node pool gpu-shared with 2 node(s)"]
findings:
  description: Warnings, such as nodes whose labels differ from their pool's.
  returned: success
  type: list
  elements: dict
pools:
  description: The pools as they are afterwards.
  returned: success, not in check mode
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    pool_id:
      description: Its id.
      type: str
    desired_size:
      description: Nodes that it is to have.
      type: int
    ready:
      description: Nodes that are Ready.
      type: int
    labels:
      description: Its node labels.
      type: dict
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.ack.ai_suite.plugins.module_utils import runner
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import connection as connections
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.node_pool import NodePools
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi import settled
from ansible_collections.ack.ai_suite.plugins.module_utils.core import compatibility, node_pool_spec
from ansible_collections.ack.ai_suite.plugins.module_utils.core import node_pool as rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core.cloud import NodePool
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import refuse
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_change import Observed
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan

_TAINT = {
    "key": {"type": "str", "required": True},
    "value": {"type": "raw"},
    "effect": {"type": "str", "required": True, "choices": list(node_pool_spec.EFFECTS)},
}
_STRINGS = {"type": "list", "elements": "str"}
_POOL = {
    "name": {"type": "str", "required": True},
    "kind": {"type": "str", "choices": ["ess", "edge", "hybrid", "lingjun"]},
    "desired_size": {"type": "int"},
    "instance_types": _STRINGS,
    "vswitch_ids": _STRINGS,
    "security_group_ids": _STRINGS,
    "labels": {"type": "dict"},
    "absent_labels": _STRINGS,
    "taints": {"type": "list", "elements": "dict", "options": _TAINT},
    "absent_taints": _STRINGS,
    "cpu_policy": {"type": "str", "choices": ["none", "static"]},
    "runtime": {"type": "str"},
    "runtime_version": {"type": "raw"},
    "image_type": {"type": "str"},
    "image_id": {"type": "str"},
    "key_pair": {"type": "str", "no_log": False},
    "system_disk_category": {"type": "str"},
    "system_disk_size": {"type": "int"},
    "instance_charge_type": {"type": "str", "choices": ["PostPaid", "PrePaid"]},
    "ram_role_name": {"type": "str"},
    "accept": {**_STRINGS, "choices": list(node_pool_spec.ACCEPTED)},
}
ARGUMENT_SPEC: dict[str, Any] = {
    **connections.ARGUMENT_SPEC,
    "pools": {"type": "list", "elements": "dict", "required": True, "options": _POOL},
    "tables": {"type": "dict", "options": {"replace": {"type": "dict"}, "extend": {"type": "dict"}}},
    "timeout": {"type": "int", "default": 1200},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    runner.main(module, lambda: run(module.params, check_mode=module.check_mode, diff=module._diff))


def run(params: Mapping[str, Any], *, check_mode: bool, diff: bool) -> dict[str, Any]:
    """Inputs first, so that a wrong one is told before anything is asked."""
    changed = params["tables"] or {}
    tables = compatibility.tables(changed.get("replace"), changed.get("extend"))
    wanted = node_pool_spec.pools(params["pools"])
    connection = connections.connection(params)
    refuse("node pools", node_pool_spec.findings(wanted, connection.region_id, tables), "POOL-REFUSED")
    pools = NodePools(connection, wanted, timeout=params["timeout"])

    def observe() -> Observed:
        return pools.observe(wait=not check_mode)

    def decide(seen: Observed) -> Plan:
        return rules.decide(wanted, seen, connection.region_id, tables)

    def apply(plan: Plan) -> None:
        settled(plan, pools.apply, lambda: decide(observe()))

    outcome = runner.run(observe, decide, apply, check_mode=check_mode, diff=diff)
    if check_mode:
        return outcome
    standing, found = pools.finish()
    return {
        **outcome,
        "findings": [*outcome["findings"], *msgspec.to_builtins(found)],
        "pools": [_shown(pool) for pool in standing],
    }


def _shown(pool: NodePool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "pool_id": pool.pool_id,
        "desired_size": pool.scaling_group.desired_size,
        "ready": pool.status.healthy_nodes,
        "labels": pool.labels,
    }


if __name__ == "__main__":
    main()
