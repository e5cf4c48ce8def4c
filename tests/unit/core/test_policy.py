"""The cGPU policy: asked for, kept, first; one for all installers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import policy
from ansible_collections.ack.ai_suite.plugins.module_utils.core.component import Component
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet


def component(**given: Any) -> Component:
    return Component("ack-ai-installer", "ack-ai-installer", "kube-system", **given)


def installer(name: str, value: str | None) -> DaemonSet:
    env = [{"name": "POLICY", "value": value}] if value is not None else []
    spec = {"template": {"spec": {"containers": [{"name": "c", "env": env}]}}}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DaemonSet)


@pytest.mark.parametrize(
    ("asked", "installed", "running", "expected"),
    [
        (3, True, {"cgpu-installer": "5"}, 3),
        (0, False, {}, 0),
        (None, True, {"cgpu-installer": "3", "cgpu-core-installer": "3"}, 3),  # edited on the DaemonSet, or set before
        (None, False, {"cgpu-installer": "2"}, 2),  # installed without Helm
        (None, True, {}, None),  # the release's own values decide
        (None, False, {}, 5),
    ],
)
def test_unset_keeps_what_runs_and_a_first_install_takes_5(
    asked: int | None, installed: bool, running: dict[str, str], expected: int | None
) -> None:
    assert policy.to_be(component(policy=asked), installed, running) == expected


def test_two_policies_are_refused_while_none_is_asked_for() -> None:
    running = {"cgpu-installer": "3", "cgpu-core-installer": "5"}
    with pytest.raises(AckError, match=r"cgpu-core-installer 5, cgpu-installer 3.*CMP-POLICY-MIXED"):
        policy.to_be(component(), True, running)
    assert policy.to_be(component(policy=5), True, running) == 5


def test_only_installers_that_have_a_policy_are_looked_at() -> None:
    sets = [installer("cgpu-installer", "4"), installer("cgpu-core-installer", None), installer("other", "1")]
    assert policy.running(sets) == {"cgpu-installer": "4"}


@pytest.mark.parametrize(
    ("given", "installed", "expected"),
    [
        ({"policy": 3}, True, {"a": 1, "held": 2, "policy": 3}),
        ({}, False, {"a": 1, "held": 2, "policy": 5}),
        ({}, True, {"a": 1, "held": 2}),  # kept: rendering shows whether it has to be written
        ({"policy": 3, "policy_path": "cgpu.policy"}, True, {"a": 1, "held": 2, "cgpu": {"policy": 3}}),
        ({"policy": 3, "keep_values": False}, True, {"a": 1, "policy": 3}),
    ],
)
def test_values_are_those_of_the_release_and_over_them_those_of_the_inventory(
    given: dict[str, Any], installed: bool, expected: dict[str, Any]
) -> None:
    asked = component(values={"a": 1}, **given)
    assert policy.first_values(asked, {"a": 0, "held": 2}, installed, asked.policy or 5) == expected


def test_a_policy_that_does_not_reach_the_installers_is_refused_with_the_path_that_was_tried() -> None:
    asked = component(policy=3, policy_path="cgpu.policy")
    with pytest.raises(AckError, match=r"cgpu-installer has 5.*cgpu\.policy.*CMP-POLICY-PATH"):
        policy.check(asked, 3, {"cgpu-installer": "5"}, "as rendered")
    with pytest.raises(AckError, match=r"no installer has POLICY"):
        policy.check(asked, 3, {}, "as rendered")
    policy.check(asked, 3, {"cgpu-installer": "3"}, "as rendered")
    policy.check(component(), None, {}, "as rendered")


def test_a_kept_policy_is_written_only_where_the_chart_would_change_it() -> None:
    assert policy.differs(3, {"cgpu-installer": "5"})
    assert not policy.differs(5, {"cgpu-installer": "5"})
    assert not policy.differs(None, {"cgpu-installer": "5"})
    assert policy.kept(component(), {"a": 1}, 3) == {"a": 1, "policy": 3}
