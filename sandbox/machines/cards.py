"""The GPU cards of a machine and the cGPU kernel module: what /proc, /dev and the module tools show of them."""

from __future__ import annotations

import shutil
from pathlib import Path

from sandbox.machines.containers import Container, Runtime
from sandbox.machines.instances import Gpu, gpu_of
from sandbox.machines.objects import Machine
from sandbox.machines.tree import write

INSTALL_FOLDER = "usr/local/cgpu-installer"
UNINSTALL = f"{INSTALL_FOLDER}/uninstall.sh"
# One card takes this many instances (docs: manage the GPU sharing component).
MAX_INSTANCES = 20
UNINSTALL_SCRIPT = """#!/bin/bash
# Removes cGPU from this node; restart the node afterwards.
# The sandbox's stand-in for the script of ACK's cgpu-installer, after the public upgrade.sh of cGPU (dualvtable/cgpu).
if [ ! -e /proc/cgpu_km/version ]; then
    echo "cgpu is not loaded"
    exit 0
fi
for instance in /proc/cgpu_km/[0-9]*/*/; do
    if [ -d "$instance" ]; then
        echo "docker is running, upgrade fail!"
        exit 1
    fi
done
rmmod cgpu_km || exit 1
rm -rf /usr/local/cgpu-installer/modules
depmod
echo "uninstall cgpu success"
"""


class Cards:
    """The cards, and the module (`version`, `policy`) that is loaded now: "" when none is."""

    def __init__(self, machine: Machine, tree: Path, runtime: Runtime) -> None:
        self._machine, self._tree, self._runtime = machine, tree, runtime
        self.gpu: Gpu | None = gpu_of(machine.gpu_model)
        self.lost = 0
        self.version = ""
        self.policy = ""

    @property
    def count(self) -> int:
        """How many cards the machine has now."""
        return max(0, self._machine.gpu_count - self.lost)

    @property
    def installed_version(self) -> str:
        """The version of the module files on the disk."""
        path = self._tree / INSTALL_FOLDER / "modules" / self._machine.kernel / "version"
        return path.read_text().strip() if path.exists() else ""

    def install(self, version: str) -> None:
        """What an installer pod puts on the disk."""
        modules = self._tree / INSTALL_FOLDER / "modules" / self._machine.kernel
        write(modules / "version", f"{version}\n")
        write(modules / "cgpu_km.ko", f"cgpu_km {version}\n")
        write(modules / "cgpu_procfs.ko", f"cgpu_procfs {version}\n")
        self.write_script()

    def write_script(self) -> None:
        write(self._tree / UNINSTALL, UNINSTALL_SCRIPT)
        (self._tree / UNINSTALL).chmod(0o755)

    def remove_script(self) -> None:
        (self._tree / UNINSTALL).unlink(missing_ok=True)

    def load(self, version: str, policy: str) -> None:
        """Load the module; one that is loaded stays what it is."""
        if not self.version:
            self.version, self.policy = version, policy
            self.show()

    def unload(self) -> None:
        self.version = self.policy = ""
        self.show()

    def show(self) -> None:
        """Bring /proc and /dev up to date."""
        if not self.gpu:
            return
        for index in range(self._machine.gpu_count):
            device = self._tree / f"dev/nvidia{index}"
            device.touch() if index < self.count else device.unlink(missing_ok=True)
        for name in ("nvidiactl", "nvidia-uvm"):
            (self._tree / "dev" / name).touch()
        kernel = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {self._machine.driver}  Sat Feb 17 22:55:48 UTC 2024"
        write(self._tree / "proc/driver/nvidia/version", f"{kernel}\nGCC version:  gcc version 10.2.1 (GCC)\n")
        write(self._tree / "proc/modules", "".join(f"{line}\n" for line in self._module_lines()))
        self._show_module()

    def _show_module(self) -> None:
        folder = self._tree / "proc/cgpu_km"
        if not self.version:
            shutil.rmtree(folder, ignore_errors=True)
            return
        for index in range(self.count):
            wanted = {each.id[:12]: each for each in self.instances(index)}
            place = folder / str(index)
            place.mkdir(parents=True, exist_ok=True)
            write(place / "max_inst", f"{MAX_INSTANCES}\n")
            write(place / "policy", f"{self.policy}\n")
            for stale in [each for each in place.iterdir() if each.is_dir() and each.name not in wanted]:
                shutil.rmtree(stale)
            for number, (name, container) in enumerate(wanted.items()):
                write(place / name / "id", f"{number}\n")
                write(place / name / "memsize", f"{container.cards[index] << 30}\n")
        write(folder / "version", f"{self.version}\n")

    def instances(self, index: int) -> list[Container]:
        """The containers that have an instance of cGPU on a card."""
        return [each for each in self._runtime.running() if each.isolated and index in each.cards]

    def is_full(self, index: int) -> bool:
        """True when a card takes no further instance."""
        return len(self.instances(index)) >= MAX_INSTANCES

    def holders(self, device: str) -> list[Container]:
        """The containers that keep a device file open: `nvidia0`, `nvidiactl`, ..."""
        index = int(device.removeprefix("nvidia")) if device.removeprefix("nvidia").isdigit() else None
        using = [each for each in self._runtime.running() if each.devices]
        return [each for each in using if index is None or index in each.devices]

    def modules(self) -> dict[str, tuple[int, int, str]]:
        """Loaded modules: name, and size, how often used, by whom."""
        if not self.gpu:
            return {}
        users = len(self.holders("nvidiactl"))
        found = {"nvidia_uvm": (1540096, users, ""), "nvidia": (56717312, users + 1, "nvidia_uvm")}
        if self.version:
            found = {"cgpu_km": (98304, users, ""), "cgpu_procfs": (16384, 1, "cgpu_km"), **found}
        return found

    def _module_lines(self) -> list[str]:
        return [
            f"{name} {size} {used} {by + ',' if by else '-'} Live 0x0000000000000000 (OE)"
            for name, (size, used, by) in self.modules().items()
        ]
