"""The way to the sandbox's API server: its address, and kubeconfigs for those who ask CS for one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import yaml

from sandbox.certificates import Authority

# A RAM user with the RBAC role of an administrator is in this group; the sandbox gives it to every caller.
GROUPS = ("system:masters",)


def own_kubeconfig(state: Path) -> Path:
    """The endpoint's own identity, so that the audit log tells its writes from the product's."""
    own = state / "pki" / "cloud.kubeconfig"
    return own if own.exists() else state / "kubeconfig"


def api_server(state: Path) -> str:
    cluster = yaml.safe_load(own_kubeconfig(state).read_text())["clusters"][0]["cluster"]
    return str(cluster["server"])


def kubeconfig(state: Path, user: str, lifetime: timedelta) -> str:
    """A kubeconfig with a client certificate of the user's that expires."""
    return Authority(state / "pki").kubeconfig_text(api_server(state), user, GROUPS, lifetime)
