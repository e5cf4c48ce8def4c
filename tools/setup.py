"""Set up a clone: virtual environment with locked dependencies, and the collection kubernetes.core.

Needs Python 3.11 or newer and nothing else. Safe to run again: what is in place already is left alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
COLLECTIONS = ROOT / ".ansible" / "collections" / "ansible_collections"
GALAXY_PATIENCE = 20  # seconds; where Galaxy is out of reach its client may wait for minutes


def say(text: str) -> None:
    print(f"set-up: {text}", flush=True)


def command(*argv: str | Path, timeout: float | None = None, quiet: bool = False) -> bool:
    # The byte code of the clients is worth 2 s at each start of a module: it is always compiled.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment.update(ANSIBLE_HOME=str(ROOT / ".ansible"), ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))
    try:
        done = subprocess.run(
            [str(part) for part in argv],
            env=environment,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=quiet,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode and quiet and timeout is None:
        sys.stderr.write(done.stdout + done.stderr)
    return done.returncode == 0


def stop(problem: str, cure: str) -> None:
    sys.exit(f"set-up: {problem} {cure}")


def locked(name: str) -> str:
    """The lines of the lock that pin one package with its hashes."""
    found = re.search(
        rf"^{re.escape(name)}==[^\n]*(?:\\\n[^\n]*)*\n(?:    --hash[^\n]*\n)*", LOCK.read_text(), re.MULTILINE
    )
    if found is None:
        stop(f"{LOCK.name} does not pin {name}.", "Run: make lock")
        raise AssertionError
    return found[0]


def environment() -> None:
    stamp = VENV / ".locked"
    wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted and PYTHON.exists():
        return
    started = time.monotonic()
    say(f"virtual environment in .venv, Python {sys.version.split()[0]}; about a minute the first time")
    if VENV.exists() and not stamp.exists():
        shutil.rmtree(VENV)  # an interrupted set-up: nothing in it can be trusted
    if not command(sys.executable, "-m", "venv", VENV, quiet=True):
        stop("Python cannot make a virtual environment.", "On Debian and Ubuntu: apt-get install python3-venv")
    stamp.write_text("incomplete")
    with tempfile.TemporaryDirectory() as scratch:
        only_uv = Path(scratch) / "uv.lock"
        only_uv.write_text(locked("uv"))
        if not command(
            PYTHON,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "--requirement",
            only_uv,
        ):
            stop("the installer uv could not be fetched.", "Check that this machine reaches a Python package index.")
    if not command(
        VENV / "bin" / "uv",
        "pip",
        "sync",
        "--quiet",
        "--require-hashes",
        "--compile-bytecode",
        "--python",
        PYTHON,
        LOCK,
    ):
        stop("the locked dependencies could not be installed.", "See the message above; then run the command again.")
    stamp.write_text(wanted)
    say(f"dependencies are installed ({time.monotonic() - started:.0f} s)")


def kubernetes_core() -> None:
    if (COLLECTIONS / "kubernetes" / "core" / "MANIFEST.json").is_file():
        return
    galaxy = VENV / "bin" / "ansible-galaxy"
    if command(
        galaxy,
        "collection",
        "install",
        "--requirements-file",
        ROOT / "requirements.yml",
        "--collections-path",
        COLLECTIONS.parent,
        timeout=GALAXY_PATIENCE,
        quiet=True,
    ):
        say("kubernetes.core comes from Galaxy (requirements.yml)")
        return
    with tempfile.TemporaryDirectory(dir=ROOT / ".ansible") as scratch:
        if not command(
            PYTHON,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--ignore-requires-python",
            "--only-binary",
            ":all:",
            "--require-hashes",
            "--dest",
            scratch,
            "--requirement",
            ROOT / "requirements.collections.lock",
        ):
            stop(
                "kubernetes.core is neither on Galaxy nor in a package index that this machine reaches.",
                "Unpack kubernetes.core >= 6.6.0 into .ansible/collections/ansible_collections/kubernetes/core",
            )
        wheel = next(Path(scratch).glob("ansible-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(
                scratch, [n for n in archive.namelist() if n.startswith("ansible_collections/kubernetes/core/")]
            )
        (COLLECTIONS / "kubernetes").mkdir(exist_ok=True)
        (Path(scratch) / "ansible_collections" / "kubernetes" / "core").rename(COLLECTIONS / "kubernetes" / "core")
    say("kubernetes.core comes from the Python package ansible (Galaxy is out of reach)")


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is what a newcomer's Python meets first
        stop(
            f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}.",
            "Use: make PYTHON=/path/to/python3.11 ...",
        )
    environment()
    kubernetes_core()
