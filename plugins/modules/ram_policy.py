#!/usr/bin/python
"""The RAM policy of the worker role."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ram_policy
short_description: Authorise the worker role of an ACK cluster for the cloud-native AI suite
description:
  - Creates the custom RAM policy that the consoles of the suite need, brings it up to date, and attaches it to the
    worker role of the cluster and to the roles of node pools that have one of their own.
  - Documents are compared by their meaning. A change becomes a new default version; when the policy has five already,
    RAM lets the oldest that is not the default go, and its text is returned.
  - The result says for each role whether it is C(Authorized), counting every policy that is attached to it.
extends_documentation_fragment:
  - ack.ai_suite.connection
options:
  name:
    description: Name of the policy. Default is C(k8sWorkerRolePolicy-) and the id of the cluster.
    type: str
  document:
    description: The policy document. Default is the list of actions of the suite's guide.
    type: dict
  mode:
    description:
      - With V(merge), nothing that others put into the policy is taken away.
      - With V(exact), the policy is O(document) and nothing else. It is refused where the policy was not made by this
        collection.
    type: str
    choices: [merge, exact]
    default: merge
  roles:
    description: Roles to attach it to. Default are the worker role of the cluster and the roles of its node pools.
    type: list
    elements: str
attributes:
  check_mode:
    description: Reads, and writes nothing.
    support: full
  diff_mode:
    description: Shows the document and the roles that it is attached to.
    support: full
author: ack.ai_suite maintainers
"""

EXAMPLES = r"""
- name: Authorise the worker role with what the guide lists
  ack.ai_suite.ram_policy:

- name: Use a policy of our own, and nothing but our document in it
  ack.ai_suite.ram_policy:
    name: ai-suite-production
    mode: exact
    document:
      Version: "1"
      Statement:
        - Effect: Allow
          Action: [cs:Get*, ecs:DescribePrice]
          Resource: "*"
"""

RETURN = r"""
plan:
  description: What was done, or would be.
  returned: success
  type: list
  elements: str
  sample: ["create RAM policy k8sWorkerRolePolicy-c0123"]
findings:
  description: Warnings; what is wrong enough to stop is a failure instead.
  returned: success
  type: list
  elements: dict
policy:
  description: Name of the policy.
  returned: success
  type: str
roles:
  description: One entry a role, as it is afterwards.
  returned: success
  type: list
  elements: dict
  contains:
    role:
      description: Its name.
      type: str
    status:
      description: V(Authorized) when its policies grant every action of the guide, else V(Unauthorized).
      type: str
    missing:
      description: Each action that is missing, with the reason.
      type: dict
    beyond:
      description: By policy, the actions that it grants beyond the guide's list.
      type: dict
    unreadable:
      description: Attached policies whose document could not be read.
      type: list
rotated:
  description: Id and text of the version that was let go for the new one.
  returned: when the policy had five versions
  type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.ack.ai_suite.plugins.module_utils import runner
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import connection as connections
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi import settled
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.ram_policy import Authorisation
from ansible_collections.ack.ai_suite.plugins.module_utils.core import ram_policy as rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan

ARGUMENT_SPEC: dict[str, Any] = {
    **connections.ARGUMENT_SPEC,
    "name": {"type": "str"},
    "document": {"type": "dict"},
    "mode": {"type": "str", "choices": ["merge", "exact"], "default": "merge"},
    "roles": {"type": "list", "elements": "str"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    runner.main(module, lambda: run(module.params, check_mode=module.check_mode, diff=module._diff))


def run(params: Mapping[str, Any], *, check_mode: bool, diff: bool) -> dict[str, Any]:
    connection = connections.connection(params)
    want = rules.wanted(
        connection.cluster_id, params["name"], params["document"], params["mode"], tuple(params["roles"] or ())
    )
    authorisation = Authorisation(connection, want)

    def decide(seen: rules.Observed) -> Plan:
        return rules.decide(want, seen)

    def apply(plan: Plan) -> None:
        settled(plan, authorisation.apply, lambda: decide(authorisation.observe()))

    return runner.run(authorisation.observe, decide, apply, check_mode=check_mode, diff=diff)


if __name__ == "__main__":
    main()
