"""The client of Alibaba Cloud against the endpoint: what is sent, what is sent again, and what a failure says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import openapi
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.compute import Compute
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection, Endpoints
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.container_service import ContainerService
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi import CloudError, OpenApi
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.resource_access import ResourceAccess
from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud
from tests.sandbox.cloud_rig import CLUSTER, REGION, ROLE, SECRET, Rig, policy_text, pool_body, running

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running(tmp_path / "endpoint") as rig:
        yield rig


@pytest.fixture
def connection(rig: Rig, tmp_path: Path) -> Connection:
    file = tmp_path / "credentials"
    file.write_text(f"[default]\ntype = access_key\naccess_key_id = LTAItester\naccess_key_secret = {SECRET}\n")
    url = f"http://127.0.0.1:{rig.server.port}"
    return Connection(
        cluster_id=CLUSTER, region_id=REGION, credentials_file=str(file), endpoints=Endpoints(url, url, url, url)
    )


def sent(rig: Rig, action: str) -> list[dict[str, object]]:
    return [entry for entry in rig.log() if entry["action"] == action]


def test_a_change_sends_exactly_what_was_given_and_no_empty_list(rig: Rig, connection: Connection) -> None:
    service, pool_id = ContainerService(connection), rig.pool_id("gpu-cgpu")
    body = {"kubernetes_config": {"labels": [{"key": "team", "value": "a"}]}}
    service.wait_for_task(service.modify_node_pool(pool_id, body).task_id, timeout=10)
    assert sent(rig, "ModifyClusterNodePool")[0]["body"] == body
    assert cloud.read(service.node_pool(pool_id), cloud.NodePool).labels == {"team": "a"}


def test_a_pool_is_created_waited_for_and_read_back(connection: Connection) -> None:
    service = ContainerService(connection)
    started = service.create_node_pool(pool_body("fresh", desired_size=2))
    service.wait_for_task(started.task_id, timeout=10)
    pools = [cloud.read(told, cloud.NodePool) for told in service.node_pools()]
    pool = next(pool for pool in pools if pool.pool_id == started.nodepool_id)
    assert (pool.name, pool.status.state, pool.status.healthy_nodes) == ("fresh", "active", 2)
    assert {node.node_status for node in service.nodes(pool.pool_id)} == {"Ready"}


def test_the_nodes_of_a_large_pool_are_read_page_by_page(rig: Rig, connection: Connection) -> None:
    service = ContainerService(connection)
    started = service.create_node_pool(pool_body("large", desired_size=203))
    service.wait_for_task(started.task_id, timeout=60)
    nodes = service.nodes(started.nodepool_id)
    assert len({node.instance_id for node in nodes}) == 203
    assert len(sent(rig, "DescribeClusterNodes")) == 3


def test_a_throttled_read_is_sent_again_until_it_is_answered(rig: Rig, connection: Connection) -> None:
    rig.fault("throttle", "DescribeClusterDetail", count=2)
    assert ContainerService(connection).cluster().worker_ram_role_name == ROLE
    assert [entry["code"] for entry in sent(rig, "DescribeClusterDetail")] == ["Throttling.User"] * 2 + [""]


def test_a_throttled_write_is_sent_again_since_it_was_not_carried_out(rig: Rig, connection: Connection) -> None:
    rig.fault("throttle", "CreatePolicy", count=2)
    ResourceAccess(connection).create_policy("suite", policy_text("cs:*"), "ours")
    assert len(sent(rig, "CreatePolicy")) == 3


def test_throttling_that_does_not_end_is_told_within_half_a_minute(rig: Rig, connection: Connection) -> None:
    rig.fault("throttle", "DescribeClusterDetail", count=0)
    started = time.monotonic()
    with pytest.raises(CloudError) as problem:
        ContainerService(connection).cluster()
    assert (problem.value.code, problem.value.reason) == ("CLD-THROTTLED", "Throttling.User")
    assert len(sent(rig, "DescribeClusterDetail")) == 6
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("fault", [{"kind": "error", "code": "InternalError", "status": 500},
                                   {"kind": "apply-then-timeout"}])  # fmt: skip
def test_a_write_that_may_have_been_carried_out_is_never_sent_twice(
    rig: Rig, connection: Connection, fault: dict[str, object]
) -> None:
    rig.fault(**fault, action="CreatePolicy")  # type: ignore[arg-type]
    with pytest.raises(CloudError) as problem:
        ResourceAccess(connection).create_policy("suite", policy_text("cs:*"), "ours")
    assert problem.value.unsure
    assert len(sent(rig, "CreatePolicy")) == 1


def test_a_read_whose_answer_was_lost_is_sent_again(rig: Rig, connection: Connection) -> None:
    rig.fault("apply-then-timeout", "ListPoliciesForRole")
    assert ResourceAccess(connection).policies_of_role(ROLE) == []
    assert len(sent(rig, "ListPoliciesForRole")) == 2


def test_a_refusal_carries_the_services_code_status_and_request_id(rig: Rig, connection: Connection) -> None:
    with pytest.raises(CloudError) as problem:
        ResourceAccess(connection).attach("absent", ROLE)
    found = problem.value
    assert (found.code, found.reason, found.status) == ("CLD-NOT-FOUND", "EntityNotExist.Policy", 404)
    assert found.request_id == sent(rig, "AttachPolicyToRole")[0]["request_id"]
    assert found.request_id in str(found)


def test_a_missing_right_names_the_action_to_grant(rig: Rig, connection: Connection) -> None:
    rig.fault("error", "CreatePolicy", code="NoPermission", status=403)
    with pytest.raises(CloudError) as problem:
        ResourceAccess(connection).create_policy("suite", policy_text("cs:*"), "ours")
    assert problem.value.code == "CLD-FORBIDDEN"
    assert "ram:CreatePolicy" in problem.value.cure


def test_attaching_what_is_attached_is_fine(connection: Connection) -> None:
    access = ResourceAccess(connection)
    access.create_policy("suite", policy_text("cs:*"), "ours")
    access.attach("suite", ROLE)
    access.attach("suite", ROLE)
    assert [policy.policy_name for policy in access.policies_of_role(ROLE)] == ["suite"]


def test_a_wrong_secret_is_refused_without_showing_a_secret(connection: Connection) -> None:
    file = Path(connection.credentials_file)
    file.write_text(file.read_text().replace(SECRET, "planted-secret"))
    with pytest.raises(CloudError) as problem:
        ContainerService(connection).cluster()
    assert (problem.value.code, problem.value.reason) == ("CLD-CREDENTIALS", "SignatureDoesNotMatch")
    assert "planted-secret" not in str(problem.value)


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"credentials_file": "/nowhere/credentials"}, "CLD-CREDENTIALS", "/nowhere/credentials"),
        ({"profile": "absent"}, "CLD-CREDENTIALS", "profile"),
        ({"endpoints": Endpoints(cs="127.0.0.1:80")}, "CLD-CONFIG", "endpoints.cs"),
        ({"endpoints": Endpoints(), "region_id": ""}, "CLD-CONFIG", "region_id"),
        ({"cluster_id": ""}, "CLD-CONFIG", "cluster_id"),
    ],
)
def test_a_wrong_connection_is_one_clear_error_before_any_request(
    rig: Rig, connection: Connection, given: dict[str, object], code: str, said: str
) -> None:
    with pytest.raises(CloudError) as problem:
        ContainerService(msgspec.structs.replace(connection, **given)).cluster()
    assert problem.value.code == code
    assert said in str(problem.value)
    assert rig.log() == []


def test_a_service_that_is_away_is_told_with_its_action_within_half_a_minute(rig: Rig, connection: Connection) -> None:
    rig.stop()
    started = time.monotonic()
    try:
        with pytest.raises(CloudError) as problem:
            ContainerService(connection).cluster()
    finally:
        rig._start()
    assert (problem.value.code, problem.value.status) == ("CLD-UNREACHABLE", 0)
    assert "DescribeClusterDetail" in str(problem.value)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(("kind", "code"), [("task-fails", "CLD-TASK-FAILED"), ("task-never-ends", "CLD-TASK-TIMEOUT")])
def test_a_task_that_does_not_succeed_is_told_with_its_id(
    rig: Rig, connection: Connection, kind: str, code: str
) -> None:
    rig.fault(kind, "CreateClusterNodePool", **({"code": "QuotaExceeded"} if kind == "task-fails" else {}))
    service = ContainerService(connection)
    task_id = service.create_node_pool(pool_body("fresh", desired_size=1)).task_id
    with pytest.raises(CloudError) as problem:
        service.wait_for_task(task_id, timeout=1.5)
    assert problem.value.code == code
    assert task_id in str(problem.value)


def test_an_instance_is_described_and_restarted(rig: Rig, connection: Connection) -> None:
    compute = Compute(connection)
    node = rig.nodes(rig.pool_id("gpu-cgpu"))[0]
    found = compute.describe_instances([node["instance_id"], "i-absent"])
    assert list(found) == [node["instance_id"]]
    assert (found[node["instance_id"]].status, found[node["instance_id"]].region_id) == ("Running", REGION)
    compute.reboot_instance(node["instance_id"])
    assert rig.fleet.reboots == [(node["node_name"], "RebootInstance", False)]


def test_a_command_on_an_instance_gives_back_its_status_and_output(rig: Rig, connection: Connection) -> None:
    rig.fleet.answer = lambda argv, timeout: subprocess.CompletedProcess(argv, 3, "gone: é\n".encode(), b"")
    node = rig.nodes(rig.pool_id("gpu-cgpu"))[0]
    result = Compute(connection).run_command(node["instance_id"], "exit 3", timeout=20)
    assert (result.status, result.rc, result.output) == ("Failed", 3, "gone: é\n")


def test_a_proxy_of_the_environment_is_not_asked_for_what_is_on_this_computer(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert ContainerService(connection).cluster().cluster_id == CLUSTER
    assert os.environ["HTTP_PROXY"] == "http://127.0.0.1:9"


def test_a_proxy_of_the_environment_is_asked_unless_no_proxy_names_the_host(
    rig: Rig, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openapi, "_TRIES", 1)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{rig.server.port}")  # serves any host, as a proxy does
    far = msgspec.structs.replace(connection, endpoints=Endpoints(cs="http://cloud.example.test"))
    assert ContainerService(far).cluster().cluster_id == CLUSTER
    monkeypatch.setenv("NO_PROXY", "cloud.example.test")
    with pytest.raises(CloudError) as problem:
        ContainerService(far).cluster()
    assert problem.value.code == "CLD-UNREACHABLE"
    assert len(rig.log()) == 1


def test_missing_credentials_are_one_clear_error_and_no_traceback(tmp_path: Path) -> None:
    program = (
        "from ansible_collections.ack.ai_suite.plugins.module_utils.clients import connection, container_service\n"
        "where = connection.Connection(cluster_id='c1', region_id='cn-hangzhou')\n"
        "try: container_service.ContainerService(where).cluster()\n"
        "except Exception as problem: print(problem.code)"
    )
    environment = {
        "PYTHONPATH": str(ROOT / ".ansible/collections"),
        "HOME": str(tmp_path),
        "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
        "ALIBABA_CLOUD_CREDENTIALS_URI": "http://127.0.0.1:9/",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("CLD-CREDENTIALS\n", "")


def test_importing_the_client_does_not_import_the_sdk() -> None:
    name = "ansible_collections.ack.ai_suite.plugins.module_utils.clients.openapi"
    program = f"import sys, {name}; sys.exit('alibabacloud_tea_openapi' in sys.modules or 'requests' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT / ".ansible/collections")}, check=False
    )
    assert done.returncode == 0


def test_calls_are_counted(connection: Connection) -> None:
    api = OpenApi(connection)
    service = ContainerService(connection, api)
    service.cluster()
    service.node_pools()
    assert api.requests == 2
