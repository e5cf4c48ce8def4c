"""Up, down, and every way in which a sandbox can end: nothing may be left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.layout import MARKER, REPOSITORY, Layout
from sandbox.processes import environment, marked, sweep
from tests.support import await_true


class Home:
    """The command line against a folder of sandboxes of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"ACK_SANDBOX_HOME": str(folder)}

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sandbox", *arguments],
            cwd=REPOSITORY,
            env=self.environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, status: int = 0, **more: str) -> str:
        """Everything that the command says; it must end with this status, and never with a traceback."""
        process = self.start(*arguments, **more)
        output, errors = process.communicate(timeout=180)
        assert process.returncode == status, output + errors
        assert "Traceback" not in output + errors
        return output + errors

    def layout(self, name: str) -> Layout:
        return Layout(self.folder / name)

    def supervisor(self, name: str) -> int:
        return int(self.layout(name).supervisor_lock.read_text())


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    for folder in home.folder.glob("*") if home.folder.exists() else ():
        if (folder / MARKER).exists():
            home.run("down", "--name", folder.name)


def processes_of(home: Home, name: str) -> list[int]:
    return marked(home.folder / name)


def test_up_status_down_and_nothing_is_left(home: Home) -> None:
    assert "is down" in home.run("status", "--name", "one", status=3)
    first, second = home.start("up", "--name", "one"), home.start("up", "--name", "one")
    assert (first.wait(120), second.wait(120)) == (0, 0), "two at once take turns, and both find it up"
    assert json.loads(home.run("status", "--json", "--name", "one"))["health"] == "up"
    supervisor = home.supervisor("one")
    assert "is up" in home.run("up", "--name", "one")
    assert home.supervisor("one") == supervisor, "one that is up stays as it is"
    home.run("down", "--name", "one")
    assert processes_of(home, "one") == []
    assert list(home.folder.iterdir()) == []
    assert "wasn't up" in home.run("down", "--name", "one")


def test_after_a_kill_of_the_supervisor_nothing_lives_and_up_works_again(home: Home) -> None:
    home.run("up", "--name", "killed")
    state = home.folder / "killed"
    # What an exec leaves behind: no child of the supervisor's, in a session of its own.
    stray = subprocess.Popen(["sleep", "600"], env=environment(state), start_new_session=True)
    os.kill(home.supervisor("killed"), signal.SIGKILL)
    assert stray.wait(20) == -signal.SIGKILL
    await_true(lambda: processes_of(home, "killed") == [], "no process of it lives")
    assert state.exists(), "this is about a folder that a dead sandbox left"
    home.run("status", "--name", "killed", status=3)
    home.run("up", "--name", "killed")
    home.run("status", "--name", "killed")


def test_a_terminated_supervisor_takes_everything_with_it(home: Home) -> None:
    home.run("up", "--name", "ended")
    os.kill(home.supervisor("ended"), signal.SIGTERM)
    await_true(lambda: processes_of(home, "ended") == [], "no process of it lives")
    home.run("status", "--name", "ended", status=3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_cleans_up(home: Home, number: signal.Signals) -> None:
    start = home.start("up", "--name", "cut")
    await_true((home.layout("cut").pki / "ca.crt").exists, "the start is under way")
    start.send_signal(number)
    _, errors = start.communicate(timeout=60)
    assert start.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert processes_of(home, "cut") == []
    assert not (home.folder / "cut").exists()


def test_a_start_that_lost_its_command_goes_on_and_the_next_up_waits_for_it(home: Home) -> None:
    start = home.start("up", "--name", "lost")
    await_true((home.layout("lost").pki / "ca.crt").exists, "the start is under way")
    start.kill()
    start.wait()
    supervisor = home.supervisor("lost")
    home.run("up", "--name", "lost")
    assert home.supervisor("lost") == supervisor


def test_two_sandboxes_run_side_by_side_and_end_alone(home: Home) -> None:
    both = [home.start("up", "--name", name) for name in ("left", "right")]
    assert [each.wait(180) for each in both] == [0, 0]
    left, right = (home.layout(name).info() for name in ("left", "right"))
    assert not set(left["ports"].values()) & set(right["ports"].values())
    assert left["endpoints"]["cs"] != right["endpoints"]["cs"]
    home.run("down", "--name", "left")
    home.run("status", "--name", "right")


def test_a_process_that_dies_is_reported_and_never_restarted_in_silence(home: Home) -> None:
    home.run("up", "--name", "hurt")
    scheduler = next(
        pid
        for pid in processes_of(home, "hurt")
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"/kube-scheduler")
    )
    os.kill(scheduler, signal.SIGKILL)
    health = home.layout("hurt").run / "health.json"
    await_true(lambda: json.loads(health.read_text())["kube-scheduler"] != "running", "the death is written down")
    said = home.run("status", "--name", "hurt", status=1)
    assert re.search(r"kube-scheduler ended with signal SIGKILL, see .*kube-scheduler\.log", said)
    assert "SBX-UNHEALTHY" in home.run("up", "--name", "hurt", status=1)
    found = json.loads(home.run("status", "--json", "--name", "hurt", status=1))
    assert found["health"] == "unhealthy"


def test_a_sandbox_goes_down_with_the_process_that_it_was_started_for(home: Home) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    try:
        home.run("up", "--name", "owned", f"--with-process={owner.pid}")
        home.run("status", "--name", "owned")
    finally:
        owner.kill()
        owner.wait()
    await_true(lambda: processes_of(home, "owned") == [], "no process of it lives")
    assert list(home.folder.iterdir()) == []


def test_a_process_that_does_not_start_is_one_line_with_its_last_words(home: Home, tmp_path: Path) -> None:
    etcd = tmp_path / "etcd"
    etcd.write_text("#!/bin/sh\necho the disk is made of cheese\nexit 7\n")
    etcd.chmod(0o755)
    said = home.run("up", "--name", "bad", status=1, KUBEBUILDER_ASSETS=str(tmp_path))
    (line,) = [line for line in said.splitlines() if "error" in line]
    assert "etcd: ended with exit status 7 while it started: the disk is made of cheese" in line
    assert str(home.layout("bad").log("etcd")) in line
    assert "[SBX-START]" in line
    assert processes_of(home, "bad") == []
    assert "cheese" in home.run("logs", "--name", "bad", "etcd"), "the logs stay for whoever looks for the reason"
    home.run("status", "--name", "bad", status=3)


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_folder_with_somebody_elses_files_is_neither_used_nor_removed(home: Home, command: str) -> None:
    (home.folder / "photos").mkdir(parents=True)
    (home.folder / "photos" / "cat.jpg").touch()
    assert "SBX-FOLDER" in home.run(command, "--name", "photos", status=1)
    assert (home.folder / "photos" / "cat.jpg").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "A", "a" * 41])
def test_a_name_that_is_no_plain_folder_name_is_refused(home: Home, name: str) -> None:
    assert "SBX-NAME" in home.run("down", f"--name={name}", status=1)


@pytest.mark.parametrize("command", [["env"], ["user", "alice"], ["logs"]])
def test_what_needs_a_running_sandbox_says_how_to_start_one(home: Home, command: list[str]) -> None:
    said = home.run(*command, "--name", "absent", status=1)
    assert len(said.splitlines()) == 1
    assert re.search(r"\[SBX-(NOT-UP|LOG)\]$", said.strip())


def test_a_home_that_can_not_be_a_folder_is_one_line(home: Home, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = home.run("up", status=1, ACK_SANDBOX_HOME=str(tmp_path / "file" / "home"))
    assert "SBX-SYSTEM" in said
    assert len(said.splitlines()) == 1


def test_a_sweep_spares_who_it_is_told_to_and_the_processes_of_others(tmp_path: Path) -> None:
    mine, spared = (subprocess.Popen(["sleep", "600"], env=environment(tmp_path)) for _ in range(2))
    other = subprocess.Popen(["sleep", "600"], env=environment(tmp_path / "other"))
    try:
        await_true(lambda: {mine.pid, spared.pid} == set(marked(tmp_path)), "both are marked")
        sweep(tmp_path, spare=[spared.pid])
        assert mine.wait(10) == -signal.SIGKILL
        assert (spared.poll(), other.poll()) == (None, None)
    finally:
        for each in (mine, spared, other):
            each.kill()
            each.wait()
