"""The traps of a real cluster: each wrong procedure fails on the sandbox's machines, and the right one passes.

The order that is right: drain; replace the installer pod; on the host, in a unit of systemd's own: stop the kubelet,
stop the containers, stop the runtime, prove that nobody holds the cards, uninstall, restart; verify in the new boot.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import pools
from sandbox.machines.objects import machine_of
from sandbox.machines.power import request_reboot
from tests.sandbox.cloud_rig import Caller, pool_body
from tests.sandbox.machines_rig import NEW, OLD, Lab, Node
from tests.sandbox.test_cloud_sandbox import caller
from tests.support import await_true

UNINSTALL = ("bash", "/usr/local/cgpu-installer/uninstall.sh")
STOP_ALL = "systemctl stop kubelet; crictl ps -q | xargs -r crictl stop; systemctl stop containerd"
PROCEDURE = f"""#!/bin/bash
set -e
systemctl stop kubelet
crictl ps -q | xargs -r crictl stop
systemctl stop containerd
test -z "$(find /proc/cgpu_km/[0-9]* -mindepth 1 -type d)"
! fuser -s /dev/nvidia*
{" ".join(UNINSTALL)}
reboot
"""


@pytest.fixture
def lab(sandbox: Any, kubectl: Any) -> Iterator[Lab]:
    laboratory = Lab(kubectl, Path(sandbox.nodes_root))
    yield laboratory
    laboratory.close()


@pytest.fixture
def node(lab: Lab) -> Node:
    """A node with the old cGPU, its installer and its device plug-in, all running."""
    found = lab.node()
    found.install(OLD)
    found.plug_in()
    found.installer()
    await_true(lambda: found.get()["status"]["allocatable"].get("aliyun.com/gpu-mem") == "15", "the memory")
    return found


def replace_installer(lab: Lab, node: Node) -> None:
    """Delete the pod of the old revision and wait for the new one."""
    before = node.installer()["metadata"]
    lab.kubectl("delete", "pod", "-n", "kube-system", before["name"])
    await_true(lambda: node.installer()["spec"]["containers"][0]["image"].endswith(NEW), "the new installer pod")


def start_unit(node: Node, name: str, *argv: str) -> int:
    return node.exec("systemd-run", f"--unit={name}", "--collect", *argv).returncode


def instances(node: Node) -> list[str]:
    return [path.parent.name for path in (node.root / "proc/cgpu_km").glob("[0-9]*/*/id")]


# -- 1: the old image comes back


def test_right_a_replaced_installer_pod_loads_the_new_module_after_the_restart(lab: Lab, node: Node) -> None:
    node.install(NEW)
    replace_installer(lab, node)
    assert node.version == OLD, "a new pod beside a loaded module changes nothing"
    before = node.boot_id
    assert start_unit(node, "upgrade", "bash", node.write("/var/lib/upgrade.sh", PROCEDURE)) == 0
    node.reboots(before)
    assert await_true(lambda: node.version, "the module") == NEW


def test_wrong_an_installer_pod_that_was_kept_brings_the_old_module_back(lab: Lab, node: Node) -> None:
    node.install(NEW)
    before = node.boot_id
    assert start_unit(node, "upgrade", "bash", node.write("/var/lib/upgrade.sh", PROCEDURE)) == 0
    node.reboots(before)
    assert await_true(lambda: node.version, "the module") == OLD


def test_wrong_a_restart_without_the_uninstall_is_no_upgrade_of_a_loaded_module(lab: Lab, node: Node) -> None:
    node.install(NEW)
    replace_installer(lab, node)
    assert (node.version, node.exec("modprobe", "cgpu_km").returncode) == (OLD, 0)
    assert node.exec("cat", "/proc/cgpu_km/version").stdout == f"{OLD}\n"


# -- 3: whoever holds the card keeps the module


def test_wrong_the_uninstall_refuses_while_a_container_has_an_instance(node: Node) -> None:
    node.pod("inference", gpu_mem=4)
    done = node.run(*UNINSTALL)
    assert (done.returncode, done.stdout) == (1, b"docker is running, upgrade fail!\n")
    assert node.version == OLD


def test_wrong_stopping_containerd_frees_nothing(node: Node) -> None:
    node.pod("inference", gpu_mem=4)
    node.says("systemctl", "stop", "kubelet", "containerd")
    assert instances(node)
    assert node.run("fuser", "-s", "/dev/nvidia0").returncode == 0
    assert node.run(*UNINSTALL).returncode == 1


def test_wrong_a_runtime_that_is_stopped_first_can_stop_no_container_any_more(node: Node) -> None:
    node.pod("inference", gpu_mem=4)
    node.says("systemctl", "stop", "kubelet", "containerd")
    done = node.run("crictl", "ps", "-q")
    assert done.returncode == 1
    assert b"containerd.sock" in done.stderr


def test_wrong_a_kubelet_that_was_not_stopped_starts_the_containers_again(lab: Lab, node: Node) -> None:
    node.pod("inference", gpu_mem=4)
    first = instances(node)
    node.says("sh", "-c", "crictl ps -q | xargs -r crictl stop")
    await_true(lambda: instances(node) not in ([], first), "the container is back, with an instance")
    await_true(lambda: lab.pod("inference")["status"]["containerStatuses"][0]["restartCount"] == 1, "it is counted")


def test_wrong_a_container_without_an_instance_still_holds_the_device(node: Node) -> None:
    """Only the plug-in is left, which asked for no memory: no folder stands, and the module is in use all the same."""
    assert instances(node) == []
    assert node.run("fuser", "-s", "/dev/nvidiactl").returncode == 0
    done = node.run(*UNINSTALL)
    assert (done.returncode, done.stderr) == (1, b"rmmod: ERROR: Module cgpu_km is in use\n")


def test_right_kubelet_then_containers_then_runtime_frees_the_card(node: Node) -> None:
    node.pod("inference", gpu_mem=4)
    node.says("sh", "-c", STOP_ALL)
    assert instances(node) == []
    assert node.run("fuser", "-s", "/dev/nvidia0").returncode == 1
    node.says(*UNINSTALL)
    assert node.version == ""


def test_wrong_docker_that_was_stopped_without_its_socket_comes_back(lab: Lab) -> None:
    node = lab.node(runtime="docker")
    stopped = node.run("systemctl", "stop", "kubelet", "docker")
    assert b"docker.socket" in stopped.stderr
    node.run("docker", "ps")
    assert node.says("systemctl", "is-active", "docker") == "active\n"


def test_wrong_a_running_kubelet_wakes_docker_through_its_socket(lab: Lab) -> None:
    node = lab.node(runtime="docker")
    node.says("systemctl", "stop", "docker")
    await_true(lambda: node.run("systemctl", "is-active", "docker").returncode == 0, "docker is back")


def test_right_docker_stays_down_when_its_socket_is_stopped_too(lab: Lab) -> None:
    node = lab.node(runtime="docker")
    node.says("systemctl", "stop", "kubelet", "docker.socket", "docker")
    done = node.run("docker", "ps")
    assert (done.returncode, b"Cannot connect" in done.stderr) == (1, True)
    assert node.run("systemctl", "is-active", "docker").returncode == 3


# -- 4: a child of the pod dies with the pod


def test_wrong_a_nohup_child_of_the_pod_dies_when_the_pod_is_replaced(lab: Lab, node: Node) -> None:
    script = node.write("/var/lib/tick.sh", "while true; do date +%s%N > /var/lib/tick; sleep 0.05; done\n")
    done = node.exec("sh", "-c", f"nohup setsid bash {script} >/dev/null 2>&1 &")
    assert done.returncode == 0
    tick = node.root / "var/lib/tick"
    await_true(tick.exists, "it runs, and outlived the exec")
    first = tick.read_text()
    await_true(lambda: tick.read_text() != first, "it goes on")
    lab.kubectl("delete", "pod", "-n", "kube-system", node.installer()["metadata"]["name"])
    await_true(lambda: _stands_still(tick), "it is dead")


def _stands_still(tick: Path) -> bool:
    """True when nothing was written during several rounds of the loop that writes."""
    modified = tick.stat().st_mtime_ns
    time.sleep(0.4)
    return tick.stat().st_mtime_ns == modified


def test_right_a_unit_of_systemd_outlives_the_pod_and_keeps_log_and_status(lab: Lab, node: Node) -> None:
    script = node.write(
        "/var/lib/job.sh", "echo began; until [ -e /var/lib/go ]; do sleep 0.05; done; echo ended; exit 5\n"
    )
    assert start_unit_kept(node, "job", "bash", script) == 0
    lab.kubectl("delete", "pod", "-n", "kube-system", node.installer()["metadata"]["name"])
    node.installer()
    assert node.exec("systemctl", "is-active", "job").stdout == "active\n"
    node.write("/var/lib/go", "")
    await_true(lambda: node.exec("systemctl", "is-failed", "job").returncode == 0, "its end")
    shown = node.exec("systemctl", "show", "job", "-p", "ExecMainStatus", "-p", "Result").stdout
    assert shown == "ExecMainStatus=5\nResult=exit-code\n"
    assert [line for line in node.exec("journalctl", "-u", "job", "-o", "cat").stdout.splitlines() if "ed" in line]


def start_unit_kept(node: Node, name: str, *argv: str) -> int:
    """Without --collect, so that a failed unit stays known."""
    return node.exec("systemd-run", f"--unit={name}", *argv).returncode


def test_right_a_second_start_finds_the_first(node: Node) -> None:
    assert start_unit(node, "once", "sleep", "600") == 0
    again = node.exec("systemd-run", "--unit=once", "--collect", "sleep", "600")
    assert again.returncode == 1
    assert "was already loaded" in again.stderr
    assert node.exec("systemctl", "stop", "once").returncode == 0
    assert node.exec("systemctl", "show", "once", "-p", "LoadState", "--value").stdout == "not-found\n"


def test_wrong_a_unit_does_not_outlive_the_restart(node: Node) -> None:
    assert start_unit(node, "forever", "sh", "-c", "while true; do date > /var/lib/tick; sleep 0.05; done") == 0
    await_true((node.root / "var/lib/tick").exists, "it runs")
    before = node.boot_id
    assert node.exec("reboot").returncode in (0, 1)
    node.reboots(before)
    assert node.run("systemctl", "is-active", "forever").returncode == 3
    assert _stands_still(node.root / "var/lib/tick")


def test_wrong_an_exec_that_stops_the_kubelet_loses_its_own_connection(node: Node) -> None:
    done = node.exec("sh", "-c", "systemctl stop kubelet; sleep 5; echo done > /var/lib/done")
    assert done.returncode == 1
    assert "connection" in done.stderr


# -- the boot that is still the old one


def test_wrong_ready_alone_says_nothing_just_after_the_request(lab: Lab, node: Node) -> None:
    before = node.boot_id
    request_reboot(lab.nodes_root, node.name, "RebootInstance")
    assert (node.ready, node.boot_id) == ("True", before), "still Ready, and nothing has restarted"
    node.reboots(before)


def test_right_another_boot_id_and_ready_together_mean_that_it_is_back(lab: Lab, node: Node) -> None:
    before = node.boot_id
    request_reboot(lab.nodes_root, node.name, "RebootInstance")
    seen = []
    await_true(lambda: seen.append((node.boot_id != before, node.ready)) or seen[-1] == (True, "True"), "back")
    assert (False, "Unknown") in seen, "it was away in between"
    assert (True, "Unknown") not in seen, "a new boot is told by a kubelet that runs"
    assert node.says("cat", "/proc/sys/kernel/random/boot_id").strip() == node.boot_id


# -- 7: auto-repair uncordons


@pytest.fixture
def managed(sandbox: Any, lab: Lab) -> Iterator[tuple[Caller, str, Node]]:
    """A pool with auto-repair and one node, of which the kubelet will be stopped as by an upgrade that failed."""
    api = caller(sandbox, "default")
    labels = {"kubernetes_config": {"labels": [{"key": "ack.node.gpu.schedule", "value": "cgpu"}]}}
    management = {"management": {"enable": True, "auto_repair": True}}
    body = pool_body(f"repair-{os.urandom(4).hex()}", desired_size=1) | labels | management
    pool = str(api.finished_answer(api.call("CreateClusterNodePool", body=body))["nodepool_id"])
    (instance,) = api.nodes(pool)
    machine = machine_of(lab.node_object(instance["node_name"]))
    assert machine is not None
    yield api, pool, Node(lab, machine)
    api.finished_answer(api.call("DeleteClusterNodepool", nodepool_id=pool, query={"force": True}))


def leave_failed(lab: Lab, node: Node) -> str:
    """Cordon a node and leave its kubelet stopped; returns its boot."""
    before = node.boot_id
    lab.kubectl("cordon", node.name)
    node.says("systemctl", "stop", "kubelet")
    await_true(lambda: node.ready == "Unknown", "NotReady")
    return before


def test_wrong_auto_repair_restarts_and_uncordons_a_node_that_was_left_cordoned(
    lab: Lab, managed: tuple[Caller, str, Node]
) -> None:
    node = managed[2]
    before = leave_failed(lab, node)
    node.reboots(before)
    await_true(lambda: not node.get()["spec"].get("unschedulable"), "the cordon is gone, by no hand of ours")


def test_right_with_auto_repair_suspended_a_cordoned_node_stays_as_it_was_left(
    lab: Lab, managed: tuple[Caller, str, Node]
) -> None:
    api, pool, node = managed
    off = {"management": {"enable": True, "auto_repair": False}}
    api.finished_answer(api.call("ModifyClusterNodePool", nodepool_id=pool, body=off))
    before = leave_failed(lab, node)
    patience = pools.load().timing.auto_repair_after + 3
    with pytest.raises(AssertionError, match="not within"):
        await_true(lambda: node.boot_id != before or not node.get()["spec"].get("unschedulable"), "a repair", patience)
