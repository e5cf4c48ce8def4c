"""A root shell on a node: any command meets the node's own files, and nothing of this computer."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.machines import shell
from tests.sandbox.machines_rig import OLD, Lab, Node
from tests.support import await_true, fresh_sandbox


@pytest.fixture(scope="module")
def lab(sandbox: Any, kubectl: Any) -> Iterator[Lab]:
    laboratory = Lab(kubectl, Path(sandbox.nodes_root))
    yield laboratory
    laboratory.close()


@pytest.fixture(scope="module")
def node(lab: Lab) -> Node:
    found = lab.node()
    found.install(OLD)
    found.installer()
    return found


@pytest.fixture
def apart(lab: Lab) -> None:
    """Skips where this computer permits no namespaces, so that nodes can't be kept apart from it."""
    if (lab.nodes_root.parent / "run/machines.ready").read_text() != "namespaces\n":
        pytest.skip("this computer permits no own namespaces")


def test_exec_through_the_installer_pod_reaches_the_nodes_own_file(node: Node) -> None:
    done = node.exec("cat", "/proc/cgpu_km/version")
    assert (done.returncode, done.stdout) == (0, f"{OLD}\n")


@pytest.mark.parametrize("status", [0, 1, 7, 126, 255])
def test_exec_hands_on_the_exit_status(node: Node, status: int) -> None:
    assert node.exec("sh", "-c", f"exit {status}").returncode == status


def test_output_and_errors_stay_apart_and_input_arrives(node: Node, lab: Lab) -> None:
    done = node.exec("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr.splitlines()[0]) == ("out\n", "err")
    meta = node.installer()["metadata"]
    said = lab.kubectl("-n", "kube-system", "exec", "-i", meta["name"], "--", *node_command("cat"), stdin="a\nb\n")
    assert said == "a\nb\n"


def node_command(*argv: str) -> tuple[str, ...]:
    return ("nsenter", "-t", "1", "-m", "-u", "-i", "-n", "-p", "--", *argv)


def test_a_large_output_arrives_whole(node: Node) -> None:
    done = node.exec("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(done.stdout) == 3_000_000


@pytest.mark.usefixtures("apart")
def test_a_command_without_nsenter_sees_the_container_and_not_the_host(node: Node) -> None:
    node.write("/var/lib/here", "host")
    assert node.exec("cat", "/var/lib/here").stdout == "host"
    assert node.exec("cat", "/var/lib/here", host=False).returncode != 0
    assert node.exec("cat", "/usr/local/cgpu-installer/uninstall.sh", host=False).returncode != 0
    assert node.exec("cat", "/proc/cgpu_km/version", host=False).stdout == f"{OLD}\n"


def test_a_pod_without_host_pid_or_privileges_does_not_get_to_the_host(lab: Lab, node: Node) -> None:
    plain = node.pod("plain")
    assert "hostPID" in node.exec("true", pod=plain).stderr
    unprivileged = node.pod("unprivileged", hostPID=True)
    assert "Operation not permitted" in node.exec("true", pod=unprivileged).stderr
    lab.kubectl("delete", "pod", "plain", "unprivileged", "--wait=false")


def test_files_written_on_the_node_are_the_nodes(lab: Lab, node: Node) -> None:
    other = lab.node(cgpu="")
    name = f"/etc/mark-of-{os.getpid()}"
    node.says("sh", "-c", f"echo mine > {name}")
    assert (node.root / name.lstrip("/")).read_text() == "mine\n"
    assert not Path(name).exists()
    assert other.run("cat", name).returncode != 0


def test_programs_by_absolute_path_are_the_stand_ins_too(node: Node) -> None:
    for path in ("systemctl", "/usr/bin/systemctl", "/bin/systemctl"):
        if "/" not in path or Path(path).exists():
            assert node.says(path, "is-active", "kubelet") == "active\n"


@pytest.mark.usefixtures("apart")
def test_this_computers_programs_cannot_be_changed_from_a_node(node: Node) -> None:
    assert node.run("touch", "/usr/bin/made-on-a-node").returncode != 0
    assert not Path("/usr/bin/made-on-a-node").exists()


@pytest.mark.usefixtures("apart")
def test_no_process_of_this_computer_can_be_seen_or_killed_from_a_node(node: Node) -> None:
    own = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        assert node.run("sh", "-c", f"kill -9 {own.pid}").returncode != 0
        assert own.poll() is None
    finally:
        own.send_signal(signal.SIGKILL)
        own.wait()


def test_two_nodes_have_their_own_identity(lab: Lab, node: Node) -> None:
    other = lab.node(mode="", instance_type="ecs.g7.xlarge", cgpu="")
    for each in (node, other):
        assert each.says("hostname") == f"{each.name}\n"
        assert each.says("uname", "-r") == f"{each.machine.kernel}\n"
        assert each.says("cat", "/proc/sys/kernel/random/boot_id") == f"{each.boot_id}\n"
    assert other.run("cat", "/proc/cgpu_km/version").returncode != 0
    assert other.run("nvidia-smi", "-L").returncode == 127


def test_a_command_is_quick(node: Node) -> None:
    node.says("true")
    times = []
    for _ in range(7):
        begin = time.monotonic()
        node.says("true")
        times.append(time.monotonic() - begin)
    assert min(times) < 0.1


def test_a_command_that_takes_too_long_is_killed_with_its_children(node: Node) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        node.run("sh", "-c", "sleep 611 & sleep 611", timeout=0.5)
    await_true(lambda: not _processes(b"sleep\x00611\x00"), "the children gone")


def test_an_unknown_machine_is_an_error(lab: Lab) -> None:
    with pytest.raises(shell.MachineError, match="there is no machine"):
        shell.run(lab.nodes_root, "cn-hangzhou.10.0.0.0", ["true"], timeout=5)


def test_nothing_on_a_node_outlives_the_sandbox_even_when_that_is_killed() -> None:
    with fresh_sandbox("machines-killed") as own:
        nodes_root = Path(own.nodes_root)
        node = next(path.name for path in sorted(nodes_root.iterdir()))
        script = "nohup setsid sleep 613 >/dev/null 2>&1 & sleep 613"
        assert (
            shell.run(nodes_root, node, ["systemd-run", "--unit=stays", "sh", "-c", script], timeout=10).returncode == 0
        )
        await_true(lambda: len(_processes(b"sleep\x00613\x00")) == 2, "two processes on the node")
        os.kill(own.pid, signal.SIGKILL)
        await_true(lambda: not _processes(b"sleep\x00613\x00"), "none")
        assert str(nodes_root) not in Path("/proc/self/mounts").read_text()


def test_logs_of_a_pod_are_what_its_annotation_says(lab: Lab, node: Node) -> None:
    node.create_pod("talks", metadata={"annotations": {"sandbox.ack/logs": "3141 MiB"}})
    await_true(lambda: lab.try_kubectl("logs", "talks").stdout == "3141 MiB\n", "the log")
    lab.kubectl("delete", "pod", "talks", "--wait=false")


def _processes(command: bytes) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "cmdline").read_bytes() == command:
                    found.append(folder.name)
            except OSError:
                continue
    return found
