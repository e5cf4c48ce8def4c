"""What ACK's GPU sharing runs on: the tables of the documents, as data, and how to look something up in them.

An operator can replace or extend a table from the inventory (``tables``), because the documents change and some of
them could not be read whole. Sources, named in each rule: "Manage the GPU sharing component" (limits, regions,
compatibility), "cGPU FAQ", "Labels used by ACK to control GPUs", Alibaba Cloud's instance-family pages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.versions import Version, at_least, parse

# ack-ai-installer from this version on -> the oldest Kubernetes that it supports; "0" stands for all older ones.
_KUBERNETES = {"0": "1.18.8", "1.12.0": "1.20"}
_RUNTIMES = {"docker": "19.03.5", "containerd": "1.4.3"}
# Cards of families that the cGPU matrix does not list, for node pools whose nodes do not exist yet.
_FAMILY_CARDS = {"gn4": "M40", "gn5": "P100", "gn5i": "P4", "ebmgn5": "P100", "ebmgn5i": "P4", "gn7s": "A30"}


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables, with what the documents say as default."""

    kubernetes: dict[str, str] = msgspec.field(default_factory=lambda: dict(_KUBERNETES))
    driver: str = "418.87.01"
    runtimes: dict[str, str] = msgspec.field(default_factory=lambda: dict(_RUNTIMES))
    # Operating systems by family and leading part of the version.
    systems: tuple[str, ...] = ("alinux 3", "alinux 2", "centos 7.6", "centos 7.7", "centos 7.9", "ubuntu 22.04")
    # The container-optimized edition of Alibaba Cloud Linux 3 (image type AliyunLinux3ContainerOptimized).
    optimized_installer: str = "1.12.6"
    series: tuple[str, ...] = ("P", "T", "V", "A", "H")
    # Instance families of the cGPU matrix of the FAQ: a family that is listed here wins over its card's letter.
    families: tuple[str, ...] = (
        "gn6i", "gn6e", "gn6v", "gn6t", "ebmgn6i", "ebmgn6t", "ebmgn6e",
        "gn7i", "gn7", "gn7e", "ebmgn7i", "ebmgn7e",
        "gn8t", "ebmgn8t", "gn8is", "gn8v", "ebmgn8is", "ebmgn8v", "gn8ia", "ebmgn8ia", "ebmgn9t",
    )  # fmt: skip
    family_cards: dict[str, str] = msgspec.field(default_factory=lambda: dict(_FAMILY_CARDS))
    isolation_regions: tuple[str, ...] = (
        "cn-beijing", "cn-shanghai", "cn-hangzhou", "cn-zhangjiakou", "cn-wulanchabu", "cn-shenzhen", "cn-chengdu",
        "cn-heyuan", "cn-hongkong", "ap-northeast-1", "ap-southeast-5", "ap-southeast-1", "us-east-1", "us-west-1",
        "eu-central-1",
    )  # fmt: skip


def tables(replaced: Mapping[str, Any] | None = None, extended: Mapping[str, Any] | None = None) -> Tables:
    """The documents' tables with an operator's changes: a table is replaced, or entries are added to it.

    Raises AckError (PRE-TABLES) for a table that does not exist, or a value of the wrong type.
    """
    merged: dict[str, Any] = msgspec.to_builtins(Tables())
    try:
        merged.update(replaced or {})
        for name, more in (extended or {}).items():
            merged[name] = _joined(merged[name], more)
        changed = msgspec.convert(merged, Tables)
    except (msgspec.ValidationError, KeyError, TypeError) as problem:
        told = f"there is no table {problem}" if isinstance(problem, KeyError) else str(problem)
        raise AckError(
            "preflight_tables", f"{told}.", f"The tables are {', '.join(Tables.__struct_fields__)}.", "PRE-TABLES"
        ) from None
    return _checked(changed)


def _joined(table: Any, more: Any) -> Any:
    if isinstance(table, dict) and isinstance(more, Mapping):
        return {**table, **more}
    if isinstance(table, list | tuple) and isinstance(more, list | tuple):
        return [*table, *more]
    raise TypeError(f"{more!r} cannot be added to {table!r}")


def _checked(changed: Tables) -> Tables:
    """Every version in the tables can be compared: a minimum that is none would let everything pass or nothing."""
    minimums = {"driver": changed.driver, "optimized_installer": changed.optimized_installer}
    minimums |= {f"kubernetes[{since}]": version for since, version in changed.kubernetes.items()}
    minimums |= {f"kubernetes key {since}": since for since in changed.kubernetes}
    minimums |= {f"runtimes[{name}]": version for name, version in changed.runtimes.items()}
    for name, version in minimums.items():
        if parse(version) is None:
            raise AckError(
                "preflight_tables", f"{name} is {version!r}, which is no version.", "Correct it.", "PRE-TABLES"
            )
    return changed


def kubernetes_minimum(known: Tables, installer: str) -> tuple[str, ...]:
    """The oldest Kubernetes that this ack-ai-installer supports; several candidates when its version is not known."""
    rows = sorted(known.kubernetes.items(), key=lambda row: _version(row[0]))
    if parse(installer) is None:
        return tuple(minimum for _, minimum in rows)
    return tuple(minimum for since, minimum in rows if at_least(installer, since))[-1:]


def _version(text: str) -> Version:
    found = parse(text)
    if found is None:
        raise ValueError(f"{text!r} is no version")  # tables() has refused such an entry
    return found


class System(msgspec.Struct, frozen=True):
    """An operating system: its family, and as much of its version as can be told ("" for none)."""

    family: str
    version: str


OPTIMIZED_IMAGE = "AliyunLinux3ContainerOptimized"
# What the CS API's image types are; one that is not here is judged when its nodes have joined.
IMAGE_TYPES: Mapping[str, System] = {
    "AliyunLinux3": System("alinux", "3"),
    OPTIMIZED_IMAGE: System("alinux", "3"),
    "AliyunLinux3Security": System("alinux", "3"),
    "AliyunLinux": System("alinux", "2"),
    "AliyunLinuxUEFI": System("alinux", "2"),
    "Ubuntu": System("ubuntu", "22.04"),
    "ContainerOS": System("containeros", ""),
}
_FAMILIES = {
    "alibaba cloud linux": "alinux",
    "aliyun linux": "alinux",
    "centos": "centos",
    "ubuntu": "ubuntu",
    "containeros": "containeros",
    "lifsea": "containeros",
}
_OS_FORM = re.compile(r"\s*([A-Za-z][^0-9]*?)\s*(\d+(?:\.\d+)*)")
_OPTIMIZED_NAME = re.compile(r"container[ -]?optimi[sz]ed", re.IGNORECASE)
# CentOS puts only its major version on the node; each minor shipped one kernel build (release notes of CentOS 7).
_CENTOS_KERNEL = re.compile(r"3\.10\.0-(\d+)(?:\.\d+)*\.el7(?:\.centos(?:\.plus)?)?\.x86_64")
_CENTOS_MINORS = {
    "123": "7.0", "229": "7.1", "327": "7.2", "514": "7.3", "693": "7.4",
    "862": "7.5", "957": "7.6", "1062": "7.7", "1127": "7.8", "1160": "7.9",
}  # fmt: skip


def system(os_image: str, kernel: str = "") -> System | None:
    """What ``nodeInfo.osImage`` names, or None when it names nothing; CentOS 7's minor comes from the stock kernel."""
    match = _OS_FORM.match(os_image)
    if match is None:
        return None
    name, version = match[1].lower(), match[2]
    family = next((family for start, family in _FAMILIES.items() if name.startswith(start)), name.strip(" ("))
    if family == "centos" and version == "7":
        build = _CENTOS_KERNEL.fullmatch(kernel)
        version = _CENTOS_MINORS.get(build[1], "7") if build else "7"
    return System(family, version)


def is_optimized(os_image: str) -> bool:
    """Whether the name of an operating system says that it is the container-optimized edition."""
    return _OPTIMIZED_NAME.search(os_image) is not None


def supports_system(known: Tables, found: System) -> bool:
    """Whether family and version are in the list; ``alinux 3`` matches 3.2104 and ``ubuntu 22.04`` matches 22.04.4."""
    have = found.version.split(".")
    for entry in known.systems:
        family, _, version = entry.partition(" ")
        wanted = version.split(".")
        if family == found.family and have[: len(wanted)] == wanted:
            return True
    return False


_VENDOR_WORDS = {"NVIDIA", "TESLA", "GRID", "QUADRO", "GEFORCE", "RTX", "GTX"}
_MODEL = re.compile(r"([A-Z]+)\d")


def card_series(model: str) -> str:
    """The letters of a card's series (``Tesla-V100-SXM2-32GB`` is V, ``NVIDIA-L20`` is L), or "" for none."""
    for word in re.split(r"[-\s]+", model.upper()):
        if word and word not in _VENDOR_WORDS:
            match = _MODEL.match(word)
            return match[1] if match else ""
    return ""


def instance_family(instance_type: str) -> str:
    """``ecs.gn6i-c4g1.xlarge`` is of family ``gn6i``; "" for what is no instance type."""
    head, dot, rest = instance_type.partition(".")
    return rest.partition(".")[0].partition("-")[0] if dot and head == "ecs" else ""


_GPU_FAMILY = re.compile(r"(ebm|s?v|s)?gn\d")


def is_gpu_family(family: str) -> bool:
    """Whether instances of this family have NVIDIA cards (gn..., ebmgn..., vgn..., sgn...)."""
    return _GPU_FAMILY.match(family) is not None


_RUNTIME = re.compile(r"([A-Za-z][\w.-]*)://(.*)", re.DOTALL)


def runtime(found: str) -> tuple[str, str]:
    """Name and version of ``nodeInfo.containerRuntimeVersion``; ("", "") when there is nothing to read."""
    match = _RUNTIME.fullmatch(found.strip())
    return (match[1], match[2]) if match else ("", "")
