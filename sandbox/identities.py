"""Who may talk to a sandbox: Kubernetes users by client certificate, Alibaba Cloud users by AccessKey."""

from __future__ import annotations

import configparser
import io
import json
import re
import secrets
import string
from collections.abc import Sequence
from pathlib import Path

from sandbox.certificates import Authority
from sandbox.errors import SandboxError
from sandbox.layout import Layout, locked, write_private

USER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.@-]{0,61}[A-Za-z0-9])?")
_LETTERS = string.ascii_letters + string.digits


def make_default(layout: Layout) -> None:
    """The AccessKey of the profile ``default``."""
    _add_access_key(layout, "default")


def add_user(layout: Layout, name: str, groups: Sequence[str]) -> Path:
    """Make (or renew) a user: ``kubeconfigs/<name>``, and the profile ``[<name>]`` with an AccessKey of its own."""
    # The parser of profiles keeps the section DEFAULT for itself.
    if not USER.fullmatch(name) or name == configparser.DEFAULTSECT:
        raise SandboxError(
            f"user {name!r}", "is not a usable name.", "Use letters, digits and . _ @ - (63 at most).", "SBX-USER"
        )
    server = layout.info()["server"]
    path = layout.kubeconfigs / name
    Authority(layout.pki).kubeconfig(path, server, name, groups)
    _add_access_key(layout, name)
    return path


def _add_access_key(layout: Layout, user: str) -> None:
    key_id = "LTAI5t" + "".join(secrets.choice(_LETTERS) for _ in range(18))
    secret = "".join(secrets.choice(_LETTERS) for _ in range(30))
    with locked(layout.run / "access_keys.lock", wait=True):
        keys = layout.read(layout.access_keys) or {}
        keys = {each: entry for each, entry in keys.items() if entry["user"] != user}
        write_private(layout.access_keys, json.dumps({**keys, key_id: {"secret": secret, "user": user}}, indent=1))
        profiles = configparser.ConfigParser()
        profiles.read(layout.credentials)
        profiles[user] = {
            "enable": "true",
            "type": "access_key",
            "access_key_id": key_id,
            "access_key_secret": secret,
        }
        text = io.StringIO()
        profiles.write(text)
        write_private(layout.credentials, text.getvalue())
