"""RAM 2015-05-01: custom policies, their versions, and what is attached to roles."""

from __future__ import annotations

import re
from typing import Any

from sandbox.cloud.errors import error
from sandbox.cloud.paging import slice_after
from sandbox.cloud.ram_documents import check_document
from sandbox.cloud.world import ACCOUNT_ID, Call, World, stamp

VERSIONS_A_POLICY = 5
CUSTOM_POLICIES = 1500
POLICIES_A_ROLE = {"System": 20, "Custom": 5}
ROTATE = "DeleteOldestNonDefaultVersionWhenLimitExceeded"
Record = dict[str, Any]


def create_policy(world: World, call: Call) -> Record:
    name, document = call.query["PolicyName"], call.query["PolicyDocument"]
    _check_policy_name(name)
    check_document(document)
    if "Description" in call.query and not 1 <= len(call.query["Description"]) <= 1024:
        raise error("InvalidParameter.Description.Length")
    policies = world.data["ram"]["policies"]
    if name in policies:
        raise error("EntityAlreadyExists.Policy")
    if sum(each["type"] == "Custom" for each in policies.values()) >= CUSTOM_POLICIES:
        raise error("LimitExceeded.Policy")
    now = stamp(world.now())
    policy = {
        "name": name, "type": "Custom", "description": call.query.get("Description", ""),
        "tags": call.query.get("Tag", []), "created": now, "updated": now, "default": "v1", "next": 2,
        "versions": [{"id": "v1", "document": document, "created": now}],
    }  # fmt: skip
    policies[name] = policy
    return {"Policy": _policy(policy, "PolicyName", "PolicyType", "Description", "DefaultVersion", "CreateDate")}


def get_policy(world: World, call: Call) -> Record:
    policy = _find(world, call)
    shown = {**_policy(policy), "AttachmentCount": _attachments(world, policy)}
    return {"Policy": shown, "DefaultPolicyVersion": _version(policy, _version_named(policy, policy["default"]))}


def list_policies(world: World, call: Call) -> Record:
    kind, tags = call.query.get("PolicyType", ""), call.query.get("Tag", [])
    _check_type(kind or "Custom")
    found = [
        policy
        for policy in sorted(world.data["ram"]["policies"].values(), key=lambda each: each["name"])
        if kind in ("", policy["type"]) and all(tag in policy["tags"] for tag in tags)
    ]
    shown, marker = _paged(call, found)
    policies = [{**_policy(each), "AttachmentCount": _attachments(world, each), "Tags": _tags(each)} for each in shown]
    answer: Record = {"IsTruncated": bool(marker), "Policies": {"Policy": policies}}
    return {**answer, "Marker": marker} if marker else answer


def delete_policy(world: World, call: Call) -> Record:
    policy = _custom(world, call)
    if _attachments(world, policy):
        raise error("DeleteConflict.Policy.Role")
    if len(policy["versions"]) > 1 and not call.query.get("CascadingDelete", False):
        raise error("DeleteConflict.Policy.Version")
    del world.data["ram"]["policies"][policy["name"]]
    return {}


def create_policy_version(world: World, call: Call) -> Record:
    policy = _custom(world, call)
    check_document(call.query["PolicyDocument"])
    rotate = call.query.get("RotateStrategy", "None")
    if rotate not in ("None", ROTATE):
        raise error("InvalidParameter.RotateStrategy")
    if len(policy["versions"]) >= VERSIONS_A_POLICY:
        if rotate != ROTATE:
            raise error("LimitExceeded.Policy.Version")
        idle = [each for each in policy["versions"] if each["id"] != policy["default"]]
        policy["versions"].remove(min(idle, key=lambda each: (each["created"], int(each["id"][1:]))))
    now = stamp(world.now())
    version = {"id": f"v{policy['next']}", "document": call.query["PolicyDocument"], "created": now}
    policy["versions"].append(version)
    policy["next"] += 1
    policy["updated"] = now
    if call.query.get("SetAsDefault", False):
        policy["default"] = version["id"]
    return {"PolicyVersion": _version(policy, version)}


def list_policy_versions(world: World, call: Call) -> Record:
    policy = _find(world, call)
    return {"PolicyVersions": {"PolicyVersion": [_version(policy, each) for each in policy["versions"]]}}


def get_policy_version(world: World, call: Call) -> Record:
    policy = _find(world, call)
    return {"PolicyVersion": _version(policy, _version_named(policy, call.query["VersionId"]))}


def delete_policy_version(world: World, call: Call) -> Record:
    policy = _custom(world, call)
    version = _version_named(policy, call.query["VersionId"])
    if version["id"] == policy["default"]:
        raise error("DeleteConflict.Policy.Version.Default")
    policy["versions"].remove(version)
    policy["updated"] = stamp(world.now())
    return {}


def set_default_policy_version(world: World, call: Call) -> Record:
    policy = _custom(world, call)
    policy["default"] = _version_named(policy, call.query["VersionId"])["id"]
    policy["updated"] = stamp(world.now())
    return {}


def attach_policy_to_role(world: World, call: Call) -> Record:
    role, policy = _role(world, call), _find(world, call)
    if any(_same(each, policy) for each in role["policies"]):
        raise error("EntityAlreadyExists.Role.Policy")
    if sum(each["type"] == policy["type"] for each in role["policies"]) >= POLICIES_A_ROLE[policy["type"]]:
        raise error("LimitExceeded.Role.Policy")
    role["policies"].append({"name": policy["name"], "type": policy["type"], "attached": stamp(world.now())})
    return {}


def detach_policy_from_role(world: World, call: Call) -> Record:
    role, policy = _role(world, call), _find(world, call)
    kept = [each for each in role["policies"] if not _same(each, policy)]
    if len(kept) == len(role["policies"]):
        raise error("EntityNotExist.Role.Policy")
    role["policies"] = kept
    return {}


def list_policies_for_role(world: World, call: Call) -> Record:
    role, policies = _role(world, call), world.data["ram"]["policies"]
    return {
        "Policies": {
            "Policy": [
                {
                    **_policy(policies[each["name"]], "PolicyName", "PolicyType", "Description", "DefaultVersion"),
                    "AttachDate": each["attached"],
                }
                for each in role["policies"]
            ]
        }
    }


def list_entities_for_policy(world: World, call: Call) -> Record:
    policy = _find(world, call)
    roles = [
        {**_role_view(role, "RoleName", "RoleId", "Arn", "Description"), "AttachDate": each["attached"]}
        for role in world.data["ram"]["roles"].values()
        for each in role["policies"]
        if _same(each, policy)
    ]
    return {"Users": {"User": []}, "Groups": {"Group": []}, "Roles": {"Role": roles}}


def get_role(world: World, call: Call) -> Record:
    role = _role(world, call)
    return {"Role": {**_role_view(role), "AssumeRolePolicyDocument": role["trust"]}}


def list_roles(world: World, call: Call) -> Record:
    tags = call.query.get("Tag", [])
    found = [
        role
        for role in sorted(world.data["ram"]["roles"].values(), key=lambda each: each["name"])
        if all(tag in role["tags"] for tag in tags)
    ]
    shown, marker = _paged(call, found)
    roles = [{**_role_view(role), "Tags": _tags(role)} for role in shown]
    answer: Record = {"IsTruncated": bool(marker), "Roles": {"Role": roles}}
    return {**answer, "Marker": marker} if marker else answer


def new_role(name: str, description: str, trust: str, when: str) -> Record:
    """The record of a role, for the seed."""
    return {
        "name": name, "description": description, "trust": trust, "created": when, "policies": [], "tags": [],
        "id": str(300000000000000000 + sum(name.encode())), "arn": f"acs:ram::{ACCOUNT_ID}:role/{name.lower()}",
        "max_session_seconds": 3600,
    }  # fmt: skip


def system_policy(name: str, description: str, document: str, when: str) -> Record:
    """The record of a system policy, for the seed."""
    return {
        "name": name, "type": "System", "description": description, "tags": [], "created": when, "updated": when,
        "default": "v1", "next": 2, "versions": [{"id": "v1", "document": document, "created": when}],
    }  # fmt: skip


def _find(world: World, call: Call) -> Record:
    """The policy named in the call. A System and a Custom policy of the same name can't both be, as in the service."""
    _check_policy_name(call.query["PolicyName"])
    _check_type(call.query["PolicyType"])
    policy: Record | None = world.data["ram"]["policies"].get(call.query["PolicyName"])
    if policy is None or policy["type"] != call.query["PolicyType"]:
        raise error("EntityNotExist.Policy")
    return policy


def _custom(world: World, call: Call) -> Record:
    """Calls that change a policy know custom ones only."""
    return _find(world, Call(call.action, call.caller, call.request_id, {}, {**call.query, "PolicyType": "Custom"}))


def _role(world: World, call: Call) -> Record:
    name = call.query["RoleName"]
    if not 1 <= len(name) <= 64:
        raise error("InvalidParameter.RoleName.Length")
    if not re.fullmatch(r"[A-Za-z0-9.-]+", name):
        raise error("InvalidParameter.RoleName.InvalidChars")
    role: Record | None = world.data["ram"]["roles"].get(name)
    if role is None:
        raise error("EntityNotExist.Role")
    return role


def _check_policy_name(name: str) -> None:
    if not 1 <= len(name) <= 128:
        raise error("InvalidParameter.PolicyName.Length")
    if not re.fullmatch(r"[A-Za-z0-9-]+", name):
        raise error("InvalidParameter.PolicyName.InvalidChars")


def _check_type(kind: str) -> None:
    if kind not in POLICIES_A_ROLE:
        raise error("InvalidParameter.PolicyType")


def _version_named(policy: Record, version_id: str) -> Record:
    if not re.fullmatch(r"v\d+", version_id):
        raise error("InvalidParameter.VersionId.Format")
    found: Record | None = next((each for each in policy["versions"] if each["id"] == version_id), None)
    if found is None:
        raise error("EntityNotExist.Policy.Version")
    return found


def _paged(call: Call, found: list[Record]) -> tuple[list[Record], str]:
    size = call.query.get("MaxItems", 100)
    if not 1 <= size <= 1000:
        raise error("InvalidParameter.MaxItems")
    try:
        return slice_after(found, call.query.get("Marker", ""), size)
    except ValueError:
        raise error("InvalidParameter.Marker") from None


def _attachments(world: World, policy: Record) -> int:
    return sum(_same(each, policy) for role in world.data["ram"]["roles"].values() for each in role["policies"])


def _same(attached: Record, policy: Record) -> bool:
    return bool(attached["name"] == policy["name"] and attached["type"] == policy["type"])


def _tags(record: Record) -> Record:
    return {"Tag": [{"TagKey": tag["Key"], "TagValue": tag.get("Value", "")} for tag in record["tags"]]}


def _policy(policy: Record, *keys: str) -> Record:
    shown = {
        "PolicyName": policy["name"], "PolicyType": policy["type"], "Description": policy["description"],
        "DefaultVersion": policy["default"], "CreateDate": policy["created"], "UpdateDate": policy["updated"],
    }  # fmt: skip
    return {key: shown[key] for key in keys} if keys else shown


def _version(policy: Record, version: Record) -> Record:
    return {
        "VersionId": version["id"], "IsDefaultVersion": version["id"] == policy["default"],
        "PolicyDocument": version["document"], "CreateDate": version["created"],
    }  # fmt: skip


def _role_view(role: Record, *keys: str) -> Record:
    shown = {
        "RoleName": role["name"], "RoleId": role["id"], "Arn": role["arn"], "Description": role["description"],
        "CreateDate": role["created"], "UpdateDate": role["created"], "MaxSessionDuration": role["max_session_seconds"],
    }  # fmt: skip
    return {key: shown[key] for key in keys} if keys else shown
