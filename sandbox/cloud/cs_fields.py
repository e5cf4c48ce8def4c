"""Shapes of the node pool calls of CS 2015-12-15. A test compares each with the models of the SDK (7.2.3)."""

from __future__ import annotations

from typing import Any

_KEY_VALUE = {"key": str, "value": str}
_TAINT = {"key": str, "value": str, "effect": str}

AUTO_SCALING = {
    "enable": bool, "type": str, "min_instances": int, "max_instances": int,
    "is_bond_eip": bool, "eip_bandwidth": int, "eip_internet_charge_type": str,
}  # fmt: skip

KUBERNETES_CONFIG = {
    "labels": [_KEY_VALUE], "taints": [_TAINT], "cpu_policy": str, "runtime": str, "runtime_version": str,
    "node_name_mode": str, "unschedulable": bool, "cms_enabled": bool, "user_data": str, "pre_user_data": str,
}  # fmt: skip

_AUTO_REPAIR_POLICY = {
    "approval_required": bool, "max_parallel_repairing_nodes": str, "max_unhealthy_nodes_threshold": str,
    "restart_node": bool,
}  # fmt: skip

MANAGEMENT = {
    "enable": bool,
    "auto_repair": bool,
    "auto_repair_policy": _AUTO_REPAIR_POLICY,
    "auto_upgrade": bool,
    "auto_upgrade_policy": {"auto_upgrade_kubelet": bool, "auto_upgrade_os": bool, "auto_upgrade_runtime": bool},
    "auto_vul_fix": bool,
    "auto_vul_fix_policy": {"exclude_packages": str, "restart_node": bool, "vul_level": str},
    "auto_fault_diagnosis": bool,
    "drift_enabled": bool,
    "upgrade_config": {"auto_upgrade": bool, "max_unavailable": int, "surge": int, "surge_percentage": int},
}
_MANAGEMENT_WITH_POLICY_ID = {
    **MANAGEMENT, "auto_repair_policy": {**_AUTO_REPAIR_POLICY, "auto_repair_policy_id": str},
}  # fmt: skip

_DATA_DISK = {
    "category": str, "size": int, "performance_level": str, "provisioned_iops": int, "bursting_enabled": bool,
    "encrypted": str, "kms_key_id": str, "snapshot_id": str, "auto_snapshot_policy_id": str, "device": str,
    "disk_name": str, "auto_format": bool, "file_system": str, "mount_target": str,
}  # fmt: skip

_INSTANCE_PATTERN = {
    "architectures": [str], "burst_performance_option": str, "core": int, "cores": int, "cpu_architectures": [str],
    "excluded_instance_types": [str], "instance_categories": [str], "instance_family_level": str,
    "instance_type_families": [str], "max_cpu_cores": int, "max_memory_size": float, "max_price": float,
    "maximum_gpu_amount": int, "memory": float, "min_cpu_cores": int, "min_memory_size": float,
    "minimum_eni_ipv6_address_quantity": int, "minimum_eni_private_ip_address_quantity": int,
    "minimum_eni_quantity": int,
}  # fmt: skip

# What ModifyClusterNodePool takes; CreateClusterNodePool takes more.
_SCALING_GROUP = {
    "desired_size": int, "instance_types": [str], "instance_patterns": [_INSTANCE_PATTERN], "vswitch_ids": [str],
    "security_group_ids": [str], "image_id": str, "image_type": str, "platform": str, "key_pair": str,
    "login_password": str, "instance_charge_type": str, "period": int, "period_unit": str, "auto_renew": bool,
    "auto_renew_period": int, "multi_az_policy": str, "scaling_policy": str, "compensate_with_on_demand": bool,
    "on_demand_base_capacity": int, "on_demand_percentage_above_base_capacity": int, "spot_strategy": str,
    "spot_price_limit": [{"instance_type": str, "price_limit": str}], "spot_instance_pools": int,
    "spot_instance_remedy": bool, "system_disk_category": str, "system_disk_categories": [str],
    "system_disk_size": int, "system_disk_performance_level": str, "system_disk_provisioned_iops": int,
    "system_disk_bursting_enabled": bool, "system_disk_encrypted": bool, "system_disk_encrypt_algorithm": str,
    "system_disk_kms_key_id": str, "system_disk_snapshot_policy_id": str, "data_disks": [_DATA_DISK],
    "disk_init": [
        {"disk_name": str, "local_disk": bool, "mkfs_type": str, "mount_for_runtime": bool, "mount_target": str}
    ],
    "tags": [_KEY_VALUE], "internet_charge_type": str, "internet_max_bandwidth_out": int, "deploymentset_id": str,
    "rds_instances": [str], "enable_high_density_mode": bool,
    "private_pool_options": {"id": str, "match_criteria": str},
    "resource_pool_options": {"private_pool_ids": [str], "strategy": str},
}  # fmt: skip
_SCALING_GROUP_AT_BIRTH = {
    **_SCALING_GROUP,
    "cis_enabled": bool, "cpu_options": {"nested_virtualization": str},
    "instance_metadata_options": {"http_tokens": str}, "login_as_non_root": bool, "ram_role_name": str,
    "security_group_id": str, "security_hardening_os": bool, "soc_enabled": bool,
}  # fmt: skip

KUBELET_CONFIGURATION = {
    "allowedUnsafeSysctls": [str], "clusterDNS": [str], "containerLogMaxFiles": int, "containerLogMaxSize": str,
    "containerLogMaxWorkers": int, "containerLogMonitorInterval": str, "cpuCFSQuota": bool, "cpuCFSQuotaPeriod": str,
    "cpuManagerPolicy": str, "eventBurst": int, "eventRecordQPS": int, "evictionHard": dict, "evictionSoft": dict,
    "evictionSoftGracePeriod": dict, "featureGates": dict, "imageGCHighThresholdPercent": int,
    "imageGCLowThresholdPercent": int, "kubeAPIBurst": int, "kubeAPIQPS": int, "kubeReserved": dict, "maxPods": int,
    "memoryManagerPolicy": str, "podPidsLimit": int, "readOnlyPort": int, "registryBurst": int,
    "registryPullQPS": int, "reservedMemory": [{"limits": dict, "numaNode": int}], "serializeImagePulls": bool,
    "serverTLSBootstrap": bool, "systemReserved": dict, "topologyManagerPolicy": str,
    "tracing": {"endpoint": str, "samplingRatePerMillion": int},
}  # fmt: skip
_HUGEPAGE = {
    "khugepagedAllocSleepMillisecs": int, "khugepagedDefrag": int, "khugepagedPagesToScan": int,
    "khugepagedScanSleepMillisecs": int, "transparentDefrag": str, "transparentEnabled": str,
}  # fmt: skip
_COMPONENT = {
    "name": str, "version": str, "config": {"custom_config": dict, "envs": [{"name": str, "value": str}]},
}  # fmt: skip
_TEE = {"tee_enable": bool}

# Blocks of a pool that only its creation can set.
_AT_BIRTH = {
    "auto_mode": {"enable": bool},
    "host_network": bool,
    "intranet": bool,
    "interconnect_mode": str,
    "interconnect_config": {
        "bandwidth": int, "ccn_id": str, "ccn_region_id": str, "cen_id": str, "improved_period": str,
    },
    "max_nodes": int,
    "eflo_node_group": {"auto_attach_enabled": bool, "cluster_id": str, "group_id": str, "worker_ram_role_name": str},
    "node_config": {
        "kubelet_configuration": KUBELET_CONFIGURATION,
        "node_os_config": {"hugepage": _HUGEPAGE, "sysctl": dict},
    },
}  # fmt: skip

CREATE = {
    **_AT_BIRTH,
    "count": int,
    "nodepool_info": {"name": str, "type": str, "resource_group_id": str},
    "scaling_group": _SCALING_GROUP_AT_BIRTH,
    "kubernetes_config": KUBERNETES_CONFIG,
    "auto_scaling": AUTO_SCALING,
    "management": MANAGEMENT,
    "node_components": [_COMPONENT],
    "tee_config": _TEE,
}

MODIFY = {
    "nodepool_info": {"name": str, "resource_group_id": str},
    "scaling_group": _SCALING_GROUP,
    "kubernetes_config": KUBERNETES_CONFIG,
    "auto_scaling": AUTO_SCALING,
    "management": _MANAGEMENT_WITH_POLICY_ID,
    "eflo_node_group": {"auto_attach_enabled": str},
    "tee_config": _TEE,
    "update_nodes": bool,
    "concurrency": bool,
}

DETAIL: dict[str, Any] = {
    **_AT_BIRTH,
    "nodepool_info": {
        "nodepool_id": str, "name": str, "type": str, "resource_group_id": str, "region_id": str, "is_default": bool,
        "created": str, "updated": str,
    },
    "scaling_group": {**_SCALING_GROUP_AT_BIRTH, "scaling_group_id": str, "ram_policy": str},
    "kubernetes_config": KUBERNETES_CONFIG,
    "auto_scaling": AUTO_SCALING,
    "management": {**_MANAGEMENT_WITH_POLICY_ID, "auto_upgrade_policy": {"auto_upgrade_kubelet": bool}},
    "node_components": [{**_COMPONENT, "config_revision": str}],
    "tee_config": _TEE,
    "status": {
        "state": str, "total_nodes": int, "serving_nodes": int, "healthy_nodes": int, "failed_nodes": int,
        "offline_nodes": int, "removing_nodes": int, "initial_nodes": int,
        "conditions": [
            {"type": str, "status": str, "reason": str, "message": str, "last_transition_time": str}
        ],
    },
}  # fmt: skip

# DescribeClusterNodePools shows a little less of each pool.
LISTED: dict[str, Any] = {
    **{key: shape for key, shape in DETAIL.items() if key not in ("host_network", "intranet")},
    "scaling_group": {
        key: shape for key, shape in DETAIL["scaling_group"].items() if key != "instance_metadata_options"
    },
    "status": {key: shape for key, shape in DETAIL["status"].items() if key != "conditions"},
}
