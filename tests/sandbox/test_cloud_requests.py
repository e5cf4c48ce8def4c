"""What is refused before a handler sees it, what the log says, and what a fault does to a call."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alibabacloud_tea_openapi.exceptions import ClientException, ServerException, ThrottlingException
from darabonba.exceptions import UnretryableException
from darabonba.policy.retry import RetryOptions

from sandbox.cloud import faults
from tests.sandbox.cloud_rig import CLUSTER, ROLE, SECRET, Caller, Rig, policy_text, pool_body, running, wait_for

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with running(tmp_path) as rig:
        yield rig


def refusal(rig: Rig, action: str, **more: Any) -> ClientException:
    with pytest.raises(ClientException) as raised:
        rig.call(action, **more)
    return raised.value


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        ({"labels": []}, "InvalidParameter.Unknown", "labels"),
        ({"kubernetes_config": {"label": []}}, "InvalidParameter.Unknown", "kubernetes_config.label"),
        ({"kubernetes_config": {"labels": [{"Key": "a"}]}}, "InvalidParameter.Unknown", "labels.1.Key"),
        ({"scaling_group": {"desired_size": "2"}}, "InvalidParameter.Type", "scaling_group.desired_size"),
        ({"scaling_group": {"desired_size": True}}, "InvalidParameter.Type", "scaling_group.desired_size"),
        ({"scaling_group": {"instance_types": "ecs.g7.xlarge"}}, "InvalidParameter.Type", "instance_types"),
        ({"scaling_group": []}, "InvalidParameter.Type", "scaling_group"),
        ({"management": {"enable": "true"}}, "InvalidParameter.Type", "management.enable"),
        ([], "InvalidParameter.Type", "body"),
    ],
)
def test_an_unknown_field_or_a_wrong_type_in_a_body_is_named(rig: Rig, body: Any, code: str, named: str) -> None:
    refused = refusal(rig, "CreateClusterNodePool", body=body)
    assert (refused.status_code, refused.code) == (400, code)
    assert named in refused.message


def test_null_counts_as_not_sent(rig: Rig) -> None:
    body = pool_body("n") | {"auto_scaling": None}
    assert rig.pool(rig.call("CreateClusterNodePool", body=body)["nodepool_id"])["auto_scaling"] == {"enable": False}
    assert refusal(rig, "CreateClusterNodePool", body={"nonsense": None}).code == "InvalidParameter.Unknown"


@pytest.mark.parametrize(
    ("action", "query", "code"),
    [
        ("DescribeClusterNodePools", {"nodepool_name": "cpu"}, "InvalidParameter.Unknown"),
        ("DescribeClusterTasks", {"page_size": "many"}, "InvalidParameter.Type"),
        ("DescribeClusterUserKubeconfig", {"PrivateIpAddress": "yes"}, "InvalidParameter.Type"),
        ("ListPolicies", {"maxitems": "1"}, "InvalidParameter.Unknown"),
        ("ListPolicies", {"Tag.1.Name": "a"}, "InvalidParameter.Unknown"),
        ("ListPolicies", {"Tag.a.Key": "a"}, "InvalidParameter.Type"),
        ("ListPolicies", {"Tag": "a"}, "InvalidParameter.Type"),
        ("ListPolicies", {"MaxItems.1": "1"}, "InvalidParameter.Type"),
        ("GetCallerIdentity", {"RegionId": "cn-hangzhou"}, "InvalidParameter.Unknown"),
    ],
)
def test_an_unknown_or_wrong_parameter_is_refused(rig: Rig, action: str, query: dict[str, str], code: str) -> None:
    assert refusal(rig, action, query=query).code == code


def test_a_body_where_none_belongs_is_refused(rig: Rig) -> None:
    assert refusal(rig, "DescribeClusterDetail", body={"a": 1}).code == "InvalidParameter.Body"


def test_rpc_parameters_may_come_as_a_form(rig: Rig) -> None:
    role = rig.call("GetRole", body={"RoleName": ROLE})["Role"]
    assert role["RoleName"] == ROLE


def test_an_error_of_cs_and_one_of_ram_have_the_forms_of_their_services(rig: Rig) -> None:
    cs = refusal(rig, "DescribeClusterDetail", cluster_id="c0")
    assert (cs.status_code, cs.code) == (404, "ErrorClusterNotFound")
    assert set(cs.data) >= {"code", "message", "requestId", "status"}
    ram = refusal(rig, "GetRole", query={"RoleName": "nobody"})
    assert set(ram.data) >= {"Code", "Message", "RequestId", "HostId"}
    assert rig.log()[-1]["request_id"] == ram.request_id


def test_the_log_tells_who_did_what_and_whether_it_writes(rig: Rig) -> None:
    rig.rpc("CreatePolicy", PolicyName="p", PolicyDocument=policy_text("cs:*"))
    rig.rpc("ListPolicies")
    rig.call("DescribeClusterDetail")
    refusal(rig, "CreateClusterNodePool", body=pool_body("p", desired_size=-1))
    seen = [(each["product"], each["action"], each["method"], each["write"], each["status"]) for each in rig.log()]
    assert seen == [
        ("RAM", "CreatePolicy", "POST", True, 200),
        ("RAM", "ListPolicies", "POST", False, 200),
        ("CS", "DescribeClusterDetail", "GET", False, 200),
        ("CS", "CreateClusterNodePool", "POST", True, 400),
    ]
    assert {each["user"] for each in rig.log()} == {"tester"}
    assert rig.log()[-1]["code"] == "InvalidParameter.NodePool"
    assert rig.log()[-1]["path"] == f"/clusters/{CLUSTER}/nodepools"


def test_secrets_are_neither_logged_nor_shown_nor_kept(rig: Rig) -> None:
    secret = "planted-4711"
    body = pool_body("p", login_password=secret) | {"kubernetes_config": {"user_data": secret}}
    answer = rig.call("CreateClusterNodePool", body=body)
    assert "login_password" not in rig.pool(answer["nodepool_id"])["scaling_group"]
    arn = f"acs:ram::1234567890123456:role/{ROLE}"
    given = rig.rpc("AssumeRole", RoleArn=arn, RoleSessionName="s1")["Credentials"]
    log = (rig.state / "cloud" / "requests.jsonl").read_text()
    assert secret not in log
    assert given["SecurityToken"] not in log
    assert secret not in json.dumps(rig.world.data["pools"][answer["nodepool_id"]]["scaling_group"])


def test_throttling_meets_the_next_n_calls_of_one_action(rig: Rig) -> None:
    rig.fault("throttle", "ListPolicies", count=2)
    codes = []
    for _ in range(3):
        rig.rpc("ListRoles")
        try:
            rig.rpc("ListPolicies")
            codes.append("ok")
        except ClientException as refused:
            codes.append(refused.code)
    assert codes == ["Throttling.User", "Throttling.User", "ok"]


def test_a_retry_hint_makes_it_the_sdks_throttling_exception(rig: Rig) -> None:
    rig.fault("throttle", seconds=3)
    with pytest.raises(ThrottlingException) as refused:
        rig.rpc("ListRoles")
    assert refused.value.retry_after == 3


def test_the_sdks_own_retries_get_over_throttling(rig: Rig) -> None:
    rig.fault("throttle", "ListRoles", count=2)
    conditions = [
        {
            "maxAttempts": 4, "exception": ["ClientException"], "errorCode": ["Throttling.User"],
            "backoff": {"policy": "Fixed", "period": 10},
        }
    ]  # fmt: skip
    client = rig.client(retry_options=RetryOptions({"retryable": True, "retryCondition": conditions}))
    assert rig.rpc("ListRoles", client=client)["IsTruncated"] is False
    assert [each["status"] for each in rig.log()] == [400, 400, 200]


def test_an_error_fault_has_the_code_and_status_asked_for(rig: Rig) -> None:
    rig.fault("error", "ListRoles", code="ServiceUnavailable")
    with pytest.raises(ServerException) as unavailable:
        rig.rpc("ListRoles")
    assert (unavailable.value.status_code, unavailable.value.code) == (503, "ServiceUnavailable")
    rig.fault("error", "ListRoles", code="StrangeCode", status=418)
    assert (refusal(rig, "ListRoles").status_code, rig.log()[-1]["code"]) == (418, "StrangeCode")
    assert rig.rpc("ListRoles")["IsTruncated"] is False


def test_a_refused_write_changes_nothing_and_one_that_is_applied_then_lost_is_there(rig: Rig) -> None:
    arguments = {"PolicyName": "p", "PolicyDocument": policy_text("cs:*")}
    rig.fault("error", "CreatePolicy", code="InternalError", status=500)
    with pytest.raises(ServerException):
        rig.rpc("CreatePolicy", **arguments)
    assert refusal(rig, "GetPolicy", query={"PolicyName": "p", "PolicyType": "Custom"}).code == "EntityNotExist.Policy"
    rig.fault("apply-then-timeout", "CreatePolicy")
    with pytest.raises(UnretryableException):
        rig.rpc("CreatePolicy", **arguments)
    assert rig.rpc("GetPolicy", PolicyName="p", PolicyType="Custom")["Policy"]["PolicyName"] == "p"
    lost = next(each for each in rig.log() if not each["answered"])
    assert (lost["action"], lost["write"]) == ("CreatePolicy", True)


def test_a_delay_delays(rig: Rig) -> None:
    rig.fault("delay", "ListRoles", seconds=0.3)
    begun = time.monotonic()
    rig.rpc("ListRoles")
    assert time.monotonic() - begun >= 0.3


def test_a_fault_may_meet_one_user_only(rig: Rig) -> None:
    rig.keys["LTAIother"] = {"secret": "o", "user": "other"}
    rig.write_keys()
    rig.fault("throttle", count=0, user="other")
    rig.rpc("ListRoles")
    with pytest.raises(ClientException):
        rig.rpc("ListRoles", client=rig.client("LTAIother", "o"))


def test_a_fault_without_a_count_lasts_until_it_is_cleared_and_counts_survive_a_restart(rig: Rig) -> None:
    rig.fault("throttle", "ListRoles", count=0)
    for _ in range(3):
        assert refusal(rig, "ListRoles").code == "Throttling.User"
    assert faults.clear(rig.state) == 1
    rig.rpc("ListRoles")
    rig.fault("throttle", "ListRoles", count=2)
    assert refusal(rig, "ListRoles").code == "Throttling.User"
    rig.restart()
    assert refusal(rig, "ListRoles").code == "Throttling.User"
    rig.rpc("ListRoles")


def test_the_command_line_of_faults_writes_shows_and_clears(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    faults.add_arguments(parser)

    def obey(*words: str) -> str:
        return faults.apply(tmp_path, parser.parse_args(words))

    assert obey() == "no faults"
    obey("throttle", "CreatePolicy", "--count", "3", "--user", "me")
    obey("delay", "--seconds", "2.5")
    assert [(each.kind, each.action, each.count, each.seconds) for each in faults.read(tmp_path)] == [
        ("throttle", "CreatePolicy", 3, 0.0),
        ("delay", "*", 1, 2.5),
    ]
    assert len(obey().splitlines()) == 2
    assert obey("throttle", "CreatePolicy", "--clear").startswith("1 fault")
    assert [each.kind for each in faults.read(tmp_path)] == ["delay"]
    assert obey("--clear").startswith("1 fault")
    assert faults.read(tmp_path) == []


def test_a_fault_of_unknown_kind_or_without_its_code_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown fault"):
        faults.Fault("thunder")
    with pytest.raises(ValueError, match="needs a code"):
        faults.Fault("error")


def test_a_handlers_own_mistake_is_an_internal_error_in_the_form_of_the_service(rig: Rig) -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("nodes are gone")

    rig.fleet.nodes = broken  # type: ignore[method-assign]
    with pytest.raises(ServerException) as failed:
        rig.call("DescribeClusterNodes")
    assert (failed.value.status_code, failed.value.code) == (500, "InternalError")
    assert "nodes are gone" not in str(failed.value)


def test_the_process_serves_on_a_port_of_its_own_and_another_one_goes_on_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "cloud").mkdir()
    keys = {"LTAItester": {"secret": SECRET, "user": "tester"}}
    (tmp_path / "cloud" / "access_keys.json").write_text(json.dumps(keys))
    ready = tmp_path / "run" / "cloud.ready"

    def start() -> tuple[subprocess.Popen[bytes], Caller]:
        ready.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, "-m", "sandbox.cloud", "--state", str(tmp_path)], cwd=ROOT)
        told = json.loads(wait_for(lambda: ready.exists() and ready.read_text(), seconds=30))
        return process, Caller(f"127.0.0.1:{told['port']}", "LTAItester", SECRET)

    first, api = start()
    api.rpc("CreatePolicy", PolicyName="p", PolicyDocument=policy_text("cs:*"))
    first.kill()
    first.wait()
    second, api = start()
    assert api.rpc("GetPolicy", PolicyName="p", PolicyType="Custom")["Policy"]["DefaultVersion"] == "v1"
    second.terminate()
    assert second.wait(timeout=10) == 0
