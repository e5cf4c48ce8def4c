"""Alibaba Cloud's OpenAPI through the generic client of its SDK: raw dictionaries out, raw dictionaries back.

The SDK's typed models are not used: they send ``[]`` for every list that was not set, so that a change of labels could
wipe the taints of a pool. Retries stand in the client's Config, because the SDK ignores those of a single call.
The SDK is imported by the first call: it costs half a second.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.pauses import Pauses
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan

Product = Literal["cs", "ram", "ecs", "sts"]

VERSIONS: Mapping[Product, str] = {"cs": "2015-12-15", "ram": "2015-05-01", "ecs": "2014-05-26", "sts": "2015-04-01"}
# RAM is one service for all regions.
_GLOBAL_ENDPOINTS: Mapping[str, str] = {"ram": "ram.aliyuncs.com"}
_REGION = re.compile(r"[a-z]{2}-[a-z0-9-]+")

_CONNECT_MS, _READ_MS = 5_000, 30_000
_TRIES, _FIRST_WAIT_MS, _LONGEST_WAIT_MS = 6, 250, 8_000  # about 20 s of waiting at most, beside the calls themselves
_THROTTLES = ["Throttling", "Throttling.User", "Throttling.Api", "Throttling.API", "Throttling.Resource"]
_AWAY = ["ServiceUnavailable", "SystemBusy"]  # the request was turned away: it may be sent again, also when it writes
_LOST = ["RetryError", "ServerException"]  # no answer, or 5xx: a write may have been carried out

_CREDENTIAL_CODES = re.compile(r"InvalidAccessKeyId|InvalidSecurityToken|SignatureDoesNotMatch|IncompleteSignature")


class CloudError(AckError):
    """A refusal or failure of Alibaba Cloud. ``reason`` is the service's own error code (``EntityNotExist.Role``),
    ``status`` the HTTP status, 0 when no answer came; ``code`` stays the stable code of this collection."""

    def __init__(
        self,
        subject: str,
        problem: str,
        cure: str,
        code: str,
        *,
        status: int = 0,
        reason: str = "",
        request_id: str = "",
    ) -> None:
        super().__init__(subject, problem, cure, code, status=status, reason=reason, request_id=request_id)
        self.status = status
        self.reason = reason
        self.request_id = request_id

    @property
    def unsure(self) -> bool:
        """Whether a write may have been carried out all the same: look before doing it again."""
        return self.status == 0 or self.status >= 500


class OpenApi:
    """One account, reached by one identity. ``requests`` counts the calls (what the SDK repeats counts once)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clients: dict[tuple[Product, bool], Any] = {}
        self._credential: Any = None
        self.requests = 0

    def rpc(self, product: Product, action: str, parameters: Mapping[str, Any], *, write: bool = False) -> Any:
        """A call of RAM, ECS or STS. Lists are sent as the services want them (``InstanceId.1``), None not at all."""
        return self._call(product, action, "POST", "/", _flat(parameters), None, write)

    def roa(
        self,
        action: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
    ) -> Any:
        """A call of CS: every method but GET writes. ``path`` holds escaped names."""
        return self._call("cs", action, method, path, _flat(query or {}), body, method != "GET")

    def _call(
        self, product: Product, action: str, method: str, path: str, query: dict[str, str], body: Any, write: bool
    ) -> Any:
        from alibabacloud_tea_openapi.utils_models import OpenApiRequest, Params
        from darabonba.runtime import RuntimeOptions

        roa = product == "cs"
        params = Params(
            action=action, version=VERSIONS[product], pathname=path, method=method, auth_type="AK",
            style="ROA" if roa else "RPC", req_body_type="json" if roa else "formData", body_type="string",
        )  # fmt: skip
        client = self._client(product, write)
        self.requests += 1
        try:
            with _directly_where_near(self._endpoint(product)[1]):
                answer = client.call_api(params, OpenApiRequest(query=query, body=body), RuntimeOptions())
        except Exception as problem:  # noqa: BLE001 - the SDK raises exceptions of five libraries
            raise failure(product, action, problem) from None
        try:
            return msgspec.json.decode(answer["body"]) if answer["body"] else {}
        except msgspec.DecodeError:
            raise CloudError(
                _subject(product, action), "the answer is not JSON.", _PROXY_CURE, "CLD-ANSWER", status=0
            ) from None

    def _client(self, product: Product, write: bool) -> Any:
        key = (product, write)
        if key not in self._clients:
            from alibabacloud_tea_openapi.client import Client
            from alibabacloud_tea_openapi.utils_models import Config

            protocol, host = self._endpoint(product)
            self._clients[key] = Client(
                Config(
                    credential=self._credentials(),
                    endpoint=host,
                    protocol=protocol,
                    region_id=self._connection.region_id,
                    user_agent="ack.ai_suite",
                    connect_timeout=_CONNECT_MS,
                    read_timeout=_READ_MS,
                    retry_options=_retries(write),
                )
            )
        return self._clients[key]

    def _endpoint(self, product: Product) -> tuple[str, str]:
        """Protocol and host: as the inventory says, else by the rule of Alibaba Cloud."""
        given = getattr(self._connection.endpoints, product)
        if given:
            url = urlsplit(given)
            if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/") or url.username:
                raise CloudError(
                    f"ack_connection.endpoints.{product}", f"{given!r} is no URL of a service.",
                    "Write https://HOST, without path, user or password.", "CLD-CONFIG",
                )  # fmt: skip
            return url.scheme, url.netloc
        if product in _GLOBAL_ENDPOINTS:
            return "https", _GLOBAL_ENDPOINTS[product]
        region = self._connection.region_id
        if not _REGION.fullmatch(region):
            raise CloudError(
                "ack_connection.region_id", f"{region!r} is no region." if region else "it is not set.",
                "Write the region of the cluster, for example cn-hangzhou.", "CLD-CONFIG",
            )  # fmt: skip
        return "https", f"{product}.{region}.aliyuncs.com"

    def _credentials(self) -> Any:
        """The profile that the inventory names, else the SDK's default chain. Keys are read by the SDK alone."""
        if self._credential is None:
            # Its providers log tracebacks to standard error; what they say is in the error that we raise.
            logging.getLogger("credentials").disabled = True
            from alibabacloud_credentials.client import Client
            from alibabacloud_credentials.provider import ProfileCredentialsProvider

            file, profile = self._connection.credentials_file, self._connection.profile
            if not (file or profile):
                self._credential = Client()
            else:
                if file and not os.access(file, os.R_OK):
                    raise CloudError(
                        f"credentials file {file}", "it cannot be read.",
                        "Set ack_connection.credentials_file to an INI file of profiles that you may read.",
                        "CLD-CREDENTIALS",
                    )  # fmt: skip
                provider = ProfileCredentialsProvider(profile_file=file or None, profile_name=profile or "default")
                self._credential = Client(provider=provider)
        return self._credential


_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")


@contextmanager
def _directly_where_near(host: str) -> Iterator[None]:
    """The SDK sends everything to the proxy of the environment and knows no NO_PROXY: hide the proxy from it where
    NO_PROXY names the host, or where the host is this computer."""
    name = urlsplit(f"//{host}").hostname or ""
    hidden = {each: os.environ.pop(each, "") for each in _PROXIES} if _is_loopback(name) or proxy_bypass(name) else {}
    try:
        yield
    finally:
        os.environ.update({each: value for each, value in hidden.items() if value})


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _retries(write: bool) -> Any:
    """Reads are repeated whenever no good answer came; writes only when they were certainly not carried out."""
    from darabonba.policy.retry import RetryOptions

    condition = {
        "maxAttempts": _TRIES,
        "exception": ["ThrottlingException"] if write else ["ThrottlingException", *_LOST],
        "errorCode": [*_THROTTLES, *_AWAY],
        "backoff": {"policy": "EqualJitter", "period": _FIRST_WAIT_MS, "cap": _LONGEST_WAIT_MS},
        "maxDelay": _LONGEST_WAIT_MS,
    }
    return RetryOptions({"retryable": True, "retryCondition": [condition]})


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Query parameters as text: ``{"Tag": [{"Key": "a"}]}`` becomes ``Tag.1.Key=a``; None is left out."""
    flat: dict[str, str] = {}
    for name, value in parameters.items():
        if isinstance(value, list | tuple):
            flat |= _flat({str(number): item for number, item in enumerate(value, 1)}, f"{prefix}{name}.")
        elif isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            flat[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


# What RAM says while it has not yet spread what was just made.
_LAGS = ("EntityAlreadyExists.Policy", "EntityNotExist.Policy")
_SETTLES_WITHIN = 20.0


def settled(plan: Plan, act: Callable[[Plan], None], replan: Callable[[], Plan]) -> None:
    """Carry out a plan. Where it is unsure whether a write was done, look again and do what is still to do."""
    pauses = Pauses(_SETTLES_WITHIN)
    while plan.actions:
        try:
            return act(plan)
        except CloudError as problem:
            if not (problem.unsure or problem.reason in _LAGS) or not pauses.wait():
                raise
        plan = replan()
    return None


# --- what went wrong ---

_PROXY_CURE = "Check the endpoint, and what stands before it: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, a firewall."
_CREDENTIALS_CURE = (
    "Give valid credentials by the SDK's default chain (environment, profile, RAM role, OIDC), or by "
    "ack_connection.credentials_file and profile."
)


def _subject(product: str, action: str) -> str:
    return f"Alibaba Cloud {product.upper()} {action}"


def failure(product: Product, action: str, problem: Exception) -> CloudError:
    """Whatever the SDK raised, as one error that a person can act on. Never holds parameters, which may be secret."""
    if getattr(problem, "status_code", None):
        return _refused(product, action, problem)
    cause = getattr(problem, "inner_exception", None) or problem
    kind, told = type(cause).__name__, _first_line(cause)
    if kind == "CredentialException" or "Credential" in str(getattr(cause, "code", "")):
        return CloudError(
            _subject(product, action), f"no credentials: {told}.", _CREDENTIALS_CURE, "CLD-CREDENTIALS", status=400
        )
    return CloudError(
        _subject(product, action), f"no answer ({kind}): {told}.", _PROXY_CURE, "CLD-UNREACHABLE", status=0
    )


def _refused(product: Product, action: str, problem: Any) -> CloudError:
    told = problem.data if isinstance(problem.data, dict) else {}
    reason, status = str(problem.code or ""), int(problem.status_code)
    message = _short(str(told.get("Message") or told.get("message") or "no reason given"))
    request_id = str(told.get("RequestId") or told.get("requestId") or "")
    code, cure = _kind(product, action, reason, status)
    return CloudError(
        _subject(product, action),
        f"refused with {reason} ({status}): {message}. Request id {request_id or 'not told'}.",
        cure, code, status=status, reason=reason, request_id=request_id,
    )  # fmt: skip


def _kind(product: Product, action: str, reason: str, status: int) -> tuple[str, str]:
    """Our stable code and the cure; the service's code decides before the status does."""
    if _CREDENTIAL_CODES.match(reason):
        return "CLD-CREDENTIALS", _CREDENTIALS_CURE
    if reason.startswith("Throttling"):
        return "CLD-THROTTLED", "It was repeated for a while already: run again later, or with fewer forks."
    if reason.startswith(("NoPermission", "Forbidden", "StatusForbidden")) or status in (401, 403):
        return "CLD-FORBIDDEN", f"Grant this identity the action {product}:{action} in RAM."
    if "NotExist" in reason or "NotFound" in reason or status == 404:
        return "CLD-NOT-FOUND", "Check the name or id, the region and the account."
    if status >= 500:
        return "CLD-SERVER", "It is the service's failure: run again; if it stays, open a ticket with the request id."
    return "CLD-REFUSED", "Mend what the service says."


def _first_line(problem: BaseException) -> str:
    return _short((str(problem).strip().splitlines() or ["no reason given"])[0])


def _short(text: str, most: int = 300) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= most else text[:most] + "..."
