"""What is asked of a component, and what is decided about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import component as rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core import helm_release, workloads
from ansible_collections.ack.ai_suite.plugins.module_utils.core.component import Component, Observed
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import Change, Chart, Release, Revision
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet, Pod

NAME = "ack-ai-installer"
NOW = datetime(2026, 5, 1, 2, 0, tzinfo=UTC)
OURS = Chart(NAME, "0.1.0", annotations={helm_release.ORIGIN: helm_release.OUR_ORIGIN})
VENDOR = Chart(NAME, "1.12.6")


def wanted(**given: Any) -> Component:
    return rules.wanted({"name": NAME, "chart": "/charts/it", **given}, {})


def refusal(**given: Any) -> AckError:
    with pytest.raises(AckError) as refused:
        wanted(**given)
    return refused.value


# --- what is asked for ---


def test_a_component_that_says_nothing_gets_what_the_catalogue_and_the_documents_say() -> None:
    component = wanted()
    assert (component.release, component.namespace, component.policy) == (NAME, "kube-system", None)
    assert (component.timeout, component.repair_allowed, component.repair_after) == (300, True, 600)
    assert component.keep_values


def test_a_component_that_is_not_in_the_catalogue_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AckError, match=rf"ack-nothing.*{NAME}.*CMP-NAME"):
        rules.wanted({"name": "ack-nothing"}, {})


@pytest.mark.parametrize("version", [1.2, 1.12, 2, True])
def test_an_unquoted_version_is_refused(version: Any) -> None:
    error = refusal(version=version)
    assert error.code == "CMP-VERSION-TYPE"
    assert "Quote it" in str(error)


def test_a_version_that_is_none_is_refused() -> None:
    assert refusal(version="latest").code == "CMP-VERSION-FORM"


@pytest.mark.parametrize("policy", [-1, 6, 9, True, False])
def test_a_policy_outside_0_to_5_is_refused(policy: Any) -> None:
    assert refusal(policy=policy).code == "CMP-POLICY"


@pytest.mark.parametrize("policy", [0, 1, 2, 3, 4, 5])
def test_each_documented_policy_is_taken_from_the_option_or_the_values(policy: int) -> None:
    assert wanted(policy=policy).policy == policy
    assert wanted(values={"cgpu": {"policy": policy}}, policy_path="cgpu.policy").policy == policy


def test_a_policy_in_the_values_that_is_none_is_refused_too() -> None:
    assert refusal(values={"policy": "five"}).code == "CMP-POLICY"


def test_two_different_policies_in_one_entry_are_refused() -> None:
    error = refusal(policy=3, values={"policy": 5})
    assert error.code == "CMP-POLICY"
    assert "policy 3 and values.policy 5" in str(error)


def test_everything_that_is_wrong_is_listed_at_once() -> None:
    error = refusal(version=1.2, policy=9, values={"image": {"tag": 1.2}, "n": 2_000_000})
    assert error.code == "CMP-INPUT"
    for code in ("CMP-VERSION-TYPE", "CMP-POLICY", "CMP-VALUE-VERSION", "CMP-VALUE-INTEGER"):
        assert code in str(error)


def test_without_a_chart_the_console_steps_are_told() -> None:
    error = refusal(chart="")
    assert error.code == "CMP-NO-CHART"
    assert "Cloud-native AI Suite" in error.cure
    assert "1. Log on to the ACK console" in error.cure


def test_what_is_to_be_removed_needs_no_chart() -> None:
    assert not wanted(chart="", state="absent").present


# --- what is decided ---


def daemonset(name: str = "cgpu-installer", image: str = "r/cgpu:2", policy: str = "5", strategy: str = "OnDelete",
              priority: str = rules.CRITICAL) -> dict[str, Any]:  # fmt: skip
    container = {"name": "c", "image": image, "env": [{"name": "POLICY", "value": policy}]}
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"updateStrategy": {"type": strategy},
                 "template": {"spec": {"containers": [container], "priorityClassName": priority}}},
    }  # fmt: skip


def owned(thing: dict[str, Any], release: str = NAME) -> dict[str, Any]:
    marks = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "kube-system"}
    return {**thing, "metadata": {**thing["metadata"], "annotations": marks}}


def release(*states: str, chart: Chart = OURS, objects: Any = (), values: Any = None, age: int = 3600) -> Release:
    history = tuple(Revision(n, state, NOW - timedelta(seconds=age)) for n, state in enumerate(states, 1))
    return Release(NAME, "kube-system", chart, history, values or {}, tuple(objects))


def seen(held: Release | None, *pairs: tuple[Any, Any], chart: Chart = OURS, **more: Any) -> Observed:
    """Each pair is an object as it lives, and as the chart renders it; the API lays one over the other."""
    found = tuple(Change(helm_release.key(rendered), live, _laid_over(live, rendered)) for live, rendered in pairs)
    objects = tuple(rendered for _, rendered in pairs)
    sets = tuple(workloads.daemonset(thing) for thing in objects)
    return Observed(held, chart, objects=objects, changes=found, undefaulted=sets, **more)


def _laid_over(live: Any, rendered: Any) -> Any:
    annotations = ((live or {}).get("metadata") or {}).get("annotations")
    return {**rendered, "metadata": {**rendered["metadata"], **({"annotations": annotations} if annotations else {})}}


def decide(observed: Observed, **given: Any) -> Plan:
    return rules.decide(wanted(**given), observed, NOW)


def steps(plan: Plan) -> list[str]:
    return [action.body["step"] for action in plan.actions]


THING = daemonset()


def test_what_is_not_there_is_installed() -> None:
    plan = decide(seen(None, (None, THING)))
    assert steps(plan) == ["upgrade"]
    assert plan.actions[0].verb == "install"
    assert plan.before == {}
    assert "DaemonSet kube-system/cgpu-installer" in plan.after


def test_where_nothing_differs_nothing_is_done() -> None:
    plan = decide(seen(release("deployed", objects=[THING]), (owned(THING), THING)))
    assert plan.actions == ()
    assert plan.before == plan.after == {}


@pytest.mark.parametrize(
    ("why", "observed"),
    [
        ("objects", seen(release("deployed", objects=[THING]), (None, THING))),  # deleted by somebody
        ("objects", seen(release("deployed", objects=[THING]), (owned(daemonset(image="r/hand:1")), THING))),
        ("objects", seen(release("deployed", objects=[daemonset(image="r/cgpu:1")]), (owned(THING), THING))),
        ("values", seen(release("deployed", objects=[THING], values={"a": 1}), (owned(THING), THING))),
        ("it is failed", seen(release("failed", objects=[THING]), (owned(THING), THING))),
        ("from 0.0.9", seen(release("deployed", chart=msgspec.structs.replace(OURS, version="0.0.9"), objects=[THING]),
                            (owned(THING), THING))),
    ],
    ids=["deleted object", "edited object", "changed template", "changed values", "failed release", "older chart"],
)  # fmt: skip
def test_each_difference_is_a_reason_to_upgrade(why: str, observed: Observed) -> None:
    plan = decide(observed)
    assert steps(plan) == ["upgrade"]
    assert why in plan.actions[0].target


def test_a_killed_upgrade_is_rolled_back_and_then_done() -> None:
    observed = seen(release("deployed", "pending-upgrade", objects=[THING]), (owned(THING), THING))
    plan = decide(observed)
    assert steps(plan) == ["roll back", "upgrade"]
    assert "to revision 1 (revision 2 is pending-upgrade since 3600 s" in plan.actions[0].target


def test_a_running_operation_of_somebody_else_stops_the_run() -> None:
    observed = seen(release("deployed", "pending-upgrade", objects=[THING], age=20), (owned(THING), THING))
    with pytest.raises(AckError, match="HLM-PENDING"):
        decide(observed)


def test_our_chart_never_replaces_a_release_of_another_chart() -> None:
    with pytest.raises(AckError, match=r"another chart \(ack-ai-installer 1\.12\.6\).*CMP-FOREIGN"):
        decide(seen(release("deployed", chart=VENDOR, objects=[THING]), (owned(THING), THING)))


def test_the_vendors_chart_upgrades_a_release_of_the_vendor_or_of_ours() -> None:
    newer = Chart(NAME, "1.12.7")
    for chart in (VENDOR, OURS):
        plan = decide(seen(release("deployed", chart=chart, objects=[THING]), (owned(THING), THING), chart=newer))
        assert steps(plan) == ["upgrade"]


def test_a_release_that_holds_a_chart_of_another_name_is_left_alone() -> None:
    with pytest.raises(AckError, match="CMP-FOREIGN"):
        decide(seen(release("deployed", chart=Chart("nginx", "1.0.0")), chart=VENDOR))


def test_a_chart_of_another_name_or_version_than_asked_for_is_refused() -> None:
    with pytest.raises(AckError, match=r"1\.12\.7 is asked for.*is 1\.12\.6.*CMP-VERSION"):
        decide(seen(None, chart=VENDOR), version="1.12.7")
    with pytest.raises(AckError, match="CMP-CHART-NAME"):
        decide(seen(None, chart=Chart("nginx", "1.0.0")))
    decide(seen(None, chart=VENDOR), version="v1.12.6")


def test_objects_of_others_are_all_named_with_their_owners() -> None:
    stray, foreign = daemonset("gpushare-device-plugin-ds"), owned(daemonset("cgpu-installer"), "other")
    with pytest.raises(AckError) as refused:
        decide(seen(None, (stray, stray), (foreign, foreign)))
    text = str(refused.value)
    assert refused.value.code == "CMP-REFUSED"
    assert "DaemonSet kube-system/gpushare-device-plugin-ds: found belongs to nobody by Helm's marks" in text
    assert "belongs to release kube-system/other" in text


def test_objects_of_others_are_adopted_on_request_alone() -> None:
    stray = daemonset()
    assert steps(decide(seen(None, (stray, stray)), accept=["adopt_objects"])) == ["upgrade"]


def test_an_object_of_the_cluster_is_known_again_though_it_has_no_namespace() -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}}
    held = release("deployed", objects=[role])
    observed = Observed(held, OURS, objects=(role,), changes=(Change(helm_release.key(role), role, role),))
    assert decide(observed).actions == ()


def test_an_object_that_names_no_namespace_is_known_again() -> None:
    bare = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    live = {**bare, "metadata": {"name": "c", "namespace": "kube-system"}}
    held = release("deployed", objects=[bare])
    assert (
        decide(Observed(held, OURS, objects=(bare,), changes=(Change(helm_release.key(live), live, live),))).actions
        == ()
    )


def test_what_the_api_refuses_is_known_before_anything_is_written() -> None:
    with pytest.raises(AckError, match=r"(?s)DaemonSet kube-system/x.*spec\.selector: Invalid.*HLM-REFUSED"):
        decide(seen(None, refused=(("DaemonSet kube-system/x", "spec.selector: Invalid value"),)))


def installer_pod(node: str, image: str, policy: str = "5") -> Pod:
    container = {"name": "c", "image": image, "env": [{"name": "POLICY", "value": policy}]}
    meta = {"name": f"cgpu-installer-{node}", "namespace": "kube-system", "labels": {"name": "cgpu-installer"}}
    spec = {"nodeName": node, "containers": [container]}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, Pod)


def rolling(*pods: Pod) -> Observed:
    old, new = daemonset(image="r/cgpu:1", strategy="RollingUpdate"), daemonset(strategy="RollingUpdate")
    return seen(release("deployed", chart=VENDOR, objects=[old]), (owned(old), new), chart=VENDOR, pods=pods)


def test_a_chart_whose_installers_roll_needs_a_word_before_it_restarts_them() -> None:
    observed = rolling(installer_pod("a", "r/cgpu:1"))
    with pytest.raises(AckError, match="CMP-ROLLING"):
        decide(observed)
    plan = decide(observed, accept=["rolling_installers"])
    assert steps(plan) == ["upgrade"]
    assert [(f.code, f.severity) for f in plan.findings] == [("CMP-ROLLING", "warning")]


def test_a_chart_whose_installers_roll_is_only_warned_about_where_none_runs() -> None:
    assert [(f.code, f.severity) for f in decide(rolling()).findings] == [("CMP-ROLLING", "warning")]


def test_an_older_chart_is_a_warning() -> None:
    newer = Chart(NAME, "1.13.0")
    plan = decide(seen(release("deployed", chart=newer, objects=[THING]), (owned(THING), THING), chart=VENDOR))
    assert [(f.code, f.severity) for f in plan.findings] == [("CMP-DOWNGRADE", "warning")]


def test_priority_is_mended_where_the_vendors_chart_does_not_set_it() -> None:
    plain, mended = daemonset("gpushare-device-plugin-ds", priority=""), daemonset("gpushare-device-plugin-ds")
    held = release("deployed", chart=VENDOR, objects=[plain])
    assert steps(decide(seen(held, (owned(plain), plain), chart=VENDOR))) == ["priority"]
    # The patch survives: what the chart does not set is left as it is.
    after = Change(helm_release.key(mended), owned(mended), owned(mended))
    observed = seen(held, (owned(plain), plain), chart=VENDOR)
    assert decide(msgspec.structs.replace(observed, changes=(after,))).actions == ()


# --- removal ---


def test_what_is_gone_stays_gone() -> None:
    assert decide(Observed(None), state="absent").actions == ()
    assert decide(Observed(release("uninstalled")), state="absent").actions == ()


@pytest.mark.parametrize("state", ["deployed", "failed", "superseded", "pending-install", "uninstalling"])
def test_a_release_in_any_state_is_removed(state: str) -> None:
    assert steps(decide(Observed(release(state)), state="absent")) == ["uninstall"]


def test_a_release_of_the_vendor_is_removed_only_on_a_word() -> None:
    with pytest.raises(AckError, match=r"through the suite only.*CMP-REMOVAL"):
        decide(Observed(release("deployed", chart=VENDOR)), state="absent")
    assert steps(decide(Observed(release("deployed", chart=VENDOR)), state="absent", accept=["removal"])) == [
        "uninstall"
    ]


def test_a_release_that_holds_data_is_removed_only_on_a_word() -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "db"}}
    with pytest.raises(AckError, match=r"PersistentVolumeClaim kube-system/db.*CMP-REMOVAL"):
        decide(Observed(release("deployed", objects=[claim])), state="absent")


# --- afterwards ---


def test_nodes_with_the_old_installer_or_the_old_policy_are_named() -> None:
    wanted_set = msgspec.convert(daemonset(image="r/cgpu:2", policy="5"), DaemonSet)
    pods = [installer_pod("c", "r/cgpu:2", "3"), installer_pod("a", "r/cgpu:1"), installer_pod("b", "r/cgpu:2")]
    found = rules.behind([wanted_set], pods)
    assert [(each.node, each.image, each.policy) for each in found] == [("a", "r/cgpu:1", "5"), ("c", "r/cgpu:2", "3")]
    assert {each.wanted_image for each in found} == {"r/cgpu:2"}
    (note,) = rules.told_of(wanted(), found)
    assert (note.code, note.severity) == ("CMP-BEHIND", "info")
    assert note.cure.endswith("a, c.")
    assert rules.told_of(wanted(), []) == ()
