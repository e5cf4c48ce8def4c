"""Kubernetes objects of any kind: read from what Helm renders, and compared with the live ones by a server dry run."""

from __future__ import annotations

import re
from typing import Any

import yaml

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube, KubeError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import Change, Object, key

MANAGER = "ack.ai_suite"


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _GoLoader(_Loader):
    """YAML as Helm and the API read it (sigs.k8s.io/yaml): no dates, no base 60, ``y`` is true, ``1e3`` is 1000."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


for _tag, _form, _first in (
    ("bool", r"y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON|n|N|no|No|NO|false|False|FALSE|off|Off|OFF", "yYtToOnNfF"),
    ("int", r"[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf)|\.(nan|NaN)", "-+0123456789."),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):  # fmt: skip
    _GoLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_form})\\Z"), list(_first))


def _boolean(loader: Any, node: Any) -> bool:
    return str(loader.construct_scalar(node)).lower() in ("y", "yes", "true", "on")


_GoLoader.add_constructor("tag:yaml.org,2002:bool", _boolean)


def parse(text: str) -> tuple[Object, ...]:
    """The objects of a manifest; empty documents are skipped, a List is taken apart."""
    found: list[Object] = []
    for document in yaml.load_all(text, Loader=_GoLoader):
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List") and "items" in document:
            found += document["items"] or []
        elif document:
            found.append(document)
    return tuple(found)


def one(text: str) -> Object:
    """The only document of a YAML text, such as Chart.yaml."""
    return next(iter(parse(text)), {})


class Objects:
    """Objects of one cluster, whatever their kind. ``namespace`` is for those that name none."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def change(self, wanted: Object) -> Change:
        """The object as it is, and as it would be: nothing is written. Raises KubeError where the API refuses it."""
        path = self._path(wanted)
        live = self._kube.find(path, dict)
        query = {"dryRun": "All", "fieldManager": MANAGER, "force": "true"}
        after = self._kube.patch(path, wanted, "apply", query)
        return Change(key(after), live, after)

    def removal(self, old: Object) -> Change | None:
        """The change that takes away an object, or None where it is gone already or its kind is."""
        live = self.find(old)
        return Change(key(live), live, None) if live is not None else None

    def find(self, thing: Object) -> Object | None:
        try:
            return self._kube.find(self._path(thing), dict)
        except KubeError as problem:
            if problem.status == 404:
                return None
            raise

    def _path(self, thing: Object) -> str:
        version, kind = str(thing.get("apiVersion", "")), str(thing.get("kind", ""))
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        plural, namespaced = self._resource(base, kind)
        _, _, namespace, name = key(thing, self._namespace)
        where = f"/namespaces/{namespace}" if namespaced else ""
        return f"{base}{where}/{plural}/{name}"

    def _resource(self, base: str, kind: str) -> tuple[str, bool]:
        if (base, kind) not in self._resources:
            for found in self._kube.get(base).get("resources") or ():
                if "/" not in found["name"]:
                    self._resources[base, found["kind"]] = (found["name"], bool(found["namespaced"]))
        if (base, kind) not in self._resources:
            raise KubeError(
                f"kind {kind}",
                f"the API has no such kind in {base}.",
                "Install what brings this kind first.",
                "HLM-KIND",
                status=404,
            )
        return self._resources[base, kind]
