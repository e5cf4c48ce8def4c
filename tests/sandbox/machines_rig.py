"""A laboratory for the machines: nodes of one's own in the session's sandbox, with a shell, pods and an installer."""

from __future__ import annotations

import base64
import itertools
import json
import ssl
import subprocess
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from sandbox.machines import shell
from sandbox.machines.objects import Machine, new_machine, node_object
from tests.support import await_true

Object = dict[str, Any]
Kubectl = Callable[..., str]
HOST = ("nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--")
OLD, NEW = "1.5.13", "1.5.20"
_pools = itertools.count()


@dataclass
class Node:
    """One machine under test."""

    lab: Lab
    machine: Machine
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def folder(self) -> Path:
        return self.lab.nodes_root / self.name

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def get(self) -> Object:
        return self.lab.node_object(self.name)

    @property
    def ready(self) -> str:
        return next(each["status"] for each in self.get()["status"]["conditions"] if each["type"] == "Ready")

    @property
    def boot_id(self) -> str:
        return str(self.get()["status"]["nodeInfo"]["bootID"])

    @property
    def version(self) -> str:
        """The loaded cGPU, or ""."""
        path = self.root / "proc/cgpu_km/version"
        return path.read_text().strip() if path.exists() else ""

    def run(self, *argv: str, timeout: float = 30.0) -> subprocess.CompletedProcess[bytes]:
        """A root command on the host, not through any pod."""
        return shell.run(self.lab.nodes_root, self.name, list(argv), timeout=timeout)

    def says(self, *argv: str) -> str:
        """What a root command prints; it must succeed."""
        done = self.run(*argv)
        assert done.returncode == 0, (argv, done.returncode, done.stdout, done.stderr)
        return done.stdout.decode()

    def write(self, path: str, text: str) -> str:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return path

    def fault(self, name: str, value: str = "") -> None:
        (self.folder / "run" / "faults" / name).write_text(value)

    def clear(self, name: str) -> None:
        (self.folder / "run" / "faults" / name).unlink()

    def pods(self, label: str = "") -> list[Object]:
        found = self.lab.read("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}", labelSelector=label)
        return [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]

    def installer(self) -> Object:
        """The installer pod that runs on the node."""
        return await_true(
            lambda: next((pod for pod in self.pods("name=cgpu-installer") if _running(pod)), None), "an installer pod"
        )

    def exec(self, *argv: str, host: bool = True, pod: Object | None = None) -> subprocess.CompletedProcess[str]:
        """A command through the API server and the installer pod (or another one), as the product sends it."""
        meta = (pod or self.installer())["metadata"]
        where = ["-n", meta["namespace"], "exec", meta["name"], "--"]
        return self.lab.try_kubectl(*where, *(HOST if host else ()), *argv)

    def install(self, version: str, *, name: str = "cgpu-installer", policy: str = "5") -> None:
        """An installer's DaemonSet for this node alone, or a new image for it."""
        container = {
            "name": name,
            "image": f"registry.example.test/acs/{name}:{version}",
            "env": [{"name": "POLICY", "value": policy}],
            "securityContext": {"privileged": True},
        }
        self.lab.daemon_set(self, name, {"hostPID": True, "containers": [container]}, "OnDelete")

    def plug_in(self, name: str = "gpushare-device-plugin-ds") -> None:
        """A device plug-in's DaemonSet for this node alone."""
        self.lab.daemon_set(self, name, {"containers": [{"name": "plugin", "image": "registry.example.test/plugin:1"}]})

    def pod(self, name: str, gpu_mem: int = 0, **spec: Any) -> Object:
        """A pod that asks for GPU memory, sent through the scheduler to this node; returns it when it runs."""
        self.create_pod(name, gpu_mem, **spec)
        return await_true(lambda: next((pod for pod in [self.lab.pod(name)] if _running(pod)), None), f"pod {name}")

    def create_pod(self, name: str, gpu_mem: int = 0, metadata: Object | None = None, **spec: Any) -> None:
        limits = {"aliyun.com/gpu-mem": gpu_mem} if gpu_mem else {}
        container = {"name": "main", "image": "registry.example.test/app:1", "resources": {"limits": limits}}
        content = {"nodeSelector": {"kubernetes.io/hostname": self.name}, "tolerations": [{"operator": "Exists"}]}
        content |= {"containers": [container]} | spec
        self.lab.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(metadata or {})}, "spec": content}
        )

    def reboots(self, before: str) -> None:
        """Wait until the node is Ready in another boot than `before`."""
        await_true(lambda: self.boot_id != before and self.ready == "True", "a new boot")


def _running(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return bool(statuses) and all(each["ready"] for each in statuses)


def _connect(kubeconfig: Path) -> HTTPSConnection:
    content = json.loads(kubeconfig.read_text())
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(b"".join(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
        pem.flush()
        tls.load_cert_chain(pem.name)
    return HTTPSConnection(urlsplit(cluster["server"]).netloc, context=tls, timeout=30)


@dataclass
class Lab:
    """Makes nodes; everything that it made is removed by `close`."""

    kubectl: Kubectl
    nodes_root: Path
    made: list[tuple[str, str, str]] = field(default_factory=list)
    _connection: HTTPSConnection | None = None

    def try_kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """kubectl, also when it fails."""
        state = self.nodes_root.parent
        command = [f"{state}/bin/kubectl", f"--kubeconfig={state}/kubeconfig", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def read(self, path: str, **query: str) -> Object:
        """A GET of the API; {} when there is no such object. Without a kubectl, since tests that wait ask often."""
        if self._connection is None:
            self._connection = _connect(self.nodes_root.parent / "kubeconfig")
        self._connection.request("GET", f"{path}?{urlencode(query)}")
        response = self._connection.getresponse()
        content = json.loads(response.read())
        assert response.status in (200, 404), content
        return dict(content) if response.status == 200 else {}

    def node_object(self, name: str) -> Object:
        return self.read(f"/api/v1/nodes/{name}")

    def pod(self, name: str) -> Object:
        """A pod in the namespace default; {} when it is gone."""
        return self.read(f"/api/v1/namespaces/default/pods/{name}")

    def create(self, thing: Object) -> None:
        meta = thing["metadata"]
        self.kubectl("create", "-f", "-", stdin=json.dumps(thing))
        self.made.append((thing["kind"], meta["name"], meta.get("namespace", "default")))

    def node(
        self,
        *,
        mode: str = "cgpu",
        instance_type: str = "ecs.gn6i-c4g1.xlarge",
        cgpu: str = OLD,
        runtime: str = "containerd",
        labels: dict[str, str] | None = None,
    ) -> Node:
        """A new machine in a pool of its own; returns when it is Ready."""
        wanted = {**({"ack.node.gpu.schedule": mode} if mode else {}), **(labels or {})}
        pool = {
            "nodepool_info": {"nodepool_id": f"np{uuid.uuid4().hex}"},
            "scaling_group": {"instance_types": [instance_type]},
            "kubernetes_config": {
                "runtime": runtime,
                "runtime_version": "19.3.15" if runtime == "docker" else "1.6.39",
                "labels": [{"key": key, "value": value} for key, value in wanted.items()],
                # Nobody else's pods come here.
                "taints": [{"key": "laboratory", "value": "true", "effect": "NoSchedule"}],
            },
            "sandbox": {"cgpu_version": cgpu},
        }
        machine = new_machine(pool, "cn-hangzhou", next(_pools))
        self.create(node_object(machine))
        node = Node(self, machine)
        await_true(lambda: node.ready == "True", f"node {node.name} Ready")
        return node

    def daemon_set(self, node: Node, name: str, spec: Object, strategy: str = "RollingUpdate") -> None:
        own = f"{name}-{node.machine.pool_id[2:10]}"
        where = {"nodeSelector": {"kubernetes.io/hostname": node.name}, "tolerations": [{"operator": "Exists"}]}
        thing = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": own, "namespace": "kube-system"},
            "spec": {
                "updateStrategy": {"type": strategy},
                "selector": {"matchLabels": {"name": name, "of": own}},
                "template": {"metadata": {"labels": {"name": name, "of": own}}, "spec": {**where, **spec}},
            },
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(thing))
        self.made.append(("DaemonSet", own, "kube-system"))

    def close(self) -> None:
        """Workloads first, nodes last, so that kubelets let go of their pods."""
        for kind, name, namespace in sorted(set(self.made), key=lambda each: each[0] == "Node"):
            self.try_kubectl("delete", kind, name, "-n", namespace, "--ignore-not-found", "--grace-period=0", "--force")
