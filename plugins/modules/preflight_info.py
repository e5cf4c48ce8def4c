#!/usr/bin/python
"""Preflight: what would go wrong, before anything is changed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_info
short_description: Judge an ACK cluster, its nodes and node pools to be against the rules of GPU sharing
description:
  - Judges the cluster, all nodes and the node pools that are about to be made, in one pass, and reports all findings at
    once, each with a code, what was found, what is required, the cure and the document that says so.
  - Reads the nodes with one list call (in pages), the server's version, and with O(cluster_id) the cluster and its node
    pools from the CS API; or a file, see O(snapshot). It changes nothing.
  - What cannot be known never passes. The driver's version is seldom on the Node object of ACK, so nodes that share
    cards are asked through their cGPU installer pod, unless a label publishes it.
  - Nodes without GPU are not judged by GPU rules. A node whose cards are whole by choice (V(default), V(topology),
    V(mig)) gets warnings at most, since the component does not serve it.
  - The module does not fail because of findings; RV(ok) tells, and the role ack.ai_suite.preflight fails.
extends_documentation_fragment:
  - ack.ai_suite.connection
options:
  scope:
    description:
      - V(cluster) judges the cluster, the nodes that are there and O(pools), before anything is installed. What a later
        step can still tell, such as a driver that only an installer pod can be asked for, is a warning.
      - V(nodes) judges the nodes alone.
      - V(all) judges everything and takes nothing on trust.
    type: str
    choices: [all, cluster, nodes]
    default: all
  installer_version:
    description:
      - Version of ack-ai-installer that will be installed, quoted. It decides the oldest Kubernetes and whether the
        container-optimized edition is supported.
    type: raw
  pools:
    description:
      - Node pools that are about to be made or changed, as the role ack.ai_suite.node_pool takes them. Read are
        C(name), C(kind), C(labels), C(absent_labels), C(instance_types), C(image_type), C(cpu_policy), C(runtime) and
        C(runtime_version). Of a pool that exists, what is left out is taken from the pool.
    type: list
    elements: dict
  snapshot:
    description:
      - A file to judge instead of the live cluster, made by C(kubectl get nodes -o json). No cloud API is asked and no
        node either.
    type: path
  server_version:
    description: Version of the control plane, quoted, for O(snapshot); a live cluster is asked.
    type: raw
  ask_nodes:
    description: Whether nodes may be asked through their installer pods for what nobody publishes.
    type: bool
    default: true
  patience:
    description: Seconds to wait, with O(scope=nodes), for installer pods that still start on nodes that just joined.
    type: int
    default: 60
  silence:
    description: Findings that are accepted. They are still printed, with the reason.
    type: list
    elements: dict
    suboptions:
      code:
        description: Code of the rule; C(*) stands for any characters.
        type: str
        required: true
      subject:
        description: Name of the node or pool; C(*) stands for any characters. Default is all.
        type: str
      reason:
        description: Why it is accepted.
        type: str
        required: true
  tables:
    description: Changes of the tables behind the rules, whose names docs/errors/preflight.md lists.
    type: dict
    suboptions:
      replace:
        description: Tables to use instead.
        type: dict
      extend:
        description: Entries to add to tables.
        type: dict
  report:
    description: Where to write the report as JSON. It is written whole or not at all, and not in check mode.
    type: path
attributes:
  check_mode:
    description:
      - Reads as without it, and does not write O(report). What only an installer pod could tell is a warning, since the
        step that would have installed it changed nothing.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
author: ack.ai_suite maintainers
"""

EXAMPLES = r"""
- name: Judge the cluster and a pool before it is made
  ack.ai_suite.preflight_info:
    scope: cluster
    installer_version: "1.12.6"
    pools:
      - name: gpu
        labels: {ack.node.gpu.schedule: cgpu}
        instance_types: [ecs.gn6i-c4g1.xlarge]
        image_type: AliyunLinux3

- name: Judge a cluster from a file that a customer sent
  ack.ai_suite.preflight_info:
    snapshot: /tmp/customer.json
    server_version: v1.34.1-aliyun.1
    installer_version: "1.12.6"
"""

RETURN = r"""
ok:
  description: Whether no error stands.
  returned: success
  type: bool
status:
  description: The worst that stands.
  returned: success
  type: str
  sample: warnings
table:
  description: The report as text, one line a check, then each kind of finding once.
  returned: success
  type: str
findings:
  description:
    - All findings, the worst first. Those that differ in their subject alone are one entry; O(report) has one each.
  returned: success
  type: list
  elements: dict
  contains:
    code:
      description: Code of the rule.
      type: str
    severity:
      description: error, warning or info.
      type: str
    subjects:
      description: The nodes, pools or the cluster that it is about.
      type: list
      elements: str
    found:
      description: What was found.
      type: str
    required:
      description: What is required.
      type: str
    cure:
      description: What to do.
      type: str
    source:
      description: The document that says so.
      type: str
  sample:
    - code: PRE-DRIVER
      severity: error
      subjects: [node cn-hangzhou.10.0.0.1]
      found: driver 410.57
      required: ">= 418.87.01"
      cure: Add nodes with a newer driver.
      source: 'ACK "Manage the GPU sharing component": compatibility'
silenced:
  description: Findings that O(silence) covers, like RV(findings).
  returned: success
  type: list
  elements: dict
judged:
  description: How many were judged, as C(nodes), C(gpu_nodes) and C(pools).
  returned: success
  type: dict
requests:
  description: How many requests were sent to the Kubernetes API.
  returned: success
  type: int
"""

import json
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.ack.ai_suite.plugins.module_utils import runner
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import connection as connections
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import files, node_facts
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.container_service import ContainerService
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.core import (
    cloud,
    preflight,
    preflight_facts,
    preflight_report,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.compatibility import tables
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_facts import Answer, Cluster, Machine
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_rules import Context
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, from_json

ARGUMENT_SPEC: dict[str, Any] = {
    **connections.ARGUMENT_SPEC,
    "scope": {"type": "str", "choices": ["all", "cluster", "nodes"], "default": "all"},
    "installer_version": {"type": "raw"},
    "pools": {"type": "list", "elements": "dict"},
    "snapshot": {"type": "path"},
    "server_version": {"type": "raw"},
    "ask_nodes": {"type": "bool", "default": True},
    "patience": {"type": "int", "default": 60},
    "silence": {
        "type": "list",
        "elements": "dict",
        "options": {
            "code": {"type": "str", "required": True},
            "subject": {"type": "str"},
            "reason": {"type": "str", "required": True},
        },
    },
    "tables": {"type": "dict", "options": {"replace": {"type": "dict"}, "extend": {"type": "dict"}}},
    "report": {"type": "path"},
}
_NOT_ASKED = Answer(problem="nodes are not asked (ask_nodes)")
_OF_A_FILE = Answer(problem="a file cannot be asked")


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    runner.main(module, lambda: run(module.params, check_mode=module.check_mode))


def run(params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Inputs first, so that a wrong one is told before anything is asked."""
    silences = preflight.silences(params["silence"] or ())
    changed = params["tables"] or {}
    known = tables(changed.get("replace"), changed.get("extend"))
    installer = preflight_facts.version("installer_version", params["installer_version"])
    wanted = [] if params["scope"] == "nodes" else params["pools"] or []
    for told in wanted:
        preflight_facts.specified(told)
    connection = connections.connection(params)
    kube = Kube(connection)
    cluster, machines = _from_file(params, connection) if params["snapshot"] else _live(params, connection, kube)
    for told in wanted:
        pool = preflight_facts.specified(told, cluster.pools or ())
        machines.append(preflight_facts.planned(pool, cluster.region_id))
    # In check mode the step before this one installed nothing: what only an installer pod can tell is not known yet.
    settled = params["scope"] != "cluster" and not check_mode
    context = Context(cluster=cluster, tables=known, installer=installer, settled=settled)
    report = preflight.judge(params["scope"], machines, context, silences)
    data = preflight_report.data(report)
    if params["report"] and not check_mode:
        files.write(params["report"], json.dumps(data, indent=1) + "\n")
    return {
        "changed": False,
        "ok": report.ok,
        "status": report.status,
        "table": preflight_report.text(report, params["snapshot"] or connection.cluster_id or "the cluster"),
        "findings": preflight_report.grouped(report.findings),
        "silenced": preflight_report.grouped([finding for finding, _ in report.silenced]),
        "judged": data["judged"],
        "requests": kube.requests,
    }


def _from_file(params: Mapping[str, Any], connection: connections.Connection) -> tuple[Cluster, list[Machine]]:
    nodes = from_json(files.read(params["snapshot"]), params["snapshot"]).nodes
    if not nodes:
        raise AckError(
            f"file {params['snapshot']}", "there is no node in it.", "Make it with: kubectl get nodes -o json",
            "PRE-NO-NODES",
        )  # fmt: skip
    server = preflight_facts.version("server_version", params["server_version"])
    cluster = Cluster(server_version=server, region_id=connection.region_id)
    return cluster, [preflight_facts.existing(node, cluster, {}, _OF_A_FILE) for node in nodes]


def _live(params: Mapping[str, Any], connection: connections.Connection, kube: Kube) -> tuple[Cluster, list[Machine]]:
    cluster = _cluster(connection, kube)
    pools = preflight_facts.by_id(cluster.pools)
    nodes = kube.list("/api/v1/nodes", Node)
    answers: dict[str, Answer] = {}
    if params["ask_nodes"]:
        asked = [node.name for node in nodes if preflight_facts.must_be_asked(node, pools)]
        answers = node_facts.ask(kube, asked, params["patience"] if params["scope"] == "nodes" else 0)
    unasked = Answer() if params["ask_nodes"] else _NOT_ASKED
    return cluster, [preflight_facts.existing(node, cluster, pools, answers.get(node.name, unasked)) for node in nodes]


def _cluster(connection: connections.Connection, kube: Kube) -> Cluster:
    """Without a cluster id the cloud is not asked, and what only it can tell stays unknown."""
    server_version = kube.version()
    if not connection.cluster_id:
        return Cluster(server_version=server_version, region_id=connection.region_id)
    service = ContainerService(connection)
    told = service.cluster()
    pools = tuple(preflight_facts.pool(cloud.read(each, cloud.NodePool)) for each in service.node_pools())
    return Cluster(server_version, told.region_id or connection.region_id, told.cluster_type, told.cluster_spec, pools)


if __name__ == "__main__":
    main()
