"""Somebody who runs a cloud noun as Ansible does, with the options of a play, against an endpoint of a test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import books
from tests.sandbox.cloud_rig import CLUSTER, REGION, SECRET, Rig


class Operator:
    """``options`` are those of the module; ``run`` takes others for one run."""

    def __init__(self, rig: Rig, folder: Path, module: Callable[..., dict[str, Any]], **options: Any) -> None:
        self.rig, self._module = rig, module
        file = folder / "credentials"
        file.write_text(f"[default]\ntype = access_key\naccess_key_id = LTAItester\naccess_key_secret = {SECRET}\n")
        url = f"http://127.0.0.1:{rig.server.port}"
        self.options: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "region_id": REGION,
            "credentials_file": str(file),
            "endpoints": dict.fromkeys(("cs", "ram", "ecs", "sts"), url),
            **options,
        }

    def run(self, *, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        return self._module({**self.options, **options}, check_mode=check_mode, diff=True)

    def writes(self) -> list[str]:
        """The actions that wrote, in their order."""
        log = self.rig.state / "cloud" / "requests.jsonl"
        return [entry["action"] for entry in books.cloud_writes(log, "tester")]
