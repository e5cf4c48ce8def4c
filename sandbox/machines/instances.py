"""What an ECS instance type and an image type bring along: data, from Alibaba Cloud's public instance-family pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A card: model and memory in MiB as nvidia-smi prints them, memory in GiB as the device plug-in counts it."""

    model: str
    memory_mib: int
    memory_gib: int


@dataclass(frozen=True)
class InstanceType:
    cpu: int
    memory_gib: int
    gpu: Gpu | None = None
    gpu_count: int = 0


@dataclass(frozen=True)
class Image:
    os_image: str
    kernel: str
    release_id: str
    release_version: str


P100 = Gpu("Tesla P100-PCIE-16GB", 16276, 16)
V100 = Gpu("Tesla V100-SXM2-16GB", 16160, 16)
V100_32 = Gpu("Tesla V100-SXM2-32GB", 32510, 32)
T4 = Gpu("Tesla T4", 15109, 15)
A10 = Gpu("NVIDIA A10", 22731, 22)
A100 = Gpu("NVIDIA A100-SXM4-80GB", 81251, 80)
L20 = Gpu("NVIDIA L20", 46068, 45)

INSTANCE_TYPES = {
    "ecs.g7.xlarge": InstanceType(4, 16),
    "ecs.g7.2xlarge": InstanceType(8, 32),
    "ecs.c7.xlarge": InstanceType(4, 8),
    "ecs.gn5-c4g1.xlarge": InstanceType(4, 30, P100, 1),
    "ecs.gn6v-c8g1.2xlarge": InstanceType(8, 32, V100, 1),
    "ecs.gn6v-c8g1.8xlarge": InstanceType(32, 128, V100, 4),
    "ecs.gn6e-c12g1.3xlarge": InstanceType(12, 92, V100_32, 1),
    "ecs.gn6i-c4g1.xlarge": InstanceType(4, 15, T4, 1),
    "ecs.gn6i-c8g1.2xlarge": InstanceType(8, 31, T4, 1),
    "ecs.gn6i-c24g1.12xlarge": InstanceType(48, 186, T4, 2),
    "ecs.gn6i-c24g1.24xlarge": InstanceType(96, 372, T4, 4),
    "ecs.gn7i-c8g1.2xlarge": InstanceType(8, 30, A10, 1),
    "ecs.gn7i-c32g1.16xlarge": InstanceType(64, 376, A10, 2),
    "ecs.gn7i-c32g1.32xlarge": InstanceType(128, 752, A10, 4),
    "ecs.gn7e-c16g1.4xlarge": InstanceType(16, 125, A100, 1),
    "ecs.ebmgn7e.32xlarge": InstanceType(128, 1024, A100, 8),
    "ecs.ebmgn8is.32xlarge": InstanceType(128, 1024, L20, 8),
}
UNKNOWN_TYPE = InstanceType(4, 16)
# Families whose cards hang on an NVSwitch: nvidia-fabricmanager runs there.
FABRIC_FAMILIES = ("ebmgn7e", "ebmgn7", "ebmgn8v")

_ALINUX3 = "Alibaba Cloud Linux 3.2104 U11 (OpenAnolis Edition)"
IMAGES = {
    "AliyunLinux3": Image(_ALINUX3, "5.10.134-18.al8.x86_64", "alinux", "3"),
    "AliyunLinux3ContainerOptimized": Image(_ALINUX3, "5.10.134-18.al8.x86_64", "alinux", "3"),
    "AliyunLinux": Image(
        "Alibaba Cloud Linux (Aliyun Linux) 2.1903 LTS (Hunting Beagle)", "4.19.91-28.2.al7.x86_64", "alinux", "2.1903"
    ),
    "CentOS": Image("CentOS Linux 7 (Core)", "3.10.0-1160.119.1.el7.x86_64", "centos", "7"),
    "Ubuntu": Image("Ubuntu 22.04.4 LTS", "5.15.0-113-generic", "ubuntu", "22.04"),
    "ContainerOS": Image("ContainerOS 3.5.0", "5.10.134-17.3.al8.x86_64", "lifsea", "3.5.0"),
}
# ACK's default driver for Kubernetes 1.28 and newer; a pool's label may name another.
DEFAULT_DRIVER = "535.161.07"
DRIVER_LABEL = "ack.aliyun.com/nvidia-driver-version"


def instance_type(name: str) -> InstanceType:
    """What is known of a type; an unlisted one is a small instance without a GPU."""
    return INSTANCE_TYPES.get(name, UNKNOWN_TYPE)


def family(name: str) -> str:
    """The family in a type's name: `ecs.gn6i-c4g1.xlarge` is of `gn6i`."""
    return name.removeprefix("ecs.").split(".")[0].split("-")[0]


def gpu_of(model: str) -> Gpu | None:
    """The card of a model name, or None."""
    cards = (kind.gpu for kind in INSTANCE_TYPES.values() if kind.gpu)
    return next((gpu for gpu in cards if gpu.model == model), None)
