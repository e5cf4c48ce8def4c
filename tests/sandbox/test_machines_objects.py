"""Nodes as ACK makes them: names, labels, provider ids, and what travels in the Node object."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox import pools
from sandbox.machines.instances import INSTANCE_TYPES, family
from sandbox.machines.objects import machine_of, new_machine, node_object


def machine(pool: str = "gpu-cgpu", number: int = 0):
    given = pools.load()
    return new_machine(given.pool(pool), given.cluster["region_id"], number)


def test_the_birth_data_travel_in_the_node_object() -> None:
    born = machine()
    assert machine_of(node_object(born)) == born


def test_a_node_without_birth_data_is_no_machine() -> None:
    assert machine_of({"metadata": {"name": "fake", "annotations": {"kwok.x-k8s.io/node": "fake"}}}) is None


def test_the_provider_id_has_two_parts_and_the_name_is_region_and_address() -> None:
    node = node_object(machine())
    region, instance = node["spec"]["providerID"].split(".")
    assert (region, instance[:5]) == ("cn-hangzhou", "i-bp1")
    internal = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    assert node["metadata"]["name"] == f"cn-hangzhou.{internal}"


def test_a_gpu_node_carries_the_labels_of_its_cards_and_its_pool() -> None:
    labels = node_object(machine())["metadata"]["labels"]
    assert labels["aliyun.accelerator/nvidia_name"] == "Tesla-T4"
    assert labels["aliyun.accelerator/nvidia_mem"] == "15109MiB"
    assert labels["aliyun.accelerator/nvidia_count"] == "1"
    assert labels["ack.node.gpu.schedule"] == "cgpu"
    assert labels["alibabacloud.com/nodepool-id"] == pools.load().pool("gpu-cgpu")["nodepool_info"]["nodepool_id"]


def test_a_cpu_node_has_no_label_of_a_card() -> None:
    assert not [label for label in node_object(machine("cpu"))["metadata"]["labels"] if "accelerator" in label]


def test_no_card_is_advertised_before_a_plug_in_runs() -> None:
    status = node_object(machine())["status"]
    assert not [name for name in {**status["capacity"], **status["allocatable"]} if "gpu" in name]


def test_a_node_registers_as_not_ready() -> None:
    ready = next(each for each in node_object(machine())["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "False"


def test_node_info_is_that_of_an_ack_node() -> None:
    info = node_object(machine())["status"]["nodeInfo"]
    assert info["osImage"].startswith("Alibaba Cloud Linux 3")
    assert info["containerRuntimeVersion"] == "containerd://1.6.39"
    assert info["kubeletVersion"].endswith("-aliyun.1")
    assert info["bootID"]


def test_machines_of_all_pools_have_different_names_instances_and_addresses() -> None:
    found = [new_machine(pool, "cn-hangzhou", number) for pool in pools.load().node_pools for number in range(300)]
    for attribute in ("name", "instance_id", "ip"):
        assert len({getattr(each, attribute) for each in found}) == len(found)


@pytest.mark.parametrize("number", [-1, 2047])
def test_a_number_that_gives_no_address_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="0 to 2046"):
        machine(number=number)


def test_a_pool_label_chooses_the_driver() -> None:
    pool = pools.load().pool("gpu-cgpu")
    label = {"key": "ack.aliyun.com/nvidia-driver-version", "value": "550.90.07"}
    labels = [*pool["kubernetes_config"]["labels"], label]
    changed = pool | {"kubernetes_config": pool["kubernetes_config"] | {"labels": labels}}
    assert new_machine(changed, "cn-hangzhou", 0).driver == "550.90.07"


def test_taints_and_a_cordon_of_the_pool_are_on_the_node() -> None:
    taint = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
    spec = node_object(replace(machine(), taints=[taint], unschedulable=True))["spec"]
    assert spec["taints"] == [taint]
    assert spec["unschedulable"] is True


def test_the_family_is_read_from_the_instance_type() -> None:
    assert family("ecs.gn6i-c4g1.xlarge") == "gn6i"
    assert family("ecs.ebmgn7e.32xlarge") == "ebmgn7e"
    assert all(family(name) for name in INSTANCE_TYPES)


def test_each_timing_can_be_set_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACK_SANDBOX_BOOT", "20")
    assert pools.load().timing.boot == 20.0
    assert pools.load().timing.lag < 20


def test_the_cluster_and_its_pools_have_ids_as_ack_gives_them() -> None:
    given = pools.load()
    assert len(given.cluster["cluster_id"]) == 33
    assert given.cluster["cluster_id"].startswith("c")
    assert given.cluster["worker_ram_role_name"] == f"KubernetesWorkerRole-{given.cluster['cluster_id']}"
    for pool in given.node_pools:
        assert len(pool["nodepool_info"]["nodepool_id"]) == 34
