"""ECS 2014-05-26: the declarations of its calls. A filter that the endpoint does not honour is refused, not ignored."""

from __future__ import annotations

from sandbox.cloud import ecs, ecs_assistant
from sandbox.cloud.registry import Operation

_TAGS = [{"Key": str, "Value": str}]
_REGION = ("RegionId",)
_PAGE = {"PageNumber": int, "PageSize": int, "MaxResults": int, "NextToken": str, "RegionId": str}

OPERATIONS = (
    Operation(
        "ECS", "DescribeInstances", ecs.describe_instances, write=False, required=_REGION,
        query={
            **_PAGE, "InstanceIds": str, "InstanceName": str, "InstanceType": str, "PrivateIpAddresses": str,
            "Status": str, "Tag": _TAGS,
        },
    ),
    Operation(
        "ECS", "DescribeInstanceTypes", ecs.describe_instance_types, write=False,
        query={"InstanceTypes": [str], "InstanceTypeFamily": str, "MaxResults": int, "NextToken": str},
    ),
    Operation(
        "ECS", "RebootInstance", ecs.reboot_instance, write=True, required=("InstanceId",),
        query={"InstanceId": str, "ForceStop": bool},
    ),
    Operation(
        "ECS", "ModifyInstanceAttribute", ecs.modify_instance_attribute, write=True, required=("InstanceId",),
        query={"InstanceId": str, "InstanceName": str, "Description": str, "DeletionProtection": bool},
    ),
    Operation(
        "ECS", "DescribeDisks", ecs.describe_disks, write=False, required=_REGION,
        query={**_PAGE, "InstanceId": str, "DiskIds": str, "DiskType": str, "Status": str},
    ),
    Operation(
        "ECS", "CreateSnapshot", ecs.create_snapshot, write=True, required=("DiskId",),
        query={"DiskId": str, "SnapshotName": str, "Description": str, "RetentionDays": int, "Tag": _TAGS},
    ),
    Operation(
        "ECS", "DescribeSnapshots", ecs.describe_snapshots, write=False, required=_REGION,
        query={
            **_PAGE, "DiskId": str, "InstanceId": str, "SnapshotIds": str, "SnapshotName": str, "Status": str,
            "Tag": _TAGS,
        },
    ),
    Operation(
        "ECS", "RunCommand", ecs_assistant.run_command, write=True,
        required=("RegionId", "Type", "CommandContent", "InstanceId"),
        query={
            "RegionId": str, "Type": str, "CommandContent": str, "ContentEncoding": str, "InstanceId": [str],
            "Name": str, "Description": str, "Timeout": int, "WorkingDir": str,
        },
    ),
    Operation(
        "ECS", "DescribeInvocations", ecs_assistant.describe_invocations, write=False, required=_REGION,
        query={
            **_PAGE, "InvokeId": str, "CommandId": str, "InstanceId": str, "InvokeStatus": str,
            "IncludeOutput": bool, "ContentEncoding": str,
        },
    ),
    Operation(
        "ECS", "DescribeInvocationResults", ecs_assistant.describe_invocation_results, write=False, required=_REGION,
        query={
            **_PAGE, "InvokeId": str, "CommandId": str, "InstanceId": str, "InvokeRecordStatus": str,
            "ContentEncoding": str,
        },
    ),
)  # fmt: skip
