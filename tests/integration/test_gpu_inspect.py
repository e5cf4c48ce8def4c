"""The GPU table of a real control plane: pods that a scheduler placed, read by our plugin as kubectl runs it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.modules import gpu_inspect_info
from tests.component_rig import CHART, VALUES

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ("ack-ai-installer", "--namespace=kube-system")
REQUESTS = {"train-a": 7, "train-b": 5, "serve": 3}


@pytest.fixture(scope="module")
def shared(helm: Any, kubectl: Any) -> Iterator[None]:
    """The component, and pods that share cards."""
    helm("uninstall", *RELEASE, "--ignore-not-found", "--wait")
    helm("install", *RELEASE, str(CHART), "--values=-", "--wait", stdin=json.dumps(VALUES))
    kubectl("wait", "node", "-l", "ack.node.gpu.schedule=cgpu", "--timeout=60s",
            "--for=jsonpath={.status.allocatable.aliyun\\.com/gpu-mem}=15")  # fmt: skip
    kubectl("create", "namespace", "gpu-inspect")
    kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "gpu-inspect"},
            "spec": {"containers": [{"name": "c", "image": "registry.example.test/c:1",
                                     "resources": {"limits": {"aliyun.com/gpu-mem": str(memory)}}}]},
        }
        for name, memory in REQUESTS.items()
    ]}))  # fmt: skip
    kubectl("wait", "pods", "--all", "-n", "gpu-inspect", "--for=condition=Ready", "--timeout=60s")
    yield
    kubectl("delete", "namespace", "gpu-inspect")
    helm("uninstall", *RELEASE, "--wait")


def plugin(sandbox: Any, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """``kubectl inspect cgpu``, found on PATH by the real kubectl."""
    environment = {**os.environ, "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}", **variables}
    command = [str(sandbox.bin / "kubectl"), "inspect", "cgpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def expected(kubectl: Any) -> dict[str, tuple[int, int]]:
    """Allocated and total by node, from what kubectl says: limits of unfinished pods, and allocatable."""
    sums: dict[str, tuple[int, int]] = {}
    for node in json.loads(kubectl("get", "nodes", "-o", "json"))["items"]:
        total = int(node["status"]["allocatable"].get("aliyun.com/gpu-mem", 0))
        if total:
            sums[node["metadata"]["name"]] = (0, total)
    for pod in json.loads(kubectl("get", "pods", "-A", "-o", "json"))["items"]:
        held = sum(
            int(c.get("resources", {}).get("limits", {}).get("aliyun.com/gpu-mem", 0))
            for c in pod["spec"]["containers"]
        )
        name = pod["spec"].get("nodeName")
        if held and pod["status"]["phase"] == "Running":
            sums[name] = (sums[name][0] + held, sums[name][1])
    return sums


@pytest.mark.usefixtures("shared")
def test_the_plugin_prints_what_kubectl_counts(sandbox: Any, kubectl: Any) -> None:
    done = plugin(sandbox, "--kubeconfig", str(sandbox.kubeconfig))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["NAME", "IPADDRESS", "GPU0(Allocated/Total)", "GPU", "Memory(GiB)"]
    sums = expected(kubectl)
    assert {line.split()[0]: tuple(map(int, line.split()[-1].split("/"))) for line in lines[1 : 1 + len(sums)]} == sums
    allocated, total = (sum(side) for side in zip(*sums.values(), strict=True))
    assert allocated == sum(REQUESTS.values())
    assert lines[-1] == f"{allocated}/{total} ({allocated * 100 // total}%)"


@pytest.mark.usefixtures("shared")
def test_the_plugin_finds_the_kubeconfig_as_kubectl_does_and_lists_pods(sandbox: Any) -> None:
    done = plugin(sandbox, "-d", KUBECONFIG=str(sandbox.kubeconfig))
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines() if " gpu-inspect " in line]
    assert sorted((name, int(memory)) for name, _, memory in rows) == sorted(REQUESTS.items())


@pytest.mark.usefixtures("shared")
def test_module_plugin_and_file_agree(sandbox: Any, kubectl: Any, tmp_path: Path) -> None:
    params = {name: option.get("default") for name, option in gpu_inspect_info.ARGUMENT_SPEC.items()}
    told = gpu_inspect_info.run({**params, "kubeconfig": str(sandbox.kubeconfig)}, pytest.fail)
    file = tmp_path / "cluster.json"
    file.write_text(kubectl("get", "nodes,pods", "-A", "-o", "json"))
    assert plugin(sandbox, "-f", str(file)).stdout == told["table"] + "\n"
    data = json.loads(plugin(sandbox, "-o", "json", "--kubeconfig", str(sandbox.kubeconfig)).stdout)
    assert data["nodes"] == told["nodes"]
    assert told["requests"] == 2


@pytest.mark.usefixtures("shared")
def test_one_node_is_shown_when_it_is_named(sandbox: Any, kubectl: Any) -> None:
    name = sorted(expected(kubectl))[1]
    lines = plugin(sandbox, name, "--kubeconfig", str(sandbox.kubeconfig)).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:2]] == [name]
    assert lines[2].startswith("---")


def test_the_plugin_works_through_a_link_on_path_from_any_folder(sandbox: Any, tmp_path: Path) -> None:
    (tmp_path / "kubectl-inspect-cgpu").symlink_to(ROOT / "bin" / "kubectl-inspect-cgpu")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "KUBECONFIG": str(sandbox.kubeconfig)}
    command = [str(sandbox.bin / "kubectl"), "inspect", "cgpu"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.stdout.startswith("NAME"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kubeconfig", "/nowhere"], "KUB-CONFIG"),
        (["-f", "/nowhere"], "SNP-UNREADABLE"),
        (["no-such-node"], "GPU-NO-NODE"),
    ],
)
def test_an_error_of_the_plugin_is_one_line_and_status_1(sandbox: Any, arguments: list[str], told: str) -> None:
    done = plugin(sandbox, *arguments, KUBECONFIG=str(sandbox.kubeconfig))
    assert done.returncode == 1
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
