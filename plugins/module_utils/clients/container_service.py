"""CS, the API of ACK: the cluster, its node pools and their nodes, and the tasks that change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi import CloudError, OpenApi
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.pauses import Pauses
from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud

_PAGE = 100


class Started(msgspec.Struct, frozen=True):
    """What a change of a node pool answers. ``task_id`` may be empty: then the pool itself has to be watched."""

    nodepool_id: str = ""
    task_id: str = ""


class ContainerService:
    """The cluster of the connection, as the CS API shows it."""

    def __init__(self, connection: Connection, api: OpenApi | None = None) -> None:
        if not connection.cluster_id:
            raise CloudError(
                "ack_connection.cluster_id", "it is not set.", "Write the id of the ACK cluster (c and 32 characters).",
                "CLD-CONFIG",
            )  # fmt: skip
        self._path = f"/clusters/{quote(connection.cluster_id, safe='')}"
        self._api = api or OpenApi(connection)

    def cluster(self) -> cloud.Cluster:
        return cloud.read(self._api.roa("DescribeClusterDetail", "GET", self._path), cloud.Cluster)

    def node_pools(self) -> list[dict[str, Any]]:
        """All pools, whole; ``core.cloud.read(each, NodePool)`` gives what the rules need of one."""
        answer = self._api.roa("DescribeClusterNodePools", "GET", f"{self._path}/nodepools")
        return list(answer.get("nodepools") or ())

    def node_pool(self, pool_id: str) -> dict[str, Any]:
        return dict(self._api.roa("DescribeClusterNodePoolDetail", "GET", self._pool(pool_id)))

    def create_node_pool(self, body: Mapping[str, Any]) -> Started:
        """Not idempotent: after an unsure answer look for the name before doing it again."""
        answer = self._api.roa("CreateClusterNodePool", "POST", f"{self._path}/nodepools", body=body)
        return cloud.read(answer, Started)

    def modify_node_pool(self, pool_id: str, body: Mapping[str, Any]) -> Started:
        """Lists in the body replace what the pool has: send them complete. What is left out stays."""
        return cloud.read(
            self._api.roa("ModifyClusterNodePool", "PUT", self._pool(pool_id), body=body), Started
        )  # fmt: skip

    def nodes(self, pool_id: str) -> list[cloud.PoolNode]:
        """The instances of a pool, also those that have no Node object yet."""
        found: list[cloud.PoolNode] = []
        while True:
            query = {"nodepool_id": pool_id, "pageSize": _PAGE, "pageNumber": 1 + len(found) // _PAGE}
            answer = self._api.roa("DescribeClusterNodes", "GET", f"{self._path}/nodes", query=query)
            page = [cloud.read(node, cloud.PoolNode) for node in answer.get("nodes") or ()]
            found += page
            if len(page) < _PAGE:
                return found

    def task(self, task_id: str) -> cloud.Task:
        return cloud.read(self._api.roa("DescribeTaskInfo", "GET", f"/tasks/{quote(task_id, safe='')}"), cloud.Task)

    def wait_for_task(self, task_id: str, *, timeout: float) -> None:
        """Wait until a task has succeeded. An empty id is nothing to wait for: watch the resource.

        Raises CloudError: CLD-TASK-FAILED with the task's own words, CLD-TASK-TIMEOUT after ``timeout`` seconds. The
        task goes on by itself; the next run finds what it leaves.
        """
        pauses = Pauses(timeout)
        while task_id:
            task = self.task(task_id)
            if task.state == "success":
                return
            if task.ended:
                raise CloudError(
                    f"ACK task {task_id} ({task.task_type})",
                    f"ended in {task.state}: {task.error.code} {task.error.message or 'no reason given'}.",
                    "Mend what it says and run again: the next run goes on from what is there.", "CLD-TASK-FAILED",
                    status=200, reason=task.error.code,
                )  # fmt: skip
            if not pauses.wait():
                raise CloudError(
                    f"ACK task {task_id} ({task.task_type})", f"is still {task.state} after {timeout:.0f} s.",
                    "It goes on by itself: run again later, or look at the cluster's tasks in the console.",
                    "CLD-TASK-TIMEOUT", status=200,
                )  # fmt: skip

    def _pool(self, pool_id: str) -> str:
        return f"{self._path}/nodepools/{quote(pool_id, safe='')}"
