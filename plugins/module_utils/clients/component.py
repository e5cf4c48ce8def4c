"""One component on one cluster: observed without a write, brought to what was decided, and looked at afterwards."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.helm import Helm
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube, KubeError
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.lease import Lease
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.manifests import Objects
from ansible_collections.ack.ai_suite.plugins.module_utils.core import helm_release, installer, policy, workloads
from ansible_collections.ack.ai_suite.plugins.module_utils.core.component import (
    CRITICAL,
    Component,
    Observed,
    check_chart,
    not_up,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import Change, Object, Release
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Node, Pod

LEASE = 15  # seconds: as long, a run that was killed keeps the next one waiting
_POLL = 0.5


class Installation:
    """A component and the cluster that it is for."""

    def __init__(self, component: Component, kube: Kube, helm: Helm) -> None:
        self.component = component
        self._kube = kube
        self._helm = helm
        self._objects = Objects(kube, component.namespace)
        self._daemonsets = f"/apis/apps/v1/namespaces/{component.namespace}/daemonsets"
        self._chart = ""
        holder = f"{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        name = f"ai-suite-component-{component.release}"
        self._lease = Lease(kube, component.namespace, name, holder, seconds=LEASE)

    # --- observe ---

    def observe(self) -> Observed:
        """The release, what it would become, and what the API says to each object. Nothing is written."""
        component = self.component
        if not component.present:
            return self._observe_absent()
        installers = self._installers()
        with ThreadPoolExecutor(2) as pool:
            found = pool.submit(self._helm.release, component.release, component.namespace)
            self._chart = self._chart or self._helm.fetch(component.chart, component.repository, component.version)
            chart = self._helm.chart(self._chart)
            release = found.result()
        check_chart(component, chart, release)  # before the values of the one meet the schema of the other
        seen = self._rendered(release, installers)
        changes, refused = self._changes(seen.objects, release)
        return msgspec.structs.replace(
            seen,
            chart=chart,
            changes=changes,
            refused=refused,
            pods=self._installer_pods(),
            hold=self._hold(release),
        )

    def _observe_absent(self) -> Observed:
        release = self._helm.release(self.component.release, self.component.namespace)
        changes = tuple(filter(None, map(self._objects.removal, release.objects))) if release else ()
        return Observed(release, changes=changes, hold=self._hold(release))

    def _rendered(self, release: Release | None, installers: Iterable[DaemonSet]) -> Observed:
        component = self.component
        installed = release is not None and release.latest.status != "uninstalled"
        asked = policy.to_be(component, installed, policy.running(installers))
        values = policy.first_values(component, release.values if release else {}, installed, asked)
        objects, hooks = self._render(values, installed)
        daemonsets = _daemonsets(objects)
        if component.policy is None and policy.differs(asked, policy.running(daemonsets)):
            values = policy.kept(component, values, asked)
            objects, hooks = self._render(values, installed)
            daemonsets = _daemonsets(objects)
        policy.check(component, asked, policy.running(daemonsets), "as rendered")
        return Observed(release, values=values, policy=asked, objects=objects, hooks=hooks, undefaulted=daemonsets)

    def _render(self, values: Object, installed: bool) -> tuple[tuple[Object, ...], tuple[Object, ...]]:
        component = self.component
        return self._helm.render(component.release, component.namespace, self._chart, values, upgrade=installed)

    def _changes(
        self, objects: tuple[Object, ...], release: Release | None
    ) -> tuple[tuple[Change, ...], tuple[tuple[str, str], ...]]:
        changes, refused = [], []
        for thing in objects:
            try:
                changes.append(self._objects.change(thing))
            except KubeError as problem:
                if problem.status == 0 or problem.status >= 500:
                    raise
                refused.append((helm_release.title(helm_release.key(thing)), problem.problem))
        namespace = self.component.namespace
        stay = {helm_release.key(thing, namespace) for thing in objects}
        for old in release.objects if release else ():
            if helm_release.key(old, namespace) not in stay and not helm_release.is_kept(old):
                gone = self._objects.removal(old)
                changes += [gone] if gone else []
        return tuple(changes), tuple(refused)

    def _hold(self, release: Release | None) -> helm_release.Hold | None:
        """Only a stuck release asks who left it so."""
        return self._lease.hold() if release and release.latest.status in helm_release.PENDING else None

    def _installers(self) -> list[DaemonSet]:
        if not self.component.entry.policy:
            return []
        found = (self._kube.find(f"{self._daemonsets}/{name}", DaemonSet) for name in installer.INSTALLERS)
        return [ds for ds in found if ds is not None]

    def _installer_pods(self) -> tuple[Pod, ...]:
        if not self.component.entry.policy:
            return ()
        path = f"/api/v1/namespaces/{self.component.namespace}/pods"
        return tuple(self._kube.list(path, Pod, {"labelSelector": installer.SELECTOR}))

    # --- apply ---

    def apply(self, plan: Plan, seen: Observed, decide: Callable[[Observed], Plan]) -> dict[str, Any]:
        """Take the steps of the plan, alone; when another run was at work meanwhile, those of a new plan.

        Returns what of the result is different then.
        """
        component = self.component
        result: dict[str, Any] = {}
        with self._alone():
            latest = seen.release.latest if seen.release else None
            before = (latest.revision, latest.status) if latest else (0, "")
            if self._helm.latest(component.release, component.namespace) != before:
                seen = self.observe()
                plan = decide(seen)
                result = {
                    "changed": bool(plan.actions),
                    "plan": [f"{action.verb} {action.target}" for action in plan.actions],
                }
            for action in plan.actions:
                self._step(action.body, seen)
        if not component.present:
            self._wait_until_gone(seen)
        return result

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the Lease. A failure that leaves the release pending leaves the Lease too: it tells the next run that
        this one was it, and runs out by itself.
        """
        component = self.component
        self._lease.acquire(component.timeout)
        try:
            yield
        except AckError:
            with suppress(AckError):
                if self._helm.latest(component.release, component.namespace)[1] not in helm_release.PENDING:
                    self._lease.release()
            raise
        self._lease.release()

    def _step(self, step: Object, seen: Observed) -> None:
        component, alive = self.component, self._lease.renew
        name, namespace, timeout = component.release, component.namespace, component.timeout
        match step["step"]:
            case "roll back":
                self._helm.rollback(name, namespace, step["revision"], timeout=timeout, alive=alive)
            case "uninstall" | "finish uninstalling":
                self._helm.uninstall(name, namespace, timeout=timeout, alive=alive)
            case "upgrade":
                adopt = "adopt_objects" in component.accept
                self._helm.upgrade(
                    name, namespace, self._chart, seen.values, adopt=adopt, timeout=timeout, alive=alive
                )  # fmt: skip
            case "priority":
                body = {"spec": {"template": {"spec": {"priorityClassName": CRITICAL}}}}
                self._kube.patch(f"{self._daemonsets}/{step['daemonset']}", body, "merge")

    # --- afterwards ---

    def wait_until_up(self, objects: tuple[Object, ...]) -> None:
        """Wait for the workloads of the release; pods of nodes that are down are not waited for."""
        deadline = clock.monotonic() + self.component.timeout
        while reasons := [why for why in map(self._missing, objects) if why]:
            if clock.monotonic() > deadline:
                raise not_up(self.component, reasons)
            clock.sleep(_POLL)

    def _missing(self, thing: Object) -> str:
        kind = thing["kind"]
        if kind not in ("DaemonSet", *workloads.REPLICATED):
            return ""
        live = self._objects.find(thing)
        if live is None:
            return f"{helm_release.title(helm_release.key(thing, self.component.namespace))} is gone"
        if kind != "DaemonSet":
            return workloads.replicas_missing(live)
        ds = workloads.daemonset(live)
        if workloads.settled(ds):
            return ""
        labels = (ds.spec.selector.match_labels if ds.spec.selector else None) or {}
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        pods = self._kube.list(f"/api/v1/namespaces/{ds.namespace}/pods", Pod, {"labelSelector": selector})
        return workloads.unready(ds, pods, workloads.not_ready(self._kube.list("/api/v1/nodes", Node)))

    def _wait_until_gone(self, seen: Observed) -> None:
        deadline = clock.monotonic() + self.component.timeout
        objects = [change.live for change in seen.changes if change.live is not None]
        while left := [thing for thing in objects if self._objects.find(thing) is not None]:
            if clock.monotonic() > deadline:
                raise not_up(self.component, [helm_release.title(helm_release.key(t)) + " still exists" for t in left])
            clock.sleep(_POLL)

    def installers(self) -> tuple[list[DaemonSet], tuple[Pod, ...]]:
        """The installers' DaemonSets and pods as they are now."""
        return self._installers(), self._installer_pods()


def _daemonsets(objects: tuple[Object, ...]) -> tuple[DaemonSet, ...]:
    return tuple(workloads.daemonset(thing) for thing in objects if thing["kind"] == "DaemonSet")
