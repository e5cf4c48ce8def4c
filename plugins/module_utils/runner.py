"""Observe, decide, apply: the one way in which every noun runs.

``run`` knows no Ansible. ``main`` is its door for modules; an action plug-in calls ``run`` itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

Observed = TypeVar("Observed")


def run(
    observe: Callable[[], Observed],
    decide: Callable[[Observed], Plan],
    apply: Callable[[Plan], Mapping[str, Any] | None],
    *,
    check_mode: bool,
    diff: bool = True,
) -> dict[str, Any]:
    """The result of one noun: ``changed``, ``plan``, ``findings``, ``diff`` and what ``apply`` adds.

    Check mode ends before ``apply``: the plan is what would be done. ``apply`` is called only when there are
    actions, so that a run with nothing to do sends no write.
    """
    plan = decide(observe())
    result: dict[str, Any] = {
        **plan.facts,
        "changed": bool(plan.actions),
        "plan": [f"{action.verb} {action.target}" for action in plan.actions],
        "findings": msgspec.to_builtins(plan.findings),
    }
    if diff and plan.before != plan.after:
        result["diff"] = {"before": plan.before, "after": plan.after}
    if plan.actions and not check_mode:
        result.update(apply(plan) or {})
    return result


def failure(problem: BaseException) -> dict[str, Any]:
    """What a user is told of an error: an AckError as it is, anything else as a defect of ours, never a traceback."""
    if isinstance(problem, AckError):
        return {
            "msg": str(problem),
            "code": problem.code,
            "subject": problem.subject,
            "problem": problem.problem,
            "cure": problem.cure,
            **problem.details,
        }
    at = problem.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f"{at.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{at.tb_lineno}" if at else "?"
    return failure(
        AckError(
            "ack.ai_suite",
            f"defect at {where}: {type(problem).__name__}: {problem}.",
            "Nothing more was done; please report this line with the version of the collection.",
            "INT-DEFECT",
        )
    )


def main(module: AnsibleModule, work: Callable[[], Mapping[str, Any]]) -> NoReturn:
    """The door of a module: its result, or one failure."""
    try:
        result = dict(work())
    except Exception as problem:  # noqa: BLE001 - the outermost edge: whatever happened, the user gets one clear error
        module.fail_json(**failure(problem))
    else:
        module.exit_json(**result)
    raise AssertionError("unreachable")
