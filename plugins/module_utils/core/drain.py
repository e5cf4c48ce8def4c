"""Which pods leave a node before its GPU module is changed, with the meaning of ``kubectl drain`` (case D01).

Classified first and as a whole: a pod that must not be touched is a blocker, and all blockers are told together before
anything is changed. The order of the rules is kubectl's (``k8s.io/kubectl/pkg/drain/filters.go``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import versions
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Pod, PodDisruptionBudget

MIRROR = "kubernetes.io/config.mirror"
# ACK's own drain leaves such pods alone: evicting an OSSFS fuse pod breaks the mounts of the pods that use it.
SKIP_LABEL = "alibabacloud.com/drain-pod"

Fate = Literal["evict", "leaving", "stay", "blocked"]


class Options(msgspec.Struct, frozen=True):
    """``kubectl drain``'s flags of these names; ``grace_period`` in seconds, None for each pod's own, 0 for at once."""

    force: bool = False
    delete_emptydir_data: bool = False
    ignore_daemonsets: bool = True
    honour_skip_label: bool = True
    grace_period: int | None = None
    timeout: timedelta = timedelta(minutes=15)


class Verdict(msgspec.Struct, frozen=True):
    """What happens to one pod, and why it stays or blocks."""

    pod: Pod
    fate: Fate
    why: tuple[str, ...] = ()


class Sorted(msgspec.Struct, frozen=True):
    """All pods of a node by fate; ``leaving`` ones are terminating already and are only waited for."""

    evict: tuple[Pod, ...] = ()
    leaving: tuple[Pod, ...] = ()
    stay: tuple[Pod, ...] = ()
    blocked: tuple[Verdict, ...] = ()

    @property
    def remaining(self) -> tuple[Pod, ...]:
        """The pods that must be gone before the node is drained."""
        return (*self.evict, *self.leaving)


def classify(pods: Iterable[Pod], daemonsets: Collection[str], options: Options) -> Sorted:
    """The fate of each pod of a node. ``daemonsets`` are those that exist, as ``namespace/name``."""
    found: dict[Fate, list[Verdict]] = {"evict": [], "leaving": [], "stay": [], "blocked": []}
    for pod in pods:
        verdict = _verdict(pod, daemonsets, options)
        found[verdict.fate].append(verdict)
    evict, leaving, stay = (tuple(v.pod for v in found[fate]) for fate in ("evict", "leaving", "stay"))
    return Sorted(evict, leaving, stay, tuple(found["blocked"]))


def _verdict(pod: Pod, daemonsets: Collection[str], options: Options) -> Verdict:
    owner = pod.controller
    if owner is not None and owner.kind == "DaemonSet" and not pod.finished:
        if f"{pod.namespace}/{owner.name}" in daemonsets:
            stays = options.ignore_daemonsets
            return Verdict(pod, "stay") if stays else Verdict(pod, "blocked", ("managed by a DaemonSet",))
        if not options.force:
            return Verdict(pod, "blocked", (f"its DaemonSet {owner.name} does not exist",))
    if MIRROR in pod.annotations:
        return Verdict(pod, "stay")
    if options.honour_skip_label and pod.labels.get(SKIP_LABEL) == "skip":
        return Verdict(pod, "stay")
    if pod.metadata.deletion_timestamp:
        return Verdict(pod, "leaving")
    reasons = () if pod.finished else tuple(_objections(pod, options))
    return Verdict(pod, "blocked" if reasons else "evict", reasons)


def _objections(pod: Pod, options: Options) -> Iterable[str]:
    if not options.delete_emptydir_data and any(v.empty_dir is not None for v in pod.spec.volumes or ()):
        yield "has emptyDir data"
    if not options.force and pod.controller is None:
        yield "managed by no controller"


_CURES = {
    "has emptyDir data": "Set delete_emptydir_data: true if that data may be lost.",
    "managed by no controller": "Nothing would bring it back: delete it yourself, or set force: true.",
    "managed by a DaemonSet": "Set ignore_daemonsets: true.",
}


def findings(node: str, pods: Sorted, pdbs: Sequence[PodDisruptionBudget]) -> list[Finding]:
    """Everything that forbids draining a node, before anything is touched (case D06)."""
    found = [
        Finding("UPG-DRAIN-BLOCKED", node, f"pod {verdict.pod.key}: {why}", "a pod that may be evicted",
                _CURES.get(why, "Delete the pod, or set force: true."), source="kubectl drain")
        for verdict in pods.blocked for why in verdict.why
    ]  # fmt: skip
    for pod in pods.evict:
        budgets = [] if _budgets_do_not_count(pod) else budgets_of(pod, pdbs)
        if len(budgets) > 1:
            names = ", ".join(sorted(f"{budget.namespace}/{budget.name}" for budget in budgets))
            found.append(
                Finding("UPG-DRAIN-BUDGETS", node, f"pod {pod.key} under {len(budgets)} budgets: {names}", "one budget",
                        "The API never evicts such a pod: change a budget's selector.", source="Eviction API")
            )  # fmt: skip
    return found


def budgets_of(pod: Pod, pdbs: Iterable[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    """The budgets that select a pod; a budget without a selector selects nothing."""
    return [
        budget
        for budget in pdbs
        if budget.namespace == pod.namespace
        and budget.spec.selector is not None
        and budget.spec.selector.matches(pod.labels)
    ]


def _budgets_do_not_count(pod: Pod) -> bool:
    """The API evicts these without looking at a budget."""
    return pod.status.phase in ("Succeeded", "Failed", "Pending") or bool(pod.metadata.deletion_timestamp)


def stuck(pod: Pod, pdbs: Iterable[PodDisruptionBudget], refusal: str) -> str:
    """Why a pod is still there when the time is up, for people."""
    if pod.metadata.deletion_timestamp:
        held = f", held by {', '.join(pod.metadata.finalizers)}" if pod.metadata.finalizers else ""
        return f"{pod.key} is terminating since {pod.metadata.deletion_timestamp}{held}"
    told = [
        f"budget {budget.namespace}/{budget.name} needs {budget.status.desired_healthy} healthy, "
        f"has {budget.status.current_healthy}, allows {budget.status.disruptions_allowed}"
        for budget in budgets_of(pod, pdbs)
    ]
    return f"{pod.key}: {'; '.join(told) or refusal or 'not evicted yet'}"


def eviction_body(pod: Pod, version: str, grace_period: int | None) -> dict[str, Any]:
    """An Eviction of this very pod: one that has taken its name meanwhile is not meant."""
    options: dict[str, Any] = {"preconditions": {"uid": pod.metadata.uid}}
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    return {
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }


def eviction_version(resources: Iterable[Mapping[str, Any]], git_version: str) -> str:
    """``policy/v1`` or ``policy/v1beta1``: from the resources of ``/api/v1``, else by the server's version (D11)."""
    for resource in resources:
        if resource.get("name") == "pods/eviction" and resource.get("version"):
            return f"{resource.get('group') or 'policy'}/{resource['version']}"
    return "policy/v1" if versions.at_least(git_version, "1.22") is not False else "policy/v1beta1"


Answer = Literal["accepted", "gone", "later", "refused"]


def answer(status: int) -> Answer:
    """What an HTTP status of the eviction API means; only a budget, and a busy or absent server, are tried again."""
    if status < 300 and status:
        return "accepted"
    if status in (404, 409):  # gone, or another pod has taken its name: the next look at the node tells
        return "gone"
    return "later" if status in (0, 429, 502, 503, 504) else "refused"


def pause(tries: int, hint: float = 0) -> float:
    """Seconds until a refused eviction is tried again: the server's hint, else doubling from 0.5 to 5 s."""
    return hint or min(5.0, 0.5 * 2 ** min(tries, 8))
