"""What a sandbox's cluster has from the beginning: the nodes of pools.yml. And, when asked, a workload to move about.

`python -m sandbox.seed --name NAME --with-workload` applies demo_workload.yaml to a sandbox that is up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sandbox import pools
from sandbox.errors import SandboxError
from sandbox.layout import Layout
from sandbox.machines.objects import new_machine, node_object

WORKLOAD = Path(__file__).resolve().parent / "demo_workload.yaml"
READY_WITHIN = 60


def seed(info: dict[str, Any]) -> None:
    """Register the nodes of all pools and wait until they are Ready. `info` is what sandbox.json says.

    Namespaces, priority classes and service accounts are Kubernetes' own work; ACK's system add-ons are not imitated.
    """
    given = pools.load()
    region = given.cluster["region_id"]
    nodes = [
        node_object(new_machine(pool, region, number))
        for pool in given.node_pools
        for number in range(pool["scaling_group"]["desired_size"])
    ]
    if nodes:
        _kubectl(info, "create", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": nodes})
        _kubectl(info, "wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={READY_WITHIN}s")


def apply_workload(info: dict[str, Any]) -> None:
    """Two pods that share GPUs, and a budget that lets go of one at a time; they start as soon as a node has room."""
    _kubectl(info, "apply", "-f", str(WORKLOAD))


def _kubectl(info: dict[str, Any], *arguments: str, given: object = None) -> None:
    command = [f"{info['bin']}/kubectl", f"--kubeconfig={info['kubeconfig']}", *arguments]
    text = json.dumps(given) if given is not None else ""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        problem = f"can't be seeded: {' '.join(done.stderr.split())}"
        raise SandboxError(f"sandbox {info['name']!r}", problem, f"Read {info['state']}/logs.", "SBX-SEED")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.seed", description=__doc__)
    parser.add_argument("--name", default="default", help="the sandbox")
    parser.add_argument("--with-workload", action="store_true", help="apply the demonstration's workload")
    options = parser.parse_args()
    try:
        if options.with_workload:
            apply_workload(Layout.named(options.name).info())
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
