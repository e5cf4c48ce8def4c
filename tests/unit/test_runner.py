"""Observe, decide, apply: what a result holds, and what a user is told of a failure."""

from __future__ import annotations

from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils import runner
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding, refuse
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Action, Plan

PLAN = Plan(actions=(Action("create", "pool gpu"),), before=None, after={"size": 2}, facts={"pool": "gpu"})


def run(plan: Plan, *, check_mode: bool) -> tuple[dict[str, Any], list[str]]:
    applied: list[str] = []

    def apply(decided: Plan) -> dict[str, Any]:
        applied.extend(action.target for action in decided.actions)
        return {"pool_id": "np1"}

    return runner.run(lambda: None, lambda _: plan, apply, check_mode=check_mode), applied


def test_check_mode_shows_the_plan_and_applies_nothing() -> None:
    result, applied = run(PLAN, check_mode=True)
    assert applied == []
    assert result["changed"] is True
    assert result["plan"] == ["create pool gpu"]
    assert result["diff"] == {"before": None, "after": {"size": 2}}


def test_a_run_applies_the_plan_and_adds_what_was_learnt() -> None:
    result, applied = run(PLAN, check_mode=False)
    assert applied == ["pool gpu"]
    assert (result["pool"], result["pool_id"]) == ("gpu", "np1")


def test_a_run_with_nothing_to_do_never_reaches_apply() -> None:
    result, applied = run(Plan(before={"size": 2}, after={"size": 2}), check_mode=False)
    assert applied == []
    assert result["changed"] is False
    assert "diff" not in result


def test_a_failure_names_subject_problem_cure_and_code() -> None:
    told = runner.failure(AckError("pool gpu", "it is full.", "Make it larger.", "POOL-FULL", size=3))
    assert told["msg"] == "pool gpu: it is full. Make it larger. [POOL-FULL]"
    assert (told["code"], told["size"]) == ("POOL-FULL", 3)


def test_a_defect_is_one_line_with_its_place_and_no_traceback() -> None:
    try:
        {}["absent"]
    except KeyError as problem:
        told = runner.failure(problem)
    assert told["code"] == "INT-DEFECT"
    assert "test_runner.py:" in told["msg"]
    assert "Traceback" not in told["msg"]
    assert "\n" not in told["msg"]


def test_refusal_lists_every_error_and_no_warning() -> None:
    findings = [
        Finding("PRE-A", "node a", "1", "2", "Upgrade it."),
        Finding("PRE-B", "node b", "3", "4", "Replace it."),
        Finding("PRE-C", "node c", "5", "6", "Look at it.", severity="warning"),
    ]
    try:
        refuse("cluster", findings, "PRE-REFUSED")
    except AckError as problem:
        text = str(problem)
    assert "node a" in text
    assert "node b" in text
    assert "node c" not in text
    refuse("cluster", findings[2:], "PRE-REFUSED")


def test_long_lists_of_names_are_shortened() -> None:
    assert joined(["a", "b"]) == "a, b"
    assert joined(list("abcde")) == "a, b, c and 2 more"
