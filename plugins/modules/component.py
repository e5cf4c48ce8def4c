#!/usr/bin/python
"""The components of the cloud-native AI suite, as Helm releases."""

from __future__ import annotations

DOCUMENTATION = r"""
module: component
short_description: Install, upgrade and remove components of the cloud-native AI suite on an ACK cluster
description:
  - Brings Helm releases of the suite, such as C(ack-ai-installer), to the chart and values that are asked for.
  - Releases are read in every state. One that an earlier run left C(pending-*) is repaired; a deleted object is made
    again, a changed template of the same version is applied, and a second run writes nothing.
  - Before anything is written, the chart is rendered against the cluster and each object is sent as a server dry run.
  - A release whose chart came from elsewhere is never replaced by the stand-in charts of this collection.
  - Nodes keep the cGPU version and policy that they have loaded; they are named, and M(ack.ai_suite.node_upgrade)
    brings them up to date.
extends_documentation_fragment:
  - ack.ai_suite.connection
options:
  components:
    description: The components, each with what is asked of it. All are checked before the first is changed.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name in the catalogue, for example V(ack-ai-installer).
        type: str
        required: true
      state:
        description: Whether it is to be there.
        type: str
        choices: [present, absent]
        default: present
      chart:
        description:
          - The chart, as an absolute path of a folder or archive, as a URL, as C(oci://) reference, or as a name in
            O(components[].repository).
          - Without it the run prints the steps for the console and stops.
        type: str
      repository:
        description: URL of the Helm repository that holds the chart.
        type: str
      version:
        description: Version of the chart, quoted. Default is the version that the chart has.
        type: raw
      release:
        description: Name of the release. Default is the name of the component.
        type: str
      namespace:
        description: Namespace of the release. Default is the one that the component belongs into.
        type: str
      policy:
        description:
          - cGPU policy, V(0) to V(5). V(5), native scheduling, on a first install.
          - Unset on an installed component, the policy that runs is kept.
        type: int
      policy_path:
        description: Dotted path of the policy in the values of the chart. What counts is C(POLICY) afterwards.
        type: str
        default: policy
      values:
        description: Values of the chart. Numbers that YAML or Helm would bend are refused. Never put a secret here.
        type: dict
      values_mode:
        description:
          - With V(merge), values that the release holds already are kept where O(components[].values) is silent.
          - With V(exact), the release has the values that are given here and no others.
        type: str
        choices: [merge, exact]
        default: merge
      accept:
        description:
          - What is refused unless it is accepted here.
          - V(adopt_objects) takes over objects that exist and belong to no release or another one.
          - V(large_integers) passes whole numbers from a million on to the chart as they are.
          - V(removal) removes a release that this collection cannot install again.
          - V(rolling_installers) changes installers that restart on all nodes at once.
        type: list
        elements: str
        choices: [adopt_objects, large_integers, removal, rolling_installers]
      timeout:
        description: Seconds that Helm, and then the workloads, may take each.
        type: int
        default: 300
  helm_binary:
    description: Helm 3.17 or newer.
    type: path
    default: helm
  repair:
    description: What may be done about a release that is stuck in C(pending-*) or C(uninstalling).
    type: dict
    suboptions:
      allowed:
        description: Whether it is repaired at all.
        type: bool
        default: true
      after:
        description:
          - Seconds after which an operation that another program began counts as dead. Helm's own limit is 300.
          - A run of this collection that was killed is recognised by its Lease, and repaired within 15 seconds.
        type: int
        default: 600
attributes:
  check_mode:
    description: Renders, sends every object as a server dry run, and writes nothing.
    support: full
  diff_mode:
    description: Shows the objects that change, secrets masked.
    support: full
author: ack.ai_suite maintainers
"""

EXAMPLES = r"""
- name: Install or upgrade the GPU sharing component from the vendor's chart
  ack.ai_suite.component:
    components:
      - name: ack-ai-installer
        chart: /srv/charts/ack-ai-installer-1.12.6.tgz
        version: "1.12.6"

- name: Change the cGPU policy of the cluster
  ack.ai_suite.component:
    components:
      - name: ack-ai-installer
        chart: oci://registry.example.com/charts/ack-ai-installer
        version: "1.12.6"
        policy: 3
"""

RETURN = r"""
plan:
  description: What was done, or would be.
  returned: success
  type: list
  elements: str
  sample: ["upgrade component ack-ai-installer to 1.12.6 (from 1.12.5, objects)"]
findings:
  description: Warnings and notes; what is wrong enough to stop is a failure instead.
  returned: success
  type: list
  elements: dict
components:
  description: One entry a component.
  returned: success
  type: list
  elements: dict
  contains:
    component:
      description: Its name.
      type: str
    state:
      description: Whether it is there.
      type: str
    version:
      description: Version of its chart.
      type: str
    policy:
      description: The cGPU policy of its installers.
      type: int
    nodes_behind:
      description: Nodes whose installer pod has an older image or policy than the component; they are for node_upgrade.
      type: list
      elements: dict
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.ack.ai_suite.plugins.module_utils import runner
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import connection as connections
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.component import Installation
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.helm import Helm
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.core import component as rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core import policy
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan

ARGUMENT_SPEC: dict[str, Any] = {
    **connections.ARGUMENT_SPEC,
    "components": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "chart": {"type": "str"},
            "repository": {"type": "str"},
            "version": {"type": "raw"},
            "release": {"type": "str"},
            "namespace": {"type": "str"},
            "policy": {"type": "int"},
            "policy_path": {"type": "str", "default": "policy"},
            "values": {"type": "dict"},
            "values_mode": {"type": "str", "choices": ["merge", "exact"], "default": "merge"},
            "accept": {"type": "list", "elements": "str", "choices": list(rules.ACCEPTED)},
            "timeout": {"type": "int", "default": 300},
        },
    },
    "helm_binary": {"type": "path", "default": "helm"},
    "repair": {
        "type": "dict",
        "options": {"allowed": {"type": "bool", "default": True}, "after": {"type": "int", "default": 600}},
    },
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    runner.main(module, lambda: run(module.params, check_mode=module.check_mode, diff=module._diff))


def run(params: Mapping[str, Any], *, check_mode: bool, diff: bool) -> dict[str, Any]:
    """All components, one after another; every input is checked before the first of them is touched."""
    wanted = [rules.wanted(given, params.get("repair") or {}) for given in params["components"]]
    connection = connections.connection(params)
    kube, helm = Kube(connection), Helm(connection, params["helm_binary"])
    try:
        results = [_one(Installation(component, kube, helm), check_mode=check_mode, diff=diff) for component in wanted]
    finally:
        helm.close()
    diffs = [result.pop("diff") for result in results if "diff" in result]
    return {
        "changed": any(result.pop("changed") for result in results),
        "plan": [step for result in results for step in result.pop("plan")],
        "findings": [finding for result in results for finding in result.pop("findings")],
        "components": results,
        **({"diff": diffs} if diffs else {}),
    }


def _one(installation: Installation, *, check_mode: bool, diff: bool) -> dict[str, Any]:
    component = installation.component
    seen: rules.Observed

    def observe() -> rules.Observed:
        nonlocal seen
        seen = installation.observe()
        return seen

    def decide(observed: rules.Observed) -> Plan:
        return rules.decide(component, observed, clock.now())

    result = runner.run(
        observe,
        decide,
        lambda plan: installation.apply(plan, seen, decide),
        check_mode=check_mode,
        diff=diff,
    )  # fmt: skip
    if not component.present:
        return result
    if check_mode:
        daemonsets, pods = list(seen.undefaulted), seen.pods
    else:
        installation.wait_until_up(seen.objects)
        daemonsets, pods = installation.installers()
    policy.check(component, seen.policy, policy.running(daemonsets), "afterwards")
    behind = rules.behind(daemonsets, pods)
    findings = [*result["findings"], *msgspec.to_builtins(rules.told_of(component, behind))]
    return {**result, "findings": findings, "policy": seen.policy, "nodes_behind": msgspec.to_builtins(behind)}


if __name__ == "__main__":
    main()
