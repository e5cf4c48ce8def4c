"""The RAM policy that lets the AI console read the cluster: which one, what has to change, and whether that is enough.

Sources: "Operate and maintain the cloud-native AI suite" (policy document, name, role), RAM API reference (limits).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import ram_document
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Action, Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.ram_document import Document

GUIDE = "Operate and maintain the cloud-native AI suite: grant RAM permissions to the worker role"
LIMITS = "RAM API reference: CreatePolicy, CreatePolicyVersion; RAM limits (2021)"

ACTIONS = (
    "cs:*",
    "log:GetProject", "log:GetLogStore", "log:GetConfig", "log:GetMachineGroup", "log:GetAppliedMachineGroups",
    "log:GetAppliedConfigs", "log:GetIndex", "log:GetSavedSearch", "log:GetDashboard", "log:GetJob",
    "ecs:DescribeInstances", "ecs:DescribeSpotPriceHistory", "ecs:DescribePrice",
    "eci:DescribeContainerGroups", "eci:DescribeContainerGroupPrice",
    "log:GetLogStoreLogs",
    "ims:CreateApplication", "ims:UpdateApplication", "ims:GetApplication", "ims:ListApplications",
    "ims:DeleteApplication", "ims:CreateAppSecret", "ims:GetAppSecret", "ims:ListAppSecretIds", "ims:ListUsers",
)  # fmt: skip
DOCUMENT: Mapping[str, Any] = {
    "Version": "1",
    "Statement": [{"Effect": "Allow", "Action": list(ACTIONS), "Resource": "*"}],
}
# A policy that this collection made says so in its description; RAM lets nobody change that by accident.
MARK = "Managed by ack.ai_suite"
DESCRIPTION = f"{MARK}: what the consoles of the cloud-native AI suite need of the worker role"

VERSIONS_A_POLICY = 5
CUSTOM_POLICIES_A_ROLE = 5
_NAME = re.compile(r"[A-Za-z0-9-]{1,128}")


class Wanted(msgspec.Struct, frozen=True):
    """What is asked for. ``mode`` is merge or exact; no roles means the worker roles of the cluster."""

    name: str
    document: Document
    mode: str = "merge"
    roles: tuple[str, ...] = ()


class Version(msgspec.Struct, frozen=True):
    version_id: str
    default: bool
    created: str


class Policy(msgspec.Struct, frozen=True):
    """The policy as it is, with its default version's text and, where it will be rotated away, the oldest one's."""

    description: str
    default_version: str
    text: str
    versions: tuple[Version, ...] = ()
    oldest_text: str = ""

    @property
    def ours(self) -> bool:
        return self.description.startswith(MARK)


class Role(msgspec.Struct, frozen=True):
    """A role and the texts of the policies that are attached to it, by type and name (``Custom/suite``)."""

    name: str
    attached: dict[str, str]


class Observed(msgspec.Struct, frozen=True):
    """``policy`` is None when it does not exist; ``system`` says that a System policy has its name."""

    policy: Policy | None
    roles: tuple[Role, ...]
    system: bool = False


def wanted(cluster_id: str, name: str, document: Any, mode: str, roles: tuple[str, ...]) -> Wanted:
    """What the options mean. Raises AckError (RAM-NAME, RAM-DOCUMENT, RAM-TOO-LONG) for what RAM would refuse."""
    name = name or f"k8sWorkerRolePolicy-{cluster_id}"
    if not _NAME.fullmatch(name):
        raise AckError(
            f"RAM policy {name!r}", f"a name has 1 to 128 letters, digits and '-' ({len(name)} characters found).",
            "Correct ram_policy_name.", "RAM-NAME",
        )  # fmt: skip
    parsed = ram_document.parse(document or DOCUMENT, f"RAM policy {name}")
    _check_length(name, parsed)
    return Wanted(name, parsed, mode, roles)


def worker_roles(cluster_id: str, told: str, pools: Mapping[str, str]) -> tuple[str, ...]:
    """The roles of the cluster's nodes: the cluster's own, and those of pools that have one (``pools``: by name)."""
    return tuple(
        dict.fromkeys([told or f"KubernetesWorkerRole-{cluster_id}", *(role for role in pools.values() if role)])
    )


def oldest_to_go(versions: tuple[Version, ...]) -> Version | None:
    """The version that makes room for another: the oldest by date that is not the default; None when there is room."""
    if len(versions) < VERSIONS_A_POLICY:
        return None
    return min((each for each in versions if not each.default), key=lambda each: (each.created, each.version_id))


def decide(want: Wanted, seen: Observed) -> Plan:
    """Bring the policy up to date and attach it. Raises AckError where something that is not ours would be changed."""
    have = _document(want, seen)
    after = _after(want, seen, have)
    _check_length(want.name, after)
    change = () if have is not None and ram_document.same(have, after) else (_change(want, seen, after),)
    key = f"Custom/{want.name}"
    attach = tuple(
        Action("attach", f"RAM policy {want.name} to role {role.name}", {"call": "attach", "role": role.name})
        for role in seen.roles
        if key not in role.attached
    )
    roles = [_authorisation(role, key, after) for role in seen.roles]
    return Plan(
        actions=(*change, *attach),
        findings=tuple(_findings(want, seen, after, roles)),
        before=_shown(want, have, [role.name for role in seen.roles if key in role.attached]),
        after=_shown(want, after, [role.name for role in seen.roles]),
        facts={"policy": want.name, "roles": roles, **_rotated(seen, bool(change))},
    )


def _document(want: Wanted, seen: Observed) -> Document | None:
    if seen.system:
        raise AckError(
            f"RAM policy {want.name}", "a System policy has this name; those belong to Alibaba Cloud.",
            "Set ram_policy_name to a name of your own.", "RAM-SYSTEM",
        )  # fmt: skip
    return None if seen.policy is None else ram_document.parse(seen.policy.text, f"RAM policy {want.name} as it is")


def _after(want: Wanted, seen: Observed, have: Document | None) -> Document:
    if seen.policy is None or have is None:
        return want.document
    if want.mode == "merge":
        return ram_document.joined(have, want.document, ours=seen.policy.ours)
    if ram_document.same(have, want.document):
        return have
    if not seen.policy.ours:
        raise AckError(
            f"RAM policy {want.name}", "it differs, and its description does not say that this collection made it.",
            "Use ram_policy_mode: merge, which takes nothing away, or another ram_policy_name.", "RAM-NOT-OURS",
        )  # fmt: skip
    return want.document


def _change(want: Wanted, seen: Observed, after: Document) -> Action:
    body = {"call": "create", "text": ram_document.text(after)}
    if seen.policy is None:
        return Action("create", f"RAM policy {want.name}", body)
    oldest = oldest_to_go(seen.policy.versions)
    told = f", in place of the oldest, {oldest.version_id}" if oldest else ""
    return Action("add", f"a default version to RAM policy {want.name}{told}",
                  {**body, "call": "add", "rotate": bool(oldest)})  # fmt: skip


def _rotated(seen: Observed, changes: bool) -> dict[str, Any]:
    oldest = oldest_to_go(seen.policy.versions) if seen.policy and changes else None
    if seen.policy is None or oldest is None:
        return {}
    return {"rotated": {"version_id": oldest.version_id, "document": seen.policy.oldest_text}}


def _authorisation(role: Role, key: str, after: Document) -> dict[str, Any]:
    """Whether the role may do all that the guide lists, with what is missing, and what it may do beyond the list."""
    documents, unreadable = {key: after}, []
    for name, text in role.attached.items():
        try:
            documents.setdefault(name, ram_document.parse(text, name))
        except AckError:
            unreadable.append(name)
    why = {action: ram_document.why_not(action, documents) for action in ACTIONS}
    missing = {action: reason for action, reason in why.items() if reason}
    return {
        "role": role.name,
        "status": "Unauthorized" if missing else "Authorized",
        "missing": missing,
        "beyond": {
            name: excess
            for name, document in documents.items()
            if (excess := list(dict.fromkeys(ram_document.beyond(document, ACTIONS))))
        },
        "unreadable": unreadable,
    }


def _findings(want: Wanted, seen: Observed, after: Document, roles: list[dict[str, Any]]) -> Iterator[Finding]:
    for told in roles:
        yield from _of_role(told)
    for role in seen.roles:
        others = [name for name in role.attached if name.startswith("Custom/") and name != f"Custom/{want.name}"]
        if len(others) >= CUSTOM_POLICIES_A_ROLE and f"Custom/{want.name}" not in role.attached:
            yield Finding(
                "RAM-ROLE-FULL", f"role {role.name}", f"{len(others)} custom policies: {joined(others)}",
                f"at most {CUSTOM_POLICIES_A_ROLE}, unless the quota of the account is higher",
                "If RAM refuses: detach one that is not needed, or have the quota raised.", "warning", LIMITS,
            )  # fmt: skip
    if any("cs:*" in statement.actions for statement in after if statement.allows and not statement.actions_but):
        yield Finding(
            "RAM-WIDE", f"RAM policy {want.name}", "cs:*",
            "only what is needed: pods on the nodes can use the worker role through the metadata service",
            "The guide asks for it. Where it is too wide, give another ram_policy_document, and RRSA to the consoles.",
            "info", GUIDE,
        )  # fmt: skip


def _of_role(told: dict[str, Any]) -> Iterator[Finding]:
    subject = f"role {told['role']}"
    if told["missing"]:
        missing = joined([f"{action} ({why})" for action, why in told["missing"].items()])
        yield Finding(
            "RAM-UNAUTHORIZED", subject, f"Unauthorized: {missing}", "every action of the guide",
            "Remove the Deny, or take what is missing into ram_policy_document.", "warning", GUIDE,
        )  # fmt: skip
    if told["unreadable"]:
        yield Finding(
            "RAM-UNREADABLE", subject, joined(told["unreadable"]), "documents in RAM's syntax",
            "Look whether they deny something that the consoles need.", "warning", GUIDE,
        )  # fmt: skip


def _check_length(name: str, document: Document) -> None:
    length = len(ram_document.text(document))
    if length > ram_document.LONGEST:
        raise AckError(
            f"RAM policy {name}", f"the document would have {length} characters; RAM takes {ram_document.LONGEST}.",
            "Shorten it, or use a policy of its own (ram_policy_name).", "RAM-TOO-LONG",
        )  # fmt: skip


def _shown(want: Wanted, document: Document | None, attached: list[str]) -> dict[str, Any]:
    return {
        "policy": want.name,
        "document": None if document is None else ram_document.plain(document),
        "attached_to": sorted(attached),
    }
