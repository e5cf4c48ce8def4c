"""RAM: custom policies, their versions, and what is attached to a role."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi import CloudError, OpenApi
from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud

Kind = Literal["Custom", "System"]


class PolicyVersion(msgspec.Struct, frozen=True, rename="pascal"):
    version_id: str
    is_default_version: bool = False
    create_date: str = ""
    policy_document: str = ""


class Policy(msgspec.Struct, frozen=True, rename="pascal"):
    policy_name: str
    policy_type: str = "Custom"
    description: str = ""
    default_version: str = ""


class ResourceAccess:
    """RAM of the account. Names are unique in it, for all regions and clusters."""

    def __init__(self, connection: Connection, api: OpenApi | None = None) -> None:
        self._api = api or OpenApi(connection)

    def policy(self, name: str, kind: Kind = "Custom") -> tuple[Policy, PolicyVersion] | None:
        """A policy and its default version, or None when there is no such policy."""
        answer = self._found("GetPolicy", PolicyName=name, PolicyType=kind)
        if answer is None:
            return None
        told = {**answer["DefaultPolicyVersion"], "IsDefaultVersion": True}
        return cloud.read(answer["Policy"], Policy), cloud.read(told, PolicyVersion)

    def versions(self, name: str) -> list[PolicyVersion]:
        answer = self._api.rpc("ram", "ListPolicyVersions", {"PolicyName": name, "PolicyType": "Custom"})
        return [cloud.read(told, PolicyVersion) for told in answer["PolicyVersions"]["PolicyVersion"]]

    def version(self, name: str, version_id: str) -> PolicyVersion:
        """A version with its document, which lists leave out."""
        answer = self._api.rpc(
            "ram", "GetPolicyVersion", {"PolicyName": name, "PolicyType": "Custom", "VersionId": version_id}
        )
        return cloud.read(answer["PolicyVersion"], PolicyVersion)

    def policies_of_role(self, role: str) -> list[Policy]:
        """What is attached to a role; RAM gives all of it in one answer."""
        answer = self._api.rpc("ram", "ListPoliciesForRole", {"RoleName": role})
        return [cloud.read(told, Policy) for told in answer["Policies"]["Policy"]]

    def create_policy(self, name: str, document: str, description: str) -> None:
        self._write("CreatePolicy", PolicyName=name, PolicyDocument=document, Description=description)

    def create_version(self, name: str, document: str, *, rotate: bool) -> None:
        """A new version that is the default at once; with ``rotate`` RAM lets the oldest other one go in the same step,
        so that a refusal (document too long, throttled) costs no version."""
        strategy = "DeleteOldestNonDefaultVersionWhenLimitExceeded" if rotate else None
        answer = self._write(
            "CreatePolicyVersion",
            PolicyName=name,
            PolicyDocument=document,
            SetAsDefault=True,
            RotateStrategy=strategy,
        )
        made = answer["PolicyVersion"]
        if not made["IsDefaultVersion"]:
            raise CloudError(
                f"RAM policy {name}", f"version {made['VersionId']} was made, but is not the default.",
                "Make it the default in the RAM console.", "RAM-NOT-DEFAULT", status=200,
            )  # fmt: skip

    def attach(self, name: str, role: str, kind: Kind = "Custom") -> None:
        """Attach a policy to a role; that it is attached already is fine."""
        try:
            self._write("AttachPolicyToRole", PolicyName=name, PolicyType=kind, RoleName=role)
        except CloudError as problem:
            if problem.reason != "EntityAlreadyExists.Role.Policy":
                raise

    def _found(self, action: str, **parameters: str) -> Any:
        try:
            return self._api.rpc("ram", action, parameters)
        except CloudError as problem:
            if problem.reason.startswith("EntityNotExist"):
                return None
            raise

    def _write(self, action: str, **parameters: Any) -> Any:
        return self._api.rpc("ram", action, parameters, write=True)
