"""A node's life: it joins, restarts, loses and regains what runs on it, fails on demand, and goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.machines import shell
from sandbox.machines.power import request_reboot
from tests.sandbox.machines_rig import NEW, OLD, Lab, Node
from tests.support import await_true

MEM = "aliyun.com/gpu-mem"


@pytest.fixture
def lab(sandbox: Any, kubectl: Any) -> Iterator[Lab]:
    laboratory = Lab(kubectl, Path(sandbox.nodes_root))
    yield laboratory
    laboratory.close()


def allocatable(node: Node, name: str) -> str:
    return str(node.get()["status"]["allocatable"].get(name, "absent"))


def restarts(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def test_the_first_nodes_are_those_of_the_pools(lab: Lab) -> None:
    nodes = lab.read("/api/v1/nodes", labelSelector="alibabacloud.com/nodepool-id=np1b2c3d4e5f60718293a4b5c6d7e8f90a")[
        "items"
    ]
    assert [each["metadata"]["labels"]["ack.node.gpu.schedule"] for each in nodes] == ["cgpu", "cgpu"]
    for each in nodes:
        version = lab.nodes_root / each["metadata"]["name"] / "root/proc/cgpu_km/version"
        assert version.read_text() == f"{OLD}\n"


def test_memory_is_advertised_only_while_the_plug_in_runs(lab: Lab) -> None:
    node = lab.node(cgpu="")
    assert (allocatable(node, MEM), allocatable(node, "nvidia.com/gpu")) == ("absent", "1")
    node.plug_in()
    await_true(lambda: allocatable(node, MEM) == "15", "the memory")
    assert allocatable(node, "nvidia.com/gpu") == "0"
    lab.kubectl("delete", "ds", "-n", "kube-system", f"gpushare-device-plugin-ds-{node.machine.pool_id[2:10]}")
    await_true(lambda: allocatable(node, MEM) == "0", "nothing allocatable without the plug-in")
    assert node.get()["status"]["capacity"][MEM] == "15"


def test_a_changed_label_changes_what_a_live_node_advertises(lab: Lab) -> None:
    node = lab.node(mode="default", cgpu="")
    node.plug_in()
    lab.kubectl("label", "node", node.name, "ack.node.gpu.schedule=share", "--overwrite")
    await_true(
        lambda: allocatable(node, MEM) == "15" and allocatable(node, "nvidia.com/gpu") == "0", "memory, no cards"
    )
    lab.kubectl("label", "node", node.name, "ack.node.gpu.schedule=default", "--overwrite")
    await_true(lambda: allocatable(node, MEM) == "0" and allocatable(node, "nvidia.com/gpu") == "1", "cards, no memory")


def test_a_restart_brings_a_new_boot_and_restarts_every_container(lab: Lab) -> None:
    node = lab.node()
    node.install(OLD)
    node.plug_in()
    await_true(lambda: allocatable(node, MEM) == "15", "the memory")
    pod = node.pod("inference", gpu_mem=4)
    before = node.boot_id
    node.write("/var/lib/kept", "kept")
    node.says("reboot")
    await_true(lambda: node.ready == "Unknown", "NotReady")
    assert lab.pod("inference")["status"]["conditions"]
    await_true(lambda: _ready(lab.pod("inference")) == "False", "its pods unready")
    node.reboots(before)
    await_true(lambda: restarts(lab.pod("inference")) == restarts(pod) + 1, "the pod started again")
    await_true(lambda: allocatable(node, MEM) == "15", "the resources as before")
    assert node.says("cat", "/proc/sys/kernel/random/boot_id").strip() == node.boot_id
    assert node.says("cat", "/var/lib/kept") == "kept"
    assert await_true(lambda: node.version, "the module") == OLD


def _ready(pod: dict[str, Any]) -> str:
    return next(each["status"] for each in pod["status"]["conditions"] if each["type"] == "Ready")


def test_a_container_runs_the_image_that_its_pod_object_has(lab: Lab) -> None:
    node = lab.node()
    pod = node.pod("app")
    lab.kubectl("set", "image", "pod/app", "main=registry.example.test/app:2")
    await_true(lambda: restarts(lab.pod("app")) == restarts(pod) + 1, "the container started again")
    assert lab.pod("app")["status"]["containerStatuses"][0]["image"] == "registry.example.test/app:2"


def test_a_restart_from_outside_works_like_one_from_inside(lab: Lab) -> None:
    node = lab.node()
    before = node.boot_id
    request_reboot(lab.nodes_root, node.name, "RebootInstance")
    node.reboots(before)
    assert node.version == "", "no installer pod, so nothing loaded the module"


def test_nothing_can_be_run_on_a_machine_that_is_off(lab: Lab) -> None:
    node = lab.node()
    node.install(OLD)
    pod = node.installer()
    node.says("poweroff")
    await_true(lambda: node.ready == "Unknown", "NotReady")
    with pytest.raises(shell.MachineError, match="not running"):
        node.run("true")
    assert "connection refused" in node.exec("true", pod=pod).stderr


def test_exec_is_refused_while_the_kubelet_is_stopped_and_works_after_its_start(lab: Lab) -> None:
    node = lab.node()
    node.install(OLD)
    pod = node.installer()
    node.says("systemctl", "stop", "kubelet")
    assert "connection refused" in node.exec("true", pod=pod).stderr
    await_true(lambda: node.ready == "Unknown", "NotReady")
    node.says("systemctl", "start", "kubelet")
    await_true(lambda: node.ready == "True", "Ready")
    assert node.exec("true", pod=pod).returncode == 0
    assert restarts(node.installer()) == 0, "containers outlive their kubelet"


def test_a_pod_is_not_gone_before_a_kubelet_has_stopped_it(lab: Lab) -> None:
    node = lab.node()
    node.pod("stuck")
    node.says("systemctl", "stop", "kubelet")
    lab.kubectl("delete", "pod", "stuck", "--wait=false")
    await_true(lambda: node.ready == "Unknown", "NotReady")
    assert "deletionTimestamp" in lab.pod("stuck")["metadata"]
    node.says("systemctl", "start", "kubelet")
    await_true(lambda: not lab.pod("stuck"), "the pod gone")


def test_a_pod_takes_the_time_that_its_program_needs_to_stop(lab: Lab) -> None:
    node = lab.node()
    node.create_pod(
        "slow", metadata={"annotations": {"sandbox.ack/stops-after": "600"}}, terminationGracePeriodSeconds=2
    )
    await_true(lambda: lab.pod("slow")["status"]["phase"] == "Running", "it runs")
    lab.kubectl("delete", "pod", "slow", "--wait=false")
    assert lab.pod("slow")["metadata"]["deletionTimestamp"]
    await_true(lambda: not lab.pod("slow"), "killed at the end of its grace period")


def test_a_node_whose_runtime_is_down_says_so(lab: Lab) -> None:
    node = lab.node()
    node.says("systemctl", "stop", "containerd")
    await_true(lambda: node.ready == "False", "not Ready")
    conditions = {each["type"]: each for each in node.get()["status"]["conditions"]}
    assert conditions["Ready"]["message"] == "container runtime is down"


def test_a_disabled_kubelet_does_not_come_back_with_the_boot(lab: Lab) -> None:
    node = lab.node()
    node.says("systemctl", "disable", "kubelet")
    node.says("reboot")
    await_true(lambda: node.ready == "Unknown", "NotReady")
    await_true(lambda: _can_run(node), "the machine is up")
    assert node.run("systemctl", "is-active", "kubelet").stdout == b"inactive\n"
    assert node.ready == "Unknown"
    node.says("systemctl", "enable", "--now", "kubelet")
    await_true(lambda: node.ready == "True", "Ready")


def _can_run(node: Node) -> bool:
    try:
        return node.run("true").returncode == 0
    except shell.MachineError:
        return False


def test_a_reboot_that_never_returns_leaves_the_node_silent_until_the_fault_is_cleared(lab: Lab) -> None:
    node = lab.node()
    before = node.boot_id
    node.fault("reboot-never-returns")
    node.says("reboot")
    await_true(lambda: node.ready == "Unknown", "NotReady")
    request_reboot(lab.nodes_root, node.name, "RebootInstance", force=True)
    with pytest.raises(AssertionError, match="not within"):
        await_true(lambda: node.ready == "True", "Ready", seconds=4)
    node.clear("reboot-never-returns")
    node.reboots(before)


def test_a_module_that_does_not_load_fails_the_installer_pod(lab: Lab) -> None:
    node = lab.node(cgpu="")
    node.fault("module-does-not-load")
    node.install(NEW)
    waiting = await_true(lambda: _waiting_reason(node), "a container that waits")
    assert waiting == "CrashLoopBackOff"
    assert node.version == ""
    node.clear("module-does-not-load")
    assert await_true(lambda: node.version, "the module, at a later try") == NEW


def _waiting_reason(node: Node) -> str:
    for pod in node.pods("name=cgpu-installer"):
        for each in pod["status"].get("containerStatuses") or []:
            reason = each["state"].get("waiting", {}).get("reason", "")
            if reason != "ContainerCreating":
                return str(reason)
    return ""


@pytest.mark.parametrize(
    ("mode", "name"), [("cgpu", "cgpu-installer"), ("core_mem", "cgpu-core-installer"), ("core_mem", "other-installer")]
)
def test_the_two_installers_load_the_version_of_their_image_and_nobody_else_does(
    lab: Lab, mode: str, name: str
) -> None:
    node = lab.node(mode=mode, cgpu="")
    node.install("1.5.9", name=name, policy="3")
    await_true(lambda: any(pod["status"]["phase"] == "Running" for pod in node.pods(f"name={name}")), "the pod")
    if name == "other-installer":
        with pytest.raises(AssertionError, match="not within"):
            await_true(lambda: node.version, "a module", seconds=1)
    else:
        assert await_true(lambda: node.version, "the module") == "1.5.9"
        assert node.says("cat", "/proc/cgpu_km/0/policy") == "3\n"


def test_the_uninstall_script_can_be_missing(lab: Lab) -> None:
    node = lab.node()
    script = node.root / "usr/local/cgpu-installer/uninstall.sh"
    assert script.exists()
    node.fault("uninstall-script-missing")
    await_true(lambda: not script.exists(), "no script")
    node.clear("uninstall-script-missing")
    await_true(script.exists, "the script again")


def test_the_uninstall_can_fail(lab: Lab) -> None:
    node = lab.node()
    node.fault("uninstall-fails")
    done = node.run("bash", "/usr/local/cgpu-installer/uninstall.sh")
    assert (done.returncode, node.version) == (1, OLD)
    node.clear("uninstall-fails")
    node.says("bash", "/usr/local/cgpu-installer/uninstall.sh")
    assert node.version == ""


def test_a_lost_card_is_missing_after_the_boot(lab: Lab) -> None:
    node = lab.node(instance_type="ecs.gn6i-c24g1.12xlarge")
    node.plug_in()
    await_true(lambda: allocatable(node, MEM) == "30", "the memory of two cards")
    before = node.boot_id
    node.fault("card-lost")
    node.says("reboot")
    node.reboots(before)
    await_true(lambda: allocatable(node, MEM) == "15", "the memory of one card")
    assert node.says("nvidia-smi", "-L").count("GPU ") == 1
    assert not (node.root / "dev/nvidia1").exists()
    assert node.get()["metadata"]["labels"]["aliyun.accelerator/nvidia_count"] == "2"


def test_a_slow_node_takes_longer_for_each_step(lab: Lab) -> None:
    node = lab.node()
    node.fault("slow", "0.7")
    begin = node.says("sh", "-c", "date +%s%N; systemctl is-active kubelet; date +%s%N").split()
    assert int(begin[2]) - int(begin[0]) >= 700_000_000


def test_the_scheduler_gives_cards_and_a_pod_for_no_card_waits_with_an_event(lab: Lab) -> None:
    node = lab.node(instance_type="ecs.gn6i-c24g1.12xlarge")
    node.plug_in()
    await_true(lambda: allocatable(node, MEM) == "30", "the memory of two cards")
    first = node.pod("ten", gpu_mem=10)
    second = node.pod("eight", gpu_mem=8)
    chosen = [each["metadata"]["annotations"]["scheduler.framework.gpushare.allocation"] for each in (first, second)]
    assert chosen == ['{"0":{"0":10}}', '{"0":{"1":8}}']
    # 12 GiB are free on the node, and no card has them.
    node.create_pod("nine", gpu_mem=9)
    event = await_true(lambda: _event(lab, "nine"), "an Event")
    assert "no card" in event["message"]
    assert lab.pod("nine")["status"]["phase"] == "Pending"
    lab.kubectl("delete", "pod", "ten")
    await_true(lambda: lab.pod("nine")["status"]["phase"] == "Running", "it runs on the card that became free")


def _event(lab: Lab, pod: str) -> Any:
    found = lab.read("/api/v1/events", fieldSelector=f"involvedObject.name={pod},source=sandbox-gpu-scheduler")
    return next(iter(found["items"]), None)


def test_a_pod_that_names_its_node_itself_gets_no_card(lab: Lab) -> None:
    node = lab.node()
    node.plug_in()
    await_true(lambda: allocatable(node, MEM) == "15", "the memory")
    node.create_pod("smoke", gpu_mem=2, nodeName=node.name)
    await_true(lambda: "no-gpu-has-2GiB-to-run" in str(lab.pod("smoke")["status"]), "a container that can't be made")


def test_the_twenty_first_pod_of_a_card_gets_no_instance(lab: Lab) -> None:
    node = lab.node(mode="cgpu", instance_type="ecs.gn6e-c12g1.3xlarge")
    node.plug_in()
    await_true(lambda: allocatable(node, MEM) == "32", "the memory")
    for number in range(21):
        node.create_pod(f"many-{number}", gpu_mem=1)
    await_true(
        lambda: "Error occurs when creating cGPU instance: unknown" in str(lab.read("/api/v1/namespaces/default/pods")),
        "the FAQ's message",
    )
    assert len([path for path in (node.root / "proc/cgpu_km/0").iterdir() if path.is_dir()]) == 20


def test_a_job_ends_by_itself(lab: Lab) -> None:
    node = lab.node()
    fails = {"annotations": {"sandbox.ack/exit-code": "3", "sandbox.ack/runs-for": "0.2s"}}
    node.create_pod("fails", metadata=fails, restartPolicy="Never")
    node.create_pod("succeeds", restartPolicy="Never")
    await_true(lambda: lab.pod("fails")["status"]["phase"] == "Failed", "a failure")
    await_true(lambda: lab.pod("succeeds")["status"]["phase"] == "Succeeded", "a success")


def test_a_deleted_node_takes_its_machine_along(lab: Lab) -> None:
    node = lab.node()
    lab.kubectl("delete", "node", node.name)
    await_true(lambda: not node.folder.exists(), "its files gone")
    with pytest.raises(shell.MachineError, match="no machine"):
        node.run("true")


def test_the_kubelet_owns_the_lease_of_the_nodes_name(lab: Lab) -> None:
    node = lab.node()
    lease = await_true(lambda: _lease(lab, node.name), "the lease")
    assert lease["spec"]["holderIdentity"] == node.name


def _lease(lab: Lab, name: str) -> Any:
    return lab.read(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
