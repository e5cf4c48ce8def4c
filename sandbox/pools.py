"""What `pools.yml` says: the cluster, its first node pools, and how long machines take. The one reader of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

DEFAULT_FILE = Path(__file__).resolve().parent / "pools.yml"


@dataclass(frozen=True)
class Timing:
    """How long a machine takes for each thing, in seconds. The file's comments say what each one is."""

    lag: float
    boot: float
    not_ready_after: float
    installer: float
    plugin: float
    uninstall: float
    auto_repair_after: float


@dataclass(frozen=True)
class Pools:
    """The file's three parts; cluster and pools in the shape of the CS API."""

    cluster: dict[str, Any]
    node_pools: list[dict[str, Any]]
    timing: Timing

    def pool(self, name: str) -> dict[str, Any]:
        """The pool of a name; KeyError when there is none."""
        for pool in self.node_pools:
            if pool["nodepool_info"]["name"] == name:
                return pool
        raise KeyError(name)


def load(path: Path | None = None) -> Pools:
    """Read the file: `path`, else $ACK_SANDBOX_POOLS, else the one beside this module.

    Each timing can be set alone by the environment, in seconds: ACK_SANDBOX_BOOT=20 and so on.
    """
    source = path or Path(os.environ.get("ACK_SANDBOX_POOLS") or DEFAULT_FILE)
    content = yaml.safe_load(source.read_text())
    timing = {
        field.name: float(os.environ.get(f"ACK_SANDBOX_{field.name.upper()}") or content["timing"][field.name])
        for field in fields(Timing)
    }
    return Pools(content["cluster"], content["node_pools"], Timing(**timing))
