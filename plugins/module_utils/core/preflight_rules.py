"""The rules of preflight: what must hold, for whom, where it is written, and the cure.

A rule answers with a verdict; None means that it has nothing to say about this machine. What is not known is
"unknown", and unknown never passes: it is as severe as the rule's ``unknown`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import compatibility as tables
from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_labels
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Severity
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_facts import Cluster, Machine
from ansible_collections.ack.ai_suite.plugins.module_utils.core.versions import Version, at_least, parse

COMPATIBILITY = 'ACK "Manage the GPU sharing component": compatibility'
LIMITS = 'ACK "Manage the GPU sharing component": limits'
LABELS = 'ACK "Labels used by ACK to control GPUs"'
SKEW = "Kubernetes version skew policy"

Who = Literal["cluster", "all", "gpu", "shared", "isolated"]
WHO: Mapping[Who, Callable[[Machine], bool]] = {
    "cluster": lambda machine: False,
    "all": lambda machine: True,
    "gpu": lambda machine: machine.stake != "none",
    "shared": lambda machine: machine.stake == "shared",
    "isolated": lambda machine: machine.isolated,
}


class Context(msgspec.Struct, frozen=True):
    """What the rules compare with. ``settled`` is false while a later step of the same run may still tell more."""

    cluster: Cluster
    tables: tables.Tables = tables.Tables()
    installer: str = ""
    settled: bool = True


class Verdict(msgspec.Struct, frozen=True):
    """``cure`` and ``severity`` stand in for the rule's own where they are given."""

    state: Literal["ok", "broken", "unknown"]
    found: str = ""
    required: str = ""
    cure: str = ""
    severity: Severity | None = None


OK = Verdict("ok")


class Rule(msgspec.Struct, frozen=True):
    """One row of the table: ``check`` looks at one machine (of ``who``), or at the cluster."""

    code: str
    what: str
    who: Who
    check: Callable[..., Verdict | None]
    cure: str
    source: str
    broken: Severity = "error"
    unknown: Severity = "error"


def _reaches(found: str, minimum: str, what: str) -> Verdict:
    """A version against its minimum, both shown as they were written."""
    enough = at_least(found, minimum)
    if enough:
        return OK
    return Verdict("broken" if enough is False else "unknown", f"{what} {found or 'not told'}", f">= {minimum}")


# --- Kubernetes ---


def _kubernetes(found: str, context: Context) -> Verdict:
    """Without the installer's version, only what every version supports is certain to be right."""
    minimums = tables.kubernetes_minimum(context.tables, context.installer)
    verdicts = [_reaches(found, minimum, "Kubernetes") for minimum in minimums]
    if verdicts and all(verdict is OK for verdict in verdicts):
        return OK
    if parse(context.installer) is None and OK in verdicts:
        required = f">= {' or '.join(minimums)}"
        return Verdict("unknown", f"Kubernetes {found}, and no version of ack-ai-installer", required,
                       "Set the version of ack-ai-installer that will be installed.")  # fmt: skip
    if not verdicts:
        return Verdict("unknown", f"Kubernetes {found}", f"a row for ack-ai-installer {context.installer} in the table")
    required = f"{verdicts[0].required} for ack-ai-installer {context.installer or 'of any version'}"
    return msgspec.structs.replace(verdicts[0], required=required)


def server(cluster: Cluster, context: Context) -> Verdict:
    return _kubernetes(cluster.server_version, context)


def kubelet(machine: Machine, context: Context) -> Verdict | None:
    return _kubernetes(machine.kubelet, context) if machine.exists else None


def skew(machine: Machine, context: Context) -> Verdict | None:
    if not machine.exists:
        return None
    mine, servers = parse(machine.kubelet), parse(context.cluster.server_version)
    if mine is None or servers is None:
        return None  # the rules on versions say so already
    behind, allowed = _behind(mine, servers), 3 if servers.series(2) >= (1, 28) else 2
    if behind == 0:
        return OK
    found, required = f"kubelet {mine}, server {servers}", f"not newer, and at most {allowed} minor versions older"
    if 0 < behind <= allowed:
        return Verdict("broken", found, required, "Legal; upgrade the node pool when it suits.", "info")
    return Verdict("broken", found, required)


def _behind(mine: Version, servers: Version) -> int:
    """Minor versions that a kubelet is older than its server; another major version counts as far away."""
    (major, minor), (server_major, server_minor) = mine.series(2), servers.series(2)
    return server_minor - minor if major == server_major else 99


def cluster_type(cluster: Cluster, context: Context) -> Verdict:
    found = f"{cluster.cluster_type} {cluster.cluster_spec}".strip()
    if not cluster.cluster_type or not cluster.cluster_spec:
        return Verdict("unknown", found or "not told", "ManagedKubernetes ack.pro.*")
    managed_pro = cluster.cluster_type == "ManagedKubernetes" and cluster.cluster_spec.startswith("ack.pro")
    return OK if managed_pro else Verdict("broken", found, "ManagedKubernetes ack.pro.*")


# --- driver, runtime, operating system ---


def driver(machine: Machine, context: Context) -> Verdict | None:
    minimum = context.tables.driver
    known = machine.driver or machine.driver_requested
    if known:
        return _reaches(known, minimum, "driver" if machine.driver else "driver, as requested by the pool,")
    if not machine.exists:
        return Verdict("unknown", "ACK's default driver of the day", f">= {minimum}",
                       f"Nothing to do, or pin it by the pool's label {gpu_labels.DRIVER_REQUESTED}.",
                       "info")  # fmt: skip
    if machine.stake != "shared":
        return Verdict("unknown", "driver not known: no label publishes it, and no installer pod runs where cards are "
                       "whole", f">= {minimum}", _PUBLISH_DRIVER, "warning")  # fmt: skip
    why = machine.problem or "the node did not tell"
    cure = f"Run preflight again when its cGPU installer pod runs. {_PUBLISH_DRIVER}"
    return Verdict("unknown", f"driver not known: {why}", f">= {minimum}", cure, None if context.settled else "warning")


_PUBLISH_DRIVER = "NVIDIA's GPU feature discovery publishes it in labels."


def driver_as_requested(machine: Machine, context: Context) -> Verdict | None:
    if not machine.driver or not machine.driver_requested:
        return None
    if parse(machine.driver) == parse(machine.driver_requested):
        return OK
    return Verdict("broken", f"driver {machine.driver}", f"{machine.driver_requested}, as its pool asks for")


def runtime(machine: Machine, context: Context) -> Verdict | None:
    if not machine.exists and not machine.runtime:
        return None
    wanted = " or ".join(f"{name} >= {minimum}" for name, minimum in context.tables.runtimes.items())
    name, version = tables.runtime(machine.runtime)
    if not name:
        return Verdict("unknown", f"runtime {machine.runtime or 'not told'}", wanted, _ASK_KUBELET)
    minimum = context.tables.runtimes.get(name)
    if minimum is None:
        return Verdict(
            "broken", f"runtime {machine.runtime}: not supported", wanted, "Use a node pool with containerd."
        )
    verdict = _reaches(version, minimum, f"runtime {name}")
    if verdict.state == "unknown":
        return Verdict("unknown", f"runtime {machine.runtime}: version not known", wanted, _ASK_KUBELET)
    return verdict


_ASK_KUBELET = "Look at the kubelet and the container runtime of that node: they did not tell the version."


def operating_system(machine: Machine, context: Context) -> Verdict | None:
    wanted = ", ".join(context.tables.systems)
    if machine.exists:
        found = tables.system(machine.os_image, machine.kernel)
        shown = machine.os_image or "not told"
    else:
        found, shown = tables.IMAGE_TYPES.get(machine.image_type), f"image type {machine.image_type}"
    if found is None:
        return Verdict("unknown", f"OS {shown}", wanted) if machine.exists else None
    if found.family == "centos" and found.version == "7" and machine.centos:
        found = tables.System("centos", machine.centos)
    if tables.supports_system(context.tables, found):
        return OK
    return _other_system(found, f"OS {shown}", machine.kernel, wanted)


def _other_system(found: tables.System, shown: str, kernel: str, wanted: str) -> Verdict:
    if found.family == "containeros":
        return Verdict("broken", shown, wanted, "ContainerOS is not in the list. Known from the FAQ: the first GPU pod "
                       "fails with cGPU <= 1.5.18; use ack-ai-installer >= 1.12.6.", "warning")  # fmt: skip
    if found == tables.System("centos", "7"):
        shown = f"{shown}: minor version not determinable from kernel {kernel or 'not told'}"
        return Verdict("unknown", shown, wanted, "Read /etc/centos-release on the node, then silence this finding with "
                       "the reason.", "warning")  # fmt: skip
    if found.family == "centos":
        shown = f"{shown} (CentOS {found.version}, kernel {kernel})"
    return Verdict("broken", shown, wanted)


def optimized_edition(machine: Machine, context: Context) -> Verdict | None:
    minimum = context.tables.optimized_installer
    enough = at_least(context.installer, minimum)
    optimized = machine.image_type == tables.OPTIMIZED_IMAGE or tables.is_optimized(machine.os_image)
    if optimized:
        shown = f"container-optimized edition with ack-ai-installer {context.installer or 'of a version not told'}"
        return OK if enough else Verdict("broken" if enough is False else "unknown", shown, f">= {minimum}")
    maybe = machine.exists and not machine.image_type and not enough
    found = tables.system(machine.os_image) if maybe else None
    if found is None or found.family != "alinux" or not found.version.startswith("3"):
        return None
    required = f"ack-ai-installer >= {minimum}, or the standard edition"
    return Verdict("unknown", f"{machine.os_image}: edition not told", required, severity="warning")


# --- cards ---


def series(machine: Machine, context: Context) -> Verdict | None:
    verdicts = [_series(kind, machine.card, context) for kind in machine.instance_types or ("",)]
    return next((verdict for verdict in verdicts if verdict is not OK), OK)


def _series(instance_type: str, card: str, context: Context) -> Verdict:
    wanted = f"series {', '.join(context.tables.series)}"
    family = tables.instance_family(instance_type)
    if family in context.tables.families:
        return OK
    model = card or context.tables.family_cards.get(family, "")
    if tables.card_series(model) in context.tables.series:
        return OK
    if model or tables.is_gpu_family(family):
        return Verdict("broken", f"card {model or 'not told'}, instance type {instance_type or 'not told'}", wanted)
    if family:
        return Verdict("broken", f"instance type {instance_type}: no NVIDIA card", wanted,
                       "Use a GPU instance family, or remove the scheduling label.", "error")  # fmt: skip
    return Verdict("unknown", "neither card nor instance family told", wanted)


def equal_cards(machine: Machine, context: Context) -> Verdict | None:
    if machine.cards is None or not machine.cards.total:
        return None
    why = machine.cards.unequal
    return Verdict("broken", why, "cards of one size on a node that shares them") if why else OK


# --- where sharing and isolation work ---


def region(machine: Machine, context: Context) -> Verdict:
    where = machine.region or context.cluster.region_id
    if where in context.tables.isolation_regions:
        return OK
    listed = f"one of the {len(context.tables.isolation_regions)} regions with memory isolation"
    return Verdict("broken" if where else "unknown", f"region {where or 'not told'}", listed)


def on_ecs(machine: Machine, context: Context) -> Verdict:
    if machine.ecs:
        return OK
    found = f"{machine.provider or 'no providerID'} with {_isolation(machine)}"
    return Verdict("unknown" if machine.ecs is None else "broken", found, "an ECS instance (<region>.<instance id>)")


def _isolation(machine: Machine) -> str:
    mode = machine.labels.get(gpu_labels.SCHEDULE)
    return f"{gpu_labels.SCHEDULE}={mode}" if mode else f"{gpu_labels.LEGACY_ISOLATION}=true"


def cpu_policy(machine: Machine, context: Context) -> Verdict:
    if not machine.cpu_policy:
        return Verdict("unknown", "CPU policy not told by a node pool, nor by the node", "not static")
    if machine.cpu_policy == "static":
        return Verdict("broken", "CPU policy static", "not static")
    return OK


def pods_per_card(machine: Machine, context: Context) -> Verdict | None:
    if not machine.exists:
        return None  # the noun node_pool adds the label itself
    if machine.labels.get(gpu_labels.MAX_POD) == str(gpu_labels.PODS_PER_CARD):
        return OK
    return Verdict("broken", f"no {gpu_labels.MAX_POD}", f"{gpu_labels.MAX_POD}={gpu_labels.PODS_PER_CARD}")


def label_of_pool(machine: Machine, context: Context) -> Verdict | None:
    if not machine.exists or machine.pool is None:
        return None
    mine, pools = (labels.get(gpu_labels.SCHEDULE, "none") for labels in (machine.labels, machine.pool.labels))
    if mine == pools:
        return OK
    return Verdict("broken", f"{gpu_labels.SCHEDULE}={mine}", f"{pools}, as its pool {machine.pool.name} says")


RULES: tuple[Rule, ...] = (
    Rule("PRE-K8S-SERVER", "Kubernetes of the control plane", "cluster", server,
         "Upgrade the cluster, or install an older ack-ai-installer.", COMPATIBILITY),
    Rule("PRE-K8S-KUBELET", "Kubernetes of the node", "all", kubelet,
         "Upgrade the node pool, or install an older ack-ai-installer.", COMPATIBILITY),
    Rule("PRE-K8S-SKEW", "kubelet and control plane go together", "all", skew,
         "Upgrade whichever is behind.", SKEW, broken="warning"),
    Rule("PRE-CLUSTER-TYPE", "managed Pro cluster", "cluster", cluster_type,
         "GPU sharing needs an ACK managed Pro cluster: migrate the cluster to Pro.", LABELS, unknown="warning"),
    Rule("PRE-DRIVER", "NVIDIA driver", "gpu", driver,
         f"Add nodes with a newer driver: label {gpu_labels.DRIVER_REQUESTED} of the node pool.", COMPATIBILITY),
    Rule("PRE-DRIVER-REQUESTED", "driver as the pool asks for", "gpu", driver_as_requested,
         "ACK falls back to its default driver when it does not know the one asked for: correct the pool's label.",
         LABELS, broken="warning"),
    Rule("PRE-RUNTIME", "container runtime", "gpu", runtime,
         "Upgrade the runtime with the node pool.", COMPATIBILITY),
    Rule("PRE-OS", "operating system", "gpu", operating_system,
         "Use a node pool with an image of the list, for example AliyunLinux3.", COMPATIBILITY),
    Rule("PRE-OS-OPTIMIZED", "container-optimized edition", "gpu", optimized_edition,
         "Install ack-ai-installer 1.12.6 or newer, or set the version that will be installed.", COMPATIBILITY),
    Rule("PRE-GPU-SERIES", "GPU series", "gpu", series,
         "Series P, T, V, A, H are supported; try others on one node first.", COMPATIBILITY, broken="warning"),
    Rule("PRE-GPU-EQUAL", "cards of one size", "shared", equal_cards,
         "Sharing divides a node's memory evenly: keep nodes with different cards in mode default.",
         "gpushare-device-plugin: memory per card = sum / number of cards"),
    Rule("PRE-REGION", "region with memory isolation", "isolated", region,
         "Use ack.node.gpu.schedule=share, which does not isolate, or another region.", LIMITS),
    Rule("PRE-ECS", "isolation on ECS nodes only", "isolated", on_ecs,
         "Remove the label: cGPU isolates memory on ECS instances only.", LIMITS),
    Rule("PRE-CPU-POLICY", "CPU policy not static", "shared", cpu_policy,
         "Set CPU policy none in the node pool's kubelet configuration.", LIMITS),
    Rule("PRE-MAX-POD", "at most 20 pods on a card", "isolated", pods_per_card,
         "Add the label to the node pool, so that the scheduler stops at 20 pods a card.", LIMITS, broken="warning"),
    Rule("PRE-LABEL-DRIFT", "scheduling label as its pool says", "all", label_of_pool,
         "Change the label through the node pool, never on the node.", LIMITS, broken="warning"),
)  # fmt: skip
