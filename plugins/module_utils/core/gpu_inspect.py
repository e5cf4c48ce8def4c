"""Where GPU memory went: per card what a node has and what its pods hold, as ``kubectl inspect cgpu`` counts it.

A pod's place is what ACK's scheduler wrote: the annotation ``scheduler.framework.gpushare.allocation`` (JSON: container
-> card -> memory), else the older ``ALIYUN_COM_GPU_MEM_IDX`` (all of it on one card), else it is pending. Finished pods
hold nothing; terminating ones still do. Init containers are not counted: the ledger of the scheduler leaves them out.
One pass over nodes and one over pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_labels
from ansible_collections.ack.ai_suite.plugins.module_utils.core.cards import Cards, Unit, cards
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding, Severity
from ansible_collections.ack.ai_suite.plugins.module_utils.core.quantity import whole
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Pod

ALLOCATION = "scheduler.framework.gpushare.allocation"
CORE_ALLOCATION = "gpushare.alibabacloud.com/core-percentage"
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
SOURCE = "gpushare-device-plugin: cmd/inspect"


class Card(msgspec.Struct, frozen=True):
    """One card. ``total`` is None when the number of cards is not known; ``core`` is computing power in percent."""

    index: int
    allocated: int
    total: int | None
    core: int
    pods: int


class PodShare(msgspec.Struct, frozen=True):
    """What one pod holds: memory by card, memory on no known card, computing power by card in percent."""

    namespace: str
    name: str
    cards: dict[int, int]
    pending: int = 0
    core: dict[int, int] = {}


class NodeUsage(msgspec.Struct, frozen=True):
    """One node. Memory is in ``unit``; ``pending`` is memory of pods on no card, or on one that the node lacks."""

    name: str
    address: str
    mode: str
    unit: Unit
    total: int
    allocated: int
    pending: int
    has_pending: bool
    cards: tuple[Card, ...]
    pods: tuple[PodShare, ...]


class Sum(msgspec.Struct, frozen=True):
    """The cluster's memory in one unit; sums never mix units."""

    unit: Unit
    allocated: int
    total: int
    percent: int


class Usage(msgspec.Struct, frozen=True):
    """What the table shows, and what is odd about it."""

    nodes: tuple[NodeUsage, ...]
    cluster: tuple[Sum, ...]
    findings: tuple[Finding, ...]


def usage(nodes: Iterable[Node], pods: Iterable[Pod], only: Collection[str] = ()) -> Usage:
    """Sum up. ``only`` are names of the nodes to show; all that share cards by default.

    Raises AckError (GPU-NO-NODE) for a name that no node has.
    """
    found: list[Finding] = []
    ledgers: dict[str, _Ledger] = {}
    for node in nodes:
        if not only or node.name in only:
            ledgers[node.name] = _Ledger(node, cards(node), found)
    missing = sorted(set(only) - set(ledgers))
    if missing:
        raise AckError(f"node {missing[0]}", "it does not exist.", "See kubectl get nodes.", "GPU-NO-NODE")
    for pod in pods:
        ledger = ledgers.get(pod.spec.node_name)
        if ledger is not None and not pod.finished:
            ledger.add(pod)
    counted = sorted((ledger.usage() for ledger in ledgers.values()), key=lambda node: node.name)
    shown = tuple(node for node in counted if node.total)
    found.extend(_not_advertised(node) for node in counted if not node.total and node.pods)
    sums = tuple(_sum(unit, shown) for unit in _units(shown))
    found.extend(_of_cluster(shown))
    return Usage(shown, sums, tuple(sorted(found, key=lambda finding: (finding.subject, finding.code))))


class _Ledger:
    """A node while its pods are being counted."""

    def __init__(self, node: Node, its: Cards, found: list[Finding]) -> None:
        self._node = node
        self._cards = its
        self._found = found
        self._shares: list[PodShare] = []
        found.extend(_of_node(node, its))

    def add(self, pod: Pod) -> None:
        limit = _limit(pod)
        if limit <= 0:
            return
        placed = self._place(pod, limit)
        known = {card: memory for card, memory in placed.items() if 0 <= card < self._cards.count}
        lost = sum(memory for card, memory in placed.items() if card not in known)
        missing = sorted(card for card in placed if card >= self._cards.count)
        if missing and self._cards.total:
            self._tell(
                pod,
                "GPU-NO-SUCH-CARD",
                f"card {missing[0]}",
                f"a card from 0 to {self._cards.count - 1}",
                "It is counted as pending. The ledger is of another time: recreate the pod.",
            )
        self._shares.append(PodShare(pod.namespace, pod.name, known, lost, _core(pod)))

    def _place(self, pod: Pod, limit: int) -> dict[int, int]:
        """Memory by card; card -1 stands for none yet."""
        annotations = pod.annotations
        written = annotations.get(ALLOCATION)
        if written is not None:
            placed = by_card(written)
            if placed:
                if sum(placed.values()) != limit:
                    self._tell(
                        pod,
                        "GPU-LEDGER",
                        f"{sum(placed.values())} in the scheduler's ledger, {limit} in its limits",
                        "the same sum",
                        "The ledger is what counts here; recreate the pod.",
                    )
                return placed
            self._tell(
                pod,
                "GPU-ANNOTATION",
                f"{ALLOCATION}={written[:60]}",
                "JSON: container -> card -> memory",
                "The card's index is used instead where there is one.",
            )
        index = annotations.get(INDEX)
        if index is None:
            return {-1: limit}
        if _is_card(index):
            return {int(index): limit}
        if index != "-1":
            self._tell(pod, "GPU-ANNOTATION", f"{INDEX}={index[:60]}", "the number of a card", "It counts as pending.")
        return {-1: limit}

    def _tell(self, pod: Pod, code: str, found: str, required: str, cure: str) -> None:
        self._found.append(_finding(code, f"pod {pod.key} on node {self._node.name}", found, required, cure))

    def usage(self) -> NodeUsage:
        held, core, pods = [0] * self._cards.count, [0] * self._cards.count, [0] * self._cards.count
        for share in self._shares:
            for card, memory in share.cards.items():
                held[card] += memory
                pods[card] += 1
            for card, percent in share.core.items():
                if card < self._cards.count:
                    core[card] += percent
        pending = sum(share.pending for share in self._shares)
        shares = sorted(
            self._shares, key=lambda share: (min(share.cards, default=1 << 30), share.namespace, share.name)
        )
        return NodeUsage(
            name=self._node.name,
            address=self._node.internal_ip or "unknown",
            mode=gpu_labels.mode_of(self._node.labels),
            unit=self._cards.unit,
            total=self._cards.total,
            allocated=sum(held) + pending,
            pending=pending,
            has_pending=any(share.pending or not share.cards for share in self._shares),
            cards=tuple(
                Card(index, held[index], self._cards.each, core[index], pods[index])
                for index in range(self._cards.count)
            ),
            pods=tuple(shares),
        )


def by_card(annotation: str) -> dict[int, int]:
    """Amounts by card, summed over containers; empty for anything that is not such a ledger."""
    try:
        told = msgspec.json.decode(annotation, type=dict[str, dict[str, int]])
    except (msgspec.DecodeError, UnicodeError):
        return {}
    placed: dict[int, int] = {}
    for container in told.values():
        for card, amount in container.items():
            if not _is_card(card) or amount < 0:
                return {}
            placed[int(card)] = placed.get(int(card), 0) + amount
    return placed


def _is_card(text: str) -> bool:
    return len(text) < 5 and text.isascii() and text.isdigit()


def _core(pod: Pod) -> dict[int, int]:
    written = pod.annotations.get(CORE_ALLOCATION)
    return by_card(written) if written is not None else {}


def _limit(pod: Pod) -> int:
    held = 0
    for container in pod.containers:
        limits = container.resources.limits
        if limits is not None and gpu_labels.GPU_MEM in limits:
            held += whole(limits[gpu_labels.GPU_MEM])
    return held


def _units(nodes: Iterable[NodeUsage]) -> tuple[Unit, ...]:
    """The units in use, GiB first; GiB alone for a cluster without shared cards."""
    used = {node.unit for node in nodes}
    both: tuple[Unit, ...] = ("GiB", "MiB")
    return tuple(unit for unit in both if unit in used) or ("GiB",)


def _sum(unit: Unit, nodes: Iterable[NodeUsage]) -> Sum:
    mine = [node for node in nodes if node.unit == unit]
    allocated, total = sum(node.allocated for node in mine), sum(node.total for node in mine)
    return Sum(unit, allocated, total, percent(allocated, total))


def percent(allocated: int, total: int) -> int:
    """Cut to an integer from a floating-point quotient, as the original does it (29 of 100 are 28 %)."""
    return int(allocated / total * 100) if total else 0


def _of_node(node: Node, its: Cards) -> Iterator[Finding]:
    subject = f"node {node.name}"
    if not its.total:
        if its.count:
            yield _finding(
                "GPU-NO-MEMORY",
                subject,
                f"{its.count} cards and no {gpu_labels.GPU_MEM}",
                "memory above 0",
                "Look at the device plug-in; memory unit MiB is too fine for it on large cards: use GiB.",
            )
        return
    if not its.count:
        yield _finding(
            "GPU-NO-COUNT",
            subject,
            f"{its.total} {its.unit} and no {gpu_labels.GPU_COUNT}",
            "the number of cards",
            "Memory per card is unknown: look at the device plug-in.",
        )
    if its.lost:
        cards_lost = round(its.lost / its.each) if its.each else 0
        yield _finding(
            "GPU-CARD-LOST",
            subject,
            f"{its.total} of {its.total + its.lost} {its.unit} allocatable",
            "all of it",
            f"{cards_lost or 'A'} card not healthy? See nvidia-smi and dmesg on it.",
        )
    if its.unequal:
        yield _finding(
            "GPU-UNEQUAL-CARDS",
            subject,
            its.unequal,
            "cards of one size",
            "Memory per card is an average: keep such a node in mode default.",
        )


def _not_advertised(node: NodeUsage) -> Finding:
    held = f"{len(node.pods)} pods hold {node.allocated} of it"
    return _finding(
        "GPU-NOT-ADVERTISED", f"node {node.name}", held, f"{gpu_labels.GPU_MEM} above 0",
        "Look at the device plug-in of that node.",
    )  # fmt: skip


def _of_cluster(nodes: Collection[NodeUsage]) -> Iterator[Finding]:
    if not nodes:
        yield _finding(
            "GPU-NOTHING-SHARED",
            "cluster",
            f"no node advertises {gpu_labels.GPU_MEM}",
            "a node in a sharing mode",
            f"Label a node pool {gpu_labels.SCHEDULE}=cgpu and install ack-ai-installer.",
            "info",
        )
    if len({node.unit for node in nodes}) > 1:
        yield _finding(
            "GPU-MIXED-UNITS",
            "cluster",
            "nodes that count in GiB and nodes that count in MiB",
            "one unit",
            "Each unit is summed for itself. Set the same memory unit for all nodes.",
        )
    for node in nodes:
        for card in node.cards:
            if card.total is not None and card.allocated > card.total:
                yield _finding(
                    "GPU-OVERBOOKED",
                    f"node {node.name} card {card.index}",
                    f"{card.allocated} of {card.total} {node.unit}",
                    "not more than there is",
                    "Pods were placed behind the scheduler's back: find them with the details.",
                )


def _finding(code: str, subject: str, found: str, required: str, cure: str, severity: Severity = "warning") -> Finding:
    return Finding(code, subject, found, required, cure, severity, SOURCE)


def data(told: Usage) -> Mapping[str, Any]:
    """The usage as JSON has it: objects and lists, nodes in the order of their names, pods by card, then by name."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(told))
    return plain
