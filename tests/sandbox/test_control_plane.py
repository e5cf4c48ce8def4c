"""What a running sandbox is: real controllers, own binaries, loopback only, private files, a record of all writes."""

from __future__ import annotations

import configparser
import json
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.processes import marked
from tests.support import await_true

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "fake", "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"test": "fake"}},
    "spec": {"taints": [{"key": "test", "value": "fake", "effect": "NoSchedule"}]},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}, {"type": "ExternalIP", "address": "127.0.0.1"}],
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "50", "example.test/card": "2"},
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "50", "example.test/card": "2"},
        "nodeInfo": {
            "kubeletVersion": "v1.34.3-aliyun.1",
            "osImage": "Alibaba Cloud Linux 3",
            "containerRuntimeVersion": "containerd://1.6.39",
            "kernelVersion": "5.10.134",
            "bootID": "boot-1",
            "machineID": "machine",
            "systemUUID": "system",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    },
}
POD = {
    "nodeSelector": {"test": "fake"},
    "tolerations": [{"key": "test", "operator": "Exists"}],
    "containers": [{"name": "main", "image": "registry.example.test/main:1"}],
}


@pytest.fixture(scope="module")
def fake_node(kubectl: Callable[..., str]) -> Iterator[str]:
    """A node that kwok plays, with room for the test's pods alone."""
    kubectl("create", "-f", "-", stdin=json.dumps(NODE))
    kubectl("wait", "--for=condition=Ready", "--timeout=30s", "node/fake")
    yield "fake"
    kubectl("delete", "node", "fake")


@pytest.fixture
def namespace(kubectl: Callable[..., str]) -> Iterator[str]:
    name = f"test-{time.monotonic_ns()}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def _listeners(pid: int) -> set[str]:
    """The addresses on which a process listens, as /proc/net writes them."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = str(descriptor.readlink()) if descriptor.is_symlink() else ""
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].split(":")[0])
    return found


def test_every_process_listens_on_loopback_alone(sandbox: Any) -> None:
    pids = marked(sandbox.state)
    addresses = set[str]()
    for pid in pids:
        addresses |= _listeners(pid)
    assert addresses == {"0100007F"}, "127.0.0.1 as /proc/net writes it"


def test_the_processes_are_our_own_binaries_and_not_those_on_path(sandbox: Any) -> None:
    names = set()
    for pid in marked(sandbox.state):
        program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        if program.startswith(f"{sandbox.bin}/"):
            names.add(Path(program).name)
    assert names == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubelet"}


def test_secrets_are_for_this_user_alone(sandbox: Any) -> None:
    assert stat.S_IMODE(sandbox.state.stat().st_mode) == 0o700
    private = [sandbox.kubeconfig, sandbox.credentials_file, sandbox.audit_log, sandbox.state / "sandbox.json"]
    private += [*(sandbox.state / "pki").iterdir(), sandbox.state / "cloud" / "access_keys.json"]
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in private} == dict.fromkeys(
        (path.name for path in private), "0o600"
    )


def test_etcd_refuses_whoever_has_no_certificate(sandbox: Any) -> None:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{sandbox.ports['etcd']}", "-quiet"]
    request = "GET /v2/keys HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = subprocess.run(command, input=request, capture_output=True, text=True, timeout=30, check=False)
    assert "HTTP/1.1" not in answer.stdout


def test_the_api_refuses_strangers(sandbox: Any, tmp_path: Path) -> None:
    stranger = json.loads(sandbox.kubeconfig.read_text())
    stranger["users"][0]["user"] = {}
    (tmp_path / "kubeconfig").write_text(json.dumps(stranger))
    command = [sandbox.bin / "kubectl", f"--kubeconfig={tmp_path / 'kubeconfig'}", "get", "nodes", "--username=x"]
    answer = subprocess.run([*command, "--password=y"], capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 1
    assert "orbidden" in answer.stderr or "nauthorized" in answer.stderr


def test_the_version_is_that_of_the_pinned_module(sandbox: Any, kubectl: Callable[..., str]) -> None:
    pinned = Path("sandbox/tools/go.mod").read_text().split("k8s.io/kubernetes v")[1].split()[0]
    versions = json.loads(kubectl("version", "-o", "json"))
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"] == f"v{pinned}"
    assert sandbox.kubernetes_version == pinned


def test_helm_installs_and_waits(namespace: str, helm: Callable[..., str], fake_node: str, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: chart, version: 1.0.0}")
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "d"}},
            "template": {"metadata": {"labels": {"a": "d"}}, "spec": POD},
        },
    }
    (chart / "templates" / "deployment.yaml").write_text(json.dumps(deployment))
    helm("install", "release", str(chart), "--wait", "--timeout=30s", f"--namespace={namespace}")
    assert "deployed" in helm("list", f"--namespace={namespace}")


def test_a_node_keeps_what_it_was_made_with_when_it_gets_ready(fake_node: str, kubectl: Callable[..., str]) -> None:
    status = json.loads(kubectl("get", "node", fake_node, "-o", "json"))["status"]
    for key in ("nodeInfo", "allocatable", "capacity"):
        assert {name: status[key][name] for name in NODE["status"][key]} == NODE["status"][key]  # type: ignore[index]
    assert status["addresses"] == NODE["status"]["addresses"]  # type: ignore[index]
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"


def test_a_job_ends_by_itself_and_one_that_shall_run_on_does(
    namespace: str, fake_node: str, kubectl: Callable[..., str]
) -> None:
    for name, notes in (("short", {}), ("long", {"sandbox.ack/runs-for": "1h"})):
        template = {"metadata": {"annotations": notes}, "spec": {**POD, "restartPolicy": "Never"}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}
        kubectl("create", f"--namespace={namespace}", "-f", "-", stdin=json.dumps(job))
    kubectl("wait", f"--namespace={namespace}", "--for=condition=complete", "--timeout=30s", "job/short")
    assert kubectl("get", "job/long", f"--namespace={namespace}", "-o", "jsonpath={.status.active}") == "1"


def test_a_daemonset_with_ondelete_keeps_its_pod_until_that_is_deleted(
    namespace: str, fake_node: str, kubectl: Callable[..., str]
) -> None:
    def image() -> str:
        return kubectl(
            "get", "pods", f"--namespace={namespace}", "-o", "jsonpath={.items[*].status.containerStatuses[0].image}"
        )

    daemonset = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "ds"},
        "spec": {
            "selector": {"matchLabels": {"a": "ds"}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": {"a": "ds"}}, "spec": POD},
        },
    }
    kubectl("create", f"--namespace={namespace}", "-f", "-", stdin=json.dumps(daemonset))
    await_true(lambda: image() == "registry.example.test/main:1", "the first image runs")
    kubectl("set", "image", "daemonset/ds", "main=registry.example.test/main:2", f"--namespace={namespace}")
    seen = ("get", "daemonset/ds", f"--namespace={namespace}", "-o", "jsonpath={.status.observedGeneration}")
    await_true(lambda: kubectl(*seen) == "2", "the controller has seen the change")
    assert image() == "registry.example.test/main:1"
    kubectl("delete", "pods", "--all", f"--namespace={namespace}")
    await_true(lambda: image() == "registry.example.test/main:2", "the second image runs")


def test_a_disruption_budget_stops_an_eviction(namespace: str, fake_node: str, kubectl: Callable[..., str]) -> None:
    kubectl(
        "run", "kept", f"--namespace={namespace}", "--image=registry.example.test/main:1", "--labels=a=kept",
        "--overrides", json.dumps({"spec": {key: POD[key] for key in ("nodeSelector", "tolerations")}}),
    )  # fmt: skip
    kubectl("create", "pdb", "pdb", f"--namespace={namespace}", "--selector=a=kept", "--min-available=1")
    kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "--timeout=30s", "pod/kept")
    healthy = ("get", "pdb/pdb", f"--namespace={namespace}", "-o", "jsonpath={.status.currentHealthy}")
    await_true(lambda: kubectl(*healthy) == "1", "the budget counts the pod")
    try:
        with pytest.raises(AssertionError, match="violate the pod's disruption budget"):
            kubectl("drain", fake_node, "--force", "--pod-selector=a=kept", "--timeout=2s")
    finally:
        kubectl("uncordon", fake_node)


def test_a_deleted_namespace_takes_its_objects_and_owners_take_what_they_own(
    namespace: str, kubectl: Callable[..., str]
) -> None:
    kubectl("create", "deployment", "d", f"--namespace={namespace}", "--image=registry.example.test/main:1")
    pods = ("get", "pods", f"--namespace={namespace}", "-o", "name")
    await_true(lambda: kubectl(*pods), "the deployment has a pod")
    kubectl("delete", "deployment", "d", f"--namespace={namespace}")
    await_true(lambda: not kubectl(*pods), "the pod goes with its deployment")
    kubectl("create", "namespace", f"{namespace}-2")
    kubectl("create", "configmap", "c", f"--namespace={namespace}-2")
    kubectl("delete", "namespace", f"{namespace}-2", "--timeout=30s")


def test_a_volume_is_bound_to_its_claim(namespace: str, kubectl: Callable[..., str]) -> None:
    name = f"pv-{namespace}"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "oss"}
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {**common, "capacity": {"storage": "1Gi"}, "csi": {"driver": "oss", "volumeHandle": name}},
    }  # fmt: skip
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim", "namespace": namespace},
        "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
    }  # fmt: skip
    kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [volume, claim]}))
    kubectl("wait", f"--namespace={namespace}", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s", "pvc/claim")
    kubectl("delete", f"pv/{name}", "--wait=false")


def test_a_finished_job_with_a_time_to_live_is_removed(
    namespace: str, fake_node: str, kubectl: Callable[..., str]
) -> None:
    spec = {"ttlSecondsAfterFinished": 0, "template": {"spec": {**POD, "restartPolicy": "Never"}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gone"}, "spec": spec}
    kubectl("create", f"--namespace={namespace}", "-f", "-", stdin=json.dumps(job))
    kubectl("wait", f"--namespace={namespace}", "--for=delete", "--timeout=30s", "job/gone")


def test_the_priority_class_of_system_pods_exists(kubectl: Callable[..., str]) -> None:
    assert kubectl("get", "priorityclass", "system-node-critical", "-o", "jsonpath={.value}") == "2000001000"


def test_a_user_writes_under_its_own_name_and_the_audit_log_has_the_body(
    sandbox: Any, namespace: str, kubectl: Callable[..., str]
) -> None:
    own = sandbox.user("writer")
    kubectl("create", "configmap", "written", "--from-literal=a=b", f"--namespace={namespace}", kubeconfig=own)
    kubectl("get", "configmap", "written", f"--namespace={namespace}", kubeconfig=own)
    lines = [line for line in sandbox.audit("writer") if line["objectRef"].get("name") == "written"]
    assert {line["verb"]: line["level"] for line in lines} == {"create": "Request", "get": "Metadata"}
    (body,) = [line["requestObject"] for line in lines if "requestObject" in line]
    assert body["data"] == {"a": "b"}


def test_secrets_never_stand_in_the_audit_log(sandbox: Any, namespace: str, kubectl: Callable[..., str]) -> None:
    kubectl("create", "secret", "generic", "s", "--from-literal=a=not-for-logs", f"--namespace={namespace}")
    token = kubectl("create", "token", "default", f"--namespace={namespace}").strip()
    log = sandbox.audit_log.read_text()
    assert '"name":"s"' in log
    assert "bm90LWZvci1sb2dz" not in log, "not-for-logs in base 64"
    assert token not in log


def test_the_audit_log_is_free_of_the_control_planes_own_chatter(sandbox: Any) -> None:
    for line in sandbox.audit():
        user, verb = line["user"]["username"], line["verb"]
        if user == "system:anonymous":
            continue
        assert not (user.startswith("system:") and verb in ("get", "list", "watch")), line
        resource = line.get("objectRef", {}).get("resource")
        assert not (user.startswith("system:") and resource == "leases" and verb in ("create", "update", "patch")), line


def test_a_user_in_a_group_without_rights_is_refused(sandbox: Any, kubectl: Callable[..., str]) -> None:
    with pytest.raises(AssertionError, match="Forbidden"):
        kubectl("get", "nodes", kubeconfig=sandbox.user("reader", "team-a"))


def test_each_user_has_an_access_key_of_its_own_and_a_new_one_replaces_the_old(sandbox: Any) -> None:
    def keys() -> dict[str, str]:
        entries = json.loads((sandbox.state / "cloud" / "access_keys.json").read_text())
        return {entry["user"]: key for key, entry in entries.items()}

    sandbox.user("first")
    old = keys()["first"]
    sandbox.user("second")
    sandbox.user("first")
    profiles = configparser.ConfigParser()
    profiles.read(sandbox.credentials_file)
    now = keys()
    assert now["first"] != old
    assert {name: profiles[name]["access_key_id"] for name in ("default", "first", "second")} == {
        name: now[name] for name in ("default", "first", "second")
    }


@pytest.mark.parametrize("name", ["DEFAULT", "a b", "", "a/b", "../a", "[x]"])
def test_a_user_name_that_would_break_a_file_is_refused(sandbox: Any, name: str) -> None:
    with pytest.raises(AssertionError, match="SBX-USER"):
        sandbox.command("user", name)


def test_what_env_prints_makes_kubectl_mean_this_sandbox(sandbox: Any) -> None:
    shell = f"{sandbox.command('env')}\ncommand -v kubectl helm && kubectl config view -o jsonpath={{..server}}"
    answer = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert answer.stdout == f"{sandbox.bin}/kubectl\n{sandbox.bin}/helm\n{sandbox.server}"


def test_the_endpoint_of_the_cloud_answers_where_the_file_says(sandbox: Any) -> None:
    host, port = sandbox.endpoints["cs"].removeprefix("http://").split(":")
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port)), timeout=5):
        pass
    assert set(sandbox.endpoints) == {"cs", "ram", "ecs", "sts"}


def test_a_fault_of_a_node_is_asked_for_listed_and_forgotten(sandbox: Any, kubectl: Callable[..., str]) -> None:
    node = kubectl("get", "nodes", "-l", "ack.node.gpu.schedule=cgpu", "-o", "jsonpath={.items[0].metadata.name}")
    file = sandbox.nodes_root / node / "run" / "faults" / "uninstall-fails"
    assert sandbox.command("fault", node, "uninstall-fails").strip() == "uninstall-fails"
    assert file.exists()
    assert sandbox.command("fault", node, "--clear", "uninstall-fails").strip() == "no faults"
    assert not file.exists()


@pytest.mark.parametrize(
    "words", [["nobody", "slow", "1"], ["NODE", "slow"], ["NODE", "slow", "very"], ["NODE", "card-lost", "-1"],
              ["NODE", "uninstall-fails", "5"], ["cloud", "error", "CreatePolicy"]]
)  # fmt: skip
def test_a_fault_that_can_not_be_meant_so_is_refused(
    sandbox: Any, kubectl: Callable[..., str], words: list[str]
) -> None:
    node = kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
    with pytest.raises(AssertionError, match="SBX-FAULT"):
        sandbox.command("fault", *(node if word == "NODE" else word for word in words))
