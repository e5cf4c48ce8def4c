"""A sandbox whose nodes are upgraded back and forth, and runs of node_upgrade that can be watched and killed.

The target changes between two versions, so that every test has something to do on nodes that it did not have to make.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.machines import shell
from tests import books
from tests.kill_once import kill_all
from tests.support import ROOT, Sandbox, await_true, fresh_sandbox

VERSIONS = ("1.5.20", "1.5.13", "1.5.18")
PREFIX = "ai-suite.ack/"
STATE, RUN, RECORD = f"{PREFIX}upgrade-state", f"{PREFIX}run", f"{PREFIX}upgrade"
IMAGE = "registry.example.test/acs/cgpu-installer"
ALL_DAY = [{"start": "00:00", "duration": "24h", "timezone": "Asia/Shanghai"}]
FAST = {
    "poll": "0.2s", "lease": "1s", "settle": "2s", "node": "1m", "installer": "20s", "host": "30s", "command": "20s",
    "boot": "30s", "verify": "20s",
}  # fmt: skip
_SETTINGS = {"windows": ALL_DAY, "drain": {"timeout": "60s"}}
# What the machines take, in seconds: as little as leaves every state to be seen.
_TIMES = {"ACK_SANDBOX_LAG": "0.2", "ACK_SANDBOX_BOOT": "0.4", "ACK_SANDBOX_UNINSTALL": "0.1"}


@dataclass
class Run:
    """``ansible-playbook playbooks/node_upgrade.yml`` by a user of its own, in a process group of its own."""

    user: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def output(self) -> str:
        return self.log.read_text()

    def worker(self) -> int:
        """The forked process that does the work: a child with a session of its own. 0 while there is none."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return next((int(child) for child in children if os.getsid(int(child)) == int(child)), 0)

    def wait(self, seconds: float = 180) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_all(self.process.pid)
            raise AssertionError(f"{self.user} did not end within {seconds:.0f} s: {self.output}") from None

    def wait_for_worker(self, worker: int, seconds: float = 30) -> None:
        await_true(lambda: not alive(worker), f"worker {worker} of {self.user} ended", seconds)


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@dataclass
class Rig:
    sandbox: Sandbox
    logs: Path
    users: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.sandbox.run("kubectl", *arguments, stdin=stdin)

    def read(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def node(self, name: str) -> dict[str, Any]:
        return dict(self.read("node", name))

    def state(self, name: str) -> str:
        return str(self.node(name)["metadata"]["labels"].get(STATE, ""))

    def owner(self, name: str) -> str:
        return str(self.node(name)["metadata"]["annotations"].get(RUN, ""))

    def machine(self, name: str, path: str) -> Path:
        """A file of a node's own tree."""
        return Path(self.sandbox.nodes_root) / name / "root" / path

    def version(self, name: str) -> str:
        file = self.machine(name, "proc/cgpu_km/version")
        return file.read_text().strip() if file.exists() else ""

    def fault(self, name: str, *fault: str) -> None:
        self.sandbox.command("fault", name, *(fault or ("--clear",)))

    def target(self, *names: str) -> str:
        """A version that none of these nodes has: what the installers bring from now on."""
        have = {self.version(name) for name in names}
        wanted = next(version for version in VERSIONS if version not in have)
        self.kubectl("--namespace=kube-system", "set", "image", "daemonset/cgpu-installer", f"*={IMAGE}:{wanted}")
        return wanted

    def host(self, name: str, *command: str) -> None:
        """A command of root on a node, whatever runs there."""
        shell.run(Path(self.sandbox.nodes_root), name, list(command), timeout=30)

    def recover(self) -> None:
        """What a failed test left: faults, quarantine, cordons."""
        for name in self.nodes:
            for fault in (Path(self.sandbox.nodes_root) / name / "run" / "faults").glob("*"):
                fault.unlink()
        for node in self.read("nodes", "--selector=ack.node.gpu.schedule=cgpu")["items"]:
            name = node["metadata"]["name"]
            if STATE in node["metadata"]["labels"]:
                self.kubectl("label", "node", name, f"{STATE}-")
                self.kubectl("annotate", "node", name, f"{RECORD}-", f"{RUN}-")
                self.kubectl("taint", "node", name, f"{PREFIX}quarantined:NoSchedule-")
            if node["spec"].get("unschedulable"):
                self.kubectl("uncordon", name)
            self.kubectl("wait", "--for=condition=Ready", "node", name, "--timeout=60s")

    # --- runs ---

    def user(self, name: str) -> dict[str, Any]:
        """A new identity for both APIs, as the connection of a run."""
        self.users.append(name)
        return {
            "cluster_id": self.sandbox.cluster_id,
            "region_id": self.sandbox.region_id,
            "kubeconfig": str(self.sandbox.user(name)),
            "credentials_file": str(self.sandbox.credentials_file),
            "profile": name,
            "endpoints": self.sandbox.endpoints,
        }

    def start(self, user: str, *arguments: str, timing: dict[str, str] | None = None, **variables: Any) -> Run:
        given = {f"node_upgrade_{name}": value for name, value in {**_SETTINGS, **variables}.items()}
        given |= {"ack_connection": self.user(user), "node_upgrade_timing": {**FAST, **(timing or {})}}
        command = [
            str(Path(sys.executable).parent / "ansible-playbook"), "--inventory=inventories/sandbox",
            "playbooks/node_upgrade.yml", f"--extra-vars={json.dumps(given)}", *arguments,
        ]  # fmt: skip
        environment = {
            **os.environ,
            "ACK_SANDBOX": str(self.sandbox.name),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(ROOT / ".ansible"),
        }
        log = self.logs / f"{user}.log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, text=True,
                start_new_session=True,
            )  # fmt: skip
        return Run(user, process, log)

    def play(self, user: str, *arguments: str, **variables: Any) -> Run:
        run = self.start(user, *arguments, **variables)
        run.wait()
        return run

    def writes(self, user: str) -> list[dict[str, Any]]:
        """What a user wrote to the Kubernetes API with success, in order."""
        found = books.kubernetes_writes(Path(self.sandbox.audit_log), user)
        done = [entry for entry in found if entry["responseStatus"]["code"] < 300]
        return sorted(done, key=lambda entry: str(entry["requestReceivedTimestamp"]))

    def cloud_writes(self, user: str) -> list[dict[str, Any]]:
        return books.cloud_writes(Path(self.sandbox.request_log), user)

    @contextmanager
    def watched(self, node: str) -> Iterator[Iterator[str]]:
        """The states of a node as they come, "" for none."""
        path = "{.metadata.labels.ai-suite\\.ack/upgrade-state}{'\\n'}"
        command = [
            str(self.sandbox.bin / "kubectl"), f"--kubeconfig={self.sandbox.kubeconfig}", "get", "node", node,
            "--watch", f"--output=jsonpath={path}",
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            try:
                yield (line.strip() for line in watch.stdout)
            finally:
                watch.kill()

    def budget(self, least: int) -> None:
        """Let the workload's budget demand so many healthy pods of its two, and wait until that counts."""
        self.kubectl("--namespace=demo", "patch", "pdb", "inference", "--type=merge",
                     f'--patch={{"spec":{{"minAvailable":{least}}}}}')  # fmt: skip
        allowed = 2 - least

        def counts() -> bool:
            return bool(self.read("pdb", "inference", "--namespace=demo")["status"]["disruptionsAllowed"] == allowed)

        await_true(counts, f"the budget allows {allowed}")

    @contextmanager
    def held_pod(self, node: str) -> Iterator[str]:
        """A pod on the node that does not go away when it is evicted, as long as the context lasts."""
        name = "held"
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "demo", "finalizers": ["example.test/hold"],
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "hold", "controller": True,
                     "uid": "11111111-1111-4111-8111-111111111111"}
                ],
            },
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "registry.example.test/c:1"}]},
        }  # fmt: skip
        self.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        try:
            yield name
        finally:
            self.kubectl(
                "patch", "pod", name, "--namespace=demo", "--type=merge", '--patch={"metadata":{"finalizers":[]}}'
            )
            self.kubectl("delete", "pod", name, "--namespace=demo", "--ignore-not-found", "--wait=false")

    # --- what must be true in the end ---

    def assert_done(self, name: str, target: str) -> None:
        node = self.node(name)
        assert self.version(name) == target
        assert not node["spec"].get("unschedulable"), "still cordoned"
        await_true(lambda: not self.node(name)["spec"].get("taints"), "its controller removed the taint of the cordon")
        assert PREFIX not in json.dumps(node["metadata"]), "state left behind"
        assert node["status"]["allocatable"]["aliyun.com/gpu-mem"] == "15"
        leases = [lease["metadata"]["name"] for lease in self.read("leases", "--namespace=ai-suite")["items"]]
        assert leases == []

    def assert_one_after_another(self, former: str, latter: str) -> None:
        """No write of the former run after the latter's first write to a node: it had lost the node by then."""
        first = next(
            (
                entry["requestReceivedTimestamp"]
                for entry in self.writes(latter)
                if entry["objectRef"]["resource"] == "nodes"
            ),
            None,
        )
        assert first is not None, f"{latter} wrote to no node"
        late = [
            f"{entry['requestReceivedTimestamp']} {books.shown(entry)} {entry['responseStatus']['code']}"
            for entry in self.writes(former)
            if entry["requestReceivedTimestamp"] > first
        ]
        assert not late, f"{former} wrote after {first}, when {latter} had begun: {late}"


def fails(run: Run, *said: str) -> None:
    """A run failed with one clear error that says all of this."""
    assert run.process.returncode != 0, run.output
    assert "Traceback" not in run.output
    for text in said:
        assert text in run.output, run.output


def kill(run: Run, how: str) -> int:
    """Kill a run; returns its worker, which may take a moment to notice."""
    worker = run.worker()
    match how:
        case "kill both":
            os.kill(worker, signal.SIGKILL)
            os.kill(run.process.pid, signal.SIGKILL)
        case "kill ansible-playbook":
            os.kill(run.process.pid, signal.SIGKILL)
        case "terminate":
            os.kill(run.process.pid, signal.SIGTERM)
        case "interrupt":
            os.killpg(run.process.pid, signal.SIGINT)  # as Ctrl-C does; the worker is in another group
        case "freeze":
            os.kill(worker, signal.SIGSTOP)
    return worker


@contextmanager
def upgrade_sandbox(logs: Path) -> Iterator[Rig]:
    """A sandbox with the component, both nodes of the pool ready, and a workload to move."""
    for name, seconds in _TIMES.items():
        os.environ[name] = seconds
    try:
        with fresh_sandbox("upgrade", workload=True) as sandbox:
            rig = Rig(sandbox, logs)
            sandbox.run("helm", "install", "ack-ai-installer", str(ROOT / "charts/ack-ai-installer"),
                        "--namespace=kube-system", "--values=-", stdin=json.dumps(_VALUES))  # fmt: skip
            pool = rig.read("nodes", "--selector=ack.node.gpu.schedule=cgpu")["items"]
            rig.nodes = sorted(node["metadata"]["name"] for node in pool)
            rig.kubectl("--namespace=demo", "wait", "--for=condition=Available", "deployment", "--all", "--timeout=60s")
            yield rig
    finally:
        for name in _TIMES:
            with suppress(KeyError):
                del os.environ[name]


def _image(name: str, tag: str) -> dict[str, Any]:
    return {"image": {"repository": f"acs/{name}", "tag": tag}}


_VALUES = {
    "registry": "registry.example.test",
    "cgpu": _image("cgpu-installer", "1.5.13"),
    "gpushare": _image("gpushare-device-plugin", "2.0.0"),
    "gputopo": _image("gputopo-device-plugin", "1.0.0"),
    "migparted": _image("migparted-device-plugin", "1.0.0"),
    "recover": _image("nvidia-device-plugin", "1.0.0"),
}
