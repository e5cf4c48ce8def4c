"""The Kubernetes client against a real API server: pages, refusals, patches and commands in pods."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube, KubeError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Object

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def kube(sandbox: Any) -> Kube:
    return Kube(Connection(kubeconfig=str(sandbox.kubeconfig)))


@pytest.fixture
def maps(kube: Kube) -> Iterator[list[str]]:
    names = [f"page-{number}" for number in range(7)]
    for name in names:
        kube.create(MAPS, {"metadata": {"name": name, "labels": {"test": "pages"}}})
    yield names
    for name in names:
        kube.delete(f"{MAPS}/{name}")


def test_a_long_list_is_read_page_by_page_and_whole(kube: Kube, maps: list[str]) -> None:
    before = kube.requests
    found = kube.list(MAPS, Object, {"labelSelector": "test=pages"}, page=3)
    assert sorted(item.name for item in found) == maps
    assert kube.requests - before == 3


def test_nodes_are_decoded_with_what_ack_writes_on_them(kube: Kube) -> None:
    nodes = kube.list("/api/v1/nodes", Node)
    assert nodes
    for node in nodes:
        assert node.status.node_info.kubelet_version.startswith("v1.34.")
        assert node.instance_id.startswith("i-")


def test_a_patch_whose_test_fails_is_refused_and_changes_nothing(kube: Kube, maps: list[str]) -> None:
    path = f"{MAPS}/{maps[0]}"
    with pytest.raises(KubeError) as refused:
        kube.patch(path, [{"op": "test", "path": "/metadata/labels/test", "value": "other"},
                          {"op": "add", "path": "/data", "value": {"a": "b"}}])  # fmt: skip
    assert refused.value.status == 422
    assert "data" not in kube.get(path)


def test_what_does_not_exist_is_none_to_find_and_fine_to_delete(kube: Kube) -> None:
    assert kube.find(f"{MAPS}/absent") is None
    kube.delete(f"{MAPS}/absent")


def test_a_missing_kubeconfig_is_one_clear_error() -> None:
    with pytest.raises(AckError) as problem:
        Kube(Connection(kubeconfig="/nowhere/config")).version()
    assert problem.value.code == "KUB-CONFIG"
    assert "/nowhere/config" in str(problem.value)


def test_a_server_that_is_away_is_told_with_its_address_within_seconds(sandbox: Any, tmp_path: Any) -> None:
    away = tmp_path / "kubeconfig"
    text = sandbox.kubeconfig.read_text()
    port = sandbox.server.rsplit(":", 1)[1]
    away.write_text(text.replace(f":{port}", ":9"))
    started = time.monotonic()
    with pytest.raises(KubeError) as problem:
        Kube(Connection(kubeconfig=str(away))).version()
    assert problem.value.code == "KUB-UNREACHABLE"
    assert time.monotonic() - started < 30


def test_a_write_is_never_sent_twice_by_the_client(kube: Kube) -> None:
    before = kube.requests
    with pytest.raises(KubeError) as problem:
        kube.create("/api/v1/namespaces/absent/configmaps", {"metadata": {"name": "x"}})
    assert problem.value.status == 404
    assert kube.requests == before + 1
