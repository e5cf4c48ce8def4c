"""Where namespaces aren't permitted: a node's absolute paths lead to its own tree all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.machines.rewrite import text
from tests.sandbox.machines_bench import Bench, bench


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("cat /proc/cgpu_km/version", "cat /T/proc/cgpu_km/version"),
        ("ls /dev/nvidia* >/dev/null", "ls /T/dev/nvidia* >/dev/null"),
        ("cat </etc/os-release", "cat </T/etc/os-release"),
        ("a=/var/lib/x; echo $a/etc", "a=/T/var/lib/x; echo $a/etc"),
        ("cat ./etc/x etc/y", "cat ./etc/x etc/y"),
        ("cat /proc/self/status /usr/bin/env", "cat /proc/self/status /usr/bin/env"),
        ("/usr/sbin/reboot; /bin/systemctl stop x", "/B/reboot; /B/systemctl stop x"),
        ("#!/bin/bash", "#!/B/bash"),
        ("curl http://host.example.test/etc/x", "curl http://host.example.test/etc/x"),
        ("cat /etcetera /variable", "cat /etcetera /variable"),
    ],
)
def test_only_the_nodes_own_paths_are_rewritten(given: str, wanted: str) -> None:
    assert text(given, "/T", "/B") == wanted


def test_rewriting_twice_is_rewriting_once() -> None:
    once = text("/bin/sh /usr/local/cgpu-installer/uninstall.sh", "/tmp/state/root", "/tmp/state/bin")
    assert once == "/tmp/state/bin/sh /tmp/state/root/usr/local/cgpu-installer/uninstall.sh"
    assert text(once, "/tmp/state/root", "/tmp/state/bin") == once


def test_a_command_reads_the_nodes_file(machine: Bench) -> None:
    assert machine.run("cat", "/proc/cgpu_km/version").stdout == b"1.5.13\n"


def test_a_shell_command_reads_and_writes_the_nodes_files(machine: Bench) -> None:
    done = machine.run("bash", "-c", "cat /proc/cgpu_km/version; echo mine > /var/lib/mine; exit 3")
    assert (done.returncode, done.stdout) == (3, b"1.5.13\n")
    assert (machine.host.root / "var/lib/mine").read_text() == "mine\n"


def test_a_script_on_the_node_is_rewritten_when_it_runs(machine: Bench) -> None:
    done = machine.run("bash", "/usr/local/cgpu-installer/uninstall.sh")
    assert (done.returncode, done.stdout) == (0, b"uninstall cgpu success\n"), done.stderr
    assert machine.host.cards.version == ""
    assert not (machine.host.root / "usr/local/cgpu-installer/modules").exists()


def test_a_script_that_is_started_by_its_own_path_is_rewritten_too(machine: Bench) -> None:
    assert machine.run("/usr/local/cgpu-installer/uninstall.sh").returncode == 0
    assert machine.host.cards.version == ""


def test_programs_by_absolute_path_are_the_stand_ins(machine: Bench) -> None:
    assert machine.run("sh", "-c", "/usr/bin/systemctl is-active kubelet").stdout == b"active\n"


def test_a_unit_runs_and_its_log_is_kept(machine: Bench) -> None:
    script = machine.host.root / "var/lib/job.sh"
    script.write_text("cat /proc/cgpu_km/version; exit 4\n")
    done = machine.run("systemd-run", "--unit=job", "--wait", "bash", "/var/lib/job.sh")
    assert done.returncode == 4
    assert machine.run("journalctl", "-u", "job", "-o", "cat").stdout.splitlines()[1] == b"1.5.13"
