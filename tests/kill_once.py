"""Run site.yml against the sandbox of ACK_SANDBOX until Helm is at work; then kill it with all that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support import ROOT, await_true

SLICE = 0.03  # seconds


def descendants(root: int) -> list[int]:
    """A process and all that it started, children in sessions of their own too."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue  # it ended meanwhile
    found = [root]
    for process in found:
        found.extend(child for child, parent in parents.items() if parent == process)
    return found


def kill_all(root: int) -> None:
    """SIGKILL to a process and all that it started."""
    for process in descendants(root):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def release_state(info: dict[str, str]) -> str:
    """Helm's word for the release, in whatever state it is; empty where there is none."""
    command = [f"{info['bin']}/helm", f"--kubeconfig={info['kubeconfig']}", "list", "--namespace=kube-system", "--all"]
    found = subprocess.run([*command, "--output=json"], capture_output=True, text=True, check=True).stdout
    return next((each["status"] for each in json.loads(found) if each["name"] == "ack-ai-installer"), "")


def helm_at_work(root: int) -> int | None:
    """The helm below a run that installs or upgrades, if there is one now."""
    for process in descendants(root):
        try:
            words = (Path("/proc") / str(process) / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it ended meanwhile
        if Path(words[0]).name == "helm" and {"install", "upgrade"} & set(words):
            return process
    return None


def kill_while_helm_works(command: list[str], environment: dict[str, str], info: dict[str, str]) -> None:
    """Raises AssertionError when the run ended before it could be killed.

    Helm is let run in slices that are shorter than its pending state lasts, so that the moment cannot be missed.
    """
    victim = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )

    def pending() -> bool:
        if victim.poll() is not None:
            raise AssertionError("the run ended before it could be killed")
        helm = helm_at_work(victim.pid)
        if helm is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(helm, signal.SIGSTOP)
            if release_state(info).startswith("pending"):
                return True
            os.kill(helm, signal.SIGCONT)
        return False

    await_true(pending, "helm is at work", pause=SLICE)
    kill_all(victim.pid)
    victim.wait(timeout=30)


if __name__ == "__main__":
    name = os.environ["ACK_SANDBOX"]
    home = os.environ.get("ACK_SANDBOX_HOME") or ROOT / ".sandbox"
    kill_while_helm_works(
        [str(Path(sys.executable).parent / "ansible-playbook"), "playbooks/site.yml"],
        dict(os.environ),
        json.loads((Path(home) / name / "sandbox.json").read_text()),
    )
