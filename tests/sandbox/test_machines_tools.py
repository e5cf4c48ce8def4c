"""The stand-ins of a node's programs, one by one, on a machine without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.machines.containers import Container
from sandbox.machines.systemd_run import parse
from tests.sandbox.machines_bench import Bench, bench
from tests.support import await_true


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as found:
        yield found


@pytest.fixture
def docker_machine(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, runtime="docker://19.3.15") as found:
        yield found


def run_container(machine: Bench, name: str, share: int = 4, *, card: int = 0) -> Container:
    """A container that has an instance of cGPU."""
    meta = {"uid": f"uid-{name}", "name": f"pod-{name}", "namespace": "default", "labels": {"app": name}}

    def start() -> Container:
        runtime = machine.host.runtime
        sandbox = runtime.add_sandbox({"metadata": meta})
        cards = {card: share} if share else {}
        return runtime.start(Container(sandbox, name, "image:1", 0, cards=cards, isolated=bool(cards)))

    return machine.do(start)


# -- systemctl


def test_what_is_installed_is_active_after_the_boot(machine: Bench) -> None:
    for name in ("kubelet", "containerd", "kubelet.service"):
        assert machine.tool("systemctl", "is-active", name).out == "active\n"
    assert machine.tool("systemctl", "is-active", "docker").code == 3


def test_a_stopped_unit_can_be_started_again(machine: Bench) -> None:
    assert machine.tool("systemctl", "stop", "kubelet").code == 0
    assert machine.tool("systemctl", "is-active", "--quiet", "kubelet").code == 3
    assert machine.tool("systemctl", "start", "kubelet").code == 0
    assert machine.tool("systemctl", "is-active", "-q", "kubelet").code == 0


def test_a_masked_unit_does_not_start(machine: Bench) -> None:
    machine.tool("systemctl", "mask", "--now", "kubelet")
    assert "masked" in machine.tool("systemctl", "start", "kubelet").err
    machine.tool("systemctl", "unmask", "kubelet")
    assert machine.tool("systemctl", "start", "kubelet").code == 0


def test_an_unknown_unit_is_an_error_of_systemds(machine: Bench) -> None:
    assert machine.tool("systemctl", "stop", "nothing").code == 5
    assert machine.tool("systemctl", "status", "nothing").code == 4
    assert machine.tool("systemctl", "explode").code == 1
    assert machine.tool("systemctl", "stop").code == 1


@pytest.mark.parametrize("form", [["-p", "ActiveState"], ["--property=ActiveState"], ["-pActiveState"]])
def test_show_takes_every_form_of_its_option(machine: Bench, form: list[str]) -> None:
    assert machine.tool("systemctl", "show", "kubelet", *form).out == "ActiveState=active\n"


def test_show_keeps_the_order_that_was_asked_for(machine: Bench) -> None:
    shown = machine.tool("systemctl", "show", "gone", "--property=Result,LoadState", "--value").out
    assert shown == "success\nnot-found\n"


def test_list_units_filters_by_name_and_state(machine: Bench) -> None:
    assert machine.tool("systemctl", "list-units", "kube*").out.startswith("kubelet.service loaded active running")
    machine.tool("systemctl", "stop", "kubelet")
    assert machine.tool("systemctl", "list-units", "kube*").out == ""
    assert "kubelet" in machine.tool("systemctl", "list-units", "--all").out


# -- systemd-run


@pytest.mark.parametrize(
    "arguments",
    [
        ["--unit=a", "--property=X=1", "--", "sleep", "1"],
        ["--unit", "a", "--property", "X=1", "sleep", "1"],
        ["-u", "a", "-p", "X=1", "sleep", "1"],
        ["-ua", "-pX=1", "sleep", "1"],
    ],
)
def test_all_ways_to_write_an_option_mean_the_same(arguments: list[str]) -> None:
    assert parse(arguments) == ({"--unit": ["a"], "--property": ["X=1"]}, ["sleep", "1"])


@pytest.mark.parametrize("arguments", [["--unknown", "x"], ["--unit"], ["--unit=a"]])
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match=r"unrecognized|requires|required"):
        parse(arguments)


def test_a_unit_that_succeeded_is_forgotten_and_one_that_failed_is_not(machine: Bench) -> None:
    assert machine.tool("systemd-run", "--unit=good", "--wait", "true").code == 0
    assert machine.tool("systemd-run", "--unit=bad", "--wait", "sh", "-c", "exit 9").code == 9
    shown = machine.tool("systemctl", "show", "good", "bad", "-p", "LoadState", "--value").out.split()
    assert shown == ["not-found", "loaded"]
    assert "already loaded" in machine.tool("systemd-run", "--unit=bad", "true").err
    machine.tool("systemctl", "reset-failed", "bad")
    assert machine.tool("systemd-run", "--unit=bad", "--wait", "true").code == 0


def test_collect_forgets_a_failed_unit_too(machine: Bench) -> None:
    machine.tool("systemd-run", "--unit=x", "--collect", "--wait", "false")
    assert machine.tool("systemctl", "show", "x", "-p", "LoadState", "--value").out == "not-found\n"


def test_remain_after_exit_keeps_the_status_until_the_unit_is_stopped(machine: Bench) -> None:
    machine.tool("systemd-run", "--unit=x", "--remain-after-exit", "true")
    await_true(lambda: "exited" in machine.tool("systemctl", "show", "x", "-p", "SubState").out, "its end")
    assert machine.tool("systemctl", "is-active", "x").out == "active\n"
    machine.tool("systemctl", "stop", "x")
    assert machine.tool("systemctl", "show", "x", "-p", "LoadState", "--value").out == "not-found\n"


def test_environment_working_directory_and_output_are_the_units(machine: Bench) -> None:
    done = machine.tool(
        "systemd-run", "--unit=x", "--wait", "--setenv=A=b c", "--working-directory=/var/lib",
        "--property=StandardOutput=append:/var/log/x.log", "sh", "-c", 'echo "$A"; pwd; echo err >&2',
    )  # fmt: skip
    assert done.code == 0
    written = (machine.host.root / "var/log/x.log").read_text().splitlines()
    assert (written[0], written[2]) == ("b c", "err")
    assert written[1].endswith("/var/lib")


_ON_TERM = """
trap 'systemctl start kubelet; echo stopped > /var/lib/said; exit 6' TERM
touch /var/lib/armed
while true; do sleep 0.05; done
"""


def start_armed(machine: Bench) -> None:
    """A unit that has something to say when it is asked to end."""
    machine.tool("systemd-run", "--unit=x", "sh", "-c", _ON_TERM)
    await_true((machine.host.root / "var/lib/armed").exists, "its trap is set")


def test_a_stopped_unit_is_asked_to_end_and_may_say_how(machine: Bench) -> None:
    start_armed(machine)
    machine.tool("systemctl", "stop", "x")
    assert (machine.host.root / "var/lib/said").read_text() == "stopped\n"
    assert machine.tool("systemctl", "show", "x", "-p", "ExecMainStatus", "--value").out == "6\n"


def test_a_unit_that_does_not_end_is_killed(machine: Bench) -> None:
    machine.tool("systemd-run", "--unit=x", "sh", "-c", "trap '' TERM; while true; do sleep 0.05; done")
    machine.tool("systemctl", "stop", "x")
    assert machine.tool("systemctl", "show", "x", "-p", "LoadState", "--value").out == "not-found\n"


def test_a_unit_hears_of_the_restart_and_can_start_nothing_any_more(machine: Bench) -> None:
    machine.tool("systemctl", "stop", "kubelet")
    start_armed(machine)
    before = machine.host.boot_id
    machine.tool("reboot")
    await_true(lambda: machine.host.on and machine.host.boot_id != before, "a new boot")
    assert (machine.host.root / "var/lib/said").read_text() == "stopped\n"
    assert "destructive" in machine.tool("journalctl", "-u", "x", "-o", "cat").out


def test_a_forced_restart_asks_nobody(machine: Bench) -> None:
    start_armed(machine)
    before = machine.host.boot_id
    machine.do(lambda: machine.host.restart("RebootInstance", force=True))
    await_true(lambda: machine.host.on and machine.host.boot_id != before, "a new boot")
    assert not (machine.host.root / "var/lib/said").exists()


def test_a_program_that_is_not_there_starts_no_unit(machine: Bench) -> None:
    assert "Failed to find executable" in machine.tool("systemd-run", "--unit=x", "no-such-program").err


def test_the_journal_keeps_units_apart_and_outlives_the_restart(machine: Bench) -> None:
    for name in ("a", "b"):
        machine.tool("systemd-run", f"--unit={name}", "--wait", "echo", f"from {name}")
    boot = machine.host.boot_id
    machine.tool("reboot")
    await_true(lambda: machine.host.on and machine.host.boot_id != boot, "the new boot")
    said = machine.tool("journalctl", "-u", "a", "-o", "cat").out
    assert "from a" in said
    assert "from b" not in said
    assert machine.tool("journalctl", "-u", "c").out == "-- No entries --\n"


# -- crictl and docker


def test_crictl_lists_and_stops_containers(machine: Bench) -> None:
    container = run_container(machine, "app")
    listed = json.loads(machine.tool("crictl", "ps", "-o", "json").out)["containers"]
    assert [(each["id"], each["state"]) for each in listed] == [(container.id, "CONTAINER_RUNNING")]
    assert listed[0]["labels"]["io.kubernetes.pod.name"] == "pod-app"
    assert machine.tool("crictl", "ps", "-q").out == f"{container.id}\n"
    assert machine.tool("crictl", "stop", container.id[:13]).out == f"{container.id[:13]}\n"
    assert machine.tool("crictl", "ps", "-q").out == ""
    assert machine.tool("crictl", "ps", "-aq").out == f"{container.id}\n"
    assert machine.tool("crictl", "rm", container.id).code == 0
    assert machine.tool("crictl", "ps", "-a", "-q").out == ""


def test_crictl_filters_by_name_pod_and_label(machine: Bench) -> None:
    one, two = run_container(machine, "one"), run_container(machine, "two")
    assert machine.tool("crictl", "ps", "-q", "--name", "one").out == f"{one.id}\n"
    assert machine.tool("crictl", "ps", "-q", "--pod", two.sandbox.id).out == f"{two.id}\n"
    assert machine.tool("crictl", "ps", "-q", "--label", "io.kubernetes.pod.name=pod-one").out == f"{one.id}\n"
    assert machine.tool("crictl", "pods", "-q", "--label=app=two").out == f"{two.sandbox.id}\n"


def test_crictl_stops_and_removes_pods(machine: Bench) -> None:
    container = run_container(machine, "app")
    assert "stop it first" in machine.tool("crictl", "rmp", container.sandbox.id).err
    assert machine.tool("crictl", "stopp", container.sandbox.id).code == 0
    assert not container.running
    assert json.loads(machine.tool("crictl", "pods", "-o", "json").out)["items"][0]["state"] == "SANDBOX_NOTREADY"
    assert machine.tool("crictl", "rmp", "-a").code == 0
    assert machine.tool("crictl", "pods", "-q").out == ""


def test_a_container_that_is_not_there_is_an_error(machine: Bench) -> None:
    assert machine.tool("crictl", "stop", "abc").code == 1


def test_each_runtime_has_only_its_own_tool(machine: Bench, tmp_path: Path) -> None:
    assert machine.tool("docker", "ps").code == 127
    with bench(tmp_path / "docker", runtime="docker://19.3.15") as other:
        assert other.tool("crictl", "ps").code == 127


def test_docker_lists_and_stops_what_the_kubelet_started(docker_machine: Bench) -> None:
    container = run_container(docker_machine, "app")
    assert docker_machine.tool("docker", "ps", "-q").out == f"{container.id[:12]}\n"
    assert "k8s_app_pod-app_default_uid-app_0" in docker_machine.tool("docker", "ps").out
    assert docker_machine.tool("docker", "stop", container.id[:12]).code == 0
    assert docker_machine.tool("docker", "ps", "-q").out == ""


# -- cards and modules


def test_a_container_is_an_instance_folder_and_a_holder_of_the_card(machine: Bench) -> None:
    assert machine.tool("fuser", "/dev/nvidia0").code == 1
    container = run_container(machine, "app", 6)
    folder = machine.host.root / "proc/cgpu_km/0" / container.id[:12]
    assert (folder / "memsize").read_text() == f"{6 << 30}\n"
    assert machine.tool("fuser", "/dev/nvidia0", "/dev/nvidiactl").out == f" {container.pid}\n {container.pid}\n"
    assert machine.tool("lsof", "-t", "/dev/nvidia0").out == f"{container.pid}\n"
    machine.do(lambda: machine.host.runtime.stop(container))
    assert not folder.exists()
    assert machine.tool("lsof", "/dev/nvidia0").code == 1


def test_the_module_can_be_removed_and_loaded_again_from_the_disk(machine: Bench) -> None:
    assert "cgpu_km" in machine.tool("lsmod").out
    assert machine.tool("rmmod", "cgpu_km").code == 0
    assert not (machine.host.root / "proc/cgpu_km").exists()
    assert "not currently loaded" in machine.tool("rmmod", "cgpu_km").err
    assert machine.tool("modprobe", "cgpu_km").code == 0
    assert (machine.host.root / "proc/cgpu_km/version").read_text() == "1.5.13\n"


def test_a_used_module_stays(machine: Bench) -> None:
    run_container(machine, "app")
    assert "in use" in machine.tool("rmmod", "cgpu_km").err
    assert "in use" in machine.tool("modprobe", "-r", "cgpu_km").err
    assert "in use by: cgpu_km" in machine.tool("rmmod", "cgpu_procfs").err
    assert machine.tool("rmmod", "nvidia").code == 1


def test_nvidia_smi_answers_queries(machine: Bench) -> None:
    run_container(machine, "app", 6)
    query = machine.tool(
        "nvidia-smi", "--query-gpu=index,name,memory.total,memory.used", "--format=csv,noheader,nounits"
    )
    assert query.out == "0, Tesla T4, 15109, 6144\n"
    assert machine.tool("nvidia-smi", "--query-gpu=gpu_name", "--format=csv,noheader", "--id=0").out == "Tesla T4\n"
    apps = machine.tool("nvidia-smi", "--query-compute-apps=process_name,used_memory", "--format=csv")
    assert apps.out == "process_name, used_memory\napp, 6144 MiB\n"
    assert machine.tool("nvidia-smi", "-L").out.startswith("GPU 0: Tesla T4 (UUID: GPU-")
    assert machine.tool("nvidia-smi", "--query-gpu=nonsense", "--format=csv").code == 2


def test_a_reset_of_the_card_hangs_while_cgpu_is_loaded(machine: Bench) -> None:
    done = machine.run("timeout", "0.5", "nvidia-smi", "-r")
    assert done.returncode == 124
    machine.tool("rmmod", "cgpu_km")
    assert machine.run("timeout", "5", "nvidia-smi", "-r").returncode == 0


def test_a_machine_without_cards_has_no_tools_for_them(tmp_path: Path) -> None:
    with bench(tmp_path, pool="cpu") as machine:
        assert machine.tool("nvidia-smi", "-L").code == 127
        assert machine.tool("lsmod").out.splitlines() == ["Module                       Size  Used by"]


def test_a_stand_in_that_is_asked_for_what_it_does_not_know_fails_and_says_so(machine: Bench) -> None:
    done = machine.run("journalctl", "-n", "many")
    assert done.returncode == 2
    assert b"doesn't understand" in done.stderr


@pytest.mark.parametrize("command", [["reboot"], ["shutdown", "-r", "now"], ["systemctl", "reboot"]])
def test_every_way_to_restart_restarts(machine: Bench, command: list[str]) -> None:
    before = machine.host.boot_id
    assert machine.tool(*command).code == 0
    await_true(lambda: machine.host.on and machine.host.boot_id != before, "a new boot")
    assert machine.host.cards.version == ""


@pytest.mark.parametrize("command", [["poweroff"], ["shutdown", "-h", "now"], ["halt"]])
def test_every_way_to_power_off_powers_off(machine: Bench, command: list[str]) -> None:
    assert machine.tool(*command).code == 0
    await_true(lambda: not machine.host.on, "it is off")


def test_a_restart_forgets_transient_units_and_starts_the_enabled_ones(machine: Bench) -> None:
    machine.tool("systemd-run", "--unit=x", "sleep", "600")
    machine.tool("systemctl", "stop", "containerd")
    machine.tool("systemctl", "disable", "kubelet")
    before = machine.host.boot_id
    machine.tool("reboot")
    await_true(lambda: machine.host.on and machine.host.boot_id != before, "a new boot")
    states: Any = [machine.tool("systemctl", "is-active", name).out.strip() for name in ("x", "containerd", "kubelet")]
    assert states == ["inactive", "active", "inactive"]
