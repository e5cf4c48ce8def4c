"""``make bench``: how our reads compare with ``kubectl get -o json`` of the same objects, in one run.

python -m benchmarks [--nodes 1000] [--pods-per-node 2]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection  # noqa: E402
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube  # noqa: E402
from tests.support import Sandbox, fresh_sandbox  # noqa: E402

ROUNDS = 3


def nodes(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        name = f"cn-hangzhou.10.{number // 62500}.{number // 250 % 250}.{number % 250 + 1}"
        resources = {
            "cpu": "16",
            "memory": "64Gi",
            "pods": "110",
            "aliyun.com/gpu-mem": "60",
            "aliyun.com/gpu-count": "4",
        }
        yield {
            "metadata": {"name": name, "labels": {"ack.node.gpu.schedule": "cgpu"}},
            "spec": {"providerID": f"cn-hangzhou.i-bench{number:06d}"},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "addresses": [{"type": "InternalIP", "address": name.removeprefix("cn-hangzhou.")}],
                "nodeInfo": dict.fromkeys(
                    ("machineID", "systemUUID", "kubeProxyVersion", "operatingSystem", "architecture"), "bench"
                )
                | {
                    "bootID": "bench",
                    "kernelVersion": "5.10.134-18.al8.x86_64",
                    "osImage": "Alibaba Cloud Linux 3 (Soaring Falcon)",
                    "containerRuntimeVersion": "containerd://1.6.39",
                    "kubeletVersion": "v1.34.3-aliyun.1",
                },
            },
        }


def pods(node: str, count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "metadata": {
                "name": f"bench-{node.replace('.', '-')}-{number}",
                "annotations": {"scheduler.framework.gpushare.allocation": f'{{"0":{{"{number % 4}":3}}}}'},
            },
            "spec": {
                "nodeName": node,
                "containers": [
                    {
                        "name": "c",
                        "image": "registry.example.test/c:1",
                        "resources": {"limits": {"aliyun.com/gpu-mem": "3"}},
                    }
                ],
            },
        }


def fill(sandbox: Sandbox, count: int, pods_per_node: int) -> None:
    def create(node: dict[str, Any]) -> None:
        kube.create("/api/v1/nodes", node)
        for pod in pods(node["metadata"]["name"], pods_per_node):
            kube.create("/api/v1/namespaces/default/pods", pod)

    kube = Kube(Connection(kubeconfig=str(sandbox.kubeconfig)))
    kube.version()  # connects once, before the threads do
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(create, nodes(count)))


def best(command: list[str], environment: dict[str, str]) -> float:
    """Seconds of the fastest round."""
    seconds = []
    for _ in range(ROUNDS):
        started = time.monotonic()
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.monotonic() - started)
    return min(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-node", type=int, default=2)
    options = parser.parse_args()
    with fresh_sandbox("bench") as sandbox:
        started = time.monotonic()
        fill(sandbox, options.nodes, options.pods_per_node)
        made = f"{options.nodes} nodes and {options.nodes * options.pods_per_node} pods made"
        print(f"{made} in {time.monotonic() - started:.0f} s")
        environment = {
            **os.environ,
            "KUBECONFIG": str(sandbox.kubeconfig),
            "ACK_SANDBOX": sandbox.name,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        }
        kubectl = str(sandbox.bin / "kubectl")
        python = Path(sys.executable).parent
        ours = {
            "kubectl inspect cgpu": [sys.executable, "bin/kubectl-inspect-cgpu"],
            "playbooks/gpu_inspect.yml": [str(python / "ansible-playbook"), "playbooks/gpu_inspect.yml"],
        }
        base = best([kubectl, "get", "nodes,pods", "--all-namespaces", "--output=json"], environment)
        print(f"{'kubectl get nodes,pods -o json':34} {base:6.2f} s   1.00")
        for name, command in ours.items():
            seconds = best(command, environment)
            print(f"{name:34} {seconds:6.2f} s   {seconds / base:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
