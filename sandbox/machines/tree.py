"""The files of a machine: what a freshly installed ACK node of its kind has, as far as anybody looks at it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sandbox.machines.instances import IMAGES
from sandbox.machines.objects import Machine

FOLDERS = (
    "boot", "dev", "etc/containerd", "etc/systemd/system", "home", "mnt", "opt", "proc/sys/kernel/random", "root",
    "run", "srv", "sys", "tmp", "usr/local/bin", "usr/local/lib", "usr/local/sbin", "usr/local/share",
    "var/lib/kubelet", "var/log", "var/tmp",
)  # fmt: skip
_CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "{runtime}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{runtime}.options]
  BinaryName = "{binary}"
  SystemdCgroup = true
"""


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it; it is never seen half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.rename(path)


def build(root: Path, machine: Machine, boot_id: str) -> None:
    """Make the tree of a machine below `root`; files that stand there already are written anew."""
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, text in files(machine).items():
        write(root / path, text)
    write_boot(root, boot_id)
    for name, target in {"self": "self", "mounts": "self/mounts", "filesystems": "filesystems"}.items():
        link(root / "proc" / name, f"/.sandbox/proc/{target}")
    for name, target in {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        link(root / "dev" / name, f"/proc/self/{target}")
    link(root / "var/run", "../run")


def link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def files(machine: Machine) -> Mapping[str, str]:
    """Path below the root, and content."""
    image = IMAGES.get(machine.image_type, IMAGES["AliyunLinux3"])
    os_release = {"NAME": machine.os_image, "ID": image.release_id, "VERSION_ID": image.release_version}
    found = {
        "etc/hostname": f"{machine.name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n{machine.ip} {machine.name}\n",
        "etc/os-release": "".join(f'{key}="{value}"\n' for key, value in os_release.items()),
        "etc/passwd": "root:x:0:0:root:/root:/bin/bash\n",
        "etc/group": "root:x:0:\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "etc/machine-id": f"{machine.instance_id}\n",
        "proc/version": f"Linux version {machine.kernel} (mockbuild@example.test) (gcc) #1 SMP\n",
        "proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz ro\n",
        "proc/sys/kernel/osrelease": f"{machine.kernel}\n",
        "var/lib/kubelet/cpu_manager_state": json.dumps(
            {"policyName": machine.cpu_policy, "defaultCpuSet": "", "checksum": 0}
        ),
    }
    nvidia = {"runtime": "nvidia", "binary": "nvidia-container-runtime"}
    found["etc/containerd/config.toml"] = _CONTAINERD.format(
        **(nvidia if machine.gpu_count else {"runtime": "runc", "binary": "runc"})
    )
    if machine.runtime_name == "docker":
        # ACK keeps containers alive over a restart of dockerd.
        daemon: dict[str, object] = {"live-restore": True, "exec-opts": ["native.cgroupdriver=systemd"]}
        if machine.gpu_count:
            daemon |= {"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
        found["etc/docker/daemon.json"] = json.dumps(daemon, indent=1) + "\n"
    return found


def write_boot(root: Path, boot_id: str) -> None:
    """What changes with each boot."""
    write(root / "proc/sys/kernel/random/boot_id", f"{boot_id}\n")
