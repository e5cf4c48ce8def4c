"""What a cgpu-installer pod does when its container starts: it loads cGPU, unless a module is loaded already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sandbox.machines.containers import Container
from sandbox.machines.host import DEFAULT_POLICY, Host
from sandbox.machines.pods import image_version


class Installer:
    def __init__(self, host: Host, changed: Callable[[], None]) -> None:
        self._host, self._changed = host, changed
        self._tasks: set[asyncio.Task[None]] = set()

    def began(self, container: Container, spec: dict[str, Any]) -> None:
        """An installer's container started; its work takes a moment."""
        task = asyncio.get_running_loop().create_task(self._install(container, spec))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _install(self, container: Container, spec: dict[str, Any]) -> None:
        host = self._host
        await asyncio.sleep(host.timing.installer + host.slowness)
        if not container.running or not host.cards.gpu or host.cards.version:
            return
        version = image_version(container.image)
        if host.fault("module-does-not-load") is not None or not version:
            host.systemd.log("containerd.service", container.name, "modprobe: ERROR: could not insert 'cgpu_procfs'")
            host.runtime.stop(container, 1)
            return
        environment = {each["name"]: each.get("value", "") for each in spec.get("env") or []}
        host.policy = environment.get("POLICY") or DEFAULT_POLICY
        host.cards.install(version)
        if host.fault("uninstall-script-missing") is not None:
            host.cards.remove_script()
        host.cards.load(version, host.policy)
        self._changed()
