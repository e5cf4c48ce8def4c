"""What must hold before a node is cordoned: each rule refuses one thing that could not be mended afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.ack.ai_suite.plugins.module_utils.core import installer
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.host_script import UNINSTALL, Probe, Runtime
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings

_SOURCE = 'ACK "Upgrade the cGPU version of a node"'


def runtime(node: Node) -> Runtime | None:
    """The node's container runtime; None for one that the procedure does not know."""
    name = node.status.node_info.container_runtime_version.partition("://")[0]
    return "containerd" if name == "containerd" else "docker" if name == "docker" else None


def gates(node: Node, probe: Probe | str, settings: Settings) -> Iterator[Finding]:
    """Everything that forbids upgrading a node in place. ``probe`` is a text where its host could not be asked."""

    def wrong(code: str, found: str, required: str, cure: str) -> Finding:
        return Finding(code, node.name, found, required, cure, source=_SOURCE)

    if node.metadata.deletion_timestamp:
        yield wrong("UPG-NODE-DELETED", "being deleted", "a node that stays", "Wait until it is gone.")
    if not node.ready:
        yield wrong("UPG-NODE-DOWN", "not Ready", "a Ready node", "Mend the node first; its pods cannot leave it.")
    if "containeros" in node.status.node_info.os_image.lower().replace(" ", ""):
        yield wrong("UPG-NODE-OS", node.status.node_info.os_image, "a writable root file system",
                    "ContainerOS is upgraded by replacement: remove the node from its pool, add it again.")  # fmt: skip
    elif not runtime(node):
        found = node.status.node_info.container_runtime_version or "unknown"
        yield wrong("UPG-NODE-RUNTIME", f"runtime {found}", "containerd or docker", "Look at the node's kubelet.")
    if settings.reboot == "ecs" and not node.instance_id:
        yield wrong("UPG-NODE-INSTANCE", f"providerID {node.spec.provider_id or 'none'}", "an ECS instance",
                    "cGPU is for ECS nodes; for others set node_upgrade_reboot: guest.")  # fmt: skip
    if isinstance(probe, str):
        yield wrong("UPG-NO-INSTALLER", probe, "an installer pod that runs commands on the host",
                    f"See kubectl -n kube-system get pods -o wide -l '{installer.SELECTOR}'.")  # fmt: skip
        return
    if not probe.uninstall and not settings.uninstall:
        yield wrong("UPG-NO-UNINSTALL", f"no {UNINSTALL}", "the uninstall script on the host",
                    "Give one with node_upgrade_uninstall_script (path and sha256).")  # fmt: skip
    if not probe.systemd_run:
        yield wrong("UPG-NO-SYSTEMD", "no systemd-run", "a host with systemd", "This host cannot be upgraded in place.")
