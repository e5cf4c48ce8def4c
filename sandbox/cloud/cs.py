"""CS 2015-12-15: the declarations of its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.cloud import cs_addons, cs_clusters, cs_fields, cs_nodepools, cs_tasks
from sandbox.cloud.registry import Operation
from sandbox.cloud.shapes import Shape

_CLUSTER = "/clusters/{cluster_id}"
_POOL = _CLUSTER + "/nodepools/{nodepool_id}"
_CLUSTER_KIND = {"cluster_spec": str, "cluster_type": str, "profile": str, "region_id": str, "cluster_id": str}


def _read(action: str, path: str, handler: Callable[..., Any], query: dict[str, Shape] | None = None) -> Operation:
    return Operation("CS", action, handler, write=False, method="GET", path=path, query=query or {})


def _write(method: str, action: str, path: str, handler: Callable[..., Any], **more: Any) -> Operation:
    return Operation("CS", action, handler, write=True, method=method, path=path, **more)


def _task(method: str, action: str, path: str, handler: Callable[..., Any], **more: Any) -> Operation:
    return _write(method, action, path, handler, makes_task=True, **more)


OPERATIONS = (
    _read(
        "DescribeClustersV1", "/api/v1/clusters", cs_clusters.describe_clusters_v1,
        {**_CLUSTER_KIND, "name": str, "page_number": int, "page_size": int},
    ),
    _read("DescribeClusterDetail", _CLUSTER, cs_clusters.describe_cluster_detail),
    _read(
        "DescribeClusterNodes", _CLUSTER + "/nodes", cs_clusters.describe_cluster_nodes,
        {
            "instanceIds": str, "nodeIps": str, "nodeLabels": str, "nodeNames": str, "nodepool_id": str,
            "pageNumber": str, "pageSize": str, "state": str,
        },
    ),
    _read(
        "DescribeClusterUserKubeconfig", "/k8s/{cluster_id}/user_config", cs_clusters.describe_cluster_user_kubeconfig,
        {"PrivateIpAddress": bool, "TemporaryDurationMinutes": int},
    ),
    # node pools
    _read(
        "DescribeClusterNodePools", _CLUSTER + "/nodepools", cs_nodepools.describe_cluster_node_pools,
        {"NodepoolName": str},
    ),
    _read("DescribeClusterNodePoolDetail", _POOL, cs_nodepools.describe_cluster_node_pool_detail),
    _task(
        "POST", "CreateClusterNodePool", _CLUSTER + "/nodepools", cs_nodepools.create_cluster_node_pool,
        body=cs_fields.CREATE,
    ),
    _task("PUT", "ModifyClusterNodePool", _POOL, cs_nodepools.modify_cluster_node_pool, body=cs_fields.MODIFY),
    _task(
        "POST", "ScaleClusterNodePool", _POOL, cs_nodepools.scale_cluster_node_pool,
        body={"count": int}, required=("count",),
    ),
    _task(
        "POST", "AttachInstancesToNodePool", _POOL + "/attach", cs_nodepools.attach_instances_to_node_pool,
        body={"instances": [str], "format_disk": bool, "keep_instance_name": bool, "password": str},
        required=("instances",),
    ),
    _task(
        "DELETE", "RemoveNodePoolNodes", _POOL + "/nodes", cs_nodepools.remove_node_pool_nodes,
        query={
            "instance_ids": [str], "nodes": [str], "drain_node": bool, "release_node": bool, "concurrency": bool,
        },
    ),
    _task(
        "DELETE", "DeleteClusterNodepool", _POOL, cs_nodepools.delete_cluster_nodepool, query={"force": bool},
    ),
    # tasks
    _read("DescribeTaskInfo", "/tasks/{task_id}", cs_tasks.describe_task_info),
    _read(
        "DescribeClusterTasks", _CLUSTER + "/tasks", cs_tasks.describe_cluster_tasks,
        {"page_number": int, "page_size": int, "max_results": int, "next_token": str},
    ),
    _write("POST", "CancelTask", "/tasks/{task_id}/cancel", cs_tasks.cancel_task),
    _write("POST", "PauseTask", "/tasks/{task_id}/pause", cs_tasks.pause_task),
    _write("POST", "ResumeTask", "/tasks/{task_id}/resume", cs_tasks.resume_task),
    # add-ons
    _read("ListAddons", "/addons", cs_addons.list_addons, {**_CLUSTER_KIND, "cluster_version": str}),
    _read(
        "DescribeAddon", "/addons/{addon_name}", cs_addons.describe_addon,
        {**_CLUSTER_KIND, "cluster_version": str, "version": str},
    ),
    _read("ListClusterAddonInstances", _CLUSTER + "/addon_instances", cs_addons.list_cluster_addon_instances),
    _read(
        "GetClusterAddonInstance", _CLUSTER + "/addon_instances/{instance_name}", cs_addons.get_cluster_addon_instance,
    ),
    _read(
        "DescribeClusterAddonsVersion", _CLUSTER + "/components/version", cs_addons.describe_cluster_addons_version,
    ),
    _task(
        "POST", "InstallClusterAddons", _CLUSTER + "/components/install", cs_addons.install_cluster_addons,
        body=[{"name": str, "version": str, "config": str}],
    ),
    _task(
        "POST", "UpgradeClusterAddons", _CLUSTER + "/components/upgrade", cs_addons.upgrade_cluster_addons,
        body=[{"component_name": str, "next_version": str, "version": str, "config": str, "policy": str}],
    ),
    _write(
        "POST", "ModifyClusterAddon", _CLUSTER + "/components/{component_id}/config", cs_addons.modify_cluster_addon,
        body={"config": str}, required=("config",),
    ),
    _task(
        "POST", "UnInstallClusterAddons", _CLUSTER + "/components/uninstall", cs_addons.uninstall_cluster_addons,
        body=[{"name": str, "cleanup_cloud_resources": bool}],
    ),
)  # fmt: skip
