#!/usr/bin/python
"""Where GPU memory went, card by card."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_inspect_info
short_description: Show how much GPU memory the nodes of an ACK cluster have and what their pods hold
description:
  - Gives the table of C(kubectl inspect cgpu), to the letter, its details, and the same as data.
  - Reads all nodes and all unfinished pods with one list each (in pages), or a file, and sums them up in one pass.
  - A pod's place is what ACK's scheduler wrote on it; a pod without one is pending. Init containers are not counted,
    because the scheduler's ledger leaves them out.
  - Cards of a node are taken to be equal, since a node advertises one sum. What speaks against it is a finding.
extends_documentation_fragment:
  - ack.ai_suite.connection
options:
  nodes:
    description: Names of the nodes to show. Default is all that advertise C(aliyun.com/gpu-mem).
    type: list
    elements: str
  details:
    description: Whether RV(table) lists the pods of each node, as C(kubectl inspect cgpu -d) does.
    type: bool
    default: false
  snapshot:
    description: A file to read instead of the live cluster, made by C(kubectl get nodes,pods -A -o json).
    type: path
attributes:
  check_mode:
    description: Reads as without it.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
author: ack.ai_suite maintainers
"""

EXAMPLES = r"""
- name: Show where GPU memory went
  ack.ai_suite.gpu_inspect_info:
  register: gpu

- name: Print it
  ansible.builtin.debug:
    msg: "{{ gpu.table }}"
"""

RETURN = r"""
table:
  description: The table, as C(kubectl inspect cgpu) prints it.
  returned: success
  type: str
  sample: |-
    NAME                       IPADDRESS      GPU0(Allocated/Total)  GPU Memory(GiB)
    cn-shanghai.192.168.6.104  192.168.6.104  0/15                   0/15
    ----------------------------------------------------------------------
    Allocated/Total GPU Memory In Cluster:
    0/15 (0%)
nodes:
  description: One entry a node, in the order of the names.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name.
      type: str
    unit:
      description: GiB or MiB, for all numbers of this node.
      type: str
    allocated:
      description: Memory that pods hold.
      type: int
    total:
      description: Memory that the node offers.
      type: int
    pending:
      description: Memory of pods on no card, or on one that the node lacks.
      type: int
    cards:
      description: One entry a card, with C(index), C(allocated), C(total), C(core) (percent) and number of C(pods).
      type: list
      elements: dict
    pods:
      description: One entry a pod, with C(namespace), C(name), memory by card in C(cards), and C(pending).
      type: list
      elements: dict
cluster:
  description: Sums by unit, with C(allocated), C(total) and C(percent).
  returned: success
  type: list
  elements: dict
findings:
  description: What is odd, such as a ledger that disagrees with a pod's limits.
  returned: success
  type: list
  elements: dict
requests:
  description: How many requests were sent to the Kubernetes API.
  returned: success
  type: int
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.ack.ai_suite.plugins.module_utils import runner
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import connection as connections
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import gpu_usage
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_inspect, gpu_inspect_table

ARGUMENT_SPEC: dict[str, Any] = {
    **connections.ARGUMENT_SPEC,
    "nodes": {"type": "list", "elements": "str"},
    "details": {"type": "bool", "default": False},
    "snapshot": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    runner.main(module, lambda: run(module.params, module.warn))


def run(params: Mapping[str, Any], warn: Callable[[str], None]) -> dict[str, Any]:
    kube = Kube(connections.connection(params))
    only = params["nodes"] or ()
    usage = gpu_usage.of_file(params["snapshot"], only) if params["snapshot"] else gpu_usage.live(kube, only)
    for line in gpu_inspect_table.warnings(usage):
        warn(line)
    show = gpu_inspect_table.details if params["details"] else gpu_inspect_table.table
    return {"changed": False, "table": show(usage), **gpu_inspect.data(usage), "requests": kube.requests}


if __name__ == "__main__":
    main()
