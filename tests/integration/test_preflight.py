"""Preflight of a real control plane with ACK's nodes, before and after the component is there, and of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.modules import preflight_info
from tests import books
from tests.component_rig import CHART, VALUES

SCHEDULE = "ack.node.gpu.schedule"
RELEASE = ("ack-ai-installer", "--namespace=kube-system")


@pytest.fixture(scope="module")
def user(sandbox: Any) -> Path:
    """An identity of these tests alone, so that both books can be searched for it."""
    return sandbox.user("preflight")


@pytest.fixture
def preflight(sandbox: Any, user: Path) -> Any:
    def run(*, check_mode: bool = False, **given: Any) -> dict[str, Any]:
        defaults = {name: option.get("default") for name, option in preflight_info.ARGUMENT_SPEC.items()}
        connection = {
            "cluster_id": sandbox.info["cluster_id"], "region_id": sandbox.info["region_id"],
            "kubeconfig": str(user), "credentials_file": sandbox.info["credentials_file"], "profile": "preflight",
            "endpoints": sandbox.info["endpoints"],
        }  # fmt: skip
        return preflight_info.run({**defaults, **connection, **given}, check_mode=check_mode)

    return run


@pytest.fixture
def no_component(helm: Any) -> None:
    helm("uninstall", *RELEASE, "--ignore-not-found", "--wait")


@pytest.fixture
def component(helm: Any, no_component: None) -> Iterator[None]:
    install(helm)
    yield
    helm("uninstall", *RELEASE, "--wait")


def install(helm: Any) -> None:
    helm("install", *RELEASE, str(CHART), "--values=-", "--wait", stdin=json.dumps(VALUES))


def told(result: dict[str, Any], code: str = "*", severity: str = "*") -> list[str]:
    """The subjects of findings, sorted."""
    return sorted(
        subject
        for finding in result["findings"]
        if code in ("*", finding["code"]) and severity in ("*", finding["severity"])
        for subject in finding["subjects"]
    )


def errors(result: dict[str, Any], subject: str) -> set[str]:
    return {f["code"] for f in result["findings"] if f["severity"] == "error" and subject in f["subjects"]}


def names(kubectl: Any, selector: str) -> list[str]:
    return [
        f"node {name}"
        for name in kubectl("get", "nodes", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}").split()
    ]


@pytest.mark.usefixtures("no_component")
def test_a_fresh_cluster_has_warnings_with_a_true_reason_and_no_error(preflight: Any, kubectl: Any) -> None:
    result = preflight(scope="cluster", installer_version="1.12.6")
    assert result["ok"], result["table"]
    sharing = names(kubectl, f"{SCHEDULE}=cgpu")
    (unknown,) = (f["subjects"] for f in result["findings"] if "no cGPU installer pod runs on it" in f["found"])
    assert unknown == sorted(sharing)
    assert len(sharing) == 2
    assert {f["code"] for f in result["findings"]} == {"PRE-DRIVER", "PRE-MAX-POD", "PRE-K8S-SKEW"}


@pytest.mark.usefixtures("no_component")
def test_nodes_that_joined_without_an_installer_fail_closed_and_nobody_waits_for_it(preflight: Any) -> None:
    result = preflight(scope="nodes", patience=600)
    assert not result["ok"]
    assert len(told(result, "PRE-DRIVER", "error")) == 2


@pytest.mark.usefixtures("component")
def test_with_the_component_the_drivers_are_read_on_the_nodes(preflight: Any, kubectl: Any) -> None:
    result = preflight(scope="nodes", installer_version="1.12.6")
    assert result["ok"], result["table"]
    assert told(result, "PRE-DRIVER") == names(kubectl, f"{SCHEDULE}=default")


@pytest.mark.usefixtures("component")
def test_a_node_that_does_not_tell_its_driver_fails_closed(preflight: Any, sandbox: Any, kubectl: Any) -> None:
    name = names(kubectl, f"{SCHEDULE}=cgpu")[0].removeprefix("node ")
    file = sandbox.nodes_root / name / "root/proc/driver/nvidia/version"
    hidden = file.rename(file.with_name("hidden"))
    try:
        result = preflight(scope="nodes")
    finally:
        hidden.rename(file)
    assert told(result, "PRE-DRIVER", "error") == [f"node {name}"]
    assert "the node did not tell" in result["table"]


def test_installer_pods_that_still_start_are_waited_for(preflight: Any, helm: Any, no_component: None) -> None:
    helm("install", *RELEASE, str(CHART), "--values=-", stdin=json.dumps(VALUES))
    try:
        assert preflight(scope="nodes", patience=60)["ok"]
    finally:
        helm("uninstall", *RELEASE, "--wait")


def test_it_reads_the_nodes_once_and_writes_to_neither_api(preflight: Any, sandbox: Any) -> None:
    def lists() -> list[str]:
        return [entry["requestURI"] for entry in sandbox.audit("preflight") if entry["verb"] == "list"]

    before = len(lists())
    result = preflight(scope="cluster")
    assert sum("/api/v1/nodes" in uri for uri in lists()[before:]) == 1
    assert result["requests"] <= 4  # version, nodes, installer pods, DaemonSets
    assert books.kubernetes_writes(sandbox.audit_log, "preflight") == []
    assert books.cloud_writes(sandbox.request_log, "preflight") == []


@pytest.fixture
def stranger(kubectl: Any) -> Iterator[str]:
    """A node that is wrong in many ways: registered from elsewhere, old, and labelled by hand."""
    name = "rack-7"
    node = {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {SCHEDULE: "core_mem", "gpushare": "true",
                                              "aliyun.accelerator/nvidia_name": "Tesla-T4"}},
        "spec": {"providerID": "ack-hybrid://cn-hangzhou.rack-7"},
    }  # fmt: skip
    info = {
        "kubeletVersion": "v1.18.2", "containerRuntimeVersion": "docker://18.9.9", "osImage": "Ubuntu 18.04.6 LTS",
        "kernelVersion": "4.15.0", "architecture": "amd64", "bootID": "b", "kubeProxyVersion": "", "machineID": "m",
        "operatingSystem": "linux", "systemUUID": "s",
    }  # fmt: skip
    kubectl("create", "-f", "-", stdin=json.dumps(node))
    kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps({"status": {"nodeInfo": info}}))
    yield name
    kubectl("delete", "node", name)


def test_a_bad_node_gets_all_its_findings_at_once(preflight: Any, stranger: str, tmp_path: Path) -> None:
    report = tmp_path / "deep" / "report.json"
    result = preflight(scope="cluster", report=str(report))
    assert not result["ok"]
    assert errors(result, f"node {stranger}") == {
        "PRE-K8S-KUBELET", "PRE-RUNTIME", "PRE-OS", "PRE-ECS", "PRE-CPU-POLICY", "PRE-LABEL-RIVALS",
    }  # fmt: skip
    written = json.loads(report.read_text())
    assert len(written["findings"]) == len(told(result))
    assert [f["subject"] for f in written["findings"] if f["code"] == "PRE-ECS"] == [f"node {stranger}"]
    assert written["status"] == "failed"
    assert list(report.parent.iterdir()) == [report]


def test_a_pool_is_judged_before_it_exists(preflight: Any) -> None:
    pool = {"name": "new", "labels": {SCHEDULE: True}, "instance_types": ["ecs.g7.xlarge"], "cpu_policy": "static"}
    result = preflight(scope="cluster", pools=[pool])
    assert told(result, "PRE-LABEL-SYNTAX", "error") == ["pool new"]
    good = {"name": "new", "labels": {SCHEDULE: "cgpu"}, "instance_types": ["ecs.gn6i-c4g1.xlarge"]}
    assert preflight(scope="cluster", pools=[good])["ok"]
    wrong = {**good, "instance_types": ["ecs.g7.xlarge"], "cpu_policy": "static"}
    assert errors(preflight(scope="cluster", pools=[wrong]), "pool new") == {"PRE-GPU-SERIES", "PRE-CPU-POLICY"}


def test_a_file_is_judged_like_the_cluster_it_came_from(preflight: Any, kubectl: Any, tmp_path: Path) -> None:
    file = tmp_path / "customer.json"
    file.write_text(kubectl("get", "nodes", "-o", "json"))
    result = preflight(snapshot=str(file), server_version="v1.36.1", kubeconfig="/nowhere")
    assert result["requests"] == 0
    assert result["judged"]["nodes"] == len(names(kubectl, "kubernetes.io/os"))
    assert all("a file cannot be asked" in f["found"] for f in result["findings"]
               if f["code"] == "PRE-DRIVER" and f["severity"] == "error")  # fmt: skip


def test_check_mode_reads_and_writes_no_report(preflight: Any, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert preflight(check_mode=True, report=str(report))["table"]
    assert not report.exists()


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"kubeconfig": "/nowhere/config"}, "KUB-CONFIG"),
        ({"snapshot": "/nowhere/file"}, "SNP-UNREADABLE"),
        ({"tables": {"replace": {"drivers": "1.2"}, "extend": None}}, "PRE-TABLES"),
        ({"silence": [{"code": "PRE-OS", "subject": None, "reason": " "}]}, "PRE-SILENCE"),
        ({"pools": [{"name": 7}]}, "PRE-POOL"),
        ({"installer_version": 1.12}, "PRE-VERSION"),
        ({"report": "/proc/nowhere/report.json"}, "SNP-UNWRITABLE"),
        ({"profile": "nobody"}, "CLD-CREDENTIALS"),
    ],
)
def test_wrong_input_is_one_clear_error(preflight: Any, given: dict[str, Any], code: str) -> None:
    with pytest.raises(AckError) as refused:
        preflight(**given)
    assert refused.value.code == code


def test_many_runs_at_once_do_not_disturb_each_other(preflight: Any) -> None:
    tables: list[str] = []
    threads = [Thread(target=lambda: tables.append(preflight(scope="cluster")["table"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tables)) == 1
    assert len(tables) == 4
