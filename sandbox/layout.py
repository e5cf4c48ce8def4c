"""Where a sandbox keeps its files: one folder, private to this user, which ``down`` removes as a whole."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sandbox.errors import SandboxError

REPOSITORY = Path(__file__).resolve().parent.parent
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
MARKER = ".ack-sandbox"


def home() -> Path:
    """The folder of all sandboxes: ``$ACK_SANDBOX_HOME``, else ``.sandbox`` in the repository."""
    return Path(os.environ.get("ACK_SANDBOX_HOME") or REPOSITORY / ".sandbox").resolve()


def write_private(path: Path, text: str) -> None:
    """Write a file at once (rename) that only this user can read."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    temporary.replace(path)


@contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a file; yields False at once when somebody else holds it and ``wait`` is off."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        with path.open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            # Its last holder may have removed the file: then this is the lock of nothing, and the next one counts.
            if _is_still(path, stream):
                yield True
                return


def _is_still(path: Path, stream: IO[str]) -> bool:
    try:
        return path.stat().st_ino == os.fstat(stream.fileno()).st_ino
    except FileNotFoundError:
        return False


def _remove_tree(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except PermissionError:
        # Somebody on a node made folders that even their owner can't change.
        for path, below, _ in os.walk(folder):
            for each in (Path(path, name) for name in below):
                if not each.is_symlink():
                    each.chmod(0o700)
        shutil.rmtree(folder)


def _mounts_below(folder: Path) -> list[str]:
    """Mount points in a folder. A machine's are in namespaces of its own; one seen here would lead a removal astray."""
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [point for point in points if point.startswith(f"{folder}/")]


@dataclass(frozen=True)
class Layout:
    """The paths of one sandbox."""

    root: Path

    @classmethod
    def named(cls, name: str) -> Layout:
        if not NAME.fullmatch(name):
            raise SandboxError(
                f"sandbox {name!r}",
                "is not a usable name.",
                "Use up to 40 lower-case letters, digits and hyphens, beginning and ending with a letter or digit.",
                "SBX-NAME",
            )
        return cls(home() / name)

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def subject(self) -> str:
        return f"sandbox {self.name!r}"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    @property
    def cloud(self) -> Path:
        return self.root / "cloud"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def kubeconfigs(self) -> Path:
        return self.root / "kubeconfigs"

    @property
    def info_file(self) -> Path:
        return self.root / "sandbox.json"

    @property
    def audit_log(self) -> Path:
        return self.root / "audit.log"

    @property
    def credentials(self) -> Path:
        return self.root / "credentials"

    @property
    def access_keys(self) -> Path:
        return self.cloud / "access_keys.json"

    @property
    def operation_lock(self) -> Path:
        """Held by ``up`` and ``down``, so that two of them take turns; beside the folder, which comes and goes."""
        return self.root.parent / f".{self.name}.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor as long as it lives, however it ends."""
        return self.run / "supervisor.lock"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def ready_file(self, process: str) -> Path:
        return self.run / f"{process}.ready"

    def exists(self) -> bool:
        return (self.root / MARKER).exists()

    def create(self) -> None:
        """Make the empty folders. Refuses a folder that holds somebody else's files."""
        self.refuse_foreign()
        for folder in (self.root, self.bin, self.run, self.logs, self.pki, self.nodes, self.cloud, self.kubeconfigs):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.root.chmod(0o700)
        (self.root / MARKER).touch()

    def remove(self) -> None:
        """Remove the folder; one that isn't a sandbox's is refused, one that isn't there is fine."""
        self.refuse_foreign()
        if mounted := _mounts_below(self.root):
            raise SandboxError(
                str(self.root),
                f"has file systems mounted in it: {mounted[0]}.",
                "Unmount them, and try again.",
                "SBX-MOUNT",
            )
        if self.root.exists():
            _remove_tree(self.root)

    def refuse_foreign(self) -> None:
        if self.root.exists() and not self.exists() and any(self.root.iterdir()):
            raise SandboxError(
                str(self.root),
                "holds files, and isn't the folder of a sandbox.",
                "Choose another --name, or point ACK_SANDBOX_HOME at an empty folder.",
                "SBX-FOLDER",
            )

    def read(self, path: Path) -> Any:
        """A JSON file of the sandbox, or None when it isn't there."""
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None

    def info(self) -> dict[str, Any]:
        """What ``sandbox.json`` says; an error when the sandbox isn't up."""
        info = self.read(self.info_file)
        if info is None:
            raise SandboxError(
                self.subject, "isn't up.", f"Start it: python -m sandbox up --name {self.name}", "SBX-NOT-UP"
            )
        return dict(info)
