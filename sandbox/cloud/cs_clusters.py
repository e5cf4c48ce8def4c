"""CS: the one cluster of the sandbox, its nodes, and a kubeconfig for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sandbox.cloud import access
from sandbox.cloud.errors import error
from sandbox.cloud.inventory import INITIAL, REMOVING, node_of
from sandbox.cloud.paging import page
from sandbox.cloud.world import Call, World, stamp
from sandbox.machines.instances import family

Record = dict[str, Any]
# "The system determines a longer validity period" when none is asked for.
LONG_KUBECONFIG = timedelta(days=365)


def cluster_of(world: World, call: Call) -> Record:
    """The cluster named in the path. Raises ErrorClusterNotFound."""
    cluster: Record = world.data["cluster"]
    if call.path["cluster_id"] != cluster["cluster_id"]:
        raise error("ErrorClusterNotFound", id=call.path["cluster_id"])
    return cluster


def describe_cluster_detail(world: World, call: Call) -> Record:
    return _view(world, cluster_of(world, call))


def describe_clusters_v1(world: World, call: Call) -> Record:
    cluster = world.data["cluster"]
    exact = ("cluster_id", "cluster_spec", "cluster_type", "profile", "region_id")
    fits = all(call.query.get(key, cluster[key]) == cluster[key] for key in exact)
    found = [cluster] if fits and call.query.get("name", "") in cluster["name"] else []
    number, size = call.query.get("page_number", 1), call.query.get("page_size", 10)
    left_out = ("rrsa_config", "node_cidr_mask")
    shown = [
        {key: value for key, value in _view(world, each).items() if key not in left_out}
        for each in page(found, number, size, largest=100)
    ]
    return {
        "clusters": shown, "page_info": {"page_number": number, "page_size": size, "total_count": len(found)},
    }  # fmt: skip


def describe_cluster_nodes(world: World, call: Call) -> Record:
    cluster_of(world, call)
    nodes, query = world.fleet.nodes(), call.query
    found = [
        _node_view(world, instance_id, instance, nodes.get(node_of(instance)))
        for instance_id, instance in sorted(world.data["instances"].items())
        if instance["pool_id"] and query.get("nodepool_id", instance["pool_id"]) == instance["pool_id"]
    ]
    found = [each for each in found if _wanted(each, query, nodes)]
    number, size = _number(query, "pageNumber", 1), _number(query, "pageSize", 10)
    return {
        "nodes": page(found, number, size, largest=100),
        "page": {"page_number": number, "page_size": size, "total_count": len(found)},
    }


def describe_cluster_user_kubeconfig(world: World, call: Call) -> Record:
    cluster_of(world, call)
    minutes = call.query.get("TemporaryDurationMinutes")
    if minutes is not None and not 15 <= minutes <= 4320:
        raise error("InvalidParameter.TemporaryDurationMinutes")
    lifetime = LONG_KUBECONFIG if minutes is None else timedelta(minutes=minutes)
    config = access.kubeconfig(world.settings.state, call.caller.user, lifetime)
    return {"config": config, "expiration": stamp(world.now() + lifetime)}


def ready(node: Mapping[str, Any] | None) -> str:
    """Ready, NotReady, Unknown, or Offline when there is no Node object."""
    if node is None:
        return "Offline"
    conditions = {each["type"]: each["status"] for each in node.get("status", {}).get("conditions") or []}
    return {"True": "Ready", "Unknown": "Unknown"}.get(conditions.get("Ready", "Unknown"), "NotReady")


def _view(world: World, cluster: Record) -> Record:
    server = access.api_server(world.settings.state)
    endpoints = {"api_server_endpoint": server, "intranet_api_server_endpoint": server}
    size = sum(1 for each in world.data["instances"].values() if each["pool_id"])
    return {
        **cluster, "size": size, "master_url": json.dumps(endpoints),
        "meta_data": json.dumps({"Addons": [{"name": name} for name in sorted(world.data["addons"])]}),
    }  # fmt: skip


def _node_view(world: World, instance_id: str, instance: Record, node: Record | None) -> Record:
    machine, pool = instance["machine"], world.data["pools"].get(instance["pool_id"])
    scaling = pool["scaling_group"] if pool else {}
    state = instance["state"]
    return {
        "instance_id": instance_id, "instance_name": instance["name"], "node_name": node_of(instance),
        "host_name": instance["name"], "nodepool_id": instance["pool_id"], "instance_type": machine["instance_type"],
        "instance_type_family": f"ecs.{family(machine['instance_type'])}", "image_id": scaling.get("image_id", ""),
        "instance_charge_type": scaling.get("instance_charge_type", "PostPaid"), "instance_role": "Worker",
        "instance_status": "Pending" if state == INITIAL and node is None else "Running",
        "ip_address": [machine["ip"]], "is_aliyun_node": True, "source": "ess_attach",
        "spot_strategy": scaling.get("spot_strategy", "NoSpot"), "creation_time": instance["created"],
        "state": state, "node_status": ready(node), "error_message": instance.get("error", ""),
    }  # fmt: skip


def _wanted(node: Record, query: Mapping[str, Any], nodes: Mapping[str, Record]) -> bool:
    labels = (nodes.get(node["node_name"]) or {}).get("metadata", {}).get("labels", {})
    pairs = [each.split("=", 1) for each in _listed(query, "nodeLabels")]
    state = query.get("state", "all")
    if state not in ("all", "running", INITIAL, REMOVING, "failed"):
        raise error("InvalidParameter.Paging", name="state", expected="all, running, removing, initial or failed")
    return (
        state in ("all", node["state"])
        and ("instanceIds" not in query or node["instance_id"] in _listed(query, "instanceIds"))
        and ("nodeNames" not in query or node["node_name"] in _listed(query, "nodeNames"))
        and ("nodeIps" not in query or node["ip_address"][0] in _listed(query, "nodeIps"))
        and all(len(pair) == 2 and labels.get(pair[0]) == pair[1] for pair in pairs)
    )


def _listed(query: Mapping[str, Any], name: str) -> list[str]:
    return [each for each in query.get(name, "").split(",") if each]


def _number(query: Mapping[str, Any], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdigit():
        raise error("InvalidParameter.Paging", name=name, expected="a number")
    return int(text)
