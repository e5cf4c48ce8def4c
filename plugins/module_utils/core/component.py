"""A component of the cloud-native AI suite: what is asked for, what it would change, and what must be right afterwards.

Sources: "Manage the GPU sharing component" (policy, priority, nodes keep their version), "Upgrade the cGPU version of
a node" (the installers' DaemonSets).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import helm_release, values, versions, workloads
from ansible_collections.ack.ai_suite.plugins.module_utils.core.catalogue import CATALOGUE, Entry
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding, refuse
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import Change, Chart, Hold, Object, Release
from ansible_collections.ack.ai_suite.plugins.module_utils.core.installer import INSTALLERS
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Action, Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Pod

POLICIES = range(6)
ACCEPTED = ("adopt_objects", "large_integers", "removal", "rolling_installers")
CRITICAL = "system-node-critical"


class Component(msgspec.Struct, frozen=True):
    """What the inventory asks for, checked."""

    name: str
    release: str
    namespace: str
    present: bool = True
    chart: str = ""
    repository: str = ""
    version: str = ""
    policy: int | None = None
    policy_path: str = "policy"
    values: dict[str, Any] = {}
    keep_values: bool = True
    accept: frozenset[str] = frozenset()
    timeout: int = 300
    repair_allowed: bool = True
    repair_after: int = 600

    @property
    def subject(self) -> str:
        return f"component {self.name}"

    @property
    def entry(self) -> Entry:
        return CATALOGUE[self.name]


def wanted(given: Mapping[str, Any], repair: Mapping[str, Any]) -> Component:
    """The component that one entry of the inventory describes. Raises AckError that lists everything that is wrong."""
    name = str(given["name"])
    if name not in CATALOGUE:
        known = joined(sorted(CATALOGUE), most=20)
        raise AckError(f"component {name}", "it is not in the catalogue.", f"Known components: {known}.", "CMP-NAME")
    accept = frozenset(given.get("accept") or ())
    asked = dict(given.get("values") or {})
    path = given.get("policy_path") or "policy"
    policy, findings = _policy(given.get("policy"), values.at(asked, path), path)
    findings += _version(given.get("version"))
    findings += values.check(asked, large_integers="warning" if "large_integers" in accept else "error")
    refuse(f"component {name}", findings, findings[0].code if len(findings) == 1 else "CMP-INPUT")
    component = Component(
        name=name,
        release=given.get("release") or name,
        namespace=given.get("namespace") or CATALOGUE[name].namespace,
        present=given.get("state") != "absent",
        chart=given.get("chart") or "",
        repository=given.get("repository") or "",
        version=given.get("version") or "",
        policy=policy,
        policy_path=path,
        values=asked,
        keep_values=given.get("values_mode") != "exact",
        accept=accept,
        timeout=given.get("timeout") or 300,
        repair_allowed=bool(repair.get("allowed", True)),
        repair_after=int(repair.get("after", 600)),
    )
    if component.present and not component.chart:
        raise _no_chart(component)
    return component


def _no_chart(component: Component) -> AckError:
    steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(component.entry.console, 1))
    return AckError(
        component.subject,
        "no chart is given, and the vendor's is not published where this collection could take it from.",
        f"Set its chart to the vendor's (path, archive, URL, OCI reference, or name and repository), or install it in "
        f"the console:\n{steps}\n",
        "CMP-NO-CHART",
    )


def _version(given: Any) -> tuple[Finding, ...]:
    if given is None or given == "" or (isinstance(given, str) and versions.parse(given) is not None):
        return ()
    found = f"{given} ({type(given).__name__})"
    if isinstance(given, str):
        return (Finding("CMP-VERSION-FORM", "version", found, "a version such as 1.12.6", "Mend it."),)
    cure = "Quote it: YAML has read an unquoted 1.20 as 1.2."
    return (Finding("CMP-VERSION-TYPE", "version", found, "a quoted string", cure),)


def _policy(option: Any, in_values: Any, path: str) -> tuple[int | None, tuple[Finding, ...]]:
    """The policy that is asked for by the option or among the values: None where neither says anything."""
    asked = {where: given for where, given in (("policy", option), (f"values.{path}", in_values)) if given is not None}
    source = "Manage the GPU sharing component"
    found = tuple(
        Finding("CMP-POLICY", where, f"{given} ({type(given).__name__})", "a whole number from 0 to 5",
                "5 is native scheduling, the default; unset keeps what runs.", source=source)
        for where, given in asked.items()
        if isinstance(given, bool) or not isinstance(given, int) or given not in POLICIES
    )  # fmt: skip
    if not found and len(set(asked.values())) > 1:
        told = " and ".join(f"{where} {given}" for where, given in asked.items())
        found = (Finding("CMP-POLICY", "policy", told, "one policy", "Set one of them.", source=source),)
    return (None if found else next(iter(asked.values()), None)), found


# --- what is to be done ---


class Observed(msgspec.Struct, frozen=True):
    """Everything that a decision about one component needs."""

    release: Release | None
    chart: Chart | None = None
    values: dict[str, Any] = {}
    policy: int | None = None
    objects: tuple[Object, ...] = ()
    hooks: tuple[Object, ...] = ()
    changes: tuple[Change, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()  # object, what the API said
    undefaulted: tuple[DaemonSet, ...] = ()  # the DaemonSets as rendered
    pods: tuple[Pod, ...] = ()
    hold: Hold | None = None


def decide(component: Component, seen: Observed, now: datetime) -> Plan:
    """What to do about one component. Raises AckError for what must not be done."""
    return _decide_present(component, seen, now) if component.present else _decide_absent(component, seen, now)


def _decide_absent(component: Component, seen: Observed, now: datetime) -> Plan:
    release = seen.release
    if release is None or release.latest.status == "uninstalled":
        return Plan(facts={"component": component.name, "state": "absent"})
    helm_release.repair(release, seen.hold, now, allowed=component.repair_allowed, after=component.repair_after)
    data = helm_release.data_of(release)
    if "removal" not in component.accept and (data or not release.chart.ours):
        problem = (
            f"it came from the chart {release.chart.name} {release.chart.version}, which is not this collection's; "
            "what was installed from App Catalog can be installed again through the suite only."
        )
        problem = f"data would go with it: {joined(data)}." if data else problem
        raise AckError(release.subject, problem, "To remove it all the same, put removal into accept.", "CMP-REMOVAL")
    before, after = helm_release.shown(seen.changes)
    action = Action("uninstall", release.subject, {"step": "uninstall"})
    return Plan((action,), (), before, after, {"component": component.name, "state": "absent"})


def _decide_present(component: Component, seen: Observed, now: datetime) -> Plan:
    release = seen.release
    chart = seen.chart
    if chart is None:
        raise ValueError("a component that is to be present is observed with its chart")
    check_chart(component, chart, release)
    cure = None
    if release is not None:
        after = component.repair_after
        cure = helm_release.repair(release, seen.hold, now, allowed=component.repair_allowed, after=after)
    findings = (*_objects_of_others(component, release, seen.changes), *_refusals(seen.refused),
                *_installers(component, release, seen), *_downgrade(chart, release), *_hooks(release))  # fmt: skip
    refuse(component.subject, findings, findings[0].code if len(findings) == 1 else "CMP-REFUSED")
    actions: list[Action] = []
    if cure is not None and release is not None:
        body = {"step": cure.verb, "revision": cure.revision}
        target = release.subject + (f" to revision {cure.revision}" if cure.verb == "roll back" else "")
        actions.append(Action(cure.verb, f"{target} ({cure.why})", body))
    why = "" if release is None else _reasons(chart, release, seen)
    if release is None or release.latest.status == "uninstalled":
        actions.append(Action("install", f"{component.subject} {chart.version}", {"step": "upgrade"}))
    elif why or cure is not None:
        actions.append(Action("upgrade", f"{component.subject} to {chart.version} ({why or 'repaired'})",
                              {"step": "upgrade"}))  # fmt: skip
    actions += _patches(component, seen)
    before, shown = helm_release.shown(seen.changes)
    facts = {"component": component.name, "state": "present", "version": chart.version}
    return Plan(tuple(actions), findings, before, shown, facts)


def check_chart(component: Component, chart: Chart, release: Release | None) -> None:
    """Raise AckError unless the chart is the one that is asked for, and may be laid over the release."""
    if component.version and versions.parse(component.version) != versions.parse(chart.version):
        raise AckError(
            component.subject,
            f"version {component.version} is asked for, but the chart {component.chart} is {chart.version}.",
            "Give the chart of that version, or mend version.",
            "CMP-VERSION",
        )
    if chart.name != component.name:
        raise AckError(
            component.subject,
            f"{component.chart} holds the chart {chart.name}.",
            f"Give the chart {component.name}.",
            "CMP-CHART-NAME",
        )
    if release is None:
        return
    if release.chart.name != chart.name or (chart.ours and not release.chart.ours):
        raise AckError(
            release.subject,
            f"it came from another chart ({release.chart.name} {release.chart.version}) than {component.chart}.",
            "Set chart to the one that it came from; this collection's stand-in never replaces it.",
            "CMP-FOREIGN",
        )


def _reasons(chart: Chart, release: Release, seen: Observed) -> str:
    """Why a release must be upgraded, for people; "" when there is no reason."""
    verbs = [change.verb for change in seen.changes if change.verb]
    told = {
        f"it is {release.latest.status}": release.latest.status not in ("deployed", *helm_release.PENDING),
        f"from {release.chart.version}": release.chart.version != chart.version,
        "values": release.values != seen.values,
        "objects": bool(verbs) or not helm_release.same_objects(release.objects, seen.objects),
        "hooks": not helm_release.same_objects(release.hooks, seen.hooks),
    }
    return ", ".join(reason for reason, holds in told.items() if holds)


def _objects_of_others(component: Component, release: Release | None, changes: Sequence[Change]) -> tuple[Finding, ...]:
    """Objects that exist already and that Helm would refuse to touch."""
    if "adopt_objects" in component.accept:
        return ()
    name = f"release {component.namespace}/{component.release}"
    # The release's manifest may leave the namespace out; a cluster's own object has none.
    held = {
        helm_release.key(thing, namespace)
        for thing in (release.objects if release else ())
        for namespace in ("", component.namespace)
    }
    return tuple(
        Finding("HLM-OWNED", helm_release.title(change.key), f"belongs to {helm_release.owner(change.live)}",
                f"does not exist yet, or belongs to {name}",
                "Remove it, or put adopt_objects into accept.")
        for change in changes
        if change.live is not None and change.key not in held and helm_release.owner(change.live) != name
    )  # fmt: skip


def _refusals(refused: Iterable[tuple[str, str]]) -> tuple[Finding, ...]:
    return tuple(
        Finding("HLM-REFUSED", thing, said.rstrip("."), "an object that the API accepts", "Mend the chart's values.")
        for thing, said in refused
    )


def _downgrade(chart: Chart, release: Release | None) -> tuple[Finding, ...]:
    have = versions.parse(release.chart.version) if release else None
    want = versions.parse(chart.version)
    if release is None or have is None or want is None or want >= have:
        return ()
    return (Finding("CMP-DOWNGRADE", release.subject, release.chart.version, f"at most {chart.version}",
                    "The chart is older than the release: make sure that this is meant.", "warning"),)  # fmt: skip


def _hooks(release: Release | None) -> tuple[Finding, ...]:
    skipped = helm_release.hooks_of_install_alone(release) if release else []
    if release is None or release.latest.status != "pending-install" or not skipped:
        return ()
    cure = "Look whether they did their work; if not, remove the component and install it again."
    return (Finding("HLM-HOOKS", release.subject, joined(skipped), "hooks that an upgrade runs too", cure, "warning"),)


def _installers(component: Component, release: Release | None, seen: Observed) -> tuple[Finding, ...]:
    """A chart whose installers roll would restart all of them at once, and switch versions at later reboots."""
    changed = {change.key[3] for change in seen.changes if change.verb == "change"}
    running = {pod.labels.get("name") for pod in seen.pods}
    return tuple(
        Finding("CMP-ROLLING", f"DaemonSet {ds.name}", ds.spec.update_strategy.type, "OnDelete",
                "The chart restarts every installer pod at once, and nodes change version at later reboots. "
                "Put rolling_installers into accept if that is meant.",
                "error" if release is not None and ds.name in changed & running
                and "rolling_installers" not in component.accept else "warning")
        for ds in seen.undefaulted
        if ds.name in INSTALLERS and ds.spec.update_strategy.type != "OnDelete"
    )  # fmt: skip


def _patches(component: Component, seen: Observed) -> list[Action]:
    """The priority of the sharing plug-ins, where the chart does not set it: other pods could preempt them."""
    live = {change.key[3]: change.live or {} for change in seen.changes if change.key[1] == "DaemonSet"}
    return [
        Action("set priority of", f"DaemonSet {component.namespace}/{ds.name} to {CRITICAL} (its pods restart)",
               {"step": "priority", "daemonset": ds.name})
        for ds in seen.undefaulted
        if ds.name in component.entry.critical
        and ds.spec.template.spec.priority_class_name != CRITICAL
        and _priority(live.get(ds.name, {})) != CRITICAL
    ]  # fmt: skip


def _priority(live: Mapping[str, Any]) -> str:
    return str(values.at(live, "spec.template.spec.priorityClassName") or "")


# --- afterwards ---


class Behind(msgspec.Struct, frozen=True):
    """A node whose installer pod is older than its DaemonSet: its cGPU stays as it is until node_upgrade."""

    node: str
    pod: str
    image: str
    wanted_image: str
    policy: str
    wanted_policy: str


def behind(daemonsets: Iterable[DaemonSet], pods: Iterable[Pod]) -> list[Behind]:
    """Nodes that still carry the old cGPU installer or the old policy, by name."""
    by_name = {ds.name: ds for ds in daemonsets if ds.name in INSTALLERS}
    found = []
    for pod in pods:
        ds = by_name.get(pod.labels.get("name", ""))
        if ds is None or pod.finished or pod.metadata.deletion_timestamp:
            continue
        have = (workloads.image(pod), workloads.environment(pod, "POLICY") or "")
        want = (workloads.image(ds), workloads.environment(ds, "POLICY") or "")
        if have != want:
            found.append(Behind(pod.spec.node_name, pod.name, have[0], want[0], have[1], want[1]))
    return sorted(found, key=lambda each: each.node)


def told_of(component: Component, nodes: Sequence[Behind]) -> tuple[Finding, ...]:
    """The nodes that are for node_upgrade, in one line."""
    if not nodes:
        return ()
    first = nodes[0]
    has = f"{len(nodes)} node(s) keep the cGPU that they have, such as {first.image} with policy {first.policy}"
    required = f"{first.wanted_image} with policy {first.wanted_policy}"
    names = joined([node.node for node in nodes])
    if any(node.image != node.wanted_image for node in nodes):
        cure = f"node_upgrade brings them up to date: {names}."
    else:  # node_upgrade looks at the version alone
        cure = f"A loaded module keeps its policy: drain the node, delete its installer pod, restart it: {names}."
    return (Finding("CMP-BEHIND", component.subject, has, required, cure, "info"),)


def not_up(component: Component, reasons: Sequence[str]) -> AckError:
    """The failure of a component whose workloads did not come up in time."""
    return AckError(
        component.subject,
        f"it is installed, but did not come up within {component.timeout} s: {joined(list(reasons), most=5)}.",
        "Look at these pods with kubectl describe; then run again, nothing is installed twice.",
        "CMP-NOT-UP",
    )
