"""ECS 2014-05-26: instances, their disks and snapshots, and what types of instance there are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.cloud import inventory
from sandbox.cloud.errors import CloudError, error
from sandbox.cloud.paging import page, slice_after
from sandbox.cloud.world import Call, World, fresh_id, stamp
from sandbox.machines.instances import INSTANCE_TYPES, family, instance_type

Record = dict[str, Any]
CLUSTER_TAG = "ack.aliyun.com"


def describe_instances(world: World, call: Call) -> Record:
    check_region(world, call)
    exact = {"InstanceName": "InstanceName", "InstanceType": "InstanceType", "Status": "Status"}
    among = {"InstanceIds": "InstanceId"}
    found = [_instance(world, key, each) for key, each in sorted(world.data["instances"].items())]
    found = [each for each in found if _fits(each, call, exact, among) and _has_tags(each, call)]
    if "PrivateIpAddresses" in call.query:
        wanted = id_list(call, "PrivateIpAddresses")
        found = [each for each in found if each["VpcAttributes"]["PrivateIpAddress"]["IpAddress"][0] in wanted]
    return paged(call, found, "Instances", "Instance", largest=100)


def describe_disks(world: World, call: Call) -> Record:
    check_region(world, call)
    exact = {"InstanceId": "InstanceId", "DiskType": "Type", "Status": "Status"}
    found = [_disk(world, key, each) for key, each in sorted(world.data["instances"].items())]
    found = [each for each in found if _fits(each, call, exact, {"DiskIds": "DiskId"})]
    return paged(call, found, "Disks", "Disk", largest=500)


def reboot_instance(world: World, call: Call) -> Record:
    instance = instance_of(world, call.query["InstanceId"])
    if instance["state"] == inventory.INITIAL:
        raise error("IncorrectInstanceStatus")
    if instance["pool_id"]:
        try:
            world.fleet.reboot(inventory.node_of(instance), "RebootInstance", force=call.query.get("ForceStop", False))
        except FileNotFoundError:
            raise error("IncorrectInstanceStatus") from None
    instance["rebooted"] = world.now().timestamp()
    return {}


def modify_instance_attribute(world: World, call: Call) -> Record:
    instance = instance_of(world, call.query["InstanceId"])
    keys = {"InstanceName": "name", "Description": "description", "DeletionProtection": "protected"}
    for parameter, key in keys.items():
        if parameter in call.query:
            instance[key] = call.query[parameter]
    return {}


def create_snapshot(world: World, call: Call) -> Record:
    disk_id, now = call.query["DiskId"], world.now()
    owner = next((key for key in world.data["instances"] if inventory.system_disk(key) == disk_id), None)
    if owner is None:
        raise error("InvalidDiskId.NotFound")
    snapshot_id = fresh_id("s-bp")[:22]
    world.data["snapshots"][snapshot_id] = {
        "disk_id": disk_id, "instance_id": owner, "name": call.query.get("SnapshotName", ""),
        "description": call.query.get("Description", ""), "tags": call.query.get("Tag", []), "created": stamp(now),
        "started": now.timestamp(), "size": _system_disk_size(world, world.data["instances"][owner]),
        "retention_days": call.query.get("RetentionDays", 0),
    }  # fmt: skip
    return {"SnapshotId": snapshot_id}


def describe_snapshots(world: World, call: Call) -> Record:
    check_region(world, call)
    snapshots = sorted(world.data["snapshots"].items(), key=lambda item: item[1]["started"])
    exact = {"DiskId": "SourceDiskId", "SnapshotName": "SnapshotName", "Status": "Status"}
    found = [
        _snapshot(world, key, each)
        for key, each in snapshots
        if call.query.get("InstanceId", each["instance_id"]) == each["instance_id"]
    ]
    found = [each for each in found if _fits(each, call, exact, {"SnapshotIds": "SnapshotId"})]
    return paged(call, [each for each in found if _has_tags(each, call)], "Snapshots", "Snapshot", largest=100)


def describe_instance_types(world: World, call: Call) -> Record:
    wanted = call.query.get("InstanceTypes")
    found = []
    for name, kind in sorted(INSTANCE_TYPES.items()):
        if (wanted is None or name in wanted) and call.query.get("InstanceTypeFamily", _family(name)) == _family(name):
            shown: Record = {
                "InstanceTypeId": name, "InstanceTypeFamily": _family(name), "CpuCoreCount": kind.cpu,
                "MemorySize": float(kind.memory_gib), "CpuArchitecture": "X86", "GPUAmount": kind.gpu_count,
                "InstanceCategory": "GPU-based compute-optimized" if kind.gpu else "General-purpose",
            }  # fmt: skip
            if kind.gpu:
                shown |= {"GPUSpec": kind.gpu.model, "GPUMemorySize": round(kind.gpu.memory_mib / 1024, 2)}
            found.append(shown)
    shown_types, token = _after(call, found, call.query.get("MaxResults", 1600))
    return {"InstanceTypes": {"InstanceType": shown_types}, "NextToken": token}


def instance_of(world: World, instance_id: str) -> Record:
    """Raises InvalidInstanceId.NotFound."""
    instance: Record | None = world.data["instances"].get(instance_id)
    if instance is None:
        raise error("InvalidInstanceId.NotFound")
    return instance


def check_region(world: World, call: Call) -> None:
    if call.query["RegionId"] != world.region_id:
        raise error("InvalidRegionId.NotFound")


def paged(call: Call, found: Sequence[Record], outer: str, inner: str, *, largest: int) -> Record:
    """By NextToken when MaxResults or NextToken is sent, else by page numbers."""
    answer: Record = {"TotalCount": len(found), "PageNumber": 1, "PageSize": 10}
    if "MaxResults" in call.query or "NextToken" in call.query:
        size = min(max(call.query.get("MaxResults", 10), 1), largest)
        shown, token = _after(call, found, size)
        return {**answer, "PageSize": size, "NextToken": token, outer: {inner: shown}}
    number, size = call.query.get("PageNumber", 1), call.query.get("PageSize", 10)
    shown = page(found, number, size, largest=largest)
    return {**answer, "PageNumber": number, "PageSize": size, "NextToken": "", outer: {inner: shown}}


def id_list(call: Call, name: str) -> list[str]:
    """A parameter that is the text of a JSON list, as `["i-1","i-2"]`."""
    try:
        value = json.loads(call.query[name])
    except ValueError:
        value = None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value) or len(value) > 100:
        raise _refused(name, "must be a JSON list of 100 strings at most")
    return value


def _after(call: Call, found: Sequence[Record], size: int) -> tuple[list[Record], str]:
    try:
        return slice_after(found, call.query.get("NextToken", ""), size)
    except ValueError:
        raise _refused("NextToken", "is not one that was given out") from None


def _fits(view: Record, call: Call, exact: Mapping[str, str], among: Mapping[str, str]) -> bool:
    return all(call.query.get(name, view[key]) == view[key] for name, key in exact.items()) and all(
        name not in call.query or view[key] in id_list(call, name) for name, key in among.items()
    )


def _has_tags(view: Record, call: Call) -> bool:
    tags = {each["TagKey"]: each["TagValue"] for each in view["Tags"]["Tag"]}
    wanted = call.query.get("Tag", [])
    return all(tag["Key"] in tags and tag.get("Value", tags[tag["Key"]]) == tags[tag["Key"]] for tag in wanted)


def _refused(name: str, why: str) -> CloudError:
    return error("InvalidParameter.Value", name=name, why=why)


def _family(name: str) -> str:
    return f"ecs.{family(name)}"


def _instance(world: World, instance_id: str, instance: Record) -> Record:
    machine, kind = instance["machine"], instance_type(instance["machine"]["instance_type"])
    cluster = world.data["cluster"]
    tags = [{"TagKey": CLUSTER_TAG, "TagValue": cluster["cluster_id"]}] if instance["pool_id"] else []
    shown: Record = {
        "InstanceId": instance_id, "InstanceName": instance["name"], "HostName": instance["name"],
        "Description": instance.get("description", ""), "DeletionProtection": instance.get("protected", False),
        "RegionId": machine["region_id"], "ZoneId": machine["zone_id"], "InstanceType": machine["instance_type"],
        "InstanceTypeFamily": _family(machine["instance_type"]), "Cpu": kind.cpu, "Memory": kind.memory_gib * 1024,
        "GPUAmount": kind.gpu_count, "GPUSpec": kind.gpu.model if kind.gpu else "",
        "OSType": "linux", "OSName": machine["os_image"], "InstanceChargeType": "PostPaid",
        "InstanceNetworkType": "vpc", "SpotStrategy": "NoSpot",
        "Status": "Starting" if instance["state"] == inventory.INITIAL else "Running",
        "CreationTime": instance["created"][:16] + "Z", "Tags": {"Tag": tags},
        "VpcAttributes": {
            "VpcId": cluster["vpc_id"], "VSwitchId": cluster["vswitch_ids"][0],
            "PrivateIpAddress": {"IpAddress": [machine["ip"]]},
        },
        "SecurityGroupIds": {"SecurityGroupId": [cluster["security_group_id"]]},
    }  # fmt: skip
    return shown


def _disk(world: World, instance_id: str, instance: Record) -> Record:
    machine, pool = instance["machine"], world.data["pools"].get(instance["pool_id"])
    return {
        "DiskId": inventory.system_disk(instance_id), "InstanceId": instance_id, "Type": "system", "Status": "In_use",
        "Device": "/dev/xvda", "Size": _system_disk_size(world, instance), "RegionId": machine["region_id"],
        "ZoneId": machine["zone_id"], "DiskName": "", "Portable": False, "DeleteWithInstance": True,
        "Category": pool["scaling_group"]["system_disk_category"] if pool else "cloud_essd",
        "CreationTime": instance["created"][:16] + "Z",
    }  # fmt: skip


def _system_disk_size(world: World, instance: Record) -> int:
    pool = world.data["pools"].get(instance["pool_id"])
    return int(pool["scaling_group"]["system_disk_size"]) if pool else 120


def _snapshot(world: World, snapshot_id: str, snapshot: Record) -> Record:
    part = (world.now().timestamp() - snapshot["started"]) / max(world.settings.task_seconds, 0.001)
    done = part >= 1
    return {
        "SnapshotId": snapshot_id, "SnapshotName": snapshot["name"], "Description": snapshot["description"],
        "SourceDiskId": snapshot["disk_id"], "SourceDiskType": "system", "SourceDiskSize": str(snapshot["size"]),
        "Status": "accomplished" if done else "progressing", "Progress": f"{min(100, int(part * 100))}%",
        "Available": done, "CreationTime": snapshot["created"], "SnapshotType": "user",
        "RetentionDays": snapshot["retention_days"], "RegionId": world.region_id,
        "Tags": {"Tag": [{"TagKey": tag["Key"], "TagValue": tag.get("Value", "")} for tag in snapshot["tags"]]},
    }  # fmt: skip
