"""All machines of a sandbox: they come and go with their Node objects, and hear of their pods."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sandbox.machines.api import Api
from sandbox.machines.gpu_scheduler import GpuScheduler
from sandbox.machines.host import Host
from sandbox.machines.kubelet import Kubelet
from sandbox.machines.objects import machine_of
from sandbox.machines.power import requests_folder, take_requests
from sandbox.machines.processes import Processes
from sandbox.pools import Timing

Object = dict[str, Any]
log = logging.getLogger("room")
# How often requests, and faults that nobody's command has met yet, are looked for, in seconds.
OBEY_EVERY, LOOK_EVERY = 0.1, 1.0


class Room:
    def __init__(self, api: Api, nodes_root: Path, processes: Processes, timing: Timing, kubelet_port: int) -> None:
        self.kubelets: dict[str, Kubelet] = {}
        self._api, self._nodes_root, self._processes = api, nodes_root, processes
        self._timing, self._port = timing, kubelet_port
        self._scheduler = GpuScheduler(api)
        requests_folder(nodes_root).mkdir(parents=True, exist_ok=True)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pods: dict[str, Object] = {}
        self.listed = asyncio.Event()

    def host(self, node: str) -> Host | None:
        kubelet = self.kubelets.get(node)
        return kubelet.host if kubelet else None

    def pod(self, namespace: str, name: str) -> Object | None:
        """A pod on one of the machines, by its name."""
        for pod in self._pods.values():
            if pod["metadata"]["name"] == name and pod["metadata"]["namespace"] == namespace:
                return pod
        return None

    def pod_by_uid(self, uid: str) -> Object | None:
        return self._pods.get(uid)

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_nodes())
            group.create_task(self._watch_pods())
            group.create_task(self._obey())
            group.create_task(self._look_at_faults())

    async def _obey(self) -> None:
        """Take the requests that come by file. (A folder's time of change is too coarse to tell that one came.)"""
        while True:
            for request in take_requests(self._nodes_root):
                if host := self.host(request.node):
                    host.restart(request.source, force=request.force)
            await asyncio.sleep(OBEY_EVERY)

    async def _look_at_faults(self) -> None:
        while True:
            for kubelet in self.kubelets.values():
                kubelet.host.look_at_faults()
            await asyncio.sleep(LOOK_EVERY)

    # -- nodes

    async def _watch_nodes(self) -> None:
        async for kind, found in self._api.watch("/api/v1/nodes"):
            if kind == "ALL":
                for node in found:
                    await self._see_node(node)
                for name in set(self.kubelets) - {node["metadata"]["name"] for node in found}:
                    await self._remove(name)
                self.listed.set()
            elif kind == "DELETED":
                await self._remove(found["metadata"]["name"])
            else:
                await self._see_node(found)

    async def _see_node(self, node: Object) -> None:
        name = node["metadata"]["name"]
        if name in self.kubelets:
            if self.kubelets[name].node["metadata"]["uid"] == node["metadata"]["uid"]:
                self.kubelets[name].see_node(node)
                return
            # Deleted and made anew while the watch was interrupted.
            await self._remove(name)
        machine = machine_of(node)
        if machine is None:
            return
        log.info("%s joins", name)

        def wake() -> None:
            self.kubelets[name].notice()

        host = Host(machine, self._nodes_root, self._processes, self._timing, wake)
        kubelet = self.kubelets[name] = Kubelet(host, node, self._api, self._scheduler, self._port)
        for pod in self._pods.values():
            if pod["spec"]["nodeName"] == name:
                kubelet.see_pod(pod)
        host.power_on()
        self._tasks[name] = asyncio.get_running_loop().create_task(kubelet.run())

    async def _remove(self, name: str) -> None:
        kubelet = self.kubelets.pop(name, None)
        if kubelet is None:
            return
        log.info("%s is gone", name)
        self._tasks.pop(name).cancel()
        kubelet.host.remove()
        await asyncio.to_thread(shutil.rmtree, kubelet.host.folder, ignore_errors=True)

    # -- pods

    async def _watch_pods(self) -> None:
        async for kind, found in self._bound_pods():
            if kind == "ALL":
                gone = set(self._pods) - {pod["metadata"]["uid"] for pod in found}
                for uid in gone:
                    self._forget_pod(self._pods[uid])
                for pod in found:
                    self._see_pod(pod)
            elif kind == "DELETED":
                self._forget_pod(found)
            else:
                self._see_pod(found)

    def _bound_pods(self) -> AsyncIterator[tuple[str, Any]]:
        return self._api.watch("/api/v1/pods", fieldSelector="spec.nodeName!=")

    def _see_pod(self, pod: Object) -> None:
        self._pods[pod["metadata"]["uid"]] = pod
        kubelet = self.kubelets.get(pod["spec"]["nodeName"])
        if kubelet:
            kubelet.see_pod(pod)

    def _forget_pod(self, pod: Object) -> None:
        self._pods.pop(pod["metadata"]["uid"], None)
        kubelet = self.kubelets.get(pod["spec"]["nodeName"])
        if kubelet:
            kubelet.forget(pod["metadata"]["uid"])
