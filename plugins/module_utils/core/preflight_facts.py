"""What preflight knows of a cluster and its machines: nodes that exist, and pools whose nodes do not exist yet.

Facts come from the Node object, from the CS API (cluster and node pools), and from the node itself. A fact that
nobody could tell is "" or None, never a guess: the rules answer "unknown".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud, compatibility, gpu_labels
from ansible_collections.ack.ai_suite.plugins.module_utils.core.cards import Cards, cards
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.quantity import whole
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node
from ansible_collections.ack.ai_suite.plugins.module_utils.core.versions import parse

# What is at stake with a machine's cards: "shared" by pods, "whole" by the operator's choice, "open" for no choice yet.
Stake = Literal["none", "shared", "whole", "open"]
_GPU_RESOURCES = (gpu_labels.GPU_WHOLE, gpu_labels.GPU_MEM, gpu_labels.GPU_COUNT, gpu_labels.GPU_TOPOLOGY)
_ECS_POOLS = ("", "ess", "managed")  # nodepool_info.type; the others are edge, hybrid and lingjun


class Answer(msgspec.Struct, frozen=True):
    """What a node's host said when it was asked, or why it could not be asked."""

    driver: str = ""
    cgpu: str = ""
    cpu_policy: str = ""
    centos: str = ""
    problem: str = ""


class Pool(msgspec.Struct, frozen=True):
    """A node pool, existing or specified. ``cpu_policy`` is "none" where the CS API leaves it out: its default."""

    name: str
    pool_id: str = ""
    kind: str = ""
    labels: dict[str, Any] = {}
    instance_types: tuple[str, ...] = ()
    image_type: str = ""
    cpu_policy: str = "none"
    runtime: str = ""
    runtime_version: str = ""


class Cluster(msgspec.Struct, frozen=True):
    """The cluster. ``pools`` is None when nobody told about them."""

    server_version: str = ""
    region_id: str = ""
    cluster_type: str = ""
    cluster_spec: str = ""
    pools: tuple[Pool, ...] | None = None


class Machine(msgspec.Struct, frozen=True):
    """One subject of the rules: a node, or what a pool's nodes will be."""

    subject: str
    exists: bool
    labels: dict[str, Any]
    stake: Stake = "none"
    isolated: bool = False
    region: str = ""
    ecs: bool | None = None
    provider: str = ""
    kubelet: str = ""
    runtime: str = ""
    os_image: str = ""
    kernel: str = ""
    image_type: str = ""
    instance_types: tuple[str, ...] = ()
    card: str = ""
    cards: Cards | None = None
    driver: str = ""  # as published or read on the node
    driver_requested: str = ""  # as the pool asks for; ACK falls back to its default when it does not know it
    cgpu: str = ""
    cpu_policy: str = ""
    centos: str = ""
    problem: str = ""  # why the node could not be asked
    pool: Pool | None = None


def pool(told: cloud.NodePool) -> Pool:
    """A pool that exists, as the CS API shows it."""
    scaling, kubernetes = told.scaling_group, told.kubernetes_config
    return Pool(
        name=told.name,
        pool_id=told.pool_id,
        kind=told.nodepool_info.type,
        labels=dict(told.labels),
        instance_types=scaling.instance_types,
        image_type=scaling.image_type,
        cpu_policy=_cpu_policy(kubernetes.cpu_policy, told.node_config),
        runtime=kubernetes.runtime,
        runtime_version=kubernetes.runtime_version,
    )


def specified(told: Mapping[str, Any], pools: Sequence[Pool] = ()) -> Pool:
    """A pool as the inventory specifies it; of one that exists already, what is left out stays as it is.

    Raises AckError (PRE-POOL) for a specification that cannot be read.
    """
    have = next((each for each in pools if each.name == told.get("name")), None)
    known = msgspec.structs.asdict(have) if have else {}
    known |= {name: told[name] for name in Pool.__struct_fields__ if told.get(name) is not None}
    try:
        wanted = msgspec.convert(known, Pool)
    except msgspec.ValidationError as problem:
        raise AckError(
            f"pool {told.get('name') or 'without a name'}", f"its specification cannot be read: {problem}.",
            "See the README of the role node_pool for what each key holds.", "PRE-POOL",
        ) from None  # fmt: skip
    gone = told.get("absent_labels") or ()
    labels = {**(have.labels if have else {}), **wanted.labels}
    return msgspec.structs.replace(wanted, labels={key: labels[key] for key in labels if key not in gone})


def _cpu_policy(said: str, node_config: Mapping[str, Any]) -> str:
    """The pool's two places for it; either of them is enough to make it static, and none is the API's default."""
    kubelet = node_config.get("kubelet_configuration")
    both = (said, kubelet.get("cpuManagerPolicy") if isinstance(kubelet, Mapping) else None)
    return "static" if "static" in both else (both[0] or both[1] or "none")


def planned(wanted: Pool, region: str) -> Machine:
    """What is known of the nodes that a pool will have; the rest is judged when they have joined."""
    labels = {key: value for key, value in wanted.labels.items() if isinstance(value, str)}
    has_gpu = gpu_labels.mode_of(labels) != "" or any(
        compatibility.is_gpu_family(compatibility.instance_family(kind)) for kind in wanted.instance_types
    )
    return Machine(
        subject=f"pool {wanted.name}",
        exists=False,
        labels=wanted.labels,
        stake=_stake(labels, has_gpu),
        isolated=gpu_labels.has_isolation(labels),
        region=region,
        ecs=wanted.kind in _ECS_POOLS,
        provider=f"pool type {wanted.kind or 'ess'}",
        runtime=f"{wanted.runtime}://{wanted.runtime_version}" if wanted.runtime and wanted.runtime_version else "",
        image_type=wanted.image_type,
        instance_types=wanted.instance_types,
        driver_requested=labels.get(gpu_labels.DRIVER_REQUESTED, ""),
        cpu_policy=wanted.cpu_policy,
        pool=wanted,
    )


def existing(node: Node, cluster: Cluster, pools: Mapping[str, Pool], answer: Answer) -> Machine:
    """What is known of a node; ``pools`` by id."""
    labels, info = node.labels, node.status.node_info
    of_pool = pools.get(labels.get(gpu_labels.POOL_ID, ""))
    kind = labels.get(gpu_labels.INSTANCE_TYPE, "")
    provider = node.spec.provider_id
    region = provider.removeprefix("alicloud://").partition(".")[0] if node.instance_id else ""
    return Machine(
        subject=f"node {node.name}",
        exists=True,
        labels=labels,
        stake=_stake(labels, has_gpu(node)),
        isolated=gpu_labels.has_isolation(labels),
        region=region or labels.get(gpu_labels.REGION, "") or cluster.region_id,
        ecs=bool(node.instance_id) if provider else None,
        provider=provider,
        kubelet=info.kubelet_version,
        runtime=info.container_runtime_version,
        os_image=info.os_image,
        kernel=info.kernel_version,
        image_type=of_pool.image_type if of_pool else "",
        instance_types=(kind,) if kind else (),
        card=labels.get(gpu_labels.CARD_MODEL, ""),
        cards=cards(node),
        driver=answer.driver or published_driver(labels),
        driver_requested=labels.get(gpu_labels.DRIVER_REQUESTED, ""),
        cgpu=answer.cgpu,
        cpu_policy=of_pool.cpu_policy if of_pool else answer.cpu_policy,
        centos=answer.centos,
        problem=answer.problem,
        pool=of_pool,
    )


def has_gpu(node: Node) -> bool:
    """Whether a node has NVIDIA cards, or says so: by its labels, its resources or its instance family."""
    labels = node.labels
    return (
        gpu_labels.mode_of(labels) != ""
        or gpu_labels.CARD_MODEL in labels
        or any(whole(node.capacity.get(resource)) > 0 for resource in _GPU_RESOURCES)
        or compatibility.is_gpu_family(compatibility.instance_family(labels.get(gpu_labels.INSTANCE_TYPE, "")))
    )


def must_be_asked(node: Node, pools: Mapping[str, Pool]) -> bool:
    """Whether only the node itself can say what the rules need: it shares cards, and nobody published these facts."""
    if not gpu_labels.shares_cards(node.labels):
        return False
    return not published_driver(node.labels) or node.labels.get(gpu_labels.POOL_ID, "") not in pools


def published_driver(labels: Mapping[str, str]) -> str:
    """The driver's version as NVIDIA's feature discovery publishes it in labels, or ""."""
    whole_version = labels.get("nvidia.com/cuda.driver-version.full", "")
    parts = [labels.get(f"nvidia.com/cuda.driver.{part}", "") for part in ("major", "minor", "rev")]
    return whole_version or (".".join(part for part in parts if part) if parts[0] else "")


def version(name: str, told: Any) -> str:
    """A version that somebody wrote, "" for none. Raises AckError (PRE-VERSION) for what YAML has bent or is none."""
    if told in (None, ""):
        return ""
    if not isinstance(told, str):
        raise AckError(
            name, f"{told!r} is a number.", f'Quote it: YAML reads 1.20 as 1.2, write "{told}".', "PRE-VERSION"
        )
    if parse(told) is None:
        raise AckError(name, f"{told!r} is no version.", 'Write it like "1.12.6".', "PRE-VERSION")
    return told


# The files that answer on a node's host. `head -v` prints a line `==> FILE <==` before each one that exists.
QUESTIONS = {
    "/proc/driver/nvidia/version": re.compile(r"NVRM version:.*?\s(\d+(?:\.\d+)+)\s"),
    "/proc/cgpu_km/version": re.compile(r"(\d+(?:\.\d+)+)"),
    "/var/lib/kubelet/cpu_manager_state": re.compile(r'"policyName"\s*:\s*"(\w+)"'),
    "/etc/centos-release": re.compile(r"release (\d+\.\d+)"),
}
QUESTION = ("head", "-v", "-c", "4096", *QUESTIONS)
_FIELDS = ("driver", "cgpu", "cpu_policy", "centos")


def answer(output: str) -> Answer:
    """What the host's files say, from the output of QUESTION; a file that is not there tells nothing."""
    told: dict[str, str] = {}
    for section in ("\n" + output).split("\n==> ")[1:]:
        path, _, text = section.partition(" <==")
        form = QUESTIONS.get(path)
        match = form.search(text + "\n") if form else None
        if match:
            told[_FIELDS[list(QUESTIONS).index(path)]] = match[1]
    return Answer(**told)


def _stake(labels: Mapping[str, str], has_cards: bool) -> Stake:
    if gpu_labels.shares_cards(labels):
        return "shared"
    if not has_cards:
        return "none"
    return "whole" if gpu_labels.mode_of(labels) in gpu_labels.MODES else "open"


def by_id(pools: Sequence[Pool] | None) -> dict[str, Pool]:
    """Pools by their id."""
    return {known.pool_id: known for known in pools or () if known.pool_id}
