"""Who may call: every defect of a signature is refused with the code that the real gateway has for it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from alibabacloud_tea_openapi.exceptions import ClientException
from alibabacloud_tea_openapi.utils import Utils
from darabonba.request import DaraRequest

from tests.sandbox.cloud_rig import ROLE, SECRET, Rig, running


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("signature")) as rig:
        yield rig


class Wire:
    """A request signed by the SDK's own function, then damaged before it is sent."""

    def __init__(self, rig: Rig, **query: str) -> None:
        self.rig = rig
        self.method, self.path, self.body = "POST", "/", b""
        self.query = {"PolicyType": "System", **query}
        self.headers = {
            "host": f"127.0.0.1:{rig.server.port}",
            "x-acs-action": "ListPolicies",
            "x-acs-version": "2015-05-01",
            "x-acs-date": Utils.get_timestamp(),
            "x-acs-signature-nonce": Utils.get_nonce(),
            "x-acs-content-sha256": Utils.hash(b"", "ACS3-HMAC-SHA256").hex(),
        }

    def sign(self, key_id: str = "LTAItester", secret: str = SECRET) -> Wire:
        request = DaraRequest()
        request.method, request.pathname, request.query = self.method, self.path, self.query
        request.headers = self.headers
        payload = Utils.hash(self.body, "ACS3-HMAC-SHA256").hex()
        signature = Utils.get_authorization(request, "ACS3-HMAC-SHA256", payload, key_id, secret)
        self.headers["authorization"] = signature
        return self

    def send(self) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.rig.server.port, timeout=10)
        try:
            target = f"{quote(self.path)}?{urlencode(self.query)}"
            connection.request(self.method, target, body=self.body or None, headers=self.headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def code(self) -> tuple[int, str]:
        status, body = self.send()
        return status, body.get("Code", "")


def test_the_undamaged_request_is_accepted(rig: Rig) -> None:
    status, body = Wire(rig).sign().send()
    assert (status, body["IsTruncated"]) == (200, False)


def _other_method(wire: Wire) -> None:
    wire.method = "GET"


def _other_path(wire: Wire) -> None:
    wire.path = "/x"


def _other_query(wire: Wire) -> None:
    wire.query["PolicyType"] = "Custom"


def _more_query(wire: Wire) -> None:
    wire.query["MaxItems"] = "1"


def _other_body(wire: Wire) -> None:
    wire.body = b"MaxItems=1"
    wire.headers["content-length"] = "10"


def _other_action(wire: Wire) -> None:
    wire.headers["x-acs-action"] = "ListRoles"


def _other_version(wire: Wire) -> None:
    wire.headers["x-acs-version"] = "2015-04-01"


def _other_nonce(wire: Wire) -> None:
    wire.headers["x-acs-signature-nonce"] = "another"


def _other_date(wire: Wire) -> None:
    wire.headers["x-acs-date"] = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _other_host(wire: Wire) -> None:
    wire.headers["host"] = "cs.aliyuncs.com"


def _other_hash(wire: Wire) -> None:
    wire.headers["x-acs-content-sha256"] = Utils.hash(b"other", "ACS3-HMAC-SHA256").hex()


def _other_signature(wire: Wire) -> None:
    kept, last = wire.headers["authorization"][:-1], wire.headers["authorization"][-1]
    wire.headers["authorization"] = kept + ("0" if last != "0" else "1")


@pytest.mark.parametrize(
    "damage",
    [
        _other_method, _other_path, _other_query, _more_query, _other_body, _other_action, _other_version,
        _other_nonce, _other_date, _other_host, _other_hash, _other_signature,
    ],
)  # fmt: skip
def test_what_was_changed_after_signing_is_refused(rig: Rig, damage: Callable[[Wire], None]) -> None:
    wire = Wire(rig).sign()
    damage(wire)
    assert wire.code() == (400, "SignatureDoesNotMatch")


def test_a_wrong_secret_is_refused(rig: Rig) -> None:
    assert Wire(rig).sign(secret="guessed").code() == (400, "SignatureDoesNotMatch")


def test_the_sdk_sees_a_wrong_secret_as_a_client_error_with_its_code(rig: Rig) -> None:
    with pytest.raises(ClientException) as refused:
        rig.rpc("ListPolicies", client=rig.client(secret="guessed"))
    assert refused.value.code == "SignatureDoesNotMatch"
    assert "guessed" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_an_unknown_key_is_refused(rig: Rig) -> None:
    assert Wire(rig).sign(key_id="LTAInobody").code() == (404, "InvalidAccessKeyId.NotFound")


def test_a_disabled_key_is_refused(rig: Rig) -> None:
    rig.keys["LTAIdisabled"] = {"secret": "s", "user": "gone", "status": "Inactive"}
    rig.write_keys()
    assert Wire(rig).sign("LTAIdisabled", "s").code() == (400, "InvalidAccessKeyId.Inactive")


def test_a_key_that_was_added_while_the_endpoint_runs_is_accepted(rig: Rig) -> None:
    assert Wire(rig).sign("LTAInewcomer", "s2").code() == (404, "InvalidAccessKeyId.NotFound")
    rig.keys["LTAInewcomer"] = {"secret": "s2", "user": "newcomer"}
    rig.write_keys()
    status, _ = Wire(rig).sign("LTAInewcomer", "s2").send()
    assert status == 200
    assert rig.log()[-1]["user"] == "newcomer"


def test_an_old_date_is_refused_and_so_is_one_from_the_future(rig: Rig) -> None:
    for minutes in (-16, 16):
        wire = Wire(rig)
        wire.headers["x-acs-date"] = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert wire.sign().code() == (400, "InvalidTimeStamp.Expired")


def test_a_date_in_another_format_is_refused(rig: Rig) -> None:
    wire = Wire(rig)
    wire.headers["x-acs-date"] = "Thu, 06 Feb 2020 07:32:54 GMT"
    assert wire.sign().code() == (400, "InvalidTimeStamp.Format")


def test_the_same_request_twice_is_refused(rig: Rig) -> None:
    wire = Wire(rig).sign()
    assert wire.send()[0] == 200
    assert wire.code() == (400, "SignatureNonceUsed")


def test_a_request_without_a_signature_is_refused(rig: Rig) -> None:
    assert Wire(rig).code() == (400, "IncompleteSignature")


def test_another_way_of_signing_is_refused(rig: Rig) -> None:
    wire = Wire(rig).sign()
    wire.headers["authorization"] = wire.headers["authorization"].replace("ACS3-HMAC-SHA256", "ACS3-HMAC-MD5")
    assert wire.code() == (400, "InvalidSignatureMethod")


def test_an_authorization_that_cannot_be_parsed_is_refused(rig: Rig) -> None:
    wire = Wire(rig)
    wire.headers["authorization"] = "ACS3-HMAC-SHA256 Credential=LTAItester"
    assert wire.code() == (400, "IncompleteSignature")


@pytest.mark.parametrize(
    "header",
    ["host", "x-acs-action", "x-acs-version", "x-acs-date", "x-acs-signature-nonce", "x-acs-content-sha256"],
)
def test_each_header_that_matters_must_be_signed(rig: Rig, header: str) -> None:
    wire = Wire(rig)
    value = wire.headers.pop(header)
    wire.sign()
    wire.headers[header] = value
    assert wire.code() == (400, "IncompleteSignature")


def test_a_token_that_was_added_to_the_headers_unsigned_is_refused(rig: Rig) -> None:
    wire = Wire(rig).sign()
    wire.headers["x-acs-security-token"] = "t"
    assert wire.code() == (400, "IncompleteSignature")


def test_an_unknown_version_and_an_unknown_action_are_refused(rig: Rig) -> None:
    wire = Wire(rig)
    wire.headers["x-acs-version"] = "2099-01-01"
    assert wire.sign().code() == (400, "InvalidVersion")
    wire = Wire(rig)
    wire.headers["x-acs-action"] = "MakeCoffee"
    assert wire.sign().code() == (404, "InvalidAction.NotFound")


def test_an_action_of_another_product_is_refused(rig: Rig) -> None:
    wire = Wire(rig)
    wire.headers["x-acs-version"] = "2014-05-26"
    assert wire.sign().code() == (404, "InvalidAction.NotFound")


def test_spaces_umlauts_and_signs_in_parameters_survive_the_signature(rig: Rig) -> None:
    wire = Wire(rig, Marker="a b+c/ü~*'()&=%")
    assert wire.sign().code() == (400, "InvalidParameter.Marker")


def test_an_assumed_role_signs_with_its_token(rig: Rig) -> None:
    granted = rig.rpc("AssumeRole", RoleArn=f"acs:ram::1234567890123456:role/{ROLE}", RoleSessionName="night-run")
    given = granted["Credentials"]
    session = rig.client(given["AccessKeyId"], given["AccessKeySecret"], given["SecurityToken"])
    identity = rig.rpc("GetCallerIdentity", client=session)
    assert identity["IdentityType"] == "AssumedRoleUser"
    assert identity["Arn"].endswith(f"assumed-role/{ROLE}/night-run")
    assert rig.log()[-1]["user"] == "tester"
    assert rig.rpc("GetCallerIdentity")["IdentityType"] == "RAMUser"


def _session(rig: Rig) -> dict[str, str]:
    arn = f"acs:ram::1234567890123456:role/{ROLE}"
    return dict(rig.rpc("AssumeRole", RoleArn=arn, RoleSessionName="s1", DurationSeconds=900)["Credentials"])


def _refused(rig: Rig, **credentials: str) -> str:
    with pytest.raises(ClientException) as refused:
        rig.rpc("GetCallerIdentity", client=rig.client(**credentials))
    return str(refused.value.code)


def test_a_session_without_or_with_another_token_is_refused(rig: Rig) -> None:
    given, other = _session(rig), _session(rig)
    key = {"key_id": given["AccessKeyId"], "secret": given["AccessKeySecret"]}
    assert _refused(rig, **key) == "MissingSecurityToken"
    assert _refused(rig, **key, token=other["SecurityToken"]) == "InvalidSecurityToken.MismatchWithAccessKey"
    assert _refused(rig, token=other["SecurityToken"]) == "InvalidSecurityToken.MismatchWithAccessKey"


def test_a_session_ends(rig: Rig) -> None:
    given = _session(rig)
    with rig.world.store.change() as data:
        data["sessions"][given["AccessKeyId"]]["expires"] = "2020-01-01T00:00:00Z"
    key = {"key_id": given["AccessKeyId"], "secret": given["AccessKeySecret"], "token": given["SecurityToken"]}
    assert _refused(rig, **key) == "InvalidSecurityToken.Expired"


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"RoleArn": "acs:ram::1:role/x"}, "InvalidParameter.RoleArn"),
        ({"RoleArn": "acs:ram::1234567890123456:role/nobody"}, "EntityNotExist.Role"),
        ({"RoleSessionName": "a b"}, "InvalidParameter.RoleSessionName"),
        ({"DurationSeconds": "60"}, "InvalidParameter.DurationSeconds"),
        ({"DurationSeconds": "3601"}, "InvalidParameter.DurationSeconds"),
    ],
)
def test_wrong_parameters_of_assume_role_are_refused(rig: Rig, parameters: dict[str, str], code: str) -> None:
    right = {"RoleArn": f"acs:ram::1234567890123456:role/{ROLE}", "RoleSessionName": "s1"}
    with pytest.raises(ClientException) as refused:
        rig.rpc("AssumeRole", **(right | parameters))
    assert refused.value.code == code


def test_the_endpoint_listens_on_loopback_only(rig: Rig) -> None:
    assert rig.server.server_address[0] == "127.0.0.1"


def test_the_ready_file_tells_the_port(rig: Rig, tmp_path: Path) -> None:
    rig.server.announce(tmp_path / "run" / "cloud.ready")
    told = json.loads((tmp_path / "run" / "cloud.ready").read_text())
    assert told == {"port": rig.server.port, "url": f"http://127.0.0.1:{rig.server.port}"}
