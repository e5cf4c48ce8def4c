"""The Kubernetes API: raw requests, typed answers. Configuration, authentication and TLS are the kubernetes client's.

Reads are retried for a moment when the server is busy or away; a write is sent once, since only its caller knows
whether it may be sent again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Page

T = TypeVar("T")

_CONTENT_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_BUSY = (429, 500, 502, 503, 504)
_TRIES = 4


class KubeError(AckError):
    """The API refused or could not be reached. ``status`` is the HTTP status, 0 when there was no answer."""

    def __init__(
        self,
        subject: str,
        problem: str,
        cure: str,
        code: str,
        *,
        status: int,
        reason: str = "",
        retry_after: float = 0,
        causes: Sequence[str] = (),
    ) -> None:
        super().__init__(subject, problem, cure, code)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.causes = tuple(causes)


class ExecResult(msgspec.Struct, frozen=True):
    """What a command in a pod left: exit status and its two streams."""

    rc: int
    stdout: str
    stderr: str


class Kube:
    """One cluster. ``requests`` counts what was sent, for reports and benchmarks."""

    def __init__(self, connection: Connection, *, timeout: float = 30) -> None:
        self._connection = connection
        self._timeout = timeout
        self._client: Any = None
        self.requests = 0

    # --- reads ---

    def get(self, path: str, kind: type[T] | Any = dict, query: Mapping[str, Any] | None = None) -> T:
        """One object, decoded into ``kind``."""
        return msgspec.json.decode(self.raw("GET", path, query=query), type=kind)

    def find(self, path: str, kind: type[T] | Any = dict) -> T | None:
        """One object, or None when it does not exist."""
        try:
            return self.get(path, kind)
        except KubeError as problem:
            if problem.status == 404:
                return None
            raise

    def list(self, path: str, kind: type[T], query: Mapping[str, Any] | None = None, *, page: int = 500) -> list[T]:
        """All objects of a list, page by page."""
        return list(self._pages(path, kind, dict(query or {}), page))

    def _pages(self, path: str, kind: type[T], query: dict[str, Any], page: int) -> Iterator[T]:
        query["limit"] = page
        while True:
            answer = self.get(path, Page, query)
            for raw in answer.items or ():
                yield msgspec.json.decode(raw, type=kind)
            if not answer.metadata.continue_:
                return
            query["continue"] = answer.metadata.continue_

    def version(self) -> str:
        """The server's ``gitVersion``, e.g. ``v1.34.1-aliyun.1`` (never its ``minor``, which may be ``34+``)."""
        return str(self.get("/version")["gitVersion"])

    # --- writes ---

    def create(self, path: str, body: Mapping[str, Any], query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._write("POST", path, body, query)

    def patch(self, path: str, body: Any, kind: str = "json", query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """``kind`` is json (RFC 6902), merge (RFC 7386), strategic or apply (needs ``fieldManager`` in the query)."""
        return self._write("PATCH", path, body, query, _CONTENT_TYPES[kind])

    def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._write("PUT", path, body, None)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Delete one object; one that is gone already is fine."""
        try:
            self._write("DELETE", path, body, None)
        except KubeError as problem:
            if problem.status != 404:
                raise

    def _write(
        self, method: str, path: str, body: Any, query: Mapping[str, Any] | None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        answer: dict[str, Any] = msgspec.json.decode(
            self.raw(method, path, body=body, query=query, content_type=content_type)
        )
        return answer

    # --- commands in pods ---

    def exec(
        self, namespace: str, pod: str, command: Sequence[str], *, container: str = "", timeout: float = 60
    ) -> ExecResult:
        """Run a command in a pod. Raises KubeError (KUB-EXEC) when it could not be run or did not end in time."""
        from kubernetes.stream import ws_client

        query = [("command", part) for part in command] + [("stdout", "true"), ("stderr", "true")]
        query += [("container", container)] if container else []
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
        client = self._api()
        # The URL goes in whole: the helper of the client would lose a command's repeated parameters.
        url = f"{client.configuration.host}{path}?{urlencode(query)}"
        headers: dict[str, str] = {}
        client.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        self.requests += 1
        try:
            stream = ws_client.websocket_call(client.configuration, "GET", url, headers=headers, _preload_content=False)
            stream.run_forever(timeout=timeout)
        except Exception as problem:  # noqa: BLE001 - the client raises bare Exceptions of several libraries
            raise _exec_error(pod, f"the command could not be run: {_first_line(problem)}.") from None
        if stream.is_open():
            stream.close()
            raise _exec_error(pod, f"the command did not end within {timeout:.0f} s.")
        return ExecResult(
            _exit_status(pod, stream),
            stream.read_stdout(timeout=0) if stream.peek_stdout(timeout=0) else "",
            stream.read_stderr(timeout=0) if stream.peek_stderr(timeout=0) else "",
        )

    # --- the wire ---

    def raw(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The answer's bytes. Raises KubeError for every answer of 400 and above."""
        for attempt in range(1, _TRIES + 1):
            try:
                return self._send(method, path, body, query, content_type)
            except KubeError as problem:
                busy = problem.status in _BUSY or problem.status == 0
                if method != "GET" or not busy or attempt == _TRIES:
                    raise
                clock.sleep(max(problem.retry_after, 0.25 * 2**attempt))
        raise AssertionError("unreachable")

    def _send(self, method: str, path: str, body: Any, query: Mapping[str, Any] | None, content_type: str) -> bytes:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        client = self._api()
        headers = {"Accept": "application/json"}
        client.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        url = client.configuration.host + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        if body is not None:
            headers["Content-Type"] = content_type
        self.requests += 1
        try:
            answer = client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=self._timeout,
                retries=False,
            )
        except (ApiException, HTTPError, OSError) as problem:
            raise KubeError(
                f"Kubernetes API {client.configuration.host}",
                f"{method} {path} got no answer: {_first_line(problem)}.",
                "Check that the API server is up and that the kubeconfig points at it.",
                "KUB-UNREACHABLE",
                status=0,
            ) from None
        if answer.status >= 400:
            raise _refused(method, path, answer.status, answer.data, answer.headers)
        return bytes(answer.data)

    def _api(self) -> Any:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _connect(self) -> Any:
        from kubernetes import client, config

        settings = client.Configuration()
        settings.retries = False  # a write that was sent twice behind our back is a lost idempotence
        settings.connection_pool_maxsize = 32
        asked = self._connection.kubeconfig
        cure = "Set ack_connection.kubeconfig (or --kubeconfig, or KUBECONFIG) to a file that kubectl accepts."
        if asked and not Path(asked).expanduser().is_file():
            raise AckError(f"kubeconfig {asked}", "there is no such file.", cure, "KUB-CONFIG")
        try:
            return config.new_client_from_config(
                asked or None, self._connection.context or None, client_configuration=settings
            )
        except Exception as problem:  # noqa: BLE001 - ConfigException, YAML errors, OSError, ...
            raise AckError(
                f"kubeconfig {asked or 'of KUBECONFIG or ~/.kube/config'}",
                f"it cannot be used: {_first_line(problem)}.",
                cure,
                "KUB-CONFIG",
            ) from None


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0].rstrip(".")


def _exec_error(pod: str, problem: str) -> KubeError:
    return KubeError(
        f"pod {pod}", problem, "Check that the pod runs and that the kubelet of its node answers.", "KUB-EXEC", status=0
    )


def _exit_status(pod: str, stream: Any) -> int:
    try:
        code = stream.returncode
    except Exception:  # noqa: BLE001 - the error channel held something that is no Status
        code = None
    if code is None:
        raise _exec_error(pod, "the connection ended before the command's exit status came.")
    return int(code)


def _refused(method: str, path: str, status: int, body: bytes, headers: Mapping[str, str]) -> KubeError:
    try:
        told = msgspec.json.decode(body)
    except msgspec.DecodeError:
        told = {}
    told = told if isinstance(told, dict) else {}
    message = str(told.get("message") or body[:300].decode(errors="replace") or "no reason given").rstrip(".")
    details = told.get("details") or {}
    cures = {
        401: "Renew the credentials of the kubeconfig.",
        403: "Grant the missing right to this identity (RBAC).",
        404: "Check the name, and that the component that brings this kind is installed.",
        409: "Somebody changed it meanwhile; run again.",
        429: "The server asks to try later; run again.",
    }
    return KubeError(
        f"Kubernetes API {method} {path}",
        f"refused with {status}: {message}.",
        cures.get(status, "Mend what the server says."),
        f"KUB-{status}",
        status=status,
        reason=str(told.get("reason") or ""),
        retry_after=float(headers.get("Retry-After") or details.get("retryAfterSeconds") or 0),
        causes=[str(cause.get("message")) for cause in details.get("causes") or ()],
    )
