"""Values that YAML or Helm would bend (case H02), and the paths of a policy."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.ack.ai_suite.plugins.module_utils.core import values

# The values file of case H02, read as Ansible reads it.
FILE = """
tag: 20240531
maxJobs: 1000000
version: 1.20
flag: yes
nodeSelector: {cgpu: true, gpushare: "true"}
few: 999999
ratio: 0.5
"""


def found(given: Any, **how: Any) -> list[tuple[str, str]]:
    return sorted((finding.code, finding.subject) for finding in values.check(given, **how))


def test_everything_that_would_be_bent_is_found_in_one_pass() -> None:
    assert found(yaml.safe_load(FILE)) == [
        ("CMP-VALUE-INTEGER", "values.maxJobs"),
        ("CMP-VALUE-STRING", "values.nodeSelector.cgpu"),
        ("CMP-VALUE-VERSION", "values.tag"),
        ("CMP-VALUE-VERSION", "values.version"),
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"podLabels": {"a": 1}},
        {"a": {"commonAnnotations": {"x": 1.5}}},
        {"env": {"DEBUG": True}},
        {"extraEnv": [{"name": "POLICY", "value": 5}]},
        {"list": [{"matchLabels": {"b": False}}]},
        {"nodeSelector": {"deep": {"er": 3}}},
    ],
)
def test_labels_selectors_annotations_and_environments_hold_strings_alone(given: Any) -> None:
    assert [code for code, _ in found(given)] == ["CMP-VALUE-STRING"]


@pytest.mark.parametrize(
    "given",
    [{}, {"n": 999_999}, {"n": -999_999}, {"ratio": 0.95}, {"on": True}, {"nothing": None}, {"tag": "1.20"},
     {"labels": {"a": "true"}}, {"env": [{"name": "A", "value": "1"}]}, {"big": "1000000"}],
)  # fmt: skip
def test_what_arrives_as_it_was_written_is_fine(given: Any) -> None:
    assert found(given) == []


def test_large_integers_can_be_accepted_and_are_told_all_the_same() -> None:
    (finding,) = values.check({"maxBytes": 10_485_760}, large_integers="warning")
    assert (finding.code, finding.severity) == ("CMP-VALUE-INTEGER", "warning")


def test_maps_are_merged_and_everything_else_is_replaced() -> None:
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1}
    assert values.merged(base, {"a": {"y": [3]}, "b": {"z": None}}) == {"a": {"x": 1, "y": [3]}, "b": {"z": None}}
    assert base == {"a": {"x": 1, "y": [1, 2]}, "b": 1}


def test_a_path_is_read_and_set_without_touching_what_is_beside_it() -> None:
    given = {"cgpu": {"image": "x"}}
    assert values.put(given, "cgpu.policy", 3) == {"cgpu": {"image": "x", "policy": 3}}
    assert values.at(values.put(given, "a.b.c", 5), "a.b.c") == 5
    assert values.at(given, "cgpu.image.tag") is None
