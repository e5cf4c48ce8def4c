"""What the table of GPU memory is made of: two raw lists, read at the same time, or a file."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import files
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.core.gpu_inspect import Usage, usage
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Pod, from_json

_UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


def live(kube: Kube, only: Collection[str] = ()) -> Usage:
    """The usage of a cluster; ``only`` are names of the nodes to show."""
    with ThreadPoolExecutor(2) as workers:
        nodes = workers.submit(kube.list, "/api/v1/nodes", Node)
        pods = workers.submit(kube.list, "/api/v1/pods", Pod, _UNFINISHED)
        return usage(nodes.result(), pods.result(), only)


def of_file(path: str, only: Collection[str] = ()) -> Usage:
    """The usage of a file that ``kubectl get nodes,pods -A -o json`` wrote."""
    snapshot = from_json(files.read(path), path)
    return usage(snapshot.nodes, snapshot.pods, only)
