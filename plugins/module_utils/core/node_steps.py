"""The next step of one node that is being upgraded: a pure function of what is seen of it now.

Each tick looks at the node, asks ``step`` and does what it says. Nothing is remembered between ticks but what stands on
the node, so whoever asks next, after whatever crash, goes on where the last one was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import drain, gpu_labels, installer, node_state
from ansible_collections.ack.ai_suite.plugins.module_utils.core.duration import words
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.host_script import FOLDER, Status
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_state import Record
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import (
    DaemonSet,
    Node,
    Pod,
    PodDisruptionBudget,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings

# What is looked at beside the node itself, by state: each look is a request.
Look = Literal["pods", "host", "version"]
LOOKS: Mapping[str, tuple[Look, ...]] = {
    "cordoned": ("pods",),
    "drained": ("pods",),
    "installer_replaced": ("pods",),
    "upgrading": ("host",),
    "rebooting": (),
    "verifying": ("pods", "version"),
}


class View(msgspec.Struct, frozen=True):
    """One look at a node. ``host`` and ``version`` are None where they could not be read now."""

    node: Node
    record: Record
    now: datetime
    window_open: bool
    daemonsets: Mapping[str, DaemonSet]  # of the whole cluster, by namespace/name
    pods: tuple[Pod, ...] = ()
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    refusals: Mapping[str, str] = {}  # why the API did not evict a pod, by UID
    host: Status | None = None
    version: str | None = None

    @property
    def waited(self) -> timedelta:
        return self.now - self.record.at

    @property
    def restarted(self) -> bool:
        return self.node.status.node_info.boot_id != self.record.boot_id


# --- what may be done next ---


class Wait(msgspec.Struct, frozen=True):
    """Nothing now. ``text`` is for the progress line."""

    text: str


class Advance(msgspec.Struct, frozen=True):
    """Write the next state."""

    record: Record


class Evict(msgspec.Struct, frozen=True):
    """Evict these pods, then wait."""

    pods: tuple[Pod, ...]
    text: str


class Replace(msgspec.Struct, frozen=True):
    """Delete the installer pod of the old revision; its DaemonSet makes the new one."""

    pod: Pod


class Start(msgspec.Struct, frozen=True):
    """Start the unit on the host."""


class Restart(msgspec.Struct, frozen=True):
    """Ask ECS to restart the instance, then write that it was asked."""


class End(msgspec.Struct, frozen=True):
    """The node is done, restored (given back) or quarantined. ``failed`` costs the failure budget."""

    result: Literal["done", "restored", "quarantined"]
    reason: str = ""
    cure: str = ""
    failed: bool = False


Step = Wait | Advance | Evict | Replace | Start | Restart | End

_LATER = "Run again when the cause is gone; nothing was uninstalled."


def step(view: View, settings: Settings) -> Step:
    """What to do with a node now."""
    if not view.node.spec.unschedulable:
        return Advance(view.record)  # somebody (or ACK's auto-repair) uncordoned it: writing the record cordons again
    return _STEPS[view.record.state](view, settings)


def given_back(settings: Settings, reason: str) -> End:
    """Failed before the uninstall: as it was, unless the operator wants to look at it."""
    if settings.on_failure == "keep":
        return End("quarantined", reason, _LATER, failed=True)
    return End("restored", reason, _LATER, failed=True)


def _window_closed(view: View) -> End | None:
    if view.window_open:
        return None
    return End("restored", f"the window closed while it was {view.record.state}")


def _cordoned(view: View, settings: Settings) -> Step:
    closed = _window_closed(view)
    if closed:
        return closed
    found = drain.classify(view.pods, view.daemonsets, settings.drain)
    if found.blocked:
        told = joined([f"{v.pod.key} {' and '.join(v.why)}" for v in found.blocked])
        return given_back(settings, f"a pod came that must not be evicted: {told}")
    if not found.remaining:
        return Advance(node_state.advance(view.record, "drained", view.now))
    if view.waited >= settings.drain.timeout:
        stuck = [drain.stuck(pod, view.pdbs, view.refusals.get(pod.metadata.uid, "")) for pod in found.remaining]
        return given_back(settings, f"not drained within {words(settings.drain.timeout)}: {joined(stuck)}")
    left = len(found.remaining)
    held = [reason for pod in found.evict if (reason := view.refusals.get(pod.metadata.uid))]
    return Evict(found.evict, f"draining, {left} pod{'s' * (left != 1)} left" + (f": {held[0]}" if held else ""))


def _drained(view: View, settings: Settings) -> Step:
    closed = _window_closed(view)
    if closed:
        return closed
    ds = _installer(view)
    pods = [pod for pod in view.pods if installer.is_installer(pod)]
    old = [p for p in pods if ds is None or not installer.of_revision(p, ds)]
    if old:
        alive = [pod for pod in old if not pod.metadata.deletion_timestamp]
        if alive and ds is not None:
            return Replace(alive[0])
    elif any(pod.ready and not pod.metadata.deletion_timestamp for pod in pods):
        return Advance(node_state.advance(view.record, "installer_replaced", view.now))
    name = installer.installer_of(view.node.labels)
    if view.waited >= settings.timing.installer:
        return given_back(settings, f"no ready {name} pod of the current revision ({_condition(pods)})")
    return Wait(f"waiting for the new {name} pod ({_condition(pods)})")


def _condition(pods: list[Pod]) -> str:
    newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp or "", default=None)
    if newest is None:
        return "none is there"
    for status in newest.status.container_statuses or ():
        reason = ((status.state or {}).get("waiting") or {}).get("reason")
        if reason:
            return f"{newest.name} {reason}"
    return f"{newest.name} {'terminating' if newest.metadata.deletion_timestamp else newest.status.phase or 'new'}"


def _installer(view: View) -> DaemonSet | None:
    return view.daemonsets.get(f"{installer.NAMESPACE}/{installer.installer_of(view.node.labels)}")


def _installer_replaced(view: View, settings: Settings) -> Step:
    closed = _window_closed(view)
    if closed:
        return closed
    if drain.classify(view.pods, view.daemonsets, settings.drain).remaining:
        return Advance(node_state.advance(view.record, "cordoned", view.now))  # somebody came: drain again
    return Advance(node_state.advance(view.record, "upgrading", view.now, boot_id=view.node.status.node_info.boot_id))


def _upgrading(view: View, settings: Settings) -> Step:
    host, log = view.host, f"See {FOLDER}/{view.record.unit}/log on the node"
    if host is None:
        return _unreadable_host(view, settings)
    match host.phase:
        case "absent" if view.restarted:
            return given_back(settings, "the node restarted before its unit was started")
        case "absent":
            return _window_closed(view) or Start()
        case "refused":
            return given_back(settings, f"the host refused before the uninstall: {host.text}")
        case "failed":
            return End("quarantined", f"uninstalling the old module failed: {host.text}",
                       f"{log}, mend it and retry.", failed=True)  # fmt: skip
        case "uninstalled":
            return Advance(node_state.advance(view.record, "rebooting", view.now))
    if view.restarted:  # in the middle of it: what is loaded now tells
        return Advance(node_state.advance(view.record, "rebooting", view.now))
    if host.phase == "died" and host.boot_id == view.record.boot_id:
        return End("quarantined", f"the unit on the host was killed {host.text}",
                   f"{log}, then restart the node and retry.", failed=True)  # fmt: skip
    if view.waited >= settings.timing.host:
        return End("quarantined", f"the unit on the host is {host.phase} for {words(view.waited)}",
                   f"{log}, then restart the node and retry.", failed=True)  # fmt: skip
    return Wait(f"the host is {host.phase}{': ' if host.text else ''}{host.text}")


def _unreadable_host(view: View, settings: Settings) -> Step:
    """Its kubelet is stopped while the unit works, so silence is normal, for as long as the unit may take.

    A unit that fails starts the kubelet again, so a host that stays silent is one that waits for its restart.
    """
    if view.waited < settings.timing.host:
        return Wait("the host works with its kubelet stopped" if not view.node.ready else "waiting for the host")
    if settings.reboot == "guest" and not view.restarted:
        return End("quarantined", f"the host gave no answer for {words(view.waited)} and did not restart",
                   "Restart the instance from the ECS console, then retry.", failed=True)  # fmt: skip
    return Advance(node_state.advance(view.record, "rebooting", view.now))


def _rebooting(view: View, settings: Settings) -> Step:
    if view.restarted and view.node.ready:
        return Advance(node_state.advance(view.record, "verifying", view.now))
    asked = view.record.restarted is not None or settings.reboot == "guest"
    if not view.restarted and not asked and view.waited < settings.timing.boot:
        return Restart()
    if view.waited >= settings.timing.boot:
        problem = (
            "restarted, but is not Ready" if view.restarted else "did not restart" if asked else "was not restarted"
        )
        return End("quarantined", f"the node {problem} after {words(view.waited)}",
                   "Look at the instance in the ECS console (a hung GPU needs a forced restart), then retry.",
                   failed=True)  # fmt: skip
    return Wait("restarted, waiting for Ready" if view.restarted else "waiting for the restart")


def _verifying(view: View, settings: Settings) -> Step:
    ds, record = _installer(view), view.record
    pod = installer.alive(p for p in view.pods if p.ready)
    if view.version and view.version != record.target:
        return End("quarantined", f"cGPU {view.version} is loaded, not {record.target}",
                   "Check which image the installer pod of this node has, then retry.", failed=True)  # fmt: skip
    missing = [
        f"{name} {view.node.allocatable.get(name, '0')} of {amount}"
        for name, amount in record.resources.items() if view.node.allocatable.get(name, "0") != amount
    ]  # fmt: skip
    problem = (
        ("the node is not Ready" if not view.node.ready else "")
        or (
            "no installer pod of the current revision is ready"
            if not pod or not ds or not installer.of_revision(pod, ds)
            else ""
        )
        or ("no cGPU module is loaded" if not view.version else "")
        or (f"the node advertises {', '.join(missing)}" if missing else "")
    )
    if not problem:
        return End("done")
    if view.waited >= settings.timing.verify:
        return End("quarantined", f"{problem} after {words(view.waited)}",
                   "See the logs of the installer and device plug-in pods of this node, then retry.",
                   failed=True)  # fmt: skip
    return Wait(f"verifying: {problem}")


_STEPS: Mapping[str, Callable[[View, Settings], Step]] = {
    "cordoned": _cordoned,
    "drained": _drained,
    "installer_replaced": _installer_replaced,
    "upgrading": _upgrading,
    "rebooting": _rebooting,
    "verifying": _verifying,
}


def first(node: Node, target: str, version: str, unit: str, now: datetime, before: Record | None = None) -> Record:
    """The record with which a node is cordoned: everything that must be given back afterwards.

    ``before`` is that of a quarantined node which is tried again: what was true before it failed is still what counts.
    """
    if before is not None:
        again = node_state.advance(before, "cordoned", now, target=target, cure="", boot_id="", restarted=None)
        return msgspec.structs.replace(again, unit=unit, attempt=before.attempt + 1, steps={})
    resources = {
        name: amount
        for name in (gpu_labels.GPU_MEM, gpu_labels.GPU_CORE, gpu_labels.GPU_COUNT)
        if (amount := node.allocatable.get(name, "0")) != "0"
    }
    return Record(
        "cordoned", now, now, now, target, version,
        unschedulable=node.spec.unschedulable,
        taints=tuple(node.spec.taints or ()),
        resources=resources,
        unit=unit,
    )  # fmt: skip
