"""Who may call: AccessKeys of `cloud/access_keys.json` (read afresh when the file changes), and sessions of roles."""

from __future__ import annotations

import hmac
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sandbox.cloud.errors import error
from sandbox.cloud.signature import VALID_SECONDS, Authorization, Request
from sandbox.cloud.world import Caller, stamp


class AccessKeys:
    """AccessKey id -> {"secret", "user", optional "status": "Inactive"}."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, dict[str, str]] = {}

    def read(self) -> Mapping[str, Mapping[str, str]]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return {}
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._keys, self._seen = json.loads(self._path.read_text()), seen
        return self._keys


class Nonces:
    """Nonces of the last quarter of an hour: each counts once. Older requests are refused for their date."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def use(self, nonce: str, now: datetime) -> None:
        """Raises SignatureNonceUsed for one that came before."""
        with self._lock:
            while self._used and next(iter(self._used.values())) < now.timestamp() - 2 * VALID_SECONDS:
                self._used.popitem(last=False)
            if nonce in self._used:
                raise error("SignatureNonceUsed")
            self._used[nonce] = now.timestamp()


def secret_of(
    request: Request, claimed: Authorization, keys: Mapping[str, Mapping[str, str]], sessions: Mapping[str, Any],
    now: datetime,
) -> tuple[str, Caller]:  # fmt: skip
    """The secret that must have signed, and whose it is. Raises InvalidAccessKeyId.* and InvalidSecurityToken.*."""
    token = request.header("x-acs-security-token")
    if key := keys.get(claimed.key_id):
        if key.get("status") == "Inactive":
            raise error("InvalidAccessKeyId.Inactive")
        if token:
            raise error("InvalidSecurityToken.MismatchWithAccessKey")
        return key["secret"], Caller(claimed.key_id, key["user"])
    session = sessions.get(claimed.key_id)
    if session is None:
        raise error("InvalidAccessKeyId.NotFound")
    if not token:
        raise error("MissingSecurityToken")
    if not hmac.compare_digest(token.encode(), session["token"].encode()):
        raise error("InvalidSecurityToken.MismatchWithAccessKey")
    if session["expires"] <= stamp(now):
        raise error("InvalidSecurityToken.Expired")
    return session["secret"], Caller(claimed.key_id, session["user"], session["role"], session["session"])
