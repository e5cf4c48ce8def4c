"""What both APIs wrote down of a run: the audit log of Kubernetes and the request log of the cloud endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MUTATING = {"create", "update", "patch", "delete", "deletecollection"}


def kubernetes_writes(audit_log: Path, user: str) -> list[dict[str, Any]]:
    """The mutating requests of one user that were not dry runs, reviews or Events."""
    return [entry for entry in _lines(audit_log) if entry["user"]["username"] == user and _writes(entry)]


def cloud_writes(request_log: Path, user: str) -> list[dict[str, Any]]:
    """The requests of one user to the endpoint that were no read actions."""
    return [entry for entry in _lines(request_log) if entry.get("user") == user and entry["write"]]


def shown(entry: dict[str, Any]) -> str:
    """One line for a failing assertion."""
    return f"{entry.get('verb') or entry.get('action')} {entry.get('requestURI') or entry.get('path')}"


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _writes(entry: dict[str, Any]) -> bool:
    resource = entry.get("objectRef", {}).get("resource", "")
    subresource = entry.get("objectRef", {}).get("subresource", "")
    if entry["verb"] not in _MUTATING or "dryRun=All" in entry["requestURI"]:
        return False
    # A command in a pod is a "create" (or "get") of pods/exec; it changes no object.
    return resource != "events" and not resource.endswith("reviews") and subresource != "exec"
