"""Builds Go programs one after another, and says how far it is.

The size of a package's sources stands for its work: good enough to say honestly what is left. What Go's own build cache
has already is no work, so a build that was interrupted continues.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sandbox import golang
from sandbox.errors import SandboxError
from sandbox.processes import die_with
from sandbox.progress import Progress, about, clock

# Seconds of one core, as measured on x86-64 at 2 to 3 GHz: 22 minutes for all 108 MB of source and eight programs.
SECONDS_PER_MEGABYTE, SECONDS_PER_LINK = 11.9, 4.0
# Our own speed counts only after this share of the work and this many seconds; before, the measured one does.
TRUSTED_SHARE, TRUSTED_SECONDS = 0.05, 30.0
_LIST = '{{.ImportPath}}\t{{.Stale}}\t{{.StaleReason}}\t{{.Dir}}\t{{join .GoFiles "\t"}}'
_IN_CACHE = "not installed but available"


class Workload:
    """What has to be done, in expected seconds of one core. ``packages``: bytes of source, and whether it is stale."""

    def __init__(self, packages: Mapping[str, tuple[int, bool]], programs: int) -> None:
        self.left = {path: size / 1e6 * SECONDS_PER_MEGABYTE for path, (size, stale) in packages.items() if stale}
        self.total_packages = len(self.left)
        self.links = programs
        self.total = self._remaining()

    def _remaining(self) -> float:
        return sum(self.left.values()) + self.links * SECONDS_PER_LINK

    def compiled(self, package: str) -> None:
        self.left.pop(package, None)

    def linked(self) -> None:
        self.links -= 1

    @property
    def packages(self) -> str:
        """How many of them are compiled, for a line of progress."""
        done = self.total_packages - len(self.left)
        return f"{done} of {self.total_packages} packages" if self.left else "linking"

    @property
    def share(self) -> float:
        """Done of the work, 0 to 1."""
        return 1 - self._remaining() / self.total if self.total else 1.0

    def seconds_left(self, elapsed: float, cores: int) -> float:
        """By the speed so far; at the beginning by what was measured, with all cores idle."""
        if self.share >= TRUSTED_SHARE and elapsed >= TRUSTED_SECONDS:
            return elapsed * (1 - self.share) / self.share
        return self._remaining() / cores


class Build:
    """One run of the compiler over several programs; the finished ones stay whatever happens later."""

    def __init__(self, go: str, module: Path, log: Path, linker_flags: str, progress: Progress) -> None:
        self.go = go
        self.module = module
        self.log = log
        self.flags = ["-trimpath", "-buildvcs=false", f"-ldflags={linker_flags}"]
        self.progress = progress

    def run(self, programs: Mapping[Path, str]) -> None:
        """Build each program (where it belongs, and its import path), one after another."""
        self.log.write_text("")
        self.progress.say(
            f"building {', '.join(place.name for place in programs)} with {self.go} into {self.log.parent}; "
            "this happens once, and goes on where it stopped when it is interrupted"
        )
        work = Workload(self._packages(list(programs.values())), len(programs))
        began = self.progress.elapsed
        cores = os.cpu_count() or 1
        self.progress.say(
            f"{work.total_packages} packages to compile: {about(work.seconds_left(0, cores))} on {cores} idle cores"
        )
        for number, (place, path) in enumerate(programs.items(), 1):
            which = f"{place.name} ({number} of {len(programs)})"
            place.parent.mkdir(parents=True, exist_ok=True)
            part = place.with_name(f".{place.name}.part")
            for line in self._go(["build", "-v", *self.flags, "-o", str(part), path]):
                work.compiled(line)
                elapsed = self.progress.elapsed - began
                self.progress.update(
                    f"{which}: {work.packages}, {work.share:.0%} of the work, "
                    f"{clock(elapsed)} so far, {about(work.seconds_left(elapsed, cores))} left"
                )
            part.replace(place)
            work.linked()
            self.progress.say(f"built {which}, {clock(self.progress.elapsed - began)} so far")

    def _packages(self, paths: Sequence[str]) -> dict[str, tuple[int, bool]]:
        """Every package behind the programs: bytes of source, and whether it has to be compiled."""
        modules = 0
        packages = {}
        for line in self._go(["list", "-deps", *self.flags, "-f", _LIST, *paths]):
            if line.startswith("go: downloading"):
                modules += 1
            elif line.count("\t") >= 4:
                path, stale, reason, folder, *files = line.split("\t")
                todo = stale == "true" and not reason.startswith(_IN_CACHE)
                packages[path] = (sum(_size(Path(folder, name)) for name in files), todo)
            self.progress.update(f"fetching the sources: {modules} modules, {clock(self.progress.elapsed)} so far")
        return packages

    def _go(self, arguments: Sequence[str]) -> Iterator[str]:
        """The lines that go prints, as they come, and an empty one in each second in which it is silent."""
        child = subprocess.Popen(
            [self.go, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.module,
            env=golang.environment(),
            start_new_session=True,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 (single-threaded)
        )
        try:
            yield from self._lines(child)
            if child.wait():
                raise self._failure()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def _lines(self, child: subprocess.Popen[bytes]) -> Iterator[str]:
        output = child.stdout.fileno() if child.stdout else -1
        rest = b""
        with selectors.DefaultSelector() as selector, self.log.open("ab") as log:
            selector.register(output, selectors.EVENT_READ)
            while True:
                if not selector.select(timeout=1.0):
                    yield ""
                    continue
                chunk = os.read(output, 65536)
                if not chunk:
                    return
                log.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)

    def _failure(self) -> SandboxError:
        reason = " ".join(self.log.read_text(errors="replace").split())[-400:]
        return SandboxError(
            "build",
            f"failed: {reason}",
            f"Read {self.log}; when the network was the reason, the next start continues here. "
            "Binaries of your own can be given in KUBEBUILDER_ASSETS.",
            "SBX-BUILD",
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
