"""How a component was installed: the way in which it must be upgraded depends on it.

Installations by the suite and by the closed App Catalog are Helm releases alike, and no public mark tells them apart:
where the console's answer is not stated by the operator, the answer is ``unknown``.
Source: "Manage the GPU sharing component", step 1 of upgrading it.
"""

from __future__ import annotations

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import helm_release
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import Release

STATED = ("suite", "app_catalog")
_CONSOLE = "In the console: Applications >"
_UPGRADE = {
    "suite": f"{_CONSOLE} Cloud-native AI Suite > Upgrade; or here, with the vendor's chart.",
    "app_catalog": f"{_CONSOLE} Helm > Update; or here, with the vendor's chart. Never uninstall it: "
    "only the suite can install it again.",
    "ack.ai_suite": "Here, with the chart of this collection.",
    "unknown": f"{_CONSOLE} Cloud-native AI Suite: deployed there means suite, else app_catalog; state it in "
    "component_origins.",
    "none": "Install it.",
}


class Origin(msgspec.Struct, frozen=True):
    """``why`` is what the answer rests on; ``upgrade`` is how to go on."""

    origin: str
    why: tuple[str, ...]
    upgrade: str


def origin(release: Release | None, stated: str = "") -> Origin:
    """Where a release came from; ``stated`` is what the operator saw in the console (``suite``, ``app_catalog``)."""
    if release is None or release.latest.status == "uninstalled":
        return _told("none", "there is no such Helm release")
    chart = f"chart {release.chart.name} {release.chart.version}"
    if release.chart.ours:
        return _told("ack.ai_suite", f"the {chart} carries the annotation {helm_release.ORIGIN}")
    seen = f"the {chart} carries no mark of this collection"
    if stated in STATED:
        return _told(stated, seen, "stated by the operator")
    return _told("unknown", seen, "no public mark tells the suite from App Catalog")


def _told(kind: str, *why: str) -> Origin:
    return Origin(kind, why, _UPGRADE[kind])
