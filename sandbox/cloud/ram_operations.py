"""RAM 2015-05-01: the declarations of its calls."""

from __future__ import annotations

from sandbox.cloud import ram
from sandbox.cloud.registry import Operation

_TAGS = [{"Key": str, "Value": str}]
_POLICY = {"PolicyName": str, "PolicyType": str}
_VERSION = {"PolicyName": str, "VersionId": str}
_ATTACHMENT = {**_POLICY, "RoleName": str}
_PAGE = {"Marker": str, "MaxItems": int}

OPERATIONS = (
    Operation(
        "RAM", "CreatePolicy", ram.create_policy, write=True, required=("PolicyName", "PolicyDocument"),
        query={"PolicyName": str, "PolicyDocument": str, "Description": str, "Tag": _TAGS},
    ),
    Operation("RAM", "GetPolicy", ram.get_policy, write=False, query=_POLICY, required=tuple(_POLICY)),
    Operation("RAM", "ListPolicies", ram.list_policies, write=False, query={**_PAGE, "PolicyType": str, "Tag": _TAGS}),
    Operation(
        "RAM", "DeletePolicy", ram.delete_policy, write=True, required=("PolicyName",),
        query={"PolicyName": str, "CascadingDelete": bool},
    ),
    Operation(
        "RAM", "CreatePolicyVersion", ram.create_policy_version, write=True, required=("PolicyName", "PolicyDocument"),
        query={"PolicyName": str, "PolicyDocument": str, "SetAsDefault": bool, "RotateStrategy": str},
    ),
    Operation(
        "RAM", "ListPolicyVersions", ram.list_policy_versions, write=False, query=_POLICY, required=tuple(_POLICY),
    ),
    Operation(
        "RAM", "GetPolicyVersion", ram.get_policy_version, write=False,
        query={**_POLICY, "VersionId": str}, required=(*_POLICY, "VersionId"),
    ),
    Operation(
        "RAM", "DeletePolicyVersion", ram.delete_policy_version, write=True, query=_VERSION, required=tuple(_VERSION),
    ),
    Operation(
        "RAM", "SetDefaultPolicyVersion", ram.set_default_policy_version, write=True,
        query=_VERSION, required=tuple(_VERSION),
    ),
    Operation(
        "RAM", "AttachPolicyToRole", ram.attach_policy_to_role, write=True,
        query=_ATTACHMENT, required=tuple(_ATTACHMENT),
    ),
    Operation(
        "RAM", "DetachPolicyFromRole", ram.detach_policy_from_role, write=True,
        query=_ATTACHMENT, required=tuple(_ATTACHMENT),
    ),
    Operation(
        "RAM", "ListPoliciesForRole", ram.list_policies_for_role, write=False,
        query={"RoleName": str}, required=("RoleName",),
    ),
    Operation(
        "RAM", "ListEntitiesForPolicy", ram.list_entities_for_policy, write=False,
        query=_POLICY, required=tuple(_POLICY),
    ),
    Operation("RAM", "GetRole", ram.get_role, write=False, query={"RoleName": str}, required=("RoleName",)),
    Operation("RAM", "ListRoles", ram.list_roles, write=False, query={**_PAGE, "Tag": _TAGS}),
)  # fmt: skip
