"""What is done on the host: what the texts say, that a shell takes them, and how their answers are read."""

from __future__ import annotations

import base64
import gzip
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import host_script
from ansible_collections.ack.ai_suite.plugins.module_utils.core.host_script import Probe, Procedure, Status

VARIANTS = [
    Procedure("ai-suite-run-node", runtime, restart, own=own)
    for runtime in ("containerd", "docker") for restart in (True, False) for own in (b"", b"#!/bin/sh\n")
]  # fmt: skip


@pytest.mark.parametrize("procedure", VARIANTS)
@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_shells_take_every_variant(procedure: Procedure, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    for text in (host_script.script(procedure), host_script.start(procedure)[2], host_script.status_command("u")):
        done = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def order(text: str, *parts: str) -> list[int]:
    return [text.index(part) for part in parts]


@pytest.mark.parametrize("procedure", VARIANTS)
def test_the_order_is_kubelet_containers_runtime_proof_uninstall_restart(procedure: Procedure) -> None:
    text = host_script.script(procedure)
    uninstall = '"$folder/uninstall.sh"' if procedure.own else host_script.UNINSTALL
    stop = "crictl stopp" if procedure.runtime == "containerd" else "docker stop"
    steps = ["systemctl stop kubelet", stop, "for unit in $runtime $daemons; do\n  systemctl stop",
             "while held=$(users)", f"bash {uninstall} || give_up", "status uninstalled"]  # fmt: skip
    places = order(text, *steps)
    assert places == sorted(places)
    assert text.endswith("systemctl reboot\n") is procedure.restart
    assert ("docker.socket" in text) is (procedure.runtime == "docker")


def test_the_start_puts_the_script_on_the_host_and_finds_a_first_start() -> None:
    procedure = Procedure("ai-suite-run-node", "containerd", False, own=b"own script")
    text = host_script.start(procedure)[2]
    packed = re.findall(r"printf %s (\S+) \|", text)
    assert [gzip.decompress(base64.b64decode(each)) for each in packed] == [
        host_script.script(procedure).encode(), b"own script",
    ]  # fmt: skip
    assert text.startswith("[ -d /var/lib/ai-suite/ai-suite-run-node/started ] && exit 0")
    assert "systemd-run --unit=ai-suite-run-node" in text


def test_the_command_fits_into_the_address_of_a_request() -> None:
    assert len(host_script.start(VARIANTS[0])[2]) < 4096


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("version=1.5.13\nuninstall=yes\nsystemd_run=yes\nboot_id=b\n", Probe("1.5.13", True, True, "b")),
        ("version=\nboot_id=b\n", Probe("", False, False, "b")),
        ("", Probe()),
    ],
)
def test_the_answer_of_the_probe(output: str, expected: Probe) -> None:
    assert host_script.read_probe(output) == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("boot_id=b\n", Status("absent", "", "b")),
        ("boot_id=b\nalive=yes\n", Status("started", "", "b")),
        ("boot_id=b\nalive=yes\nphase=started\n", Status("started", "", "b")),
        ("boot_id=b\nalive=yes\nphase=started\nphase=stopping\ntext=kubelet\n", Status("stopping", "kubelet", "b")),
        ("phase=started\nphase=refused\ntext=still on the GPU: a=b\n", Status("refused", "still on the GPU: a=b")),
        ("boot_id=b\nphase=started\n", Status("died", "while started", "b")),
        ("boot_id=b\nphase=started\nphase=uninstalling\ntext=\n", Status("died", "while uninstalling", "b")),
        ("phase=started\nphase=uninstalled\ntext=\n", Status("uninstalled")),
    ],
)
def test_the_answer_about_the_unit(output: str, expected: Status) -> None:
    assert host_script.read_status(output) == expected


def within(procedure: Procedure, **seconds: float) -> Procedure:
    changes: dict[str, Any] = {name: timedelta(seconds=value) for name, value in seconds.items()}
    return msgspec.structs.replace(procedure, **changes)


# --- the script itself, on a host of stand-ins ---

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >>"$HOST/calls"
case "$(basename "$0") $*" in
  "systemctl is-active --quiet nvidia-persistenced") exit 0 ;;
  "systemctl is-active"*) exit 3 ;;
  "crictl pods -q") printf 'p1\\np2\\n' ;;
  "docker ps -q") printf 'c1\\n' ;;
  "fuser"*) cat "$HOST/holders" 2>/dev/null ;;
esac
[ ! -e "$HOST/fails" ] || ! grep -qxF "$(basename "$0") $*" "$HOST/fails"
"""


class Computer:
    """A folder that plays the host: paths are moved into it, programs are stand-ins that note how they are called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        programs = root / "bin"
        programs.mkdir(parents=True)
        for name in ("systemctl", "crictl", "docker", "fuser", "sync", "sleep"):
            (programs / name).write_text(STAND_IN)
            (programs / name).chmod(0o755)
        self.uninstall = root / "usr/local/cgpu-installer/uninstall.sh"
        self.uninstall.parent.mkdir(parents=True)
        self.uninstall.write_text('echo "uninstall" >>"$HOST/calls"\n')
        (root / "proc/cgpu_km/0").mkdir(parents=True)

    def run(self, procedure: Procedure) -> Status:
        folder = self.root / f"var/lib/ai-suite/{procedure.unit}"
        folder.mkdir(parents=True, exist_ok=True)
        text = host_script.script(procedure)
        for path in ("/var/lib/ai-suite", "/usr/local/cgpu-installer", "/proc/cgpu_km"):
            text = text.replace(path, f"{self.root}{path}")
        environment = {"PATH": f"{self.root}/bin:/usr/bin:/bin", "HOST": str(self.root)}
        subprocess.run(["sh", "-c", text], env=environment, check=False, timeout=30)
        return host_script.read_status((folder / "status").read_text())  # its last, since the script has ended

    @property
    def calls(self) -> list[str]:
        seen = (self.root / "calls").read_text().splitlines() if (self.root / "calls").exists() else []
        return [call for call in seen if not call.startswith(("sync", "systemctl is-active", "fuser", "sleep"))]


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


CONTAINERD = Procedure("u", "containerd", False)
STOPPED = ["systemctl stop kubelet", "crictl pods -q", "crictl stopp p1", "crictl stopp p2",
           "systemctl stop containerd", "systemctl stop nvidia-persistenced"]  # fmt: skip
GIVEN_BACK = ["systemctl start containerd", "systemctl start nvidia-persistenced", "systemctl start kubelet"]


def in_order(calls: list[str]) -> list[str]:
    """Containers are stopped side by side."""
    return [*calls[:2], *sorted(calls[2:4]), *calls[4:]]


def test_a_host_is_stopped_uninstalled_and_left_for_its_restart(computer: Computer) -> None:
    assert computer.run(CONTAINERD).phase == "uninstalled"
    assert in_order(computer.calls) == [*STOPPED, "uninstall"]


def test_a_guest_restarts_itself_at_the_end(computer: Computer) -> None:
    assert computer.run(Procedure("u", "docker", True)).phase == "uninstalled"
    assert computer.calls == [
        "systemctl stop kubelet", "docker ps -q", "docker stop -t 30 c1", "systemctl stop docker.socket",
        "systemctl stop docker", "systemctl stop nvidia-persistenced", "uninstall", "systemctl reboot",
    ]  # fmt: skip


def test_a_second_start_does_nothing(computer: Computer) -> None:
    computer.run(CONTAINERD)
    before = computer.calls
    assert computer.run(CONTAINERD).phase == "uninstalled"
    assert computer.calls == before


def test_a_container_left_on_the_gpu_is_a_refusal_and_the_host_comes_back(computer: Computer) -> None:
    (computer.root / "proc/cgpu_km/0/instance-1").mkdir()
    found = computer.run(within(CONTAINERD, settle=1))
    assert found.phase == "refused"
    assert "still on the GPU:" in found.text
    assert "instance-1" in found.text
    assert in_order(computer.calls) == [*STOPPED, *GIVEN_BACK]


def test_a_process_that_holds_a_card_is_named(computer: Computer) -> None:
    (computer.root / "holders").write_text("1\n")
    found = computer.run(within(CONTAINERD, settle=1))
    assert found.phase == "refused"
    assert "(1)" in found.text


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        ("systemctl stop kubelet", "kubelet could not be stopped"),
        ("crictl stopp p2", "containers could not be stopped"),
        ("systemctl stop containerd", "containerd could not be stopped"),
    ],
)
def test_whatever_cannot_be_stopped_is_a_refusal(computer: Computer, fails: str, told: str) -> None:
    (computer.root / "fails").write_text(f"{fails}\n")
    found = computer.run(CONTAINERD)
    assert (found.phase, found.text) == ("refused", told)
    assert computer.calls[-3:] == GIVEN_BACK
    assert "uninstall" not in computer.calls


def test_a_failing_uninstall_is_a_failure_and_the_host_comes_back_to_say_so(computer: Computer) -> None:
    computer.uninstall.write_text("exit 7\n")
    found = computer.run(CONTAINERD)
    assert (found.phase, found.text) == ("failed", "the uninstall script ended with exit status 7")
    assert computer.calls[-3:] == GIVEN_BACK


def test_an_uninstall_that_hangs_is_ended(computer: Computer) -> None:
    computer.uninstall.write_text("exec /bin/sleep 60\n")
    assert computer.run(within(CONTAINERD, patience=1)).text == "the uninstall script ended with exit status 124"


def test_the_operators_script_is_the_one_that_runs(computer: Computer) -> None:
    folder = computer.root / "var/lib/ai-suite/u"
    folder.mkdir(parents=True)
    (folder / "uninstall.sh").write_text('echo "own uninstall" >>"$HOST/calls"\n')
    computer.run(Procedure("u", "containerd", False, own=b"x"))
    assert computer.calls[-1] == "own uninstall"
