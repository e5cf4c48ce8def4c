"""Stands in for the part of ACK's scheduler that chooses cards: `scheduler.framework.gpushare.allocation`.

kube-scheduler binds a pod to a node whose sum of `aliyun.com/gpu-mem` suffices, and knows nothing of cards. ACK's
scheduler knows them; here the card is chosen right after the binding. A pod for which no card suffices keeps waiting
on its node, unannotated and with an Event, where on ACK it would not have been bound. Pure, except for `GpuScheduler`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from sandbox.machines.api import Api, ApiError, pod_path
from sandbox.machines.cards import MAX_INSTANCES
from sandbox.machines.resources import CORE, COUNT, MEM

Object = dict[str, Any]
ALLOCATION = "scheduler.framework.gpushare.allocation"
CORE_ALLOCATION = "gpushare.alibabacloud.com/core-percentage"
PLACEMENT, MAX_PODS = "ack.node.gpu.placement", "ack.node.gpu.max-pod"


def wants(pod: Object, resource: str = MEM) -> dict[int, int]:
    """What each container of a pod asks for, by its index."""
    found = {}
    for index, container in enumerate(pod["spec"]["containers"]):
        amount = int((container.get("resources", {}).get("limits") or {}).get(resource, 0))
        if amount:
            found[index] = amount
    return found


def allocation(pod: Object, key: str = ALLOCATION) -> dict[int, dict[int, int]]:
    """Container index to card index to amount, as annotated; empty when it isn't, or isn't readable."""
    try:
        given = json.loads((pod["metadata"].get("annotations") or {}).get(key, "{}"))
        return {int(who): {int(card): int(amount) for card, amount in cards.items()} for who, cards in given.items()}
    except (ValueError, AttributeError):
        return {}


def is_scheduled(pod: Object) -> bool:
    """True when a scheduler bound the pod just now; one that named its node itself went past it, and a kubelet that has
    seen a pod says "PodScheduled" of any.
    """
    status = pod.get("status", {})
    bound = any(each["type"] == "PodScheduled" and each["status"] == "True" for each in status.get("conditions") or [])
    return bound and "startTime" not in status


def waits(pod: Object) -> bool:
    """True for a pod that a scheduler bound and that has no card yet."""
    return bool(wants(pod)) and not allocation(pod) and is_scheduled(pod)


def is_over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def used(pods: Sequence[Object], cards: int, key: str = ALLOCATION) -> list[int]:
    """What is given away of each card."""
    found = [0] * cards
    for pod in pods:
        if not is_over(pod):
            for shares in allocation(pod, key).values():
                for card, amount in shares.items():
                    if card < cards:
                        found[card] += amount
    return found


def place(pod: Object, node: Object, pods: Sequence[Object]) -> dict[str, str] | None:
    """The annotations that give a pod its cards on a node where `pods` are already; None when no card suffices."""
    told = node.get("status", {}).get("allocatable") or {}
    cards = int(told.get(COUNT, 0))
    if not cards:
        return None
    labels = node["metadata"].get("labels") or {}
    per_card = int(told.get(MEM, 0)) // cards
    free = [per_card - amount for amount in used(pods, cards)]
    free_core = [100 - amount for amount in used(pods, cards, CORE_ALLOCATION)]
    full = _full_cards(pods, cards) if MAX_PODS in labels else set()
    memory, core = wants(pod), wants(pod, CORE)
    needed, needed_core = sum(memory.values()), sum(core.values())
    spread_over = int((pod["metadata"].get("labels") or {}).get(COUNT, 1))
    if needed % spread_over:
        return None
    share, core_share = needed // spread_over, needed_core // spread_over
    fitting = [
        card for card in range(cards) if free[card] >= share and free_core[card] >= core_share and card not in full
    ]
    if len(fitting) < spread_over:
        return None
    spread = labels.get(PLACEMENT) == "spread"
    chosen = sorted(fitting, key=lambda card: (-free[card] if spread else free[card], card))[:spread_over]
    found = {ALLOCATION: _written(memory, chosen)}
    if core:
        found[CORE_ALLOCATION] = _written(core, chosen)
    return found


def _full_cards(pods: Sequence[Object], cards: int) -> set[int]:
    held = [0] * cards
    for pod in pods:
        for card in {card for shares in allocation(pod).values() for card in shares} if not is_over(pod) else ():
            if card < cards:
                held[card] += 1
    return {card for card, count in enumerate(held) if count >= MAX_INSTANCES}


def _written(amounts: Mapping[int, int], cards: Sequence[int]) -> str:
    shares = {str(who): {str(card): amount // len(cards) for card in cards} for who, amount in amounts.items()}
    return json.dumps(shares, separators=(",", ":"))


class GpuScheduler:
    """Annotates the pods of a node that wait for a card."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._told: set[str] = set()

    async def assign(self, node: Object, pods: MutableMapping[str, Object]) -> None:
        """Choose cards for all pods that lack one, oldest first; `pods` is brought up to date."""
        waiting = [pod for pod in pods.values() if waits(pod)]
        for pod in sorted(waiting, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"])):
            annotations = place(pod, node, list(pods.values()))
            if annotations is None:
                await self._complain(pod, node)
                continue
            answer = await self._api.patch(pod_path(pod), {"metadata": {"annotations": annotations}})
            if answer is not None:
                pods[pod["metadata"]["uid"]] = answer

    async def _complain(self, pod: Object, node: Object) -> None:
        meta = pod["metadata"]
        if meta["uid"] in self._told:
            return
        self._told.add(meta["uid"])
        text = f"no card of node {node['metadata']['name']} has {sum(wants(pod).values())} of {MEM} left"
        event = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                **{key: meta[key] for key in ("name", "namespace", "uid")},
            },
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": text,
            "source": {"component": "sandbox-gpu-scheduler"},
        }
        try:
            await self._api.call("POST", f"/api/v1/namespaces/{meta['namespace']}/events", event)
        except ApiError:
            self._told.discard(meta["uid"])
