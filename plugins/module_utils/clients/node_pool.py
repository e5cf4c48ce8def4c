"""The node pools of a cluster: read, changed as the rules decided, and watched until their nodes are Ready."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.container_service import ContainerService
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.pauses import Pauses
from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud, gpu_labels
from ansible_collections.ack.ai_suite.plugins.module_utils.core import node_pool as rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core.cloud import NodePool
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_change import Observed
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_spec import Pool
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Pod


class NodePools:
    """The wanted pools of one cluster. ``timeout`` is for what ACK does, in seconds."""

    def __init__(self, connection: Connection, wanted: Sequence[Pool], *, timeout: float) -> None:
        self._service, self._kube = ContainerService(connection), Kube(connection)
        self._wanted, self._timeout = wanted, timeout
        self._tasks: list[str] = []
        self._changed: set[str] = set()

    def observe(self, *, wait: bool) -> Observed:
        """What is there. With ``wait``, pools that ACK still works on are waited for, since it refuses to change them.

        Nodes are read of pools that have some, and pods only of nodes whose mode would be flipped.
        """
        pools = self._idle() if wait else self._pools()
        ids = sorted(pool.pool_id for pool in pools if self._is_wanted(pool) and pool.status.total_nodes)
        selector = {"labelSelector": f"{gpu_labels.POOL_ID} in ({','.join(ids)})"}
        nodes = tuple(self._kube.list("/api/v1/nodes", Node, selector)) if ids else ()
        seen = Observed(pools, nodes)
        pods = [pod for name in rules.flipped(self._wanted, seen) for pod in self._pods(name)]
        return Observed(pools, nodes, tuple(pods))

    def apply(self, plan: Plan) -> None:
        """Ask for every change; ACK works on them side by side. ``finish`` waits for them."""
        for action in plan.actions:
            body = action.body["body"]
            self._changed.add(action.body["name"])
            if "pool_id" in action.body:
                started = self._service.modify_node_pool(action.body["pool_id"], body)
            else:
                started = self._service.create_node_pool(body)
            self._tasks.append(started.task_id)

    def finish(self) -> tuple[list[NodePool], list[Finding]]:
        """Wait for tasks and nodes; the pools as they are then, and a warning for each that was short before.

        Raises CloudError (CLD-TASK-...) for a task, AckError (POOL-NOT-READY) for nodes that do not become Ready.
        """
        for task in self._tasks:
            self._service.wait_for_task(task, timeout=self._timeout)
        pauses = Pauses(self._timeout)
        while True:
            pools = [pool for pool in self._pools() if self._is_wanted(pool)]
            standings = [(pool, rules.standing(pool, changed=pool.name in self._changed)) for pool in pools]
            waiting = [pool for pool, standing in standings if standing == "coming"]
            if not waiting or not pauses.wait():
                break
        short = [pool for pool, standing in standings if standing == "short"]
        found = [rules.shortage(pool, self._missing(pool)) for pool in (*waiting, *short)]
        if waiting:
            raise AckError(
                found[0].subject, f"its nodes are not all Ready after {self._timeout:.0f} s: {found[0].found}.",
                found[0].cure, found[0].code,
            )  # fmt: skip
        return pools, found

    def _pools(self) -> tuple[NodePool, ...]:
        return tuple(cloud.read(told, NodePool) for told in self._service.node_pools())

    def _is_wanted(self, pool: NodePool) -> bool:
        return any(pool.name == want.name for want in self._wanted)

    def _idle(self) -> tuple[NodePool, ...]:
        """All pools, once ACK works on none of the wanted ones."""
        pauses = Pauses(self._timeout)
        while True:
            pools = self._pools()
            busy = [pool for pool in pools if self._is_wanted(pool) and pool.status.state != "active"]
            if not busy:
                return pools
            if not pauses.wait():
                raise AckError(
                    f"pool {busy[0].name}",
                    f"ACK is still at work on it after {self._timeout:.0f} s (state {busy[0].status.state}).",
                    "Look at the cluster's tasks in the console; run again when the pool is active.", "POOL-BUSY",
                )  # fmt: skip

    def _pods(self, node: str) -> list[Pod]:
        return self._kube.list("/api/v1/pods", Pod, {"fieldSelector": f"spec.nodeName={node}"})

    def _missing(self, pool: NodePool) -> list[str]:
        """The nodes of a pool that are not Ready, each with what ACK says of it."""
        nodes = [node for node in self._service.nodes(pool.pool_id) if node.node_status != "Ready"]
        told = [
            f"{node.node_name or node.instance_id} {node.node_status or node.state}"
            + (f" ({node.error_message})" if node.error_message else "")
            for node in nodes
        ]
        return [joined(told)] if told else []
