"""The ``helm`` binary (3.17 or newer): argument lists, values on standard input, releases in every state.

Why not ``kubernetes.core.helm``: docs/decisions/0004. No secret ever stands in an argument list; the kubeconfig and
the registry's login are files that Helm reads itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock, manifests
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.connection import Connection
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import (
    PENDING,
    Chart,
    Object,
    Release,
    Revision,
)

_READ = 120  # seconds that a command which changes nothing may take
_GRACE = 20  # seconds past Helm's own limit, and then to end after SIGTERM


class Helm:
    """Releases of one cluster. ``close`` removes the charts that were fetched."""

    def __init__(self, connection: Connection, binary: str = "helm") -> None:
        self._binary = binary
        self._where = ["--kubeconfig", connection.kubeconfig] if connection.kubeconfig else []
        self._where += ["--kube-context", connection.context] if connection.context else []
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()

    # --- charts ---

    def fetch(self, chart: str, repository: str = "", version: str = "") -> str:
        """A path of the chart: as given, or of the archive pulled from a repository, a URL or an OCI registry."""
        if not repository and "://" not in chart:
            path = Path(chart).expanduser()
            if path.exists():
                return str(path)
            raise AckError(
                f"chart {chart}", "there is no such file or folder.", "Give the absolute path of a chart.", "HLM-CHART"
            )
        self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="ack-chart-")
        into = tempfile.mkdtemp(dir=self._scratch.name)
        source = ["--repo", repository] if repository else []
        argv = ["pull", chart, *source, *(["--version", version] if version else []), "--destination", into]
        cure = "Check its name, its version and the login to its registry."
        self._read(argv, subject=f"chart {chart}", code="HLM-CHART", cure=cure)
        return str(next(Path(into).iterdir()))

    def chart(self, path: str) -> Chart:
        """What the chart at a path says of itself."""
        told = manifests.one(
            self._read(["show", "chart", path], subject=f"chart {path}", code="HLM-CHART", cure="Give a Helm chart.")
        )
        return _chart(told.get("name"), told.get("version"), told.get("appVersion"), told.get("annotations"))

    # --- reads ---

    def release(self, name: str, namespace: str) -> Release | None:
        """The newest revision of exactly this release, whatever its state; None when there is none."""
        with ThreadPoolExecutor(2) as pool:
            status, metadata = pool.map(
                lambda what: self._about(what, name, namespace), (["status"], ["get", "metadata"])
            )
        if status is None or metadata is None:
            return None
        info = status["info"]
        latest = Revision(int(status["version"]), info["status"], _moment(info["last_deployed"]))
        history = self._history(name, namespace) if latest.status in PENDING else (latest,)
        return Release(
            name,
            namespace,
            _chart(metadata["chart"], metadata["version"], metadata.get("appVersion"), metadata.get("annotations")),
            history,
            status.get("config") or {},
            manifests.parse(status.get("manifest") or ""),
            manifests.parse("\n---\n".join(hook["manifest"] for hook in status.get("hooks") or ())),
        )

    def latest(self, name: str, namespace: str) -> tuple[int, str]:
        """Revision and state of a release: what changes when anybody touches it; (0, "") when there is none."""
        status = self._about(["status"], name, namespace)
        return (int(status["version"]), str(status["info"]["status"])) if status else (0, "")

    def _history(self, name: str, namespace: str) -> tuple[Revision, ...]:
        found = self._about(["history"], name, namespace) or []
        revisions = (
            Revision(r["revision"], r["status"], _moment(r["updated"]), r["chart"], r["description"]) for r in found
        )
        return tuple(sorted(revisions, key=lambda revision: revision.revision))

    def _about(self, what: Sequence[str], name: str, namespace: str) -> Any:
        try:
            return json.loads(
                self._read([*what, name, "--namespace", namespace, "--output", "json", *self._where],
                           subject=f"release {namespace}/{name}", code="HLM-READ", cure="Check the kubeconfig.")
            )  # fmt: skip
        except AckError as problem:
            if "release: not found" in problem.problem:
                return None
            raise

    def render(
        self, name: str, namespace: str, chart: str, values: Mapping[str, Any], *, upgrade: bool
    ) -> tuple[tuple[Object, ...], tuple[Object, ...]]:
        """Objects and hooks as the server would get them: with its look-ups, version and kinds; nothing is written."""
        # Helm's own test for objects of others stops at the first; ours names all of them, with their owners.
        mode = ["--is-upgrade"] if upgrade else ["--take-ownership"]
        text = self._read(
            ["template", name, chart, "--namespace", namespace, "--validate", "--dry-run=server", *mode,
             "--values", "-", *self._where],
            json.dumps(values),
            subject=f"chart {chart}",
            code="HLM-RENDER",
            cure="Mend component values; the chart's README and values.schema.json say what it takes.",
        )  # fmt: skip
        found = manifests.parse(text)
        hooks = tuple(thing for thing in found if _is_hook(thing))
        return tuple(thing for thing in found if not _is_hook(thing)), hooks

    # --- writes: each ends within its timeout (seconds), and calls ``alive`` every few seconds while it works ---

    def upgrade(
        self, name: str, namespace: str, chart: str, values: Mapping[str, Any], *, adopt: bool, timeout: int,
        alive: Callable[[], None],
    ) -> None:  # fmt: skip
        """Install the release or bring it to this chart and exactly these values."""
        options = ["--install", "--reset-values", "--values", "-", *(["--take-ownership"] if adopt else [])]
        self._write(["upgrade", name, chart, *options], f"{namespace}/{name}", json.dumps(values), timeout, alive)

    def rollback(self, name: str, namespace: str, revision: int, *, timeout: int, alive: Callable[[], None]) -> None:
        """Back to a revision, without its hooks: it is followed by an upgrade, which runs them."""
        self._write(["rollback", name, str(revision), "--no-hooks"], f"{namespace}/{name}", "", timeout, alive)

    def uninstall(self, name: str, namespace: str, *, timeout: int, alive: Callable[[], None]) -> None:
        self._write(["uninstall", name], f"{namespace}/{name}", "", timeout, alive)

    def _write(self, argv: list[str], release: str, stdin: str, timeout: int, alive: Callable[[], None]) -> None:
        namespace = release.split("/", maxsplit=1)[0]
        whole = [self._binary, *argv, "--namespace", namespace, "--timeout", f"{timeout}s", *self._where]
        with self._start(whole, subprocess.DEVNULL, _end_with_parent) as process:
            deadline = clock.monotonic() + timeout + _GRACE
            given: str | None = stdin
            while True:
                try:
                    _, told = process.communicate(given, timeout=3)
                    break
                except subprocess.TimeoutExpired:
                    given = None
                try:
                    alive()
                except BaseException:
                    self._stop(process)
                    raise
                if clock.monotonic() > deadline:
                    self._stop(process)
                    problem = f"helm {argv[0]} did not end within {timeout} s and was stopped."
                    raise AckError(f"release {release}", problem, "Run again: what it left is repaired.", "HLM-TIMEOUT")
        if process.returncode:
            raise _failed(f"release {release}", f"helm {argv[0]} failed", told, "HLM-FAILED", "See its message above.")

    @staticmethod
    def _stop(process: subprocess.Popen[str]) -> None:
        """SIGTERM lets Helm note that the operation failed; SIGKILL leaves it pending."""
        process.terminate()
        try:
            process.communicate(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    # --- the process ---

    def _read(self, argv: list[str], stdin: str = "", *, subject: str, code: str, cure: str) -> str:
        with self._start([self._binary, *argv]) as process:
            try:
                text, told = process.communicate(stdin, timeout=_READ)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise AckError(subject, f"helm {argv[0]} did not end within {_READ} s.", cure, "HLM-TIMEOUT") from None
        if process.returncode:
            raise _failed(subject, f"helm {argv[0]} failed", told, code, cure)
        return text

    def _start(
        self, argv: list[str], stdout: int = subprocess.PIPE, preexec_fn: Callable[[], None] | None = None
    ) -> subprocess.Popen[str]:
        # HELM_DEBUG would put values into messages.
        environment = {name: value for name, value in os.environ.items() if name != "HELM_DEBUG"}
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                start_new_session=True,
                preexec_fn=preexec_fn,  # noqa: PLW1509 - only where no other thread runs
            )
        except OSError as problem:
            raise AckError(
                f"helm binary {self._binary}",
                f"it cannot be run: {problem.strerror or problem}.",
                "Install Helm 3.17 or newer, or set component_helm_binary to its path.",
                "HLM-BINARY",
            ) from None


def _end_with_parent() -> None:
    """On Linux, Helm gets SIGTERM when we are killed, and notes the failure instead of running on with nobody watching.

    Its standard output is no pipe of ours: writing into a broken one would end it before that.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _failed(subject: str, what: str, told: str, code: str, cure: str) -> AckError:
    lines = [
        line for line in told.strip().splitlines() if line and "--debug flag" not in line and "WARNING" not in line
    ]
    text = "\n".join(lines).removeprefix("Error: ")[:3000].rstrip(".")
    if "unknown flag" in text:
        return AckError(subject, f"{what}: {text}.", "Use Helm 3.17 or newer.", "HLM-BINARY")
    return AckError(subject, f"{what}: {text or 'no reason given'}.", cure, code)


def _is_hook(thing: Object) -> bool:
    return "helm.sh/hook" in ((thing.get("metadata") or {}).get("annotations") or {})


def _chart(name: Any, version: Any, app_version: Any, annotations: Any) -> Chart:
    notes = {str(k): str(v) for k, v in (annotations or {}).items()}
    return Chart(str(name or ""), str(version or ""), str(app_version or ""), notes)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
