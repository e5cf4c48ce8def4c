#!/usr/bin/python
"""Documentation of the action plug-in of the same name, which does the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_upgrade
short_description: Upgrade cGPU on the nodes of an ACK cluster, off-peak, one node after another
description:
  - Inside a maintenance window, brings each node whose cGPU module is not of the target version to it, by the
    documented in-place procedure. It is cordoned and drained, gets the new installer pod, its old module is uninstalled
    on the host, it restarts, the loaded version is checked against the target, and it is uncordoned.
  - Only nodes labelled C(ack.node.gpu.schedule=cgpu), C(ack.node.gpu.schedule=core_mem) or C(cgpu=true) are touched.
  - All state stands on the nodes and in the namespace C(ai-suite). A run that was killed is continued by the next one,
    and two runs never work at the same time. See C(docs/engine.md).
  - Outside the windows no node is started. Nodes whose old module is uninstalled are finished, the others given back.
  - Progress is printed to standard error while it works.
  - This is an action plug-in; it runs on the controller, and refuses C(async).
extends_documentation_fragment:
  - ack.ai_suite.connection
options:
  target_version:
    description:
      - cGPU version that the nodes are to have, quoted.
      - Default is the version in the image tag of the installer DaemonSets, if that tag is a known version.
    type: raw
  known_versions:
    description: Versions to add to those that the cGPU FAQ lists, quoted.
    type: list
    elements: raw
  windows:
    description:
      - When nodes may be started. Several windows are a union, and each belongs to the day on which it opens.
      - Each is a mapping with C(timezone) (IANA name, required), C(start) (quoted V('HH:MM')) and optionally C(days)
        (default every day), or C(schedule) (five fields of cron); and with C(duration) (V('4h')), or C(end)
        (V('HH:MM'), excluded) beside C(start).
    type: list
    elements: raw
    required: true
  blackouts:
    description:
      - When no node may be started, whatever the windows say.
      - Each is a mapping with C(from) and optionally C(to), a date (whole days) or date and time, and C(timezone).
    type: list
    elements: raw
  nodes:
    description:
      - The nodes to upgrade, in this order. Default is all, idle ones first, then those with the fewest GPU pods.
      - Nodes that another run left in the middle are always finished.
    type: list
    elements: str
  max_failures:
    description:
      - How many nodes may fail, as a number or a percentage of the nodes in scope, before no other is started.
      - Nodes that are quarantined from earlier runs count.
    type: raw
    default: 1
  on_failure:
    description: What becomes of a node that fails before its module is uninstalled. After it, it is always quarantined.
    type: str
    choices: [restore, keep]
    default: restore
  refused:
    description: Whether a node that must not be upgraded stops the run before anything is changed, or is left out.
    type: str
    choices: [fail, skip]
    default: fail
  incomplete:
    description: Whether the task fails when the window ends before all nodes are done.
    type: str
    choices: [ok, fail]
    default: ok
  retry_quarantined:
    description: Whether nodes that are quarantined are tried again.
    type: bool
    default: false
  reboot:
    description:
      - How a node is restarted. V(ecs) is C(RebootInstance) of ECS; Cloud Assistant tells when a host is ready for it.
      - V(guest) needs no cloud API, but a restart from within is not always effective when a GPU hangs.
    type: str
    choices: [ecs, guest]
    default: ecs
  drain:
    description: As the flags of C(kubectl drain).
    type: dict
    suboptions:
      force:
        description: Evict pods that no controller would bring back.
        type: bool
        default: false
      delete_emptydir_data:
        description: Evict pods with emptyDir volumes, whose content is lost.
        type: bool
        default: false
      honour_skip_label:
        description: Leave pods with the label C(alibabacloud.com/drain-pod=skip) alone, as ACK's own drain does.
        type: bool
        default: true
      grace_period:
        description: Seconds that each pod has to end; V(0) is at once. Default is what the pod asks for.
        type: int
      timeout:
        description: How long pods may take to leave. A node that is not drained by then has failed.
        type: raw
        default: 15m
  uninstall_script:
    description:
      - Uninstall script for hosts that lack C(/usr/local/cgpu-installer/uninstall.sh). It is used on all hosts.
    type: dict
    suboptions:
      path:
        description: File on the controller.
        type: path
        required: true
      sha256:
        description: Its checksum.
        type: str
        required: true
  timing:
    description: How long things may take, as quoted lengths of time such as V('90s'), V('20m'), V('1h30m').
    type: dict
    suboptions:
      node:
        description: What one node is expected to take. None is started when less is left of the window.
        type: raw
        default: 30m
      installer:
        description: Until the new installer pod is ready.
        type: raw
        default: 10m
      host:
        description: Until the unit on the host has uninstalled the module.
        type: raw
        default: 15m
      command:
        description: Until a single command of that unit is given up.
        type: raw
        default: 2m
      settle:
        description: Until nothing may be left on the cards once the containers are stopped.
        type: raw
        default: 30s
      boot:
        description: From the restart to a Ready node. Bare-metal families need more than V(20m).
        type: raw
        default: 20m
      verify:
        description: From a Ready node to the right version and GPU resources.
        type: raw
        default: 10m
      poll:
        description: Longest pause between two looks at a node.
        type: raw
        default: 2s
      lease:
        description: Length of the Leases. A run that was killed is taken over after this time.
        type: raw
        default: 30s
      progress:
        description: Longest silence while a node is waited for.
        type: raw
        default: 60s
attributes:
  check_mode:
    support: full
    description: Shows the nodes in order and what would be done; nothing is written.
  diff_mode:
    support: full
    description: Shows the version of each node before and after.
author:
  - ack.ai_suite maintainers
"""

EXAMPLES = r"""
- name: Upgrade cGPU at night
  ack.ai_suite.node_upgrade:
    target_version: "1.5.20"
    windows:
      - days: [mon, tue, wed, thu]
        start: "23:00"
        duration: 5h
        timezone: Asia/Shanghai
      - schedule: "0 1 * * 6L"
        duration: 8h
        timezone: Asia/Shanghai
    blackouts:
      - from: "2026-11-10"
        to: "2026-11-12"
        timezone: Asia/Shanghai
    drain:
      delete_emptydir_data: true
      timeout: 20m
"""

RETURN = r"""
target:
  description: The version that the nodes are to have.
  type: str
  returned: success
nodes:
  description: Every isolated node in order, with its status before this run, versions, and the pods that leave it.
  type: list
  elements: dict
  returned: success
window:
  description: Whether a window is open, when it closes, and when the next one opens (UTC).
  type: dict
  returned: success
waiting_for:
  description: Why no more nodes were started; empty when none is left.
  type: str
  returned: success
run:
  description: Id of this run, under which its history is kept in the ConfigMap C(ai-suite/ai-suite-upgrade-history).
  type: str
  returned: when something was done
results:
  description: What became of each node (done, restored, quarantined, ...), why, and the seconds of each step.
  type: dict
  returned: when something was done
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.options import ARGUMENT_SPEC


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="ack.ai_suite.node_upgrade runs as an action plug-in on the controller; call it from a play.")


if __name__ == "__main__":
    main()
