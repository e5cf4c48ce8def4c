"""One call, from the bytes of a request to those of its answer: signature, shape, faults, handler, log."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

from sandbox.cloud import faulty, shapes
from sandbox.cloud.credentials import AccessKeys, Nonces, secret_of
from sandbox.cloud.errors import CloudError, error, missing
from sandbox.cloud.faulty import FaultBox
from sandbox.cloud.registry import PRODUCTS, Operation, Registry
from sandbox.cloud.request_log import RequestLog
from sandbox.cloud.signature import Request, authorization, check_date, check_signature
from sandbox.cloud.world import Call, Caller, World, request_id


@dataclass(frozen=True)
class Answer:
    """`drop` means that the connection is closed instead of answering."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False


@dataclass
class _Trail:
    """What the log will say of a request; filled in as far as the request got."""

    request_id: str
    operation: Operation | None = None
    caller: Caller | None = None
    code: str = ""


class Endpoint:
    def __init__(self, world: World, registry: Registry) -> None:
        self.world, self.registry = world, registry
        folder = world.settings.state / "cloud"
        self._keys = AccessKeys(folder / "access_keys.json")
        self._nonces = Nonces()
        self._faults = FaultBox(world.settings.state)
        self._log = RequestLog(folder / "requests.jsonl")

    def answer(self, request: Request) -> Answer:
        trail = _Trail(request_id())
        try:
            answer = self._carried_out(request, trail)
        except CloudError as refused:
            answer = self._refused(request, trail, refused)
        except Exception as bug:  # noqa: BLE001 - a handler's mistake reaches the caller as from a real service
            print(f"{trail.request_id} {request.method} {request.path}: {bug!r}", flush=True)
            answer = self._refused(request, trail, error("InternalError"))
        self._log.write(self._line(request, trail, answer))
        return answer

    def _carried_out(self, request: Request, trail: _Trail) -> Answer:
        caller = trail.caller = self._caller(request)
        action = request.header("x-acs-action")
        operation, path = self.registry.find(request.header("x-acs-version"), action, request.method, request.path)
        trail.operation = operation
        call = _checked(operation, path, request, caller, trail.request_id)
        with self.world.store.change() as data:
            met = self._faults.take(data, action, caller.user, makes_task=operation.makes_task)
        time.sleep(max(0.0, faulty.seconds(met, "delay")))
        if refusal := faulty.refusal(met):
            raise refusal
        with self.world.store.change():
            body = operation.handler(self.world, replace(call, faults=met))
        dropped_after = faulty.seconds(met, "apply-then-timeout")
        time.sleep(max(0.0, dropped_after))
        return Answer(200, _encoded(operation, body, trail.request_id), drop=dropped_after >= 0)

    def _caller(self, request: Request) -> Caller:
        now = self.world.now()
        claimed = authorization(request)
        check_date(request, now)
        with self.world.store.change() as data:
            secret, caller = secret_of(request, claimed, self._keys.read(), data["sessions"], now)
        check_signature(request, claimed, secret)
        self._nonces.use(request.header("x-acs-signature-nonce"), now)
        return caller

    def _refused(self, request: Request, trail: _Trail, refused: CloudError) -> Answer:
        trail.code = refused.code
        headers = {"x-acs-retry-after": str(max(1, round(refused.retry_after)))} if refused.retry_after else {}
        if PRODUCTS.get(request.header("x-acs-version")) == "CS":
            body: dict[str, Any] = {
                "code": refused.code, "message": refused.message, "requestId": trail.request_id,
                "status": refused.status,
            }  # fmt: skip
        else:
            body = {
                "Code": refused.code, "Message": refused.message, "RequestId": trail.request_id,
                "HostId": request.header("host"), "Recommend": "",
            }  # fmt: skip
        return Answer(refused.status, json.dumps(body).encode(), headers)

    def _line(self, request: Request, trail: _Trail, answer: Answer) -> dict[str, Any]:
        caller, operation = trail.caller, trail.operation
        return {
            "time": self.world.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "access_key_id": caller.key_id if caller else "",
            "user": caller.user if caller else "",
            "product": operation.product if operation else PRODUCTS.get(request.header("x-acs-version"), ""),
            "action": request.header("x-acs-action"),
            "method": request.method,
            "path": request.path,
            "query": dict(request.query),
            "body": _logged_body(request),
            "status": answer.status,
            "code": trail.code,
            "request_id": trail.request_id,
            "write": operation.write if operation else False,
            "answered": not answer.drop,
        }


def _checked(operation: Operation, path: dict[str, str], request: Request, caller: Caller, request_id: str) -> Call:
    """The call, when it fits the operation's shape."""
    action = operation.action
    query, body = list(request.query), None
    if operation.roa:
        if operation.body is not None:
            body = shapes.of_json(operation.body, _json_body(request, action), action)
        elif request.body not in (b"", b"{}"):
            raise error("InvalidParameter.Body", action=action, why="it takes none")
    else:
        query += _form(request, action)
    typed = shapes.of_strings(operation.query, query, action)
    for name in operation.required:
        if name not in (typed if body is None else body):
            raise missing(name)
    return Call(action, caller, request_id, path, typed, body)


def _json_body(request: Request, action: str) -> Any:
    if not request.body:
        return {}
    try:
        return json.loads(request.body)
    except ValueError as broken:
        raise error("InvalidParameter.Body", action=action, why=str(broken)) from None


def _form(request: Request, action: str) -> list[tuple[str, str]]:
    if not request.body:
        return []
    kind = request.header("content-type").split(";")[0]
    if kind != "application/x-www-form-urlencoded":
        raise error("InvalidParameter.Body", action=action, why="it must be a form (application/x-www-form-urlencoded)")
    return parse_qsl(request.body.decode(), keep_blank_values=True, strict_parsing=True)


def _encoded(operation: Operation, body: Any, request_id: str) -> bytes:
    if operation.roa:
        return b"" if body is None else json.dumps(body).encode()
    return json.dumps({**body, "RequestId": request_id}).encode()


def _logged_body(request: Request) -> Any:
    if not request.body:
        return None
    try:
        return json.loads(request.body)
    except ValueError:
        return dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
