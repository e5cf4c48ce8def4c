"""The stand-in for ACK's scheduler: a card is big enough or the pod waits; never more than a card has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.machines.gpu_scheduler import ALLOCATION, CORE_ALLOCATION, allocation, is_scheduled, place, used, wants

Object = dict[str, Any]


def node(cards: int = 2, gib: int = 15, **labels: str) -> Object:
    told = {"aliyun.com/gpu-mem": str(cards * gib), "aliyun.com/gpu-count": str(cards)}
    return {"metadata": {"name": "gpu-1", "labels": labels}, "status": {"allocatable": told}}


def pod(
    *memory: int, given: dict[str, str] | None = None, phase: str = "Running", core: int = 0, **labels: str
) -> Object:
    limits = [{"aliyun.com/gpu-mem": str(each)} if each else {} for each in memory]
    if core:
        limits[0]["aliyun.com/gpu-core.percentage"] = str(core)
    return {
        "metadata": {"name": "p", "annotations": given or {}, "labels": labels},
        "spec": {"containers": [{"name": f"c{i}", "resources": {"limits": each}} for i, each in enumerate(limits)]},
        "status": {"phase": phase},
    }


def on(card: int, amount: int, **more: Any) -> Object:
    return pod(amount, given={ALLOCATION: json.dumps({"0": {str(card): amount}})}, **more)


def chosen(annotations: dict[str, str] | None) -> Any:
    return None if annotations is None else json.loads(annotations[ALLOCATION])


def test_binpack_fills_the_card_that_is_fullest_and_still_has_room() -> None:
    assert chosen(place(pod(4), node(), [on(1, 6)])) == {"0": {"1": 4}}


def test_spread_takes_the_emptiest_card() -> None:
    spread = node(**{"ack.node.gpu.placement": "spread"})
    assert chosen(place(pod(4), spread, [on(0, 6)])) == {"0": {"1": 4}}


def test_a_pod_waits_although_the_sum_would_do() -> None:
    assert place(pod(10), node(), [on(0, 8), on(1, 8)]) is None


def test_finished_pods_hold_nothing() -> None:
    assert chosen(place(pod(10), node(1), [on(0, 8, phase="Succeeded")])) == {"0": {"0": 10}}


def test_two_containers_of_a_pod_share_the_card() -> None:
    assert chosen(place(pod(3, 0, 2), node(), [])) == {"0": {"0": 3}, "2": {"0": 2}}


def test_the_count_label_spreads_over_several_cards() -> None:
    assert chosen(place(pod(8, **{"aliyun.com/gpu-count": "2"}), node(), [])) == {"0": {"0": 4, "1": 4}}


def test_a_count_that_does_not_divide_the_request_is_never_placed() -> None:
    assert place(pod(7, **{"aliyun.com/gpu-count": "2"}), node(), []) is None


def test_computing_power_is_counted_beside_memory() -> None:
    first = place(pod(2, core=60), node(1), [])
    assert first is not None
    assert json.loads(first[CORE_ALLOCATION]) == {"0": {"0": 60}}
    assert place(pod(2, core=60), node(1), [pod(2, core=60, given=first)]) is None


def test_the_max_pod_label_keeps_a_card_at_twenty_pods() -> None:
    crowd = [on(0, 1) for _ in range(20)]
    assert chosen(place(pod(1), node(2, 60), crowd)) == {"0": {"0": 1}}
    assert chosen(place(pod(1), node(2, 60, **{"ack.node.gpu.max-pod": "20"}), crowd)) == {"0": {"1": 1}}


def test_a_node_without_a_plug_in_takes_nobody() -> None:
    assert place(pod(1), {"metadata": {"name": "n"}, "status": {"allocatable": {}}}, []) is None


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"0": 3}', '{"a": {"b": "c"}}'])
def test_an_annotation_that_cannot_be_read_is_no_allocation(text: str) -> None:
    assert allocation(pod(2, given={ALLOCATION: text})) == {}


def test_a_pod_that_named_its_node_itself_is_not_scheduled() -> None:
    bound = pod(2) | {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}
    assert is_scheduled(bound)
    assert not is_scheduled(pod(2))


@given(st.lists(st.integers(1, 20), max_size=40), st.integers(1, 4), st.integers(4, 24), st.booleans())
def test_no_card_is_ever_given_away_twice(requests: list[int], cards: int, gib: int, spread: bool) -> None:
    here = node(cards, gib, **({"ack.node.gpu.placement": "spread"} if spread else {}))
    pods: list[Object] = []
    for amount in requests:
        annotations = place(pod(amount), here, pods)
        if annotations is None:
            assert all(gib - taken < amount for taken in used(pods, cards))
        else:
            pods.append(pod(amount, given=annotations))
            assert sum(sum(shares.values()) for shares in allocation(pods[-1]).values()) == sum(
                wants(pods[-1]).values()
            )
    assert all(taken <= gib for taken in used(pods, cards))
