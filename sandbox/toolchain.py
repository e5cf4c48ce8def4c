"""The sandbox's binaries: built once from ``tools/go.mod``, kept outside the work tree, keyed by their sources."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox import golang
from sandbox.build import Build
from sandbox.errors import SandboxError
from sandbox.layout import locked
from sandbox.progress import Progress, clock

TOOLS = Path(__file__).resolve().parent / "tools"
BINARIES: Mapping[str, str] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kubelet": "./kubelet",
    "helm": "helm.sh/helm/v3/cmd/helm",
}


@dataclass(frozen=True)
class Sources:
    """What ``tools/go.mod`` says: the one place where versions stand."""

    text: str
    checksums: str
    own: str = ""

    @classmethod
    def read(cls) -> Sources:
        own = "\0".join(path.read_text() for path in sorted(TOOLS.glob("*/*.go")))
        return cls((TOOLS / "go.mod").read_text(), (TOOLS / "go.sum").read_text(), own)

    def version(self, module: str) -> str:
        """The required version of a module, such as ``v1.36.1``."""
        found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", self.text, re.MULTILINE)
        if found is None:
            raise KeyError(module)
        return found[1]

    @property
    def go(self) -> golang.Version:
        """The oldest Go that may build this."""
        major, minor, patch = re.findall(r"^go (\d+)\.(\d+)\.(\d+)$", self.text, re.MULTILINE)[0]
        return int(major), int(minor), int(patch)

    @property
    def linker_flags(self) -> str:
        """Versions that the programs say of themselves; stripped, since nobody debugs them here."""
        kubernetes, helm = self.version("k8s.io/kubernetes"), self.version("helm.sh/helm/v3")
        major, minor, _ = kubernetes.removeprefix("v").split(".", 2)
        stamps = {
            "k8s.io/component-base/version.gitVersion": kubernetes,
            "k8s.io/component-base/version.gitMajor": major,
            "k8s.io/component-base/version.gitMinor": minor,
            "helm.sh/helm/v3/internal/version.version": helm,
        }
        return "-s -w " + " ".join(f"-X {name}={value}" for name, value in stamps.items())

    def key(self, path: str) -> str:
        """Names the cache folder of a program: a readable version, and a hash of all that goes in.

        The programs of others don't depend on the sources of our own, so that a change there builds only those again.
        """
        is_own = path.startswith("./")
        content = "\0".join((self.text, self.checksums, self.linker_flags, self.own if is_own else ""))
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        made_of = "own" if is_own else f"kubernetes-{self.version('k8s.io/kubernetes')}"
        return f"{made_of}-{platform.machine()}-{digest}"


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/ack-ai-suite``, by default below ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ack-ai-suite"


def ensure(progress: Progress) -> dict[str, Path]:
    """Every binary's path; what neither ``KUBEBUILDER_ASSETS`` nor the cache has is built first."""
    sources, given = Sources.read(), _given()
    cached = {name: cache_root() / sources.key(path) / name for name, path in BINARIES.items() if name not in given}
    if _missing(cached):
        _build(sources, cached, progress)
    return {name: given.get(name) or cached[name] for name in BINARIES}


def _given() -> dict[str, Path]:
    """The binaries in ``KUBEBUILDER_ASSETS``, the folder that the Kubernetes test tools know."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return {}
    folder = Path(assets).absolute()
    if not folder.is_dir():
        raise SandboxError(
            "KUBEBUILDER_ASSETS", f"names no folder: {folder}.", "Correct it, or unset it to build all.", "SBX-ASSETS"
        )
    return {name: folder / name for name in BINARIES if os.access(folder / name, os.X_OK)}


def _missing(cached: Mapping[str, Path]) -> dict[Path, str]:
    """What isn't there yet: its place, and the import path that it is built from."""
    return {place: BINARIES[name] for name, place in cached.items() if not place.exists()}


def _build(sources: Sources, cached: Mapping[str, Path], progress: Progress) -> None:
    while True:
        with locked(cache_root() / "build.lock", wait=False) as mine:
            if mine:
                # Somebody may have built them while this one waited.
                if missing := _missing(cached):
                    go = golang.ensure(sources.go, cache_root(), progress)
                    Build(go, TOOLS, cache_root() / "build.log", sources.linker_flags, progress).run(missing)
                return
        progress.update(f"another build of these binaries is running: waiting for it, {clock(progress.elapsed)} so far")
        time.sleep(0.5)
