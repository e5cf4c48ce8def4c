"""ACS3-HMAC-SHA256, verified as the gateway does (pure: the time and the secrets are arguments).

Source: "V3 request body and signature mechanism" of the OpenAPI documentation, and the public SDK that signs with it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from sandbox.cloud.errors import error

ALGORITHM = "ACS3-HMAC-SHA256"
VALID_SECONDS = 15 * 60
ALWAYS_SIGNED = (
    "host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version",
)  # fmt: skip
_AUTHORIZATION = re.compile(r"(\S+) Credential=([^,\s]+),\s*SignedHeaders=([^,\s]+),\s*Signature=([0-9a-fA-F]+)")


@dataclass(frozen=True)
class Request:
    """A request as it came over the wire; header names in lower case, query decoded, path as sent."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, tuple[str, ...]]
    body: bytes

    def header(self, name: str) -> str:
        return ",".join(self.headers.get(name, ()))


@dataclass(frozen=True)
class Authorization:
    key_id: str
    signed: tuple[str, ...]
    signature: str


def authorization(request: Request) -> Authorization:
    """The parsed Authorization header; raises IncompleteSignature or InvalidSignatureMethod."""
    header = request.header("authorization")
    if not header:
        raise error("IncompleteSignature", why="The Authorization header is missing.")
    found = _AUTHORIZATION.fullmatch(header.strip())
    if header.split(" ", 1)[0] != ALGORITHM:
        raise error("InvalidSignatureMethod")
    if not found:
        raise error("IncompleteSignature", why="The Authorization header can't be parsed.")
    signed = tuple(found[3].lower().split(";"))
    sent = {name for name in request.headers if name.startswith("x-acs-") or name == "content-type"}
    for name in sorted({*ALWAYS_SIGNED, *sent}):
        if name not in request.headers:
            raise error("IncompleteSignature", why=f"The header {name} is missing.")
        if name not in signed:
            raise error("IncompleteSignature", why=f"The header {name} is not signed.")
    return Authorization(found[2], signed, found[4].lower())


def check_date(request: Request, now: datetime) -> None:
    """Raises InvalidTimeStamp.* unless x-acs-date lies within fifteen minutes of `now`."""
    try:
        sent = datetime.strptime(request.header("x-acs-date"), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise error("InvalidTimeStamp.Format") from None
    if abs((now - sent).total_seconds()) > VALID_SECONDS:
        raise error("InvalidTimeStamp.Expired")


def check_signature(request: Request, claimed: Authorization, secret: str) -> None:
    """Raises SignatureDoesNotMatch unless the secret gives the claimed signature for what really arrived."""
    string = string_to_sign(request, claimed.signed)
    right = hmac.new(secret.encode(), string.encode(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(right, claimed.signature):
        raise error("SignatureDoesNotMatch", string=string.replace("\n", " "))


def string_to_sign(request: Request, signed: tuple[str, ...]) -> str:
    return f"{ALGORITHM}\n{hashlib.sha256(canonical_request(request, signed).encode()).hexdigest()}"


def canonical_request(request: Request, signed: tuple[str, ...]) -> str:
    """What is hashed. The payload's hash is computed from the body, never taken from the header."""
    names = sorted(signed)
    query = "&".join(f"{_encoded(key)}={_encoded(value)}" for key, value in sorted(request.query))
    headers = "".join(
        f"{name}:{','.join(sorted(value.strip() for value in request.headers.get(name, ())))}\n" for name in names
    )
    payload = hashlib.sha256(request.body).hexdigest()
    return f"{request.method}\n{request.path or '/'}\n{query}\n{headers}\n{';'.join(names)}\n{payload}"


def _encoded(text: str) -> str:
    return quote(text, safe="~")
