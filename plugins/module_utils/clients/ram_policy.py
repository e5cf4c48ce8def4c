"""The worker roles of a cluster and the policy that authorises them: read, and changed as the rules decided."""

from __future__ import annotations

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.container_service import ContainerService
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi import CloudError, OpenApi
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.resource_access import PolicyVersion, ResourceAccess
from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud
from ansible_collections.ack.ai_suite.plugins.module_utils.core import ram_policy as rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan


class Authorisation:
    """One policy and the roles that it is for."""

    def __init__(self, connection: Connection, want: rules.Wanted) -> None:
        api = OpenApi(connection)
        self._cluster_id = connection.cluster_id
        self._service, self._access = ContainerService(connection, api), ResourceAccess(connection, api)
        self._want = want

    def observe(self) -> rules.Observed:
        name, found = self._want.name, self._access.policy(self._want.name)
        texts = {} if found is None else {f"Custom/{name}": found[1].policy_document}
        return rules.Observed(
            policy=None if found is None else self._policy(found[0].description, found[1]),
            roles=tuple(self._role(role, texts) for role in self._want.roles or self._worker_roles()),
            system=found is None and self._access.policy(name, "System") is not None,
        )

    def apply(self, plan: Plan) -> None:
        for action in plan.actions:
            body = action.body
            match body["call"]:
                case "create":
                    self._access.create_policy(self._want.name, body["text"], rules.DESCRIPTION)
                case "add":
                    self._access.create_version(self._want.name, body["text"], rotate=body["rotate"])
                case "attach":
                    self._access.attach(self._want.name, body["role"])

    def _policy(self, description: str, default: PolicyVersion) -> rules.Policy:
        told = self._access.versions(self._want.name)
        versions = tuple(rules.Version(each.version_id, each.is_default_version, each.create_date) for each in told)
        oldest = rules.oldest_to_go(versions)
        text = self._access.version(self._want.name, oldest.version_id).policy_document if oldest else ""
        return rules.Policy(description, default.version_id, default.policy_document, versions, text)

    def _worker_roles(self) -> tuple[str, ...]:
        pools = [cloud.read(told, cloud.NodePool) for told in self._service.node_pools()]
        own_roles = {pool.name: pool.scaling_group.ram_role_name for pool in pools}
        return rules.worker_roles(self._cluster_id, self._service.cluster().worker_ram_role_name, own_roles)

    def _role(self, name: str, texts: dict[str, str]) -> rules.Role:
        """A role with what is attached to it; ``texts`` keeps the documents for the next role."""
        try:
            attached = [(policy.policy_type, policy.policy_name) for policy in self._access.policies_of_role(name)]
        except CloudError as problem:
            if problem.reason != "EntityNotExist.Role":
                raise
            raise CloudError(
                f"RAM role {name}", "it does not exist.",
                "Check cluster_id and account, or name the role of the nodes in ram_policy_roles.", "RAM-ROLE-MISSING",
                status=problem.status, reason=problem.reason, request_id=problem.request_id,
            ) from None  # fmt: skip
        for kind, policy in attached:
            if f"{kind}/{policy}" not in texts:
                found = self._access.policy(policy, "System" if kind == "System" else "Custom")
                texts[f"{kind}/{policy}"] = found[1].policy_document if found else ""
        return rules.Role(name, {f"{kind}/{policy}": texts[f"{kind}/{policy}"] for kind, policy in attached})
