"""Tasks: their course, their faults, pause and cancel, add-ons, and an endpoint that is restarted in the middle."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alibabacloud_tea_openapi.exceptions import ClientException
from cryptography import x509

from sandbox.cloud.fleet import ClusterError
from tests.sandbox.cloud_rig import Rig, pool_body, running, wait_for


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running(tmp_path) as rig:
        yield rig


def refused(rig: Rig, action: str, **more: Any) -> tuple[int, str]:
    with pytest.raises(ClientException) as raised:
        rig.call(action, **more)
    return raised.value.status_code, str(raised.value.code)


def addons(rig: Rig) -> dict[str, tuple[str, str]]:
    return {each["name"]: (each["version"], each["state"]) for each in rig.call("ListClusterAddonInstances")["addons"]}


def test_a_task_is_running_first_and_tells_its_course_when_it_is_over(tmp_path: Path) -> None:
    with running(tmp_path, task_seconds=0.3) as rig:
        answer = rig.call("InstallClusterAddons", body=[{"name": "arms-prometheus"}])
        early = rig.task(answer["task_id"])
        assert (early["state"], early["stages"][0]["state"], early["current_stage"]) == ("running",) * 2 + (
            "addon_install",
        )
        assert addons(rig)["arms-prometheus"][1] == "updating"
        task = rig.finished(answer)
        assert (task["state"], task["task_type"], task["error"]) == ("success", "addon_install", {})
        assert task["task_result"] == [{"data": "arms-prometheus", "status": "success"}]
        assert [each["reason"] for each in task["events"]] == ["start", "success"]
        assert task["stages"][0]["end_time"] >= task["stages"][0]["start_time"]
        assert addons(rig)["arms-prometheus"] == ("1.1.33", "active")


def test_a_task_that_is_asked_to_fail_fails_with_the_code_and_leaves_what_was_there(rig: Rig) -> None:
    before = addons(rig)
    rig.fault("task-fails", "UpgradeClusterAddons", code="ImagePullBackOff")
    task = rig.finished(rig.call("UpgradeClusterAddons", body=[{"component_name": "coredns"}]))
    assert (task["state"], task["error"]["code"]) == ("fail", "ImagePullBackOff")
    assert task["task_result"] == [{"data": "coredns", "status": "failed"}]
    assert addons(rig) == before
    assert rig.finished(rig.call("UpgradeClusterAddons", body=[{"component_name": "coredns"}]))["state"] == "success"
    assert addons(rig)["coredns"] != before["coredns"]


def test_a_pool_whose_task_fails_has_failed_nodes_until_auto_scaling_replaces_them(tmp_path: Path) -> None:
    with running(tmp_path, replace_failed_seconds=0.5) as rig:
        rig.fault("task-fails", "CreateClusterNodePool")
        answer = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=2))
        assert rig.finished(answer)["state"] == "fail"
        status = rig.pool(answer["nodepool_id"])["status"]
        assert (status["state"], status["failed_nodes"], status["healthy_nodes"]) == ("active", 2, 0)
        wait_for(lambda: rig.pool(answer["nodepool_id"])["status"]["healthy_nodes"] == 2)
        assert rig.pool(answer["nodepool_id"])["status"]["failed_nodes"] == 0


def test_a_change_of_a_pool_with_failed_nodes_replaces_them_and_keeps_the_size(tmp_path: Path) -> None:
    with running(tmp_path, replace_failed_seconds=3600) as rig:
        rig.fault("task-fails", "CreateClusterNodePool")
        answer = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=2))
        rig.finished(answer)
        change = {"nodepool_id": answer["nodepool_id"], "body": {"scaling_group": {"desired_size": 2}}}
        assert rig.finished(rig.call("ModifyClusterNodePool", **change))["state"] == "success"
        status = rig.pool(answer["nodepool_id"])["status"]
        assert (status["total_nodes"], status["healthy_nodes"]) == (2, 2)


def test_a_pool_whose_task_is_paused_is_still_busy(rig: Rig) -> None:
    rig.fleet.ready = False
    answer = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=1))
    rig.call("PauseTask", task_id=answer["task_id"])
    assert rig.pool(answer["nodepool_id"])["status"]["state"] == "scaling"
    busy = {"nodepool_id": answer["nodepool_id"], "body": {}}
    assert refused(rig, "ModifyClusterNodePool", **busy) == (409, "NodePoolStateConflict")


def test_a_task_that_never_ends_does_its_work_but_stays_running_until_it_is_canceled(rig: Rig) -> None:
    rig.fault("task-never-ends", "CreateClusterNodePool")
    answer = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=1))
    wait_for(lambda: rig.pool(answer["nodepool_id"])["status"]["healthy_nodes"] == 1)
    assert rig.task(answer["task_id"])["state"] == "running"
    assert rig.pool(answer["nodepool_id"])["status"]["state"] == "scaling"
    rig.call("CancelTask", task_id=answer["task_id"])
    assert rig.task(answer["task_id"])["state"] == "canceled"


def test_an_answer_without_a_task_id_still_gets_its_work_done(rig: Rig) -> None:
    rig.fault("task-id-empty")
    answer = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=1))
    assert answer["task_id"] == ""
    wait_for(lambda: rig.pool(answer["nodepool_id"])["status"]["healthy_nodes"] == 1)


def test_a_fault_of_tasks_waits_for_a_call_that_makes_one(rig: Rig) -> None:
    rig.fault("task-id-empty")
    rig.call("DescribeClusterDetail")
    assert rig.call("CreateClusterNodePool", body=pool_body("p"))["task_id"] == ""


def test_a_task_pauses_resumes_and_is_canceled(rig: Rig) -> None:
    rig.fleet.ready = False
    answer = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=1))
    rig.call("PauseTask", task_id=answer["task_id"])
    assert rig.task(answer["task_id"])["state"] == "paused"
    assert refused(rig, "PauseTask", task_id=answer["task_id"]) == (409, "TaskStateConflict")
    rig.call("ResumeTask", task_id=answer["task_id"])
    node = wait_for(lambda: rig.nodes(answer["nodepool_id"]))[0]["node_name"]
    wait_for(lambda: node in rig.fleet.objects)
    rig.fleet.set_ready(node, True)
    assert rig.finished(answer)["state"] == "success"
    for action in ("PauseTask", "ResumeTask", "CancelTask"):
        assert refused(rig, action, task_id=answer["task_id"]) == (409, "TaskStateConflict")


def test_an_unknown_task_is_not_found(rig: Rig) -> None:
    assert refused(rig, "DescribeTaskInfo", task_id="T-0") == (404, "ErrorTaskNotFound")


def test_the_tasks_of_the_cluster_are_listed_newest_first_by_pages_and_by_tokens(rig: Rig) -> None:
    for name in ("arms-prometheus", "nginx-ingress-controller", "ack-node-local-dns"):
        rig.finished(rig.call("InstallClusterAddons", body=[{"name": name}]))
    listed = rig.call("DescribeClusterTasks", query={"page_size": 2})
    assert listed["page_info"] == {"page_number": 1, "page_size": 2, "total_count": 3}
    created = [each["created"] for each in listed["tasks"]]
    assert created == sorted(created, reverse=True)
    first = rig.call("DescribeClusterTasks", query={"max_results": 2})
    rest = rig.call("DescribeClusterTasks", query={"max_results": 2, "next_token": first["next_token"]})
    assert (len(first["tasks"]), len(rest["tasks"]), rest["next_token"]) == (2, 1, "")
    assert refused(rig, "DescribeClusterTasks", query={"next_token": "x"})[1] == "InvalidParameter.Paging"


def test_a_restarted_endpoint_goes_on_with_its_tasks_and_forgets_nothing(rig: Rig) -> None:
    rig.fleet.ready = False
    answer = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=2))
    nodes = wait_for(lambda: rig.nodes(answer["nodepool_id"]), lambda found: len(found) == 2)
    rig.restart()
    assert rig.task(answer["task_id"])["state"] == "running"
    wait_for(lambda: all(each["node_name"] in rig.fleet.objects for each in nodes))
    for node in nodes:
        rig.fleet.set_ready(node["node_name"], True)
    assert rig.finished(answer)["state"] == "success"
    rig.restart()
    assert rig.pool(answer["nodepool_id"])["status"]["healthy_nodes"] == 2


def test_a_cluster_that_is_away_for_a_while_delays_a_task_and_does_not_fail_it(rig: Rig) -> None:
    working, asked = rig.fleet.create, []

    def away(machine: Any) -> None:
        asked.append(machine.name)
        raise ClusterError(0, "connection refused")

    rig.fleet.create = away  # type: ignore[method-assign]
    answer = rig.call("CreateClusterNodePool", body=pool_body("p", desired_size=1))
    wait_for(lambda: len(asked) > 2)
    assert rig.task(answer["task_id"])["state"] == "running"
    rig.fleet.create = working  # type: ignore[method-assign]
    assert rig.finished(answer)["state"] == "success"


def test_the_gpu_component_is_not_an_add_on(rig: Rig) -> None:
    for name in ("ack-ai-installer", "ack-ai-dashboard", "ack-arena"):
        assert refused(rig, "InstallClusterAddons", body=[{"name": name}]) == (404, "AddonNotFound")
    assert "ack-ai-installer" not in [each["name"] for each in rig.call("ListAddons")["addons"]]


def test_one_wrong_add_on_stops_the_whole_request(rig: Rig) -> None:
    before = addons(rig)
    body = [{"name": "arms-prometheus"}, {"name": "ack-ai-installer"}]
    assert refused(rig, "InstallClusterAddons", body=body)[1] == "AddonNotFound"
    assert addons(rig) == before


@pytest.mark.parametrize(
    ("action", "body", "code"),
    [
        ("InstallClusterAddons", [{"name": "coredns"}], "AddonAlreadyInstalled"),
        ("InstallClusterAddons", [{"name": "arms-prometheus", "version": "9"}], "AddonVersionNotFound"),
        ("InstallClusterAddons", [{"name": "arms-prometheus", "config": "{"}], "InvalidParameter.Body"),
        ("InstallClusterAddons", [{"name": "arms-prometheus", "config": "[1]"}], "InvalidParameter.Body"),
        ("InstallClusterAddons", [], "InvalidParameter.Body"),
        ("InstallClusterAddons", [{"version": "1"}], "InvalidParameter.Body"),
        ("InstallClusterAddons", {"name": "arms-prometheus"}, "InvalidParameter.Type"),
        ("UpgradeClusterAddons", [{"component_name": "arms-prometheus"}], "AddonNotFound"),
        ("UpgradeClusterAddons", [{"component_name": "csi-plugin"}], "AddonNotUpgradable"),
        ("UpgradeClusterAddons", [{"component_name": "coredns", "next_version": "9"}], "AddonVersionNotFound"),
        ("UnInstallClusterAddons", [{"name": "arms-prometheus"}], "AddonNotFound"),
    ],
)
def test_a_refused_add_on_request_has_its_code(rig: Rig, action: str, body: Any, code: str) -> None:
    assert refused(rig, action, body=body)[1] == code


def test_an_add_on_is_configured_upgraded_and_removed(rig: Rig) -> None:
    rig.call("ModifyClusterAddon", component_id="coredns", body={"config": '{"replicas":3}'})
    instance = rig.call("GetClusterAddonInstance", instance_name="coredns")
    assert json.loads(instance["config"]) == {"replicas": 3}
    offered = rig.call("DescribeAddon", addon_name="coredns", query={"version": instance["version"]})
    (newer,) = offered["newer_versions"]
    old = rig.call("DescribeClusterAddonsVersion")["coredns"]
    assert (old["can_upgrade"], old["next_version"]) == (True, newer["version"])
    rig.finished(
        rig.call("UpgradeClusterAddons", body=[{"component_name": "coredns", "next_version": newer["version"]}])
    )
    instance = rig.call("GetClusterAddonInstance", instance_name="coredns")
    assert (instance["version"], json.loads(instance["config"])) == (newer["version"], {"replicas": 3})
    rig.finished(rig.call("UnInstallClusterAddons", body=[{"name": "coredns"}]))
    assert refused(rig, "GetClusterAddonInstance", instance_name="coredns") == (404, "AddonNotFound")
    assert rig.call("DescribeClusterAddonsVersion")["coredns"]["version"] == ""


def test_a_temporary_kubeconfig_expires_when_it_says_and_carries_the_callers_name(rig: Rig) -> None:
    answer = rig.call("DescribeClusterUserKubeconfig", query={"TemporaryDurationMinutes": 60})
    config = json.loads(answer["config"])
    pem = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
    certificate = x509.load_pem_x509_certificate(pem)
    assert "CN=tester" in certificate.subject.rfc4514_string()
    told = datetime.strptime(answer["expiration"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert abs(certificate.not_valid_after_utc - told) < timedelta(seconds=5)
    assert abs(told - datetime.now(UTC) - timedelta(minutes=60)) < timedelta(seconds=5)
    for minutes in (14, 4321):
        query = {"TemporaryDurationMinutes": minutes}
        assert (
            refused(rig, "DescribeClusterUserKubeconfig", query=query)[1] == "InvalidParameter.TemporaryDurationMinutes"
        )
