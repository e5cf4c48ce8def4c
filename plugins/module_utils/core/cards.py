"""What a node tells of its cards: how many, how much memory, in which unit, and whether they can be equal.

A node advertises one sum for all its cards, so per card there is only the sum divided by their number: nothing shows
cards of different sizes unless the label that ACK writes from ``nvidia-smi`` (of card 0) disagrees.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_labels
from ansible_collections.ack.ai_suite.plugins.module_utils.core.quantity import whole
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node

Unit = Literal["GiB", "MiB"]
_MIB_FROM = 100  # kubectl inspect cgpu: more than that per card can only be MiB, as long as no label says otherwise
_MOST_CARDS = 16
_NO_NUMBER_OF_CARDS = 129  # a count from here on is a mistake, not a machine
_MEMORY = re.compile(r"(\d{1,9})MiB")


class Cards(msgspec.Struct, frozen=True):
    """The cards of a node. ``total`` is allocatable memory in ``unit``, ``each`` that of one card (None: unknown)."""

    count: int
    total: int
    unit: Unit
    each: int | None
    lost: int = 0  # memory that the node has and does not offer
    labelled: int | None = None  # memory of card 0 in MiB, from the label

    @property
    def unequal(self) -> str:
        """Why the cards cannot all be of the same size, or "" when nothing speaks against it."""
        if not self.each or not self.total or self.lost:
            return ""
        if self.total % self.count:
            return f"{self.total} {self.unit} is not divisible by {self.count} cards"
        if self.labelled is not None and abs(self.each - self._labelled_in_unit(self.labelled)) > self._tolerance:
            return f"{self.each} {self.unit} a card on average, but its label says {self.labelled} MiB"
        return ""

    def _labelled_in_unit(self, mebibytes: int) -> float:
        return mebibytes if self.unit == "MiB" else mebibytes / 1024

    @property
    def _tolerance(self) -> float:
        """Rounding to GiB, and what the driver keeps for itself."""
        return max(1.0, 0.1 * (self.each or 0))


def cards(node: Node) -> Cards:
    """The cards of a node as it advertises and labels them; one that is not healthy is still a card of it."""
    total, count = (
        max(0, whole(node.allocatable.get(resource))) for resource in (gpu_labels.GPU_MEM, gpu_labels.GPU_COUNT)
    )
    count = max(count, whole(node.capacity.get(gpu_labels.GPU_COUNT)))
    count = count if count < _NO_NUMBER_OF_CARDS else 0
    lost = max(0, whole(node.capacity.get(gpu_labels.GPU_MEM)) - total)
    match = _MEMORY.fullmatch(node.labels.get(gpu_labels.CARD_MEMORY, ""))
    labelled = int(match[1]) if match else None
    each = (total + lost) // count if count else None
    return Cards(count, total, _unit(total + lost, count, labelled), each, lost, labelled)


def _unit(total: int, count: int, labelled: int | None) -> Unit:
    average = total / (count or _MOST_CARDS)
    if labelled and count:
        return "MiB" if abs(average - labelled) < abs(average - labelled / 1024) else "GiB"
    return "MiB" if average > _MIB_FROM else "GiB"
