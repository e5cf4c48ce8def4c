"""Preflight: each rule refuses what its document refuses and passes what it allows, all nodes and findings at once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud, preflight_report
from ansible_collections.ack.ai_suite.plugins.module_utils.core.compatibility import Tables
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight import (
    LABEL_RULES,
    Report,
    Scope,
    judge,
    silences,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_facts import (
    Answer,
    Cluster,
    answer,
    by_id,
    existing,
    must_be_asked,
    planned,
    pool,
    specified,
    version,
)
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_rules import RULES, Context
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node

SCHEDULE = "ack.node.gpu.schedule"
POOL = {
    "nodepool_info": {"nodepool_id": "np1", "name": "gpu", "type": "ess"},
    "scaling_group": {"instance_types": ["ecs.gn6i-c4g1.xlarge"], "image_type": "AliyunLinux3"},
    "kubernetes_config": {
        "labels": [{"key": SCHEDULE, "value": "cgpu"}, {"key": "ack.node.gpu.max-pod", "value": "20"}],
        "cpu_policy": "none", "runtime": "containerd", "runtime_version": "1.6.39", "taints": None,
    },
}  # fmt: skip
POOLS = (pool(cloud.read(POOL, cloud.NodePool)),)
CLUSTER = Cluster("v1.34.1-aliyun.1", "cn-hangzhou", "ManagedKubernetes", "ack.pro.small", POOLS)
DRIVER = Answer(driver="535.161.07")


def cluster(**changed: Any) -> Cluster:
    return msgspec.structs.replace(CLUSTER, **changed)


def node(name: str = "gpu-1", labels: dict[str, Any] | None = None, **more: Any) -> Node:
    """A good node of the pool; ``labels`` are added (None removes one), the rest replaces parts of nodeInfo."""
    wanted: dict[str, Any] = {
        SCHEDULE: "cgpu", "ack.node.gpu.max-pod": "20", "alibabacloud.com/nodepool-id": "np1",
        "aliyun.accelerator/nvidia_name": "Tesla-T4", "aliyun.accelerator/nvidia_mem": "15109MiB",
        "node.kubernetes.io/instance-type": "ecs.gn6i-c4g1.xlarge", **(labels or {}),
    }  # fmt: skip
    info = {
        "kubeletVersion": "v1.34.1-aliyun.1", "containerRuntimeVersion": "containerd://1.6.39",
        "osImage": "Alibaba Cloud Linux 3.2104 U11 (OpenAnolis Edition)", "kernelVersion": "5.10.134-18.al8.x86_64",
        **{key: value for key, value in more.items() if key not in ("provider", "mem")},
    }  # fmt: skip
    mem = more.get("mem", {"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"})
    return msgspec.convert({
        "metadata": {"name": name, "labels": {key: value for key, value in wanted.items() if value is not None}},
        "spec": {"providerID": more.get("provider", "cn-hangzhou.i-bp1")},
        "status": {"nodeInfo": info, "allocatable": mem, "capacity": mem},
    }, Node)  # fmt: skip


def cpu_node(name: str = "cpu-1", **more: Any) -> Node:
    gone = {SCHEDULE: None, "ack.node.gpu.max-pod": None, "alibabacloud.com/nodepool-id": None,
            "aliyun.accelerator/nvidia_name": None, "node.kubernetes.io/instance-type": "ecs.g7.xlarge"}  # fmt: skip
    return node(name, gone, mem={}, **more)


def judged(
    *nodes: Node,
    of: Cluster = CLUSTER,
    installer: str = "1.12.6",
    scope: Scope = "all",
    told: Answer = DRIVER,
    pools: list[dict[str, Any]] | None = None,
    silenced: list[dict[str, str]] | None = None,
) -> Report:
    known = by_id(of.pools)
    machines = [existing(each, of, known, told) for each in nodes]
    machines += [planned(specified(wanted), of.region_id) for wanted in pools or []]
    context = Context(cluster=of, installer=installer, settled=scope != "cluster")
    return judge(scope, machines, context, silences(silenced or []))


def wanted_pool(**more: Any) -> dict[str, Any]:
    good = {"labels": {SCHEDULE: "cgpu", "ack.node.gpu.max-pod": "20"}, "instance_types": ["ecs.gn6i-c4g1.xlarge"],
            "image_type": "AliyunLinux3", "runtime": "containerd", "runtime_version": "1.6.39"}  # fmt: skip
    return {"name": "new", "desired_size": 2, **good, **more}


def codes(report: Report) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in report.findings]


def the(report: Report, code: str) -> Finding:
    (found,) = (finding for finding in report.findings if finding.code == code)
    return found


def test_a_good_cluster_passes_every_rule() -> None:
    report = judged(node(), cpu_node(), pools=[wanted_pool(labels={SCHEDULE: "cgpu", "ack.node.gpu.max-pod": "20"})])
    assert [finding for finding in report.findings if finding.severity != "info"] == []
    assert (report.ok, report.status, report.nodes, report.gpu_nodes, report.pools) == (True, "ok", 2, 1, 1)


# One row a rule: what it refuses, and what it passes (both as (node or cluster or pool that is judged)).
REFUSED: list[tuple[str, str, Report]] = [
    ("PRE-K8S-SERVER", "error", judged(node(), of=cluster(server_version="v1.19.9"))),
    ("PRE-K8S-SERVER", "error", judged(node(), of=cluster(server_version=""))),
    ("PRE-K8S-KUBELET", "error", judged(node(kubeletVersion="v1.18.20-aliyun.1"))),
    ("PRE-K8S-KUBELET", "error", judged(cpu_node(kubeletVersion="Unknown"))),
    ("PRE-K8S-SKEW", "warning", judged(node(kubeletVersion="v1.35.0"))),
    ("PRE-K8S-SKEW", "warning", judged(node(kubeletVersion="v1.30.1-aliyun.1"))),
    ("PRE-K8S-SKEW", "info", judged(node(kubeletVersion="v1.32.1-aliyun.1"))),
    ("PRE-CLUSTER-TYPE", "error", judged(node(), of=cluster(cluster_spec="ack.standard"))),
    ("PRE-CLUSTER-TYPE", "error", judged(node(), of=cluster(cluster_type="Kubernetes"))),
    ("PRE-CLUSTER-TYPE", "warning", judged(node(), of=cluster(cluster_type=""))),
    ("PRE-DRIVER", "error", judged(node(), told=Answer(driver="418.87.00"))),
    ("PRE-DRIVER", "error", judged(node(), told=Answer(problem="no pod"))),
    ("PRE-DRIVER", "warning", judged(node(), told=Answer(problem="no pod"), scope="cluster")),
    ("PRE-DRIVER", "error", judged(pools=[wanted_pool(
        labels={SCHEDULE: "cgpu", "ack.node.gpu.max-pod": "20", "ack.aliyun.com/nvidia-driver-version": "410.104"})])),
    ("PRE-DRIVER", "info", judged(node(), pools=[wanted_pool()])),
    ("PRE-DRIVER-REQUESTED", "warning", judged(node(labels={"ack.aliyun.com/nvidia-driver-version": "550.90.07"}))),
    ("PRE-RUNTIME", "error", judged(node(containerRuntimeVersion="docker://18.9.9"))),
    ("PRE-RUNTIME", "error", judged(node(containerRuntimeVersion="containerd://"))),
    ("PRE-RUNTIME", "error", judged(pools=[wanted_pool(runtime="docker", runtime_version="18.09.2")])),
    ("PRE-OS", "error", judged(node(osImage="Ubuntu 20.04.6 LTS"))),
    ("PRE-OS", "error", judged(node(osImage="n/a"))),
    ("PRE-OS", "warning", judged(node(osImage="ContainerOS 3.5.0"))),
    ("PRE-OS", "warning", judged(pools=[wanted_pool(image_type="ContainerOS")])),
    ("PRE-OS-OPTIMIZED", "error", judged(
        pools=[wanted_pool(image_type="AliyunLinux3ContainerOptimized")], installer="1.12.5")),
    ("PRE-OS-OPTIMIZED", "error", judged(
        pools=[wanted_pool(image_type="AliyunLinux3ContainerOptimized")], installer="")),
    ("PRE-OS-OPTIMIZED", "warning", judged(node(labels={"alibabacloud.com/nodepool-id": None}), installer="1.12.0")),
    ("PRE-GPU-SERIES", "warning", judged(node(labels={
        "aliyun.accelerator/nvidia_name": "Tesla-M40", "node.kubernetes.io/instance-type": "ecs.gn4-c4g1.xlarge"}))),
    ("PRE-GPU-SERIES", "error", judged(pools=[wanted_pool(instance_types=["ecs.g7.xlarge"])])),
    ("PRE-GPU-SERIES", "error", judged(node(labels={
        "aliyun.accelerator/nvidia_name": None, "node.kubernetes.io/instance-type": None}))),
    ("PRE-GPU-EQUAL", "error", judged(node(mem={"aliyun.com/gpu-mem": "45", "aliyun.com/gpu-count": "2"}))),
    ("PRE-GPU-EQUAL", "error", judged(node(mem={"aliyun.com/gpu-mem": "60", "aliyun.com/gpu-count": "2"}))),
    ("PRE-REGION", "error", judged(node(provider="me-east-1.i-1"))),
    ("PRE-REGION", "error", judged(pools=[wanted_pool()], of=cluster(region_id="me-east-1"))),
    ("PRE-REGION", "error", judged(pools=[wanted_pool()], of=cluster(region_id=""))),
    ("PRE-ECS", "error", judged(node(provider="ack-hybrid://cn-hangzhou.rack-7"))),
    ("PRE-ECS", "error", judged(node(provider=""))),
    ("PRE-ECS", "error", judged(pools=[wanted_pool(kind="hybrid")])),
    ("PRE-CPU-POLICY", "error", judged(pools=[wanted_pool(cpu_policy="static")])),
    ("PRE-CPU-POLICY", "error", judged(node(), of=cluster(
        pools=(msgspec.structs.replace(POOLS[0], cpu_policy="static"),)))),
    ("PRE-CPU-POLICY", "error", judged(node(), of=cluster(pools=None))),
    ("PRE-MAX-POD", "warning", judged(node(labels={"ack.node.gpu.max-pod": None}))),
    ("PRE-LABEL-DRIFT", "warning", judged(node(labels={SCHEDULE: "share"}))),
    ("PRE-LABEL-VALUE", "error", judged(node(labels={SCHEDULE: "cpgu"}))),
    ("PRE-LABEL-VALUE", "error", judged(pools=[wanted_pool(labels={"ack.node.gpu.placement": "pack"})])),
    ("PRE-LABEL-RIVALS", "error", judged(node(labels={"gpushare": "true"}))),
    ("PRE-LABEL-SYNTAX", "error", judged(pools=[wanted_pool(labels={SCHEDULE: True})])),
]  # fmt: skip


@pytest.mark.parametrize(("code", "severity", "report"), REFUSED)
def test_a_rule_refuses_what_its_document_refuses(code: str, severity: str, report: Report) -> None:
    finding = the(report, code)
    assert finding.severity == severity
    assert finding.found
    assert finding.required
    assert finding.cure
    assert finding.source


PASSED: list[tuple[str, Report]] = [
    ("PRE-K8S-SERVER", judged(node(), installer="1.11.0", of=cluster(
        server_version="v1.18.8-aliyun.1"))),
    ("PRE-K8S-KUBELET", judged(node(kubeletVersion="v1.20.4-aliyun.1"))),
    ("PRE-K8S-SKEW", judged(node())),
    ("PRE-CLUSTER-TYPE", judged(node())),
    ("PRE-DRIVER", judged(node(), told=Answer(driver="418.87.01"))),
    ("PRE-DRIVER", judged(node(labels={"nvidia.com/cuda.driver.major": "535", "nvidia.com/cuda.driver.minor": "161",
                                       "nvidia.com/cuda.driver.rev": "07"}), told=Answer())),
    ("PRE-DRIVER", judged(node(labels={"nvidia.com/cuda.driver-version.full": "550.90.07"}), told=Answer())),
    ("PRE-DRIVER", judged(node(labels={"ack.aliyun.com/nvidia-driver-version": "550.90.07"}), told=Answer())),
    ("PRE-DRIVER-REQUESTED", judged(node(labels={"ack.aliyun.com/nvidia-driver-version": "535.161.7"}))),
    ("PRE-RUNTIME", judged(node(containerRuntimeVersion="containerd://1.4.3-0ubuntu1"))),
    ("PRE-OS", judged(node(osImage="Alibaba Cloud Linux (Aliyun Linux) 2.1903 LTS (Hunting Beagle)"))),
    ("PRE-OS-OPTIMIZED", judged(pools=[wanted_pool(image_type="AliyunLinux3ContainerOptimized")], installer="1.12.10")),
    ("PRE-GPU-SERIES", judged(node(labels={
        "aliyun.accelerator/nvidia_name": "NVIDIA-L20", "node.kubernetes.io/instance-type": "ecs.gn8is.2xlarge"}))),
    ("PRE-GPU-SERIES", judged(pools=[wanted_pool(instance_types=["ecs.gn5-c4g1.xlarge", "ecs.gn7i-c8g1.2xlarge"])])),
    ("PRE-GPU-EQUAL", judged(node())),
    ("PRE-REGION", judged(node())),
    ("PRE-ECS", judged(node(provider="alicloud://cn-hangzhou.i-bp1"))),
    ("PRE-CPU-POLICY", judged(
        node(), told=Answer(driver="535.161.07", cpu_policy="none"), of=cluster(pools=None))),
    ("PRE-MAX-POD", judged(node())),
    ("PRE-LABEL-DRIFT", judged(node())),
    ("PRE-LABEL-VALUE", judged(node())),
    ("PRE-LABEL-RIVALS", judged(node(labels={"cgpu": "true"}))),
    ("PRE-LABEL-SYNTAX", judged(pools=[wanted_pool(labels={"team": ""})])),
]  # fmt: skip


@pytest.mark.parametrize(("code", "report"), PASSED)
def test_a_rule_passes_what_its_document_allows(code: str, report: Report) -> None:
    assert [finding for finding in report.findings if finding.code == code] == []
    (check,) = (check for check in report.checks if check.code == code)
    assert check.passed > 0


def test_every_rule_has_a_case_that_it_passes_and_one_that_it_refuses() -> None:
    rules = {rule.code for rule in RULES} | set(LABEL_RULES)
    assert {code for code, _ in PASSED} == rules
    assert {code for code, _, _ in REFUSED} == rules


# --- cases of people ---


def by_name(report: Report, code: str) -> dict[str, str]:
    return {f.subject.removeprefix("node "): f"{f.severity}: {f.found}" for f in report.findings if f.code == code}


def test_runtimes_as_nodes_write_them_are_judged_in_one_pass() -> None:
    runtimes = {
        "a": "containerd://1.6.20~ds1", "b": "containerd://1.4.3-0ubuntu1", "c": "containerd://1.3.7+unknown",
        "d": "containerd://1.5.9-k3s1", "e": "containerd://v1.7.27", "f": "docker://Unknown", "g": "containerd://",
        "h": "", "i": "cri-o://1.26.4", "j": "containerd://1.6.28", "k": "containerd://2.0.0-rc.3",
        "n1": "docker://19.3.5", "n2": "docker://19.03.5", "n3": "docker://19.3.4", "n4": "docker://17.03.0-ce",
        "n5": "docker://20.10.20", "n6": "docker://18.9.9",
    }  # fmt: skip
    report = judged(*(node(name, containerRuntimeVersion=told) for name, told in runtimes.items()))
    assert by_name(report, "PRE-RUNTIME") == {
        "c": "error: runtime containerd 1.3.7+unknown",
        "f": "error: runtime docker://Unknown: version not known",
        "g": "error: runtime containerd://: version not known",
        "h": "error: runtime not told",
        "i": "error: runtime cri-o://1.26.4: not supported",
        "n3": "error: runtime docker 19.3.4",
        "n4": "error: runtime docker 17.03.0-ce",
        "n6": "error: runtime docker 18.9.9",
    }
    too_old = next(finding for finding in report.findings if finding.subject == "node n3")
    assert too_old.required == ">= 19.03.5"


def test_vendor_tails_of_kubernetes_do_not_count_and_skew_is_told_by_node() -> None:
    kubelets = {"a": "v1.18.8-aliyun.1", "b": "v1.18.7-aliyun.2", "c": "v1.26.3-aliyun.1", "d": "v1.20.4-aliyun.1"}
    of = cluster(server_version="v1.20.4-aliyun.1")
    report = judged(*(node(name, kubeletVersion=told) for name, told in kubelets.items()), of=of, installer="1.11.0")
    assert by_name(report, "PRE-K8S-KUBELET") == {"b": "error: Kubernetes v1.18.7-aliyun.2"}
    assert by_name(report, "PRE-K8S-SERVER") == {}
    assert by_name(report, "PRE-K8S-SKEW") == {
        "a": "info: kubelet v1.18.8-aliyun.1, server v1.20.4-aliyun.1",
        "b": "info: kubelet v1.18.7-aliyun.2, server v1.20.4-aliyun.1",
        "c": "warning: kubelet v1.26.3-aliyun.1, server v1.20.4-aliyun.1",
    }


def test_the_installers_version_decides_and_without_it_the_middle_is_unknown() -> None:
    def server(version: str, installer: str) -> list[tuple[str, str]]:
        of = cluster(server_version=version)
        return [code for code in codes(judged(of=of, installer=installer)) if code[0] == "PRE-K8S-SERVER"]

    refused = [("PRE-K8S-SERVER", "error")]
    assert server("v1.19.1", "1.11.9") == []
    assert server("v1.19.1", "1.12.0") == refused
    assert server("v1.19.1", "") == refused
    assert server("v1.20.0", "") == []
    assert server("v1.18.7", "") == refused


def test_centos_minors_come_from_the_stock_kernel_and_others_ask_for_the_minor() -> None:
    kernels = {
        "a": "3.10.0-1160.15.2.el7.x86_64", "b": "3.10.0-1062.9.1.el7.x86_64", "c": "3.10.0-957.21.3.el7.x86_64",
        "d": "3.10.0-1127.el7.x86_64", "e": "3.10.0-862.el7.x86_64", "f": "5.4.124-1.el7.elrepo.x86_64",
    }  # fmt: skip
    nodes = [node(name, osImage="CentOS Linux 7 (Core)", kernelVersion=told) for name, told in kernels.items()]
    nodes.append(node("g", osImage="CentOS Linux 8", kernelVersion="4.18.0-348.el8.x86_64"))
    told = by_name(judged(*nodes), "PRE-OS")
    assert sorted(told) == ["d", "e", "f", "g"]
    assert "CentOS 7.8" in told["d"]
    assert "CentOS 7.5" in told["e"]
    assert told["f"].startswith("warning: ")
    assert "minor version not determinable" in told["f"]
    asked = judged(nodes[5], told=Answer(driver="535.161.07", centos="7.9"))
    assert by_name(asked, "PRE-OS") == {}


def test_operating_systems_are_matched_by_family_and_version() -> None:
    images = {
        "ok-1": "Alibaba Cloud Linux 3 (Soaring Falcon)", "ok-2": "Aliyun Linux 2.1903 (Hunting Beagle)",
        "ok-3": "Ubuntu 22.04.4 LTS", "no-1": "Ubuntu 22.10", "no-2": "Alibaba Cloud Linux 4",
        "no-3": "AlmaLinux 8.10 (Cerulean Leopard)", "no-4": "",
    }  # fmt: skip
    told = by_name(judged(*(node(name, osImage=image) for name, image in images.items())), "PRE-OS")
    assert sorted(told) == ["no-1", "no-2", "no-3", "no-4"]


@pytest.mark.parametrize(
    ("labels", "severities"),
    [
        ({SCHEDULE: "default"}, ["warning"]),  # whole cards by choice: the component does not serve this node
        ({SCHEDULE: None}, ["error"]),  # no choice yet: what is known to be wrong is an error
        ({SCHEDULE: "share"}, ["error"]),
        ({SCHEDULE: "cgpu"}, ["error"]),
    ],
)
def test_what_the_component_serves_is_judged_harder(labels: dict[str, Any], severities: list[str]) -> None:
    report = judged(node(labels=labels), told=Answer(driver="410.57"))
    assert [finding.severity for finding in report.findings if finding.code == "PRE-DRIVER"] == severities


@pytest.mark.parametrize("labels", [{SCHEDULE: "default"}, {SCHEDULE: None}])
def test_a_driver_that_cannot_be_asked_for_is_a_warning_where_cards_are_whole(labels: dict[str, Any]) -> None:
    report = judged(node(labels=labels), told=Answer())
    assert the(report, "PRE-DRIVER").severity == "warning"
    assert "no label publishes it" in the(report, "PRE-DRIVER").found


def test_nodes_without_gpu_are_not_judged_by_gpu_rules() -> None:
    report = judged(cpu_node(containerRuntimeVersion="cri-o://1.26", osImage="ContainerOS 3.5.0", provider=""))
    assert report.findings == ()
    assert report.gpu_nodes == 0


def test_a_legacy_label_counts_as_isolation() -> None:
    report = judged(node(labels={SCHEDULE: None, "cgpu": "true"}, provider="ack-hybrid://cn-hangzhou.x"))
    assert the(report, "PRE-ECS").found == "ack-hybrid://cn-hangzhou.x with cgpu=true"


def test_share_does_not_isolate_so_region_and_ecs_do_not_matter() -> None:
    of = cluster(region_id="me-east-1")
    report = judged(node(labels={SCHEDULE: "share"}, provider="ack-hybrid://x"), of=of)
    assert {code for code, _ in codes(report)} == {"PRE-LABEL-DRIFT"}


def test_a_whole_fleet_is_judged_in_one_pass_and_every_finding_is_there() -> None:
    bad = [node(f"n{number}", kubeletVersion="v1.18.0", osImage="n/a", provider="") for number in range(3)]
    report = judged(*bad)
    assert report.status == "failed"
    for name in ("node n0", "node n1", "node n2"):
        assert {f.code for f in report.findings if f.subject == name} >= {"PRE-K8S-KUBELET", "PRE-OS", "PRE-ECS"}


def test_the_scope_chooses_what_is_judged() -> None:
    old = cluster(server_version="v1.16.0")
    assert "PRE-K8S-SERVER" in dict(codes(judged(node(), of=old, scope="cluster")))
    assert "PRE-K8S-SERVER" not in dict(codes(judged(node(), of=old, scope="nodes")))


def test_a_cluster_without_nodes_is_not_called_good_in_silence() -> None:
    report = judged()
    assert codes(report) == [("PRE-NO-NODES", "warning")]
    assert report.status == "warnings"


# --- silences ---


def test_a_silenced_finding_is_printed_with_its_reason_and_fails_nothing() -> None:
    silenced = [{"code": "PRE-OS", "subject": "node gpu-*", "reason": "tried on gpu-1, ticket 7"}]
    report = judged(node(osImage="Ubuntu 20.04.6 LTS"), silenced=silenced)
    assert report.ok
    assert [(finding.code, reason) for finding, reason in report.silenced] == [("PRE-OS", "tried on gpu-1, ticket 7")]
    assert "SILENCED PRE-OS  node gpu-1" in preflight_report.text(report, "test")
    assert "ticket 7" in preflight_report.text(report, "test")


def test_a_silence_covers_only_what_it_names() -> None:
    silenced = [{"code": "PRE-OS", "subject": "other", "reason": "x"}]
    assert not judged(node(osImage="n/a"), silenced=silenced).ok


@pytest.mark.parametrize("silence", [{"code": "PRE-OS", "reason": " "}, {"code": "PRE-TYPO", "reason": "because"}])
def test_a_silence_without_a_reason_or_for_no_rule_is_refused(silence: dict[str, str]) -> None:
    with pytest.raises(AckError) as refused:
        silences([silence])
    assert refused.value.code == "PRE-SILENCE"


# --- asking nodes ---

ANSWER = """\
==> /proc/driver/nvidia/version <==
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024
GCC version:  gcc version 10.2.1 20200825 (Alibaba 10.2.1-3.8 2.32) (GCC)

==> /proc/cgpu_km/version <==
1.5.13

==> /var/lib/kubelet/cpu_manager_state <==
{"policyName":"none","defaultCpuSet":"","checksum":1353318690}
==> /etc/centos-release <==
CentOS Linux release 7.9.2009 (Core)
"""


def test_a_nodes_files_are_read_from_one_answer() -> None:
    assert answer(ANSWER) == Answer("535.161.07", "1.5.13", "none", "7.9")


def test_the_open_kernel_modules_write_their_version_elsewhere() -> None:
    text = (
        "==> /proc/driver/nvidia/version <==\nNVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Rel"
    )
    assert answer(text).driver == "550.90.07"


@given(st.text())
def test_no_answer_gives_a_traceback(text: str) -> None:
    assert answer(text).problem == ""
    assert answer("==> /proc/driver/nvidia/version <==" + text).problem == ""


def test_only_nodes_that_share_cards_and_publish_too_little_are_asked() -> None:
    published = {"nvidia.com/cuda.driver-version.full": "535.161.07"}
    pools = by_id(CLUSTER.pools)
    assert must_be_asked(node(), pools)
    assert not must_be_asked(node(labels=published), pools)
    assert must_be_asked(node(labels=published), {})
    assert not must_be_asked(node(labels={SCHEDULE: "default"}), {})
    assert not must_be_asked(cpu_node(), {})


# --- pools ---


def test_a_kubelet_configuration_of_the_pool_counts_as_its_cpu_policy() -> None:
    static = {**POOL, "node_config": {"kubelet_configuration": {"cpuManagerPolicy": "static"}}}
    assert pool(cloud.read(static, cloud.NodePool)).cpu_policy == "static"
    assert pool(cloud.read({"nodepool_info": {"name": "x"}}, cloud.NodePool)).cpu_policy == "none"


def test_what_a_specification_leaves_out_is_taken_from_the_pool_that_exists() -> None:
    told = {"name": "gpu", "labels": {"team": "a"}, "absent_labels": ["ack.node.gpu.max-pod"], "cpu_policy": "static"}
    merged = specified(told, POOLS)
    assert merged.labels == {SCHEDULE: "cgpu", "team": "a"}
    assert (merged.instance_types, merged.cpu_policy) == (("ecs.gn6i-c4g1.xlarge",), "static")
    assert specified({**told, "name": "other"}, POOLS).labels == {"team": "a"}


@pytest.mark.parametrize("told", [{"name": 7}, {"labels": ["x"]}, {"name": "x", "instance_types": "ecs.gn6i"}])
def test_a_specification_that_cannot_be_read_is_one_clear_error(told: dict[str, Any]) -> None:
    with pytest.raises(AckError) as refused:
        specified(told)
    assert refused.value.code == "PRE-POOL"


def test_what_only_joined_nodes_can_tell_is_not_asked_of_a_pool() -> None:
    report = judged(pools=[wanted_pool(runtime_version="", image_type="")], scope="cluster")
    assert codes(report) == [("PRE-DRIVER", "info")]


@pytest.mark.parametrize(
    ("told", "why"), [(1.20, "Quote it"), (1, "Quote it"), (True, "Quote it"), ("latest", "no version")]
)
def test_a_version_that_yaml_has_bent_is_refused(told: Any, why: str) -> None:
    with pytest.raises(AckError, match=why) as refused:
        version("installer_version", told)
    assert refused.value.code == "PRE-VERSION"


@pytest.mark.parametrize(("told", "read"), [("1.12.6", "1.12.6"), (None, ""), ("", "")])
def test_a_version_may_be_left_out(told: str | None, read: str) -> None:
    assert version("installer_version", told) == read


# --- the report ---


def test_the_text_groups_thousands_of_equal_findings() -> None:
    text = preflight_report.text(judged(*(node(f"n{n:04}", osImage="n/a") for n in range(4000))), "big")
    assert "ERROR PRE-OS  node n0000, node n0001, node n0002 and 3997 more (4000)" in text
    assert len(text.splitlines()) < 40
    assert max(map(len, text.splitlines())) <= 120
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_the_data_hold_every_finding_and_survive_json() -> None:
    report = judged(*(node(f"n{n}", osImage="n/a") for n in range(5)))
    told = preflight_report.data(report)
    assert json.loads(json.dumps(told)) == told
    assert (told["ok"], told["status"], told["judged"]) == (False, "failed", {"nodes": 5, "gpu_nodes": 5, "pools": 0})
    assert [f["subject"] for f in told["findings"] if f["code"] == "PRE-OS"] == [f"node n{n}" for n in range(5)]
    assert told["findings"][0]["source"]
    assert preflight_report.data(report) == preflight_report.data(report)


def test_an_ansible_result_holds_each_kind_of_finding_once_with_all_its_subjects() -> None:
    report = judged(*(node(f"n{n}", osImage="n/a") for n in range(3)), node("x", osImage="Ubuntu 20.04"))
    kinds = [kind for kind in preflight_report.grouped(report.findings) if kind["code"] == "PRE-OS"]
    assert [(kind["found"], kind["subjects"]) for kind in kinds] == [
        ("OS n/a", ["node n0", "node n1", "node n2"]),
        ("OS Ubuntu 20.04", ["node x"]),
    ]
    assert "subject" not in kinds[0]


def test_the_tables_can_be_replaced_without_touching_the_rules() -> None:
    machines = [existing(node(), CLUSTER, by_id(CLUSTER.pools), DRIVER)]
    strict = Context(cluster=CLUSTER, tables=Tables(driver="550.0"), installer="1.12.6")
    assert [finding.code for finding in judge("nodes", machines, strict).findings] == ["PRE-DRIVER"]


# --- laws ---

ODD = st.text(max_size=12) | st.sampled_from(
    [
        "Unknown",
        "v1.20+",
        "containerd://",
        "docker://19.3.5",
        "CentOS Linux 7 (Core)",
        "n/a",
        "cn-hangzhou.i-1",
        "9" * 5000,
    ]
)
LABELS = st.dictionaries(
    st.sampled_from([SCHEDULE, "cgpu", "gpushare", "ack.node.gpu.max-pod", "aliyun.accelerator/nvidia_mem",
                     "aliyun.accelerator/nvidia_name", "node.kubernetes.io/instance-type",
                     "nvidia.com/cuda.driver.major"]),
    ODD | st.sampled_from(["cgpu", "true", "20", "15109MiB", "Tesla-T4"]), max_size=5,
)  # fmt: skip


@given(LABELS, st.lists(ODD, min_size=8, max_size=8))
def test_nothing_that_a_node_says_gives_a_traceback(labels: dict[str, str], odd: list[str]) -> None:
    strange = node(
        odd[0] or "n", labels, kubeletVersion=odd[1], containerRuntimeVersion=odd[2], osImage=odd[3],
        kernelVersion=odd[4], provider=odd[5], mem={"aliyun.com/gpu-mem": odd[6], "aliyun.com/gpu-count": odd[7]},
    )  # fmt: skip
    report = judged(strange, installer=odd[1], told=Answer(driver=odd[2]))
    assert preflight_report.text(report, "test")
    assert json.dumps(preflight_report.data(report))


@given(st.from_regex(r"[0-9]{1,4}\.[0-9]{1,3}(\.[0-9]{1,2})?", fullmatch=True))
def test_the_driver_rule_agrees_with_the_order_of_versions(driver: str) -> None:
    numbers = tuple(int(part) for part in (driver + ".0").split(".")[:3])
    passed = not [f for f in judged(node(), told=Answer(driver=driver)).findings if f.code == "PRE-DRIVER"]
    assert passed is (numbers >= (418, 87, 1))
