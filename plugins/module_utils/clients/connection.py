"""The connection options that every module shares (doc fragment ``ack.ai_suite.connection``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Endpoints(msgspec.Struct, frozen=True):
    """URLs that stand in for Alibaba Cloud's regional endpoints, e.g. of a VPC; empty means the SDK's rule."""

    cs: str = ""
    ram: str = ""
    ecs: str = ""
    sts: str = ""


class Connection(msgspec.Struct, frozen=True):
    """Where the cluster and its cloud account are, and by which identity they are reached. Holds no secret."""

    cluster_id: str = ""
    region_id: str = ""
    kubeconfig: str = ""
    context: str = ""
    credentials_file: str = ""
    profile: str = ""
    endpoints: Endpoints = Endpoints()


ARGUMENT_SPEC: dict[str, Any] = {
    "cluster_id": {"type": "str"},
    "region_id": {"type": "str"},
    "kubeconfig": {"type": "path"},
    "context": {"type": "str"},
    "credentials_file": {"type": "path"},
    "profile": {"type": "str"},
    "endpoints": {
        "type": "dict",
        "options": {product: {"type": "str"} for product in ("cs", "ram", "ecs", "sts")},
    },
}


def connection(params: Mapping[str, Any]) -> Connection:
    """The connection that a module's parameters describe; null reads as not given."""
    given = {name: params[name] for name in ARGUMENT_SPEC if params.get(name)}
    given["endpoints"] = {name: url for name, url in (params.get("endpoints") or {}).items() if url}
    return msgspec.convert(given, Connection)
