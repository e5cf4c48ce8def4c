"""A sandbox of its own for tests of components, with GPU nodes, charts to edit, and a count of what was written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import component as clients
from ansible_collections.ack.ai_suite.plugins.module_utils.core.values import merged
from ansible_collections.ack.ai_suite.plugins.modules import component as module
from tests import books
from tests.support import ROOT, Sandbox, fresh_sandbox

CHART = ROOT / "charts" / "ack-ai-installer"
NAME = "ack-ai-installer"
INVENTORY = yaml.safe_load((ROOT / "inventories/sandbox/group_vars/all/component.yml").read_text())
VALUES: dict[str, Any] = INVENTORY["component_components"][0]["values"]
USER = "component-runner"
NODES = ("component-a", "component-b")

# A Job that holds Helm up in the middle of an install or upgrade; kwok ends it after `runs-for`.
HOOK = """
apiVersion: batch/v1
kind: Job
metadata:
  name: held-up
  namespace: {{ .Release.Namespace }}
  annotations: {helm.sh/hook: "EVENTS", helm.sh/hook-delete-policy: before-hook-creation}
spec:
  template:
    metadata: {annotations: {sandbox.ack/runs-for: RUNS}}
    spec:
      restartPolicy: Never
      tolerations: [{operator: Exists}]
      containers: [{name: wait, image: registry.example.test/wait:1}]
"""


class Rig:
    """One cluster. Each ``run`` is one run of the module, in this process, as a user whose writes are counted."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._kubeconfig = str(sandbox.user(USER))
        self._before = 0

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.sandbox.run("kubectl", "--namespace=kube-system", *arguments, stdin=stdin)

    def helm(self, *arguments: str, stdin: str | None = None) -> str:
        return self.sandbox.run("helm", "--namespace=kube-system", *arguments, stdin=stdin)

    def get(self, what: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", what, name, "--output=json"))
        return found

    def params(self, **given: Any) -> dict[str, Any]:
        """What the module is asked; from here on `writes` counts."""
        self._before = len(self._written())
        repair = given.pop("repair", {})
        binary = given.pop("helm_binary", str(self.sandbox.bin / "helm"))
        chart = {} if given.get("state") == "absent" else {"chart": str(CHART), "values": VALUES}
        component = {"name": NAME, "timeout": 30, **chart, **given}
        component = {key: str(value) if isinstance(value, Path) else value for key, value in component.items()}
        return {"components": [component], "helm_binary": binary, "repair": repair,
                "kubeconfig": self._kubeconfig}  # fmt: skip

    def run(self, *, check_mode: bool = False, **given: Any) -> dict[str, Any]:
        return module.run(self.params(**given), check_mode=check_mode, diff=True)

    def writes(self) -> list[str]:
        """What the last run wrote."""
        return self._written()[self._before :]

    def _written(self) -> list[str]:
        return [books.shown(entry) for entry in books.kubernetes_writes(self.sandbox.audit_log, USER)]

    def start(self, **given: Any) -> subprocess.Popen[bytes]:
        """One run of the module in a process of its own, to be killed."""
        code = (
            f"import json, sys, {clients.__name__} as clients; from {module.__name__} import run; "
            f"clients.LEASE = {clients.LEASE}; run(json.load(sys.stdin), check_mode=False, diff=False)"
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT / ".ansible" / "collections")}
        started = subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        assert started.stdin is not None
        started.stdin.write(json.dumps(self.params(**given)).encode())
        started.stdin.close()
        return started

    def history(self) -> list[tuple[int, str]]:
        found = json.loads(self.helm("history", NAME, "--output=json"))
        return [(entry["revision"], entry["status"]) for entry in found]

    def status(self) -> str:
        found = json.loads(self.helm("list", "--all", f"--filter=^{NAME}$", "--output=json"))
        return str(found[0]["status"]) if found else ""

    def policies(self) -> set[str]:
        sets = (self.get("daemonset", name) for name in ("cgpu-installer", "cgpu-core-installer"))
        variables = (each for ds in sets for each in ds["spec"]["template"]["spec"]["containers"][0]["env"])
        return {each["value"] for each in variables if each["name"] == "POLICY"}

    def node(self, name: str, *, played: bool = True) -> None:
        """Make a GPU node; kwok plays its kubelet unless it is to be left to `condition` and `play`."""
        labels = {"ack.node.gpu.schedule": "cgpu", "kubernetes.io/hostname": name}
        meta = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"} if played else {}}
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts}
        self.kubectl("create", "--filename=-", stdin=json.dumps(
            {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}))  # fmt: skip
        if not played:
            self.condition(name, "True")

    def condition(self, node: str, ready: str) -> None:
        body = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
        self.kubectl("patch", "node", node, "--subresource=status", "--patch", json.dumps(body))

    def play(self, node: str) -> None:
        """What a kubelet does: the pods of the node run and are ready."""
        pods = json.loads(self.kubectl("get", "pods", f"--field-selector=spec.nodeName={node}", "--output=json"))[
            "items"
        ]
        body = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        for pod in pods:
            self.kubectl("patch", "pod", pod["metadata"]["name"], "--subresource=status", "--patch", json.dumps(body))

    def clear(self) -> None:
        """No release, no leftovers of one, no Lease."""
        if self.status():
            self.helm("uninstall", NAME, "--no-hooks", "--wait")
        self.kubectl("delete", "job", "held-up", "--ignore-not-found", "--cascade=foreground")
        self.kubectl("delete", "lease", f"ai-suite-component-{NAME}", "--ignore-not-found")


def chart(folder: Path, version: str = "0.1.0", *, vendor: bool = False, edit: Callable[[str], str] | None = None,
          more: Mapping[str, str] | None = None) -> Path:  # fmt: skip
    """A copy of the chart: with templates edited or added, and, as the vendor's, without our mark."""
    copy = folder / f"{NAME}-{len(list(folder.iterdir()))}"
    shutil.copytree(CHART, copy)
    about = yaml.safe_load((copy / "Chart.yaml").read_text())
    about["version"] = version
    if vendor:
        del about["annotations"]
    (copy / "Chart.yaml").write_text(yaml.safe_dump(about))
    for path in (copy / "templates").iterdir():
        path.write_text(edit(path.read_text()) if edit else path.read_text())
    for name, text in (more or {}).items():
        (copy / "templates" / name).write_text(text)
    return copy


def hook(events: str, runs: str) -> dict[str, str]:
    return {"hook.yaml": HOOK.replace("EVENTS", events).replace("RUNS", runs)}


def image(tag: str) -> dict[str, Any]:
    """The values with another cGPU version."""
    return merged(VALUES, {"cgpu": {"image": {"tag": tag}}})


@contextmanager
def rig() -> Iterator[Rig]:
    with fresh_sandbox("component") as sandbox:
        made = Rig(sandbox)
        made.kubectl("delete", "nodes", "--selector=ack.node.gpu.schedule=cgpu")  # the sandbox's own, with machines
        for node in NODES:
            made.node(node)
        made.kubectl("wait", "--for=condition=Ready", "--timeout=30s", *(f"node/{node}" for node in NODES))
        yield made
