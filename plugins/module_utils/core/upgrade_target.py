"""Which cGPU version the nodes are to have, and whether the installers that will load it bring it.

There is no public map from installer versions to cGPU versions: the target is asked for, or stands in the image tag of
the installers, if that tag is a known version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.ack.ai_suite.plugins.module_utils.core import installer, workloads
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Node
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings

_SOURCE = 'ACK "Upgrade the cGPU version of a node"'


def installers(daemonsets: Iterable[DaemonSet]) -> dict[str, DaemonSet]:
    """The installers of the cluster, by name."""
    return {ds.name: ds for ds in daemonsets if ds.namespace == installer.NAMESPACE and ds.name in installer.INSTALLERS}


def tag(image: str) -> str:
    """The tag of an image without a leading v, "" where there is none (``registry:5000/a/b`` has none)."""
    name = image.partition("@")[0]
    return name.rpartition(":")[2].removeprefix("v") if ":" in name.rpartition("/")[2] else ""


def resolve(settings: Settings, nodes: Iterable[Node], found: Mapping[str, DaemonSet]) -> tuple[str, list[Finding]]:
    """The target version, and what is wrong with the installers that serve these nodes."""
    needed = sorted({installer.installer_of(node.labels) for node in nodes})
    findings = [
        Finding("UPG-COMPONENT-MISSING", f"DaemonSet {installer.NAMESPACE}/{name}", "none", "the nodes' installer",
                "Install the component first: ansible-playbook playbooks/component.yml", source=_SOURCE)
        for name in needed if name not in found
    ]  # fmt: skip
    tags = {name: tag(workloads.image(found[name])) for name in needed if name in found}
    known = {name: version for name, version in tags.items() if version in settings.known}
    target = settings.target or (
        next(iter(known.values())) if len(set(known.values())) == 1 == len(set(tags.values())) else ""
    )
    if tags and not target:
        told = ", ".join(f"{name}: {version or 'no tag'}" for name, version in tags.items())
        findings.append(
            Finding("UPG-TARGET-NONE", "target_version", f"not given, and no known version in the image tags ({told})",
                    "a target", "Set node_upgrade_target_version to the cGPU version that these images bring.",
                    source=_SOURCE)
        )  # fmt: skip
    findings += [
        Finding("UPG-COMPONENT-OLD", f"DaemonSet {installer.NAMESPACE}/{name}", f"image tag {version}",
                f"the target {target}", "Upgrade the component first: ansible-playbook playbooks/upgrade.yml",
                source=_SOURCE)
        for name, version in known.items() if target and version != target
    ]  # fmt: skip
    return target, findings + _rolling(found, needed)


def _rolling(found: Mapping[str, DaemonSet], needed: Iterable[str]) -> list[Finding]:
    """Charts choose their own update strategy; RollingUpdate restarts installers on all nodes at once."""
    return [
        Finding("UPG-COMPONENT-ROLLING", f"DaemonSet {ds.namespace}/{ds.name}", f"strategy {strategy}", "OnDelete",
                "Any restart of a node may switch its cGPU version; ask the chart for OnDelete.", "warning", _SOURCE)
        for ds in (found[name] for name in needed if name in found)
        if (strategy := ds.spec.update_strategy.type) != "OnDelete"
    ]  # fmt: skip
