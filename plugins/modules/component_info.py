#!/usr/bin/python
"""What is installed of the cloud-native AI suite, and how it got there. Reads only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: component_info
short_description: Tell which components of the cloud-native AI suite are installed, and how
description:
  - Reads the Helm releases of the components in the catalogue, whatever their state, and writes nothing.
  - Installations by the suite and by the closed App Catalog carry no mark that tells them apart; where
    O(origins) does not say what the console shows, the answer is V(unknown).
extends_documentation_fragment:
  - ack.ai_suite.connection
options:
  names:
    description: Components to look for. Default is all of the catalogue.
    type: list
    elements: str
  origins:
    description: What the console shows of a component, by name; V(suite) or V(app_catalog).
    type: dict
  helm_binary:
    description: Helm 3.17 or newer.
    type: path
    default: helm
attributes:
  check_mode:
    description: Reads only.
    support: full
author: ack.ai_suite maintainers
"""

EXAMPLES = r"""
- name: Tell what is installed
  ack.ai_suite.component_info:
    origins:
      ack-ai-installer: app_catalog
  register: installed
"""

RETURN = r"""
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
      description: The state of the release, such as V(deployed) or V(pending-upgrade); V(absent) when there is none.
      type: str
    version:
      description: Version of its chart.
      type: str
    origin:
      description: V(suite), V(app_catalog), V(ack.ai_suite), V(unknown) or V(none).
      type: str
    why:
      description: What the origin rests on.
      type: list
      elements: str
    upgrade:
      description: How to upgrade what came this way.
      type: str
    policies:
      description: The cGPU policy of each installer.
      type: dict
    nodes_behind:
      description: Nodes whose installer pod has an older image or policy than the component.
      type: list
      elements: dict
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.ack.ai_suite.plugins.module_utils import runner
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import connection as connections
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.component import Installation
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.helm import Helm
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.core import component as rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core import policy
from ansible_collections.ack.ai_suite.plugins.module_utils.core.catalogue import CATALOGUE
from ansible_collections.ack.ai_suite.plugins.module_utils.core.component_origin import origin

ARGUMENT_SPEC: dict[str, Any] = {
    **connections.ARGUMENT_SPEC,
    "names": {"type": "list", "elements": "str"},
    "origins": {"type": "dict"},
    "helm_binary": {"type": "path", "default": "helm"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    runner.main(module, lambda: run(module.params))


def run(params: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of each component that is asked for."""
    connection = connections.connection(params)
    kube, helm = Kube(connection), Helm(connection, params["helm_binary"])
    stated = params.get("origins") or {}
    names = params.get("names") or sorted(CATALOGUE)
    return {"changed": False, "components": [_one(kube, helm, name, str(stated.get(name, ""))) for name in names]}


def _one(kube: Kube, helm: Helm, name: str, stated: str) -> dict[str, Any]:
    component = rules.wanted({"name": name, "state": "absent"}, {})
    release = helm.release(component.release, component.namespace)
    daemonsets, pods = Installation(component, kube, helm).installers()
    return {
        "component": name,
        "namespace": component.namespace,
        "state": release.latest.status if release else "absent",
        "version": release.chart.version if release else "",
        **msgspec.to_builtins(origin(release, stated)),
        "policies": policy.running(daemonsets),
        "nodes_behind": msgspec.to_builtins(rules.behind(daemonsets, pods)),
    }


if __name__ == "__main__":
    main()
