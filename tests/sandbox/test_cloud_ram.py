"""RAM as documented: policies, versions and their limit, attachments, paging, and each refusal with its code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alibabacloud_tea_openapi.exceptions import ClientException

from tests.sandbox.cloud_rig import ROLE, Rig, policy_text, running

ROTATE = "DeleteOldestNonDefaultVersionWhenLimitExceeded"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running(tmp_path) as rig:
        yield rig


def refused(rig: Rig, action: str, **parameters: Any) -> tuple[int, str]:
    with pytest.raises(ClientException) as raised:
        rig.rpc(action, **parameters)
    return raised.value.status_code, str(raised.value.code)


def create(rig: Rig, name: str = "suite", **more: Any) -> dict[str, Any]:
    return dict(rig.rpc("CreatePolicy", PolicyName=name, PolicyDocument=policy_text("cs:*"), **more)["Policy"])


def custom(name: str = "suite", **more: str) -> dict[str, str]:
    return {"PolicyName": name, "PolicyType": "Custom", **more}


def version_ids(rig: Rig) -> list[str]:
    found = rig.rpc("ListPolicyVersions", **custom())["PolicyVersions"]["PolicyVersion"]
    return [each["VersionId"] for each in found]


def add_version(rig: Rig, action: str, **more: Any) -> dict[str, Any]:
    answer = rig.rpc("CreatePolicyVersion", PolicyName="suite", PolicyDocument=policy_text(action), **more)
    return dict(answer["PolicyVersion"])


def test_a_new_policy_has_one_version_and_is_read_back_as_it_was_sent(rig: Rig) -> None:
    document = '{"Version": "1",\n "Statement": [{"Effect":"Allow","Action":"cs:Get*","Resource":"*"}]}'
    made = rig.rpc("CreatePolicy", PolicyName="suite", PolicyDocument=document, Description="ours ü")["Policy"]
    assert (made["DefaultVersion"], made["PolicyType"], made["Description"]) == ("v1", "Custom", "ours ü")
    answer = rig.rpc("GetPolicy", **custom())
    assert answer["DefaultPolicyVersion"]["PolicyDocument"] == document
    assert answer["Policy"]["AttachmentCount"] == 0
    assert version_ids(rig) == ["v1"]


def test_a_new_version_is_not_the_default_unless_it_is_asked_for(rig: Rig) -> None:
    create(rig)
    assert add_version(rig, "ecs:*")["IsDefaultVersion"] is False
    assert rig.rpc("GetPolicy", **custom())["Policy"]["DefaultVersion"] == "v1"
    assert add_version(rig, "ecs:*", SetAsDefault=True)["IsDefaultVersion"] is True
    assert rig.rpc("GetPolicy", **custom())["DefaultPolicyVersion"]["VersionId"] == "v3"
    rig.rpc("SetDefaultPolicyVersion", PolicyName="suite", VersionId="v2")
    assert rig.rpc("GetPolicy", **custom())["DefaultPolicyVersion"]["VersionId"] == "v2"


def test_the_sixth_version_is_refused_and_with_rotation_replaces_the_oldest_that_is_not_the_default(rig: Rig) -> None:
    create(rig)
    for number in range(4):
        add_version(rig, f"ecs:Describe{number}")
    arguments = {"PolicyName": "suite", "PolicyDocument": policy_text("log:*")}
    assert refused(rig, "CreatePolicyVersion", **arguments) == (409, "LimitExceeded.Policy.Version")
    assert version_ids(rig) == ["v1", "v2", "v3", "v4", "v5"]
    assert add_version(rig, "log:*", SetAsDefault=True, RotateStrategy=ROTATE)["VersionId"] == "v6"
    assert version_ids(rig) == ["v1", "v3", "v4", "v5", "v6"]
    add_version(rig, "log:Get*", RotateStrategy=ROTATE)
    assert version_ids(rig) == ["v3", "v4", "v5", "v6", "v7"]


def test_below_the_limit_nothing_is_rotated_away(rig: Rig) -> None:
    create(rig)
    add_version(rig, "log:*", RotateStrategy=ROTATE)
    assert version_ids(rig) == ["v1", "v2"]


def test_the_default_version_is_not_deleted_and_numbers_are_never_used_again(rig: Rig) -> None:
    create(rig)
    add_version(rig, "ecs:*")
    default = {"PolicyName": "suite", "VersionId": "v1"}
    assert refused(rig, "DeletePolicyVersion", **default) == (409, "DeleteConflict.Policy.Version.Default")
    rig.rpc("DeletePolicyVersion", PolicyName="suite", VersionId="v2")
    assert add_version(rig, "ecs:*")["VersionId"] == "v3"


def test_a_policy_goes_only_when_it_is_attached_nowhere_and_has_one_version_or_cascades(rig: Rig) -> None:
    create(rig)
    add_version(rig, "ecs:*")
    rig.rpc("AttachPolicyToRole", **custom(), RoleName=ROLE)
    assert refused(rig, "DeletePolicy", PolicyName="suite") == (409, "DeleteConflict.Policy.Role")
    rig.rpc("DetachPolicyFromRole", **custom(), RoleName=ROLE)
    assert refused(rig, "DeletePolicy", PolicyName="suite") == (409, "DeleteConflict.Policy.Version")
    rig.rpc("DeletePolicy", PolicyName="suite", CascadingDelete=True)
    assert refused(rig, "GetPolicy", **custom()) == (404, "EntityNotExist.Policy")


def test_attachments_are_seen_from_both_sides(rig: Rig) -> None:
    assert rig.rpc("ListPoliciesForRole", RoleName=ROLE)["Policies"]["Policy"] == []
    create(rig)
    rig.rpc("AttachPolicyToRole", **custom(), RoleName=ROLE)
    (attached,) = rig.rpc("ListPoliciesForRole", RoleName=ROLE)["Policies"]["Policy"]
    assert (attached["PolicyName"], attached["PolicyType"], attached["DefaultVersion"]) == ("suite", "Custom", "v1")
    (role,) = rig.rpc("ListEntitiesForPolicy", **custom())["Roles"]["Role"]
    assert role["RoleName"] == ROLE
    assert rig.rpc("GetPolicy", **custom())["Policy"]["AttachmentCount"] == 1
    twice = {**custom(), "RoleName": ROLE}
    assert refused(rig, "AttachPolicyToRole", **twice) == (409, "EntityAlreadyExists.Role.Policy")
    rig.rpc("DetachPolicyFromRole", **twice)
    assert refused(rig, "DetachPolicyFromRole", **twice) == (404, "EntityNotExist.Role.Policy")


def test_a_role_takes_five_custom_policies(rig: Rig) -> None:
    for number in range(5):
        create(rig, f"p{number}")
        rig.rpc("AttachPolicyToRole", **custom(f"p{number}"), RoleName=ROLE)
    create(rig, "p5")
    assert refused(rig, "AttachPolicyToRole", **custom("p5"), RoleName=ROLE) == (409, "LimitExceeded.Role.Policy")
    system = {"PolicyName": "AliyunLogFullAccess", "PolicyType": "System"}
    rig.rpc("AttachPolicyToRole", **system, RoleName=ROLE)


def test_lists_come_in_pages_with_a_marker(rig: Rig) -> None:
    for number in range(3):
        create(rig, f"p{number}", Tag=[{"Key": "by", "Value": "us"}] if number else [])
    first = rig.rpc("ListPolicies", PolicyType="Custom", MaxItems=2)
    assert first["IsTruncated"] is True
    last = rig.rpc("ListPolicies", PolicyType="Custom", MaxItems=2, Marker=first["Marker"])
    assert last["IsTruncated"] is False
    assert "Marker" not in last
    names = [each["PolicyName"] for answer in (first, last) for each in answer["Policies"]["Policy"]]
    assert names == ["p0", "p1", "p2"]
    tagged = rig.rpc("ListPolicies", Tag=[{"Key": "by", "Value": "us"}])["Policies"]["Policy"]
    assert [each["PolicyName"] for each in tagged] == ["p1", "p2"]
    flattened = rig.rpc("ListPolicies", **{"Tag.1.Key": "by", "Tag.1.Value": "us"})["Policies"]["Policy"]
    assert flattened == tagged


def test_the_worker_role_is_there_from_the_start_and_trusts_ecs(rig: Rig) -> None:
    role = rig.rpc("GetRole", RoleName=ROLE)["Role"]
    assert json.loads(role["AssumeRolePolicyDocument"])["Statement"][0]["Principal"]["Service"] == ["ecs.aliyuncs.com"]
    assert [each["RoleName"] for each in rig.rpc("ListRoles")["Roles"]["Role"]] == ["AckSandboxPoolRole", ROLE]


LONG = policy_text(*(f"ecs:Describe{number}" for number in range(400)))


@pytest.mark.parametrize(
    ("action", "parameters", "refusal"),
    [
        ("CreatePolicy", {"PolicyName": "suite"}, (409, "EntityAlreadyExists.Policy")),
        ("CreatePolicy", {"PolicyName": "has_underscore"}, (400, "InvalidParameter.PolicyName.InvalidChars")),
        ("CreatePolicy", {"PolicyName": "a" * 129}, (400, "InvalidParameter.PolicyName.Length")),
        ("CreatePolicy", {"PolicyDocument": LONG}, (400, "InvalidParameter.PolicyDocument.Length")),
        ("CreatePolicy", {"Description": "d" * 1025}, (400, "InvalidParameter.Description.Length")),
        ("GetPolicy", {"PolicyType": "Ours"}, (400, "InvalidParameter.PolicyType")),
        ("GetPolicy", {"PolicyName": "nothing"}, (404, "EntityNotExist.Policy")),
        ("GetPolicy", {"PolicyType": "System"}, (404, "EntityNotExist.Policy")),
        ("GetPolicyVersion", {"VersionId": "1"}, (400, "InvalidParameter.VersionId.Format")),
        ("GetPolicyVersion", {"VersionId": "v9"}, (404, "EntityNotExist.Policy.Version")),
        ("CreatePolicyVersion", {"PolicyName": "nothing"}, (404, "EntityNotExist.Policy")),
        ("CreatePolicyVersion", {"PolicyName": "AdministratorAccess"}, (404, "EntityNotExist.Policy")),
        ("CreatePolicyVersion", {"RotateStrategy": "Always"}, (400, "InvalidParameter.RotateStrategy")),
        ("AttachPolicyToRole", {"RoleName": "nobody"}, (404, "EntityNotExist.Role")),
        ("AttachPolicyToRole", {"RoleName": "a b"}, (400, "InvalidParameter.RoleName.InvalidChars")),
        ("AttachPolicyToRole", {"RoleName": "r" * 65}, (400, "InvalidParameter.RoleName.Length")),
        ("AttachPolicyToRole", {"PolicyName": "nothing"}, (404, "EntityNotExist.Policy")),
        ("ListPolicies", {"MaxItems": "1001"}, (400, "InvalidParameter.MaxItems")),
        ("ListPolicies", {"Marker": "invented"}, (400, "InvalidParameter.Marker")),
        ("GetRole", {"RoleName": None}, (400, "MissingRoleName")),
        ("CreatePolicy", {"PolicyDocument": None}, (400, "MissingPolicyDocument")),
    ],
)  # fmt: skip
def test_a_refusal_has_the_documented_code(
    rig: Rig, action: str, parameters: dict[str, Any], refusal: tuple[int, str]
) -> None:
    create(rig)
    right: dict[str, dict[str, Any]] = {
        "CreatePolicy": {"PolicyName": "fresh", "PolicyDocument": policy_text("cs:*")},
        "CreatePolicyVersion": {"PolicyName": "suite", "PolicyDocument": policy_text("cs:*")},
        "GetPolicy": custom(),
        "GetPolicyVersion": custom(VersionId="v1"),
        "AttachPolicyToRole": custom(RoleName=ROLE),
        "GetRole": {"RoleName": ROLE},
    }
    sent = {key: value for key, value in (right.get(action, {}) | parameters).items() if value is not None}
    assert refused(rig, action, **sent) == refusal


@pytest.mark.parametrize(
    "document",
    [
        "{", "[]", '{"Version":"2","Statement":[]}', '{"Version":"1"}', '{"Version":"1","Statement":[]}',
        '{"Version":"1","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}',
        '{"Version":"1","Statement":[{"Effect":"allow","Action":"*","Resource":"*"}]}',
        '{"Version":"1","Statement":[{"Effect":"Allow","Resource":"*"}]}',
        '{"Version":"1","Statement":[{"Effect":"Allow","Action":"*"}]}',
        '{"Version":"1","Statement":[{"Effect":"Allow","Action":[],"Resource":"*"}]}',
        '{"Version":"1","Statement":[{"Effect":"Allow","Action":"*","NotAction":"x:*","Resource":"*"}]}',
        '{"Version":"1","Statement":[{"Effect":"Allow","Action":"*","Resource":"*","Principal":"*"}]}',
        '{"Version":"1","Statement":[{"Effect":"Allow","Action":"*","Resource":"*","Condition":"x"}]}',
        '{"Version":"1","Statement":["x"]}',
        '{"Version":"1","Extra":1,"Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}',
    ],
)  # fmt: skip
def test_a_malformed_document_is_refused(rig: Rig, document: str) -> None:
    sent = {"PolicyName": "suite", "PolicyDocument": document}
    assert refused(rig, "CreatePolicy", **sent) == (400, "MalformedPolicyDocument")
