"""A Helm release: what its state means and how it is cured, whose chart it came from, which objects it would change.

States and what ends them were tried with Helm 3.21 (case H01): ``helm rollback`` to a revision works in every
``pending-*`` state, also to a first install that was killed; it makes the objects that are missing and deletes none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined

Object = dict[str, Any]
Key = tuple[str, str, str, str]  # group, kind, namespace, name

PENDING = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")
ORIGIN = "ai-suite.ack/origin"
OUR_ORIGIN = "ack.ai_suite"
MASK = "********"


class Revision(msgspec.Struct, frozen=True):
    """One line of ``helm history``."""

    revision: int
    status: str
    updated: datetime
    chart: str = ""
    description: str = ""


class Chart(msgspec.Struct, frozen=True):
    """What a Chart.yaml says, of a chart at hand or of the one that a release came from."""

    name: str
    version: str
    app_version: str = ""
    annotations: dict[str, str] = {}

    @property
    def ours(self) -> bool:
        return self.annotations.get(ORIGIN) == OUR_ORIGIN


class Release(msgspec.Struct, frozen=True):
    """The newest revision of a release, in whatever state it is, and the revisions before it."""

    name: str
    namespace: str
    chart: Chart
    history: tuple[Revision, ...]
    values: dict[str, Any] = {}
    objects: tuple[Object, ...] = ()
    hooks: tuple[Object, ...] = ()

    @property
    def latest(self) -> Revision:
        return self.history[-1]

    @property
    def subject(self) -> str:
        return f"release {self.namespace}/{self.name}"


class Hold(msgspec.Struct, frozen=True):
    """The Lease that a run of ours holds while Helm works; what a killed run leaves of itself."""

    holder: str
    acquired: datetime
    renewed: datetime
    seconds: int

    def covers(self, moment: datetime) -> bool:
        """Whether what began at this moment was begun by the holder: a renewal is due every third of its length."""
        return self.acquired.timestamp() - 1 <= moment.timestamp() <= self.renewed.timestamp() + self.seconds


class Repair(msgspec.Struct, frozen=True):
    """How a stuck release is brought to a state from which it can be upgraded."""

    verb: Literal["roll back", "finish uninstalling"]
    revision: int
    why: str


def repair(release: Release, hold: Hold | None, now: datetime, *, allowed: bool, after: int) -> Repair | None:
    """The cure that a release needs before anything else, or None.

    A run of ours that was killed left a Lease that covers the start of the operation; that Lease is waited for where
    it is taken. Anybody else's operation may still be running, so it is left alone until it is ``after`` seconds old:
    Helm's own limit is five minutes. Raises AckError (HLM-PENDING) when the cure must not be applied (yet).
    """
    latest = release.latest
    if latest.status not in PENDING:
        return None
    cure = _cure(release)
    if cure.verb == "finish uninstalling" and (data := data_of(release)):
        problem = f"it is half uninstalled, and it holds data that would go with it: {joined(data)}."
        by_hand = f"Decide by hand, then: {_command(release, cure)}"
        raise AckError(release.subject, problem, by_hand, "HLM-PENDING")
    age = max(0, int((now - latest.updated).total_seconds()))
    told = f"revision {latest.revision} is {latest.status} since {age} s"
    ours = hold is not None and hold.covers(latest.updated)
    if allowed and (ours or age >= after):
        return Repair(cure.verb, cure.revision, f"{told}: {'a run of ours' if ours else 'a run'} was interrupted")
    if not allowed:
        advice = "Set component_repair.allowed, or"
    else:
        advice = f"Another Helm may still be working. Run again in {after - age} s, lower component_repair.after, or"
    raise AckError(release.subject, f"{told}.", f"{advice} end it by hand: {_command(release, cure)}", "HLM-PENDING")


def _cure(release: Release) -> Repair:
    """Back to the newest revision that was ever deployed; where there is none, to the one that was begun."""
    if release.latest.status == "uninstalling":
        return Repair("finish uninstalling", release.latest.revision, "")
    good = [r.revision for r in release.history if r.status == "deployed"]
    good = good or [r.revision for r in release.history if r.status == "superseded"]
    return Repair("roll back", max(good, default=release.latest.revision), "")


def _command(release: Release, cure: Repair) -> str:
    if cure.verb == "roll back":
        return f"helm rollback {release.name} {cure.revision} --namespace {release.namespace}"
    return f"helm uninstall {release.name} --namespace {release.namespace}"


def data_of(release: Release) -> list[str]:
    """What a release holds that does not come back with it: volume claims, and definitions with all their objects."""
    kinds = ("PersistentVolumeClaim", "CustomResourceDefinition")
    return [title(key(thing, release.namespace)) for thing in release.objects if thing.get("kind") in kinds]


def hooks_of_install_alone(release: Release) -> list[str]:
    """Hooks that an interrupted first install may not have run, and that an upgrade does not run."""
    alone = (hook for hook in release.hooks if _events(hook) and not _events(hook) & _UPGRADE_HOOKS)
    return [title(key(hook, release.namespace)) for hook in alone]


_UPGRADE_HOOKS = {"pre-upgrade", "post-upgrade"}


def _events(hook: Mapping[str, Any]) -> set[str]:
    named = str(((hook.get("metadata") or {}).get("annotations") or {}).get("helm.sh/hook", ""))
    return {event.strip() for event in named.split(",")} & {"pre-install", "post-install", *_UPGRADE_HOOKS}


# --- objects ---


def key(thing: Mapping[str, Any], namespace: str = "") -> Key:
    """What an object is known by. ``namespace`` is the release's, for objects that name none."""
    meta = thing.get("metadata") or {}
    group = str(thing.get("apiVersion", "")).rpartition("/")[0]
    return group, str(thing.get("kind", "")), str(meta.get("namespace") or namespace), str(meta.get("name", ""))


def title(of: Key) -> str:
    _, kind, namespace, name = of
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def owner(live: Mapping[str, Any]) -> str:
    """Who an object says that it belongs to: a Helm release as namespace/name, another manager, or nobody."""
    meta = live.get("metadata") or {}
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    if "meta.helm.sh/release-name" in annotations:
        where = annotations.get("meta.helm.sh/release-namespace", "")
        return f"release {where}/{annotations['meta.helm.sh/release-name']}"
    manager = labels.get("app.kubernetes.io/managed-by")
    return f"a thing managed by {manager}" if manager else "nobody by Helm's marks"


def is_kept(thing: Mapping[str, Any]) -> bool:
    """Whether Helm leaves an object behind when its release no longer has it."""
    annotations = (thing.get("metadata") or {}).get("annotations") or {}
    return annotations.get("helm.sh/resource-policy") == "keep"


_NOISE = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
_NOISY_ANNOTATIONS = ("deprecated.daemonset.template.generation", "kubectl.kubernetes.io/last-applied-configuration",
                      "deployment.kubernetes.io/revision")  # fmt: skip


def stripped(thing: Mapping[str, Any]) -> Object:
    """An object without what the server keeps for itself: two of them compare by meaning."""
    result = {name: part for name, part in thing.items() if name != "status"}
    meta = {name: part for name, part in (thing.get("metadata") or {}).items() if name not in _NOISE}
    notes = {k: v for k, v in (meta.get("annotations") or {}).items() if k not in _NOISY_ANNOTATIONS}
    meta.pop("annotations", None)
    return {**result, "metadata": {**meta, **({"annotations": notes} if notes else {})}}


class Change(msgspec.Struct, frozen=True):
    """One object: as it is, as it would be after the release is applied; None where it does not exist."""

    key: Key
    live: Object | None
    after: Object | None

    @property
    def verb(self) -> str:
        """What would happen: create, change, delete, or nothing."""
        if self.live is None:
            return "create" if self.after is not None else ""
        if self.after is None:
            return "delete"
        return "change" if stripped(self.live) != stripped(self.after) else ""


_SECRET_NAME = re.compile(r"passw|secret|token|credential|access_?key", re.IGNORECASE)


def shown(changes: Iterable[Change]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both sides of the diff: the objects that change, secrets masked."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for change in changes:
        if not change.verb:
            continue
        old = stripped(change.live) if change.live is not None else None
        new = stripped(change.after) if change.after is not None else None
        if old is not None:
            before[title(change.key)] = _masked(old, new)
        if new is not None:
            after[title(change.key)] = _masked(new, None)
    return before, after


def _masked(thing: Object, other: Object | None) -> Object:
    """Secret data never shows; that it changes does (``other`` is the new side, given for the old one)."""
    result = dict(thing)
    if thing.get("kind") == "Secret":
        for part in ("data", "stringData"):
            held, new = thing.get(part), (other or {}).get(part) or {}
            if isinstance(held, Mapping):
                result[part] = {
                    k: MASK + (" (old)" if other is not None and new.get(k) != v else "") for k, v in held.items()
                }
    masked: Object = _without_secret_environment(result)
    return masked


def _without_secret_environment(part: Any) -> Any:
    if isinstance(part, Mapping):
        if "value" in part and _SECRET_NAME.search(str(part.get("name", ""))):
            return {**part, "value": MASK}
        return {name: _without_secret_environment(below) for name, below in part.items()}
    if isinstance(part, list):
        return [_without_secret_environment(below) for below in part]
    return part


def same_objects(one: Sequence[Object], other: Sequence[Object]) -> bool:
    """Whether two manifests say the same, in whatever order."""
    return {key(o): o for o in one} == {key(o): o for o in other}
