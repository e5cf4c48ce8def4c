"""A machine's side of the Kubernetes API: its kubelet, and what is said of a node whose kubelet is silent."""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from typing import Any

import aiohttp
import msgspec

from sandbox.machines import objects, resources, status
from sandbox.machines.api import Api, ApiError, pod_path
from sandbox.machines.containers import Container
from sandbox.machines.gpu_scheduler import GpuScheduler, is_over, waits
from sandbox.machines.host import Host
from sandbox.machines.installer import Installer
from sandbox.machines.pods import (
    EXIT_CODE,
    RUNS_FOR,
    STOPS_AFTER,
    Need,
    annotation,
    is_installer,
    need_of,
    plugin_of,
    seconds,
)

Object = dict[str, Any]
log = logging.getLogger("kubelet")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# A real kubelet renews every 10 s; nobody here asks for more than that the lease exists and lives.
LEASE_SECONDS, RENEW_EVERY = 120, 40.0
RETRY = 0.3
# A container that failed is started again after this many seconds (a kubelet's back-off begins at 10).
BACK_OFF = 2.0
# A connection to docker's socket, which the kubelet makes all the time, revives a docker that was stopped.
DOCKER_POLL = 0.3


class Kubelet:
    """Drives one machine towards what the API says, and tells the API how it is. `notice` wakes it."""

    def __init__(self, host: Host, node: Object, api: Api, scheduler: GpuScheduler, port: int) -> None:
        self.host, self.node = host, node
        self.pods: dict[str, Object] = {}
        self._api, self._scheduler, self._port = api, scheduler, port
        self._path = f"/api/v1/nodes/{host.machine.name}"
        self._awake = asyncio.Event()
        self._wake_at: float | None = None
        self._ready: status.Readiness | None = None
        self._since = ""
        self._told_node = b""
        self._told_pods: dict[str, bytes] = {}
        self._began: dict[str, float] = {}
        self._deleted: set[str] = set()
        self._advertised: dict[str, str] = {}
        self._boots = 0
        self._renewed = -RENEW_EVERY
        self._installer = Installer(host, self.notice)

    def notice(self) -> None:
        self._awake.set()

    def see_node(self, node: Object) -> None:
        """The API's newest Node; what a request of ours has brought already may come once more, and older."""
        if objects.version(node) >= objects.version(self.node):
            self.node = node
            self.notice()

    def see_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self.pods or objects.version(pod) > objects.version(self.pods[uid]):
            self.pods[uid] = pod
            self.notice()

    def forget(self, uid: str) -> None:
        """A pod is gone from the API."""
        self.pods.pop(uid, None)
        self._told_pods.pop(uid, None)
        self._began.pop(uid, None)
        self._deleted.discard(uid)
        self.notice()

    async def run(self) -> None:
        """For ever: act when woken, or when the time has come that the last round named."""
        loop = asyncio.get_running_loop()
        while True:
            self._awake.clear()
            self._wake_at = None
            try:
                await self._round()
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                log.warning("%s tries again: %s", self.host.machine.name, error)
                self._wake_in(RETRY)
            try:
                async with asyncio.timeout_at(self._wake_at):
                    await self._awake.wait()
            except TimeoutError:
                log.debug("%s woke at %s", self.host.machine.name, loop.time())

    def _wake_in(self, delay: float) -> None:
        at = asyncio.get_running_loop().time() + max(0.0, delay)
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)

    async def _round(self) -> None:
        host = self.host
        if host.kubelet_active and not host.runtime_active and host.machine.runtime_name == "docker":
            self._revive_docker()
        await self._tell_node()
        await self._scheduler.assign(self.node, self.pods)
        if not (host.kubelet_active and host.runtime_active):
            return
        self._remove_strangers()
        for pod in list(self.pods.values()):
            await self._sync_pod(pod)
        await self._renew_lease()
        # A plug-in may have come or gone with its pod.
        await self._tell_node()

    def _revive_docker(self) -> None:
        if (left := DOCKER_POLL - self.host.age(self.host.runtime_gone)) > 0:
            self._wake_in(left)
        else:
            self.host.revive_docker()

    # -- the node

    def _readiness(self) -> status.Readiness | None:
        """What the API has to show now; None while it goes on showing what it last heard."""
        host, now = self.host, asyncio.get_running_loop().time()
        if not host.on:
            left, then = host.lag_until - now, status.SILENT
        elif not host.kubelet_active:
            left, then = host.timing.not_ready_after - host.age(host.kubelet_gone), status.SILENT
        elif not host.runtime_active:
            left, then = host.timing.not_ready_after - host.age(host.runtime_gone), status.RUNTIME_DOWN
        else:
            return status.READY
        if left > 0:
            self._wake_in(left + 0.001)
            return None
        return then

    async def _tell_node(self) -> None:
        ready = self._readiness()
        if ready is None:
            return
        machine, now = self.host.machine, status.stamp(time.time())
        if ready != self._ready:
            self._since = now
        told: Object = {"conditions": ready.reason}
        report: Object = {}
        if ready is not status.SILENT:
            report = {
                "addresses": objects.addresses(machine),
                "nodeInfo": objects.node_info(machine, self.host.boot_id),
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
                **self._resources(),
            }
        digest = msgspec.json.encode(told | report)
        if digest == self._told_node:
            return
        report["conditions"] = status.node_conditions(ready, self._since, now)
        answer = await self._api.patch(f"{self._path}/status", {"status": report})
        if answer is not None:
            self.node = answer
        was, self._ready, self._told_node = self._ready, ready, digest
        if was is status.READY and ready is not status.READY:
            await self._mark_pods()

    async def _mark_pods(self) -> None:
        """The node controller takes readiness from the pods of a node that isn't Ready."""
        for pod in list(self.pods.values()):
            if not is_over(pod):
                gone = {"type": "Ready", "status": "False", "lastTransitionTime": status.stamp(time.time())}
                self._told_pods.pop(pod["metadata"]["uid"], None)
                await self._api.patch(pod_path(pod, "/status"), {"status": {"conditions": [gone]}})

    def _resources(self) -> Object:
        host = self.host
        capacity, allocatable = objects.base_resources(host.machine)
        if host.machine.gpu_count:
            if self._boots != host.boots:
                # After a boot the kubelet knows what there was, and advertises none of it before a plug-in comes.
                self._boots, self._advertised = host.boots, dict.fromkeys(self._advertised, "0")
            mode = (self.node["metadata"].get("labels") or {}).get(objects.SCHEDULE_LABEL, "")
            given = resources.advertised(
                mode, host.cards.count, host.machine.gpu_mem_gib, self._plugins(), self._advertised
            )
            self._advertised = given[0]
            capacity, allocatable = capacity | given[0], allocatable | given[1]
        return {"capacity": capacity, "allocatable": allocatable}

    def _plugins(self) -> set[str]:
        """The device plug-ins that have been running for long enough to be registered."""
        found = set()
        for pod in self.pods.values():
            if name := plugin_of(pod):
                for container in self.host.runtime.of_pod(pod["metadata"]["uid"]):
                    left = self.host.timing.plugin - (time.time() - container.created)
                    if container.running and left <= 0:
                        found.add(name)
                    elif container.running:
                        self._wake_in(left + 0.001)
        return found

    async def _renew_lease(self) -> None:
        now, name = asyncio.get_running_loop().time(), self.host.machine.name
        if now - self._renewed >= RENEW_EVERY:
            self._renewed = now
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": self.node["metadata"]["uid"]}
            moment = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment},
            }
            await self._api.apply(f"{LEASES}/{name}", lease)
        self._wake_in(RENEW_EVERY - (now - self._renewed))

    # -- pods

    def _remove_strangers(self) -> None:
        """Containers of pods that the API no longer knows are removed, also those that a boot left over."""
        for sandbox in list(self.host.runtime.sandboxes.values()):
            if sandbox.uid not in self.pods:
                self.host.runtime.remove_sandbox(sandbox)

    async def _sync_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._deleted:
            return
        if "deletionTimestamp" in pod["metadata"]:
            await self._end_pod(pod)
            return
        if is_over(pod) or waits(pod):
            return
        self._began.setdefault(uid, time.time())
        trouble = self._start_containers(pod)
        self._finish_programs(pod)
        await self._tell_pod(pod, trouble)

    async def _end_pod(self, pod: Object) -> None:
        """Stop the containers of a pod that is being deleted, and let go of it when they have ended."""
        meta, runtime = pod["metadata"], self.host.runtime
        sandbox = runtime.sandbox_of(meta["uid"])
        if sandbox is not None and any(one.running for one in runtime.of_pod(meta["uid"])):
            grace = float(meta.get("deletionGracePeriodSeconds") or 0)
            asked = self._began.setdefault(f"{meta['uid']}/end", time.time())
            left = asked + min(grace, seconds(annotation(pod, STOPS_AFTER), 0.0)) - time.time()
            if left > 0:
                self._wake_in(left)
                return
        self._began.pop(f"{meta['uid']}/end", None)
        for each in [one for one in runtime.sandboxes.values() if one.uid == meta["uid"]]:
            runtime.remove_sandbox(each)
        # A finalizer may keep the object; there is nothing more to do for it here.
        self._deleted.add(meta["uid"])
        await self._api.delete(pod_path(pod), meta["uid"])

    def _start_containers(self, pod: Object) -> dict[str, status.Trouble]:
        """Start what should run and doesn't; what can't be started has a trouble."""
        runtime, uid = self.host.runtime, pod["metadata"]["uid"]
        sandbox = runtime.sandbox_of(uid) or runtime.add_sandbox(pod)
        trouble = {}
        for index, spec in enumerate(pod["spec"]["containers"]):
            before = runtime.newest(uid, spec["name"])
            if before is not None and before.image != spec["image"]:
                runtime.stop(before)
            if before is not None and (before.running or self._stays_ended(pod, before)):
                continue
            need = self._need(pod, index, before)
            if isinstance(need, status.Trouble):
                trouble[spec["name"]] = need
                continue
            container = Container(
                sandbox,
                spec["name"],
                spec["image"],
                attempt=before.attempt + 1 if before else 0,
                cards=need.cards,
                isolated=need.isolated,
                holds=need.holds,
            )
            runtime.start(container)
            if is_installer(pod):
                self._installer.began(container, spec)
        return trouble

    def _stays_ended(self, pod: Object, container: Container) -> bool:
        policy = pod["spec"].get("restartPolicy", "Always")
        return policy == "Never" or (policy == "OnFailure" and container.exit_code == 0)

    def _need(self, pod: Object, index: int, before: Container | None) -> Need | status.Trouble:
        host = self.host
        if before is not None and before.exit_code == 1:
            left = BACK_OFF - (time.time() - before.finished)
            if left > 0:
                self._wake_in(left)
                return status.Trouble("CrashLoopBackOff", f"back-off restarting failed container {before.name}")
        mode = (self.node["metadata"].get("labels") or {}).get(objects.SCHEDULE_LABEL, "")
        need = need_of(pod, index, host.runtime, host.cards.count, mode, module=bool(host.cards.version))
        if isinstance(need, Need) and need.isolated and any(host.cards.is_full(card) for card in need.cards):
            return status.Trouble("RunContainerError", "Error occurs when creating cGPU instance: unknown")
        return need

    def _finish_programs(self, pod: Object) -> None:
        """The program of a pod that isn't to run for ever ends by itself."""
        if pod["spec"].get("restartPolicy", "Always") == "Always":
            return
        for container in self.host.runtime.of_pod(pod["metadata"]["uid"]):
            left = container.created + seconds(annotation(pod, RUNS_FOR), 1.0) - time.time()
            if container.running and left > 0:
                self._wake_in(left)
            elif container.running:
                self.host.runtime.stop(container, int(annotation(pod, EXIT_CODE) or 0))

    async def _tell_pod(self, pod: Object, trouble: dict[str, status.Trouble]) -> None:
        uid, machine = pod["metadata"]["uid"], self.host.machine
        containers = {one.name: one for one in self.host.runtime.of_pod(uid)}
        own = zlib.crc32(uid.encode())
        pod_ip = (
            machine.ip if pod["spec"].get("hostNetwork") else f"172.{20 + (own >> 16) % 8}.{own >> 8 & 255}.{own & 255}"
        )
        report = status.pod_status(pod, containers, trouble, host_ip=machine.ip, pod_ip=pod_ip, began=self._began[uid])
        digest = msgspec.json.encode(report)
        if digest != self._told_pods.get(uid):
            answer = await self._api.patch(pod_path(pod, "/status"), {"metadata": {"uid": uid}, "status": report})
            self._told_pods[uid] = digest
            if answer is not None and uid in self.pods:
                self.pods[uid] = answer
