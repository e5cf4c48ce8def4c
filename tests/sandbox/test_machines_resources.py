"""What a node advertises follows the label and the plug-in that really runs."""

from __future__ import annotations

import pytest

from sandbox.machines.resources import CORE, COUNT, MEM, MODES, TOPOLOGY, WHOLE, advertised

SHARE = "gpushare-device-plugin-ds"


def test_without_a_label_whole_cards_are_advertised() -> None:
    assert advertised("", 4, 15, (), {}) == ({WHOLE: "4"}, {WHOLE: "4"})


def test_a_sharing_label_alone_changes_nothing_before_the_component_is_installed() -> None:
    assert advertised("cgpu", 2, 15, (), {}) == ({WHOLE: "2"}, {WHOLE: "2"})


def test_the_plug_in_turns_cards_into_memory_and_leaves_no_whole_card() -> None:
    capacity, allocatable = advertised("cgpu", 2, 15, {SHARE}, {WHOLE: "2"})
    assert capacity == allocatable == {WHOLE: "0", MEM: "30", COUNT: "2"}


def test_a_plug_in_that_is_gone_leaves_its_capacity_and_nothing_to_allocate() -> None:
    capacity, allocatable = advertised("cgpu", 2, 15, (), {WHOLE: "0", MEM: "30", COUNT: "2"})
    assert capacity == {WHOLE: "0", MEM: "30", COUNT: "2"}
    assert allocatable == {WHOLE: "0", MEM: "0", COUNT: "0"}


def test_a_plug_in_of_another_mode_does_not_serve() -> None:
    assert MEM not in advertised("core_mem", 1, 15, {SHARE}, {})[0]


def test_core_mem_advertises_memory_and_hundred_percent_a_card() -> None:
    _, allocatable = advertised("core_mem", 2, 22, {"gpushare-core-device-plugin-ds"}, {})
    assert (allocatable[MEM], allocatable[CORE], allocatable[COUNT]) == ("44", "200", "2")


def test_topology_advertises_its_own_resource() -> None:
    _, allocatable = advertised("topology", 8, 80, {"gputopo-device-plugin-ds"}, {WHOLE: "8"})
    assert (allocatable[TOPOLOGY], allocatable[WHOLE]) == ("8", "0")


def test_back_to_default_leaves_zeros_of_the_old_mode() -> None:
    capacity, allocatable = advertised("default", 1, 15, {SHARE}, {WHOLE: "0", MEM: "15", COUNT: "1"})
    assert capacity == allocatable == {WHOLE: "1", MEM: "0", COUNT: "0"}


def test_a_lost_card_is_missing_from_memory_and_count() -> None:
    _, allocatable = advertised("cgpu", 3, 15, {SHARE}, {MEM: "60", COUNT: "4"})
    assert (allocatable[MEM], allocatable[COUNT]) == ("45", "3")


@pytest.mark.parametrize("mode", sorted(MODES))
def test_one_mode_never_offers_another_modes_resources(mode: str) -> None:
    _, allocatable = advertised(
        mode, 2, 15, {MODES[mode].plugin}, dict.fromkeys((WHOLE, MEM, CORE, COUNT, TOPOLOGY), "9")
    )
    assert {name for name, amount in allocatable.items() if amount != "0"} == set(MODES[mode].resources)
