"""The noun ram_policy against the endpoint: what it writes, what it never writes, and that lost answers do no harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import ram_document
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.ram_policy import ACTIONS, DOCUMENT, MARK
from ansible_collections.ack.ai_suite.plugins.modules import ram_policy
from tests.integration.cloud_operator import Operator
from tests.sandbox.cloud_rig import CLUSTER, ROLE, Rig, policy_text, running

NAME = f"k8sWorkerRolePolicy-{CLUSTER}"


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with running(tmp_path / "endpoint") as rig:
        yield Operator(rig, tmp_path, ram_policy.run, name=None, document=None, mode="merge", roles=None)


def policy(rig: Rig) -> dict[str, Any]:
    """The policy as the endpoint gives it, with its default document."""
    answer = rig.rpc("GetPolicy", PolicyName=NAME, PolicyType="Custom")
    return {**answer["Policy"], "document": json.loads(answer["DefaultPolicyVersion"]["PolicyDocument"])}


def attached(rig: Rig, role: str = ROLE) -> list[str]:
    return [each["PolicyName"] for each in rig.rpc("ListPoliciesForRole", RoleName=role)["Policies"]["Policy"]]


def versions(rig: Rig) -> dict[str, bool]:
    found = rig.rpc("ListPolicyVersions", PolicyName=NAME, PolicyType="Custom")["PolicyVersions"]["PolicyVersion"]
    return {each["VersionId"]: each["IsDefaultVersion"] for each in found}


def make(rig: Rig, *actions: str, more_versions: int = 0) -> None:
    rig.rpc("CreatePolicy", PolicyName=NAME, PolicyDocument=policy_text(*actions))
    for number in range(more_versions):
        rig.rpc("CreatePolicyVersion", PolicyName=NAME, PolicyDocument=policy_text(f"oss:Get{number}"))


def test_the_policy_is_created_and_attached_and_a_second_run_sends_no_write(operator: Operator) -> None:
    first = operator.run()
    assert first["changed"] is True
    assert operator.writes() == ["CreatePolicy", "AttachPolicyToRole"]
    made = policy(operator.rig)
    assert made["Description"].startswith(MARK)
    assert sorted(made["document"]["Statement"][0]["Action"]) == sorted(ACTIONS)
    assert attached(operator.rig) == [NAME]
    second = operator.run()
    assert (second["changed"], len(operator.writes())) == (False, 2)
    assert second["roles"][0]["status"] == "Authorized"


def test_check_mode_shows_the_document_and_sends_no_write(operator: Operator) -> None:
    result = operator.run(check_mode=True)
    assert result["changed"] is True
    assert result["diff"]["after"]["document"]["Version"] == "1"
    assert operator.writes() == []


def test_the_same_policy_in_another_spelling_is_left_as_it_is(operator: Operator) -> None:
    make(operator.rig, *reversed(ACTIONS))
    operator.rig.rpc("AttachPolicyToRole", PolicyName=NAME, PolicyType="Custom", RoleName=ROLE)
    before = len(operator.writes())
    assert operator.run()["changed"] is False
    assert len(operator.writes()) == before


def test_what_others_granted_stays_and_the_new_version_is_the_default(operator: Operator) -> None:
    make(operator.rig, "oss:GetObject")
    operator.run()
    found = ram_document.parse(policy(operator.rig)["document"], "found")
    wanted = ram_document.parse(DOCUMENT, "wanted")
    assert ram_document.same(found, (*ram_document.parse(policy_text("oss:GetObject"), "theirs"), *wanted))
    assert versions(operator.rig) == {"v1": False, "v2": True}


def test_the_sixth_version_takes_the_place_of_the_oldest_whose_text_is_kept(operator: Operator) -> None:
    make(operator.rig, "oss:GetObject", more_versions=4)
    operator.rig.rpc("SetDefaultPolicyVersion", PolicyName=NAME, VersionId="v1")
    preview = operator.run(check_mode=True)
    assert "v2" in preview["plan"][0]
    result = operator.run()
    assert json.loads(result["rotated"]["document"]) == json.loads(policy_text("oss:Get0"))
    assert versions(operator.rig) == {"v1": False, "v3": False, "v4": False, "v5": False, "v6": True}


@pytest.mark.parametrize(("code", "status"), [("InvalidParameter.PolicyDocument.Length", 400), ("NoPermission", 403)])
def test_a_refused_version_costs_none_of_the_five_that_are_there(operator: Operator, code: str, status: int) -> None:
    make(operator.rig, "oss:GetObject", more_versions=4)
    operator.rig.fault("error", "CreatePolicyVersion", code=code, status=status)
    with pytest.raises(AckError) as problem:
        operator.run()
    assert code in str(problem.value)
    assert "request id" in str(problem.value).lower()
    assert list(versions(operator.rig)) == ["v1", "v2", "v3", "v4", "v5"]


@pytest.mark.parametrize("action", ["CreatePolicy", "AttachPolicyToRole", "CreatePolicyVersion"])
@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "throttle", "count": 2},
        {"kind": "error", "code": "InternalError", "status": 500},
        {"kind": "apply-then-timeout"},
    ],
    ids=["throttled", "failed", "carried out, answer lost"],
)
def test_one_run_comes_through_a_fault_in_any_write(operator: Operator, action: str, fault: dict[str, Any]) -> None:
    if action == "CreatePolicyVersion":
        make(operator.rig, "oss:GetObject")
    operator.rig.fault(action=action, **fault)
    operator.run()
    assert attached(operator.rig) == [NAME]
    assert len(versions(operator.rig)) == (2 if action == "CreatePolicyVersion" else 1)
    assert operator.run()["changed"] is False


def test_a_policy_that_ram_does_not_show_yet_is_waited_for(operator: Operator) -> None:
    operator.rig.fault("error", "AttachPolicyToRole", code="EntityNotExist.Policy", status=404)
    operator.run()
    assert attached(operator.rig) == [NAME]


def test_a_role_of_a_node_pool_is_authorised_too(operator: Operator) -> None:
    with operator.rig.world.store.change() as data:
        data["ram"]["roles"]["gpu-nodes"] = {**data["ram"]["roles"][ROLE], "name": "gpu-nodes", "policies": []}
        data["pools"][operator.rig.pool_id("gpu-cgpu")]["scaling_group"]["ram_role_name"] = "gpu-nodes"
    result = operator.run()
    assert [role["role"] for role in result["roles"]] == [ROLE, "gpu-nodes"]
    assert attached(operator.rig, "gpu-nodes") == [NAME]


def test_a_role_that_does_not_exist_is_one_clear_error_before_any_write(operator: Operator) -> None:
    with pytest.raises(AckError) as problem:
        operator.run(roles=["absent"])
    assert problem.value.code == "RAM-ROLE-MISSING"
    assert operator.writes() == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": "with_underscore"}, "RAM-NAME"),
        ({"document": {"Version": 1, "Statement": []}}, "RAM-DOCUMENT"),
        ({"cluster_id": None}, "CLD-CONFIG"),
    ],
)
def test_wrong_input_is_one_clear_error_before_any_request(
    operator: Operator, options: dict[str, Any], code: str
) -> None:
    with pytest.raises(AckError) as problem:
        operator.run(**options)
    assert problem.value.code == code
    assert operator.rig.log() == []
