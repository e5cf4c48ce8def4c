"""Scheduling labels: what they mean, which changes ACK supports, and what is refused before any API call."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_labels
from ansible_collections.ack.ai_suite.plugins.module_utils.core.gpu_labels import SCHEDULE


@pytest.mark.parametrize(
    ("labels", "isolated", "shared"),
    [
        ({SCHEDULE: "cgpu"}, True, True),
        ({SCHEDULE: "core_mem"}, True, True),
        ({"cgpu": "true"}, True, True),
        ({SCHEDULE: "share"}, False, True),
        ({SCHEDULE: "mps"}, False, True),
        ({"gpushare": "true"}, False, True),
        ({SCHEDULE: "default"}, False, False),
        ({SCHEDULE: "topology"}, False, False),
        ({SCHEDULE: "mig"}, False, False),
        ({"cgpu": "false"}, False, False),
        ({SCHEDULE: "CGPU"}, False, False),
        ({}, False, False),
    ],
)
def test_a_node_is_isolated_or_shared_by_its_label(labels: dict[str, str], isolated: bool, shared: bool) -> None:
    assert gpu_labels.has_isolation(labels) is isolated
    assert gpu_labels.shares_cards(labels) is shared


@pytest.mark.parametrize("new", sorted(gpu_labels.MODES))
@pytest.mark.parametrize("old", ["", "default"])
def test_whole_cards_may_go_to_any_mode(old: str, new: str) -> None:
    assert gpu_labels.why_not(old, new) == ""


@pytest.mark.parametrize(("old", "new"), [("cgpu", "default"), ("cgpu", "topology"), ("topology", "default"),
                                          ("core_mem", "default"), ("cgpu", "cgpu"), ("mig", "mig")])  # fmt: skip
def test_documented_changes_are_legal(old: str, new: str) -> None:
    assert gpu_labels.why_not(old, new) == ""


@pytest.mark.parametrize(("old", "new", "why"), [
    ("mig", "cgpu", "cannot be converted"), ("mig", "default", "cannot be converted"),
    ("cgpu", "share", "new node pool"), ("share", "cgpu", "new node pool"), ("cgpu", "core_mem", "new node pool"),
    ("topology", "cgpu", "new node pool"), ("cgpu", "", "write default"), ("default", "cpgu", "no mode"),
])  # fmt: skip
def test_other_changes_are_refused_with_the_reason(old: str, new: str, why: str) -> None:
    assert why in gpu_labels.why_not(old, new)


def test_taking_the_label_off_a_node_that_never_used_a_mode_changes_nothing() -> None:
    assert gpu_labels.why_not("default", "") == ""


def codes(labels: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding.code, finding.found) for finding in gpu_labels.label_findings(labels, "pool gpu")]


def test_the_labels_that_people_want_are_accepted() -> None:
    wanted = {SCHEDULE: "cgpu", gpu_labels.PLACEMENT: "spread", gpu_labels.MAX_POD: "20", "team": "", "a.b/c": "X_1.y"}
    assert codes(wanted) == []


def test_every_bad_label_is_named_in_one_pass() -> None:
    bad = {SCHEDULE: True, "my label": "x", "key": "NVIDIA-TITAN-X-(Pascal)", gpu_labels.MAX_POD: 20}
    assert [code for code, _ in codes(bad)] == ["PRE-LABEL-SYNTAX"] * 4
    cures = [finding.cure for finding in gpu_labels.label_findings(bad, "pool gpu")]
    assert f'Quote it: {SCHEDULE}: "true"' in cures
    assert f'Quote it: {gpu_labels.MAX_POD}: "20"' in cures


@pytest.mark.parametrize("key", ["", "/x", "x/", "A/b/c", "-x", "x-", "UPPER.example/x", "a" * 64, f"{'a' * 254}/x"])
def test_keys_that_kubernetes_refuses_are_refused(key: str) -> None:
    assert [code for code, _ in codes({key: "x"})] == ["PRE-LABEL-SYNTAX"]


@pytest.mark.parametrize("value", ["-x", "x-", "a b", "a" * 64, "ü"])
def test_values_that_kubernetes_refuses_are_refused(value: str) -> None:
    assert [code for code, _ in codes({"key": value})] == ["PRE-LABEL-SYNTAX"]


@pytest.mark.parametrize(("key", "value"), [(SCHEDULE, "cpgu"), (SCHEDULE, ""), (gpu_labels.PLACEMENT, "pack"),
                                            (gpu_labels.MAX_POD, "25")])  # fmt: skip
def test_values_that_ack_does_not_document_are_refused(key: str, value: str) -> None:
    assert [code for code, _ in codes({key: value})] == ["PRE-LABEL-VALUE"]


@pytest.mark.parametrize("labels", [
    {SCHEDULE: "cgpu", "gpushare": "true"}, {SCHEDULE: "default", "cgpu": "true"}, {"cgpu": "true", "gpushare": "true"},
])  # fmt: skip
def test_labels_of_rival_device_plug_ins_are_refused(labels: dict[str, str]) -> None:
    assert [code for code, _ in codes(labels)] == ["PRE-LABEL-RIVALS"]


@pytest.mark.parametrize("labels", [{SCHEDULE: "cgpu", "cgpu": "true"}, {SCHEDULE: "share", "gpushare": "true"},
                                    {SCHEDULE: "default", "cgpu": "false"}])  # fmt: skip
def test_an_old_label_that_says_the_same_is_no_rival(labels: dict[str, str]) -> None:
    assert codes(labels) == []
