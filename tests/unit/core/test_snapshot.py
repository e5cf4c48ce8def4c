"""What we read of a cluster: typed, tolerant of what is absent, and clear about what is no list of objects."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import LabelSelector, Node, Pod, from_json


def listed(*items: dict[str, Any]) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}).encode()


def test_a_mixed_list_is_sorted_into_its_kinds_and_unread_kinds_are_skipped() -> None:
    kinds = ["Node", "Pod", "Pod", "PodDisruptionBudget", "DaemonSet", "ConfigMap"]
    told = from_json(listed(*({"kind": kind, "metadata": {"name": f"{kind}-{i}"}} for i, kind in enumerate(kinds))))
    assert [len(found) for found in (told.nodes, told.pods, told.pdbs, told.daemonsets)] == [1, 2, 1, 1]
    assert told.nodes[0].name == "Node-0"


@pytest.mark.parametrize("absent", [{}, {"labels": None, "annotations": None, "ownerReferences": None}])
def test_absent_and_null_metadata_read_as_empty(absent: dict[str, Any]) -> None:
    node = msgspec.convert({"metadata": {"name": "n", **absent}}, Node)
    assert (node.labels, node.annotations, node.controller) == ({}, {}, None)
    assert (node.allocatable, node.capacity, node.internal_ip, node.ready) == ({}, {}, "", False)
    assert msgspec.convert({"metadata": absent}, Pod).containers == []


@pytest.mark.parametrize(
    ("provider", "instance"),
    [
        ("cn-shanghai.i-uf61h64dz1tmlob9hmtb", "i-uf61h64dz1tmlob9hmtb"),
        ("alicloud://cn-shanghai.i-uf61h64dz1tmlob9hmtb", "i-uf61h64dz1tmlob9hmtb"),
        ("ack-hybrid://cn-shanghai.rack-7", ""),
        ("cn-shanghai.i-a.b", ""),
        ("cn-shanghai", ""),
        ("", ""),
    ],
)
def test_an_ecs_instance_is_told_from_other_machines(provider: str, instance: str) -> None:
    assert msgspec.convert({"spec": {"providerID": provider}}, Node).instance_id == instance


def test_the_address_is_the_internal_one_wherever_it_stands() -> None:
    addresses = [{"type": "ExternalIP", "address": "8.8.8.8"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    assert msgspec.convert({"status": {"addresses": addresses}}, Node).internal_ip == "10.0.0.1"


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_selectors_select_as_the_api_server_does(selector: dict[str, Any], selected: bool) -> None:
    assert msgspec.convert(selector, LabelSelector).matches({"app": "web"}) is selected


NO_LISTS = [
    b"", b"{", b"[]", b"null", b"\xff\xfe", b"apiVersion: v1", b'{"items": [null]}', b'{"items": {}}',
    b'{"items": [{"kind": "Node", "metadata": {"name": 5}}]}',
]  # fmt: skip


@pytest.mark.parametrize("text", NO_LISTS)
def test_what_is_no_list_of_objects_is_one_clear_error(text: bytes) -> None:
    with pytest.raises(AckError) as refused:
        from_json(text, "cluster.json")
    assert refused.value.code == "SNP-NOT-JSON"
    assert "cluster.json" in str(refused.value)
