"""States of a release and their cures (case H01), owners of objects, and what a diff may show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import helm_release
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.helm_release import (
    Change,
    Chart,
    Hold,
    Release,
    Revision,
)

NOW = datetime(2026, 5, 1, 2, 0, tzinfo=UTC)
OURS = Chart("demo", "0.1.0", annotations={helm_release.ORIGIN: helm_release.OUR_ORIGIN})


def release(*states: str, age: int = 3600, objects: tuple[dict[str, Any], ...] = (), hooks: Any = ()) -> Release:
    began = NOW - timedelta(seconds=age)
    history = tuple(Revision(number, state, began) for number, state in enumerate(states, 1))
    return Release("demo", "ai", OURS, history, objects=objects, hooks=tuple(hooks))


def cure(of: Release, *, hold: Hold | None = None, allowed: bool = True, after: int = 600) -> tuple[str, int] | None:
    found = helm_release.repair(of, hold, NOW, allowed=allowed, after=after)
    return (found.verb, found.revision) if found else None


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["deployed"], None),
        (["failed"], None),  # an upgrade cures a failed first install
        (["deployed", "failed"], None),
        (["superseded"], None),
        (["uninstalled"], None),
        (["pending-install"], ("roll back", 1)),
        (["deployed", "pending-upgrade"], ("roll back", 1)),
        (["superseded", "deployed", "pending-upgrade"], ("roll back", 2)),
        (["superseded", "deployed", "failed", "pending-upgrade"], ("roll back", 2)),
        (["superseded", "deployed", "pending-rollback"], ("roll back", 2)),
        (["superseded", "superseded", "pending-rollback"], ("roll back", 2)),
        (["failed", "pending-upgrade"], ("roll back", 2)),
        (["deployed", "uninstalling"], ("finish uninstalling", 2)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_state_has_its_cure(states: list[str], expected: tuple[str, int] | None) -> None:
    assert cure(release(*states)) == expected


@pytest.mark.parametrize("age", [0, 20, 599])
def test_a_young_operation_of_somebody_else_is_left_alone(age: int) -> None:
    with pytest.raises(AckError) as refused:
        cure(release("deployed", "pending-upgrade", age=age))
    text = str(refused.value)
    assert refused.value.code == "HLM-PENDING"
    assert f"release ai/demo: revision 2 is pending-upgrade since {age} s" in text
    assert f"Run again in {600 - age} s" in text
    assert "helm rollback demo 1 --namespace ai" in text


def test_a_run_of_ours_that_was_killed_is_repaired_at_once() -> None:
    began = NOW - timedelta(seconds=2)
    hold = Hold("controller.1", began - timedelta(seconds=1), began - timedelta(seconds=1), 15)
    assert cure(release("deployed", "pending-upgrade", age=2), hold=hold) == ("roll back", 1)


def test_an_operation_that_began_after_our_run_was_dead_is_not_ours() -> None:
    dead = NOW - timedelta(seconds=120)
    hold = Hold("controller.1", dead - timedelta(seconds=10), dead, 15)
    with pytest.raises(AckError, match="HLM-PENDING"):
        cure(release("deployed", "pending-upgrade", age=20), hold=hold)


def test_an_operation_that_began_before_our_run_is_not_ours() -> None:
    hold = Hold("controller.1", NOW - timedelta(seconds=5), NOW, 15)
    with pytest.raises(AckError, match="HLM-PENDING"):
        cure(release("deployed", "pending-upgrade", age=60), hold=hold)


def test_nothing_is_repaired_where_that_is_not_allowed() -> None:
    with pytest.raises(AckError, match=r"component_repair\.allowed.*HLM-PENDING"):
        cure(release("deployed", "pending-upgrade", age=86400), allowed=False)


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "CustomResourceDefinition"])
def test_a_removal_is_not_finished_where_data_would_go_with_it(kind: str) -> None:
    stuck = release("deployed", "uninstalling", objects=({"kind": kind, "metadata": {"name": "db"}},))
    with pytest.raises(AckError, match=rf"{kind} ai/db.*helm uninstall demo --namespace ai"):
        cure(stuck)


def test_hooks_of_installs_alone_are_told_from_those_that_an_upgrade_runs() -> None:
    def hook(name: str, events: str) -> dict[str, Any]:
        return {"kind": "Job", "metadata": {"name": name, "annotations": {"helm.sh/hook": events}}}

    found = release(
        "pending-install", hooks=[hook("a", "pre-install"), hook("b", "pre-install,pre-upgrade"), hook("c", "test")]
    )
    assert helm_release.hooks_of_install_alone(found) == ["Job ai/a"]


def thing(kind: str = "ConfigMap", **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "it", "namespace": "ai"}, **parts}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"annotations": {"meta.helm.sh/release-name": "x", "meta.helm.sh/release-namespace": "y"}}, "release y/x"),
        ({"labels": {"app.kubernetes.io/managed-by": "flux"}}, "a thing managed by flux"),
        ({"annotations": None, "labels": None}, "nobody by Helm's marks"),
        ({}, "nobody by Helm's marks"),
    ],
)
def test_an_object_says_who_owns_it(metadata: dict[str, Any], expected: str) -> None:
    assert helm_release.owner({"metadata": metadata}) == expected


def test_what_the_server_keeps_for_itself_is_no_difference() -> None:
    live = thing(data={"a": "b"}, status={"x": 1})
    live["metadata"] |= {"uid": "1", "resourceVersion": "2", "generation": 3, "managedFields": [{}]}
    live["metadata"] |= {"annotations": {"deprecated.daemonset.template.generation": "4"}, "creationTimestamp": "t"}
    assert Change(helm_release.key(live), live, thing(data={"a": "b"})).verb == ""


@pytest.mark.parametrize(
    ("live", "after", "verb"),
    [
        (None, thing(), "create"),
        (thing(), None, "delete"),
        (thing(), thing(data={"a": "b"}), "change"),
        (None, None, ""),
    ],
)
def test_a_change_knows_what_would_happen(live: Any, after: Any, verb: str) -> None:
    assert Change(("", "ConfigMap", "ai", "it"), live, after).verb == verb


def test_the_diff_shows_that_a_secret_changes_and_never_what_is_in_it() -> None:
    old, new = (
        thing("Secret", data={"same": "cGxhbnRlZA==", "turned": "b25l"}),
        thing("Secret", data={"same": "cGxhbnRlZA==", "turned": "dHdv", "more": "eA=="}),
    )
    before, after = helm_release.shown([Change(helm_release.key(old), old, new)])
    assert before["Secret ai/it"]["data"] == {"same": "********", "turned": "******** (old)"}
    assert after["Secret ai/it"]["data"] == {"same": "********", "turned": "********", "more": "********"}
    assert not {"cGxhbnRlZA==", "b25l", "dHdv", "eA=="} & set(str((before, after)).split("'"))


def test_the_diff_hides_passwords_in_environments() -> None:
    new = thing(
        "Pod",
        spec={"containers": [{"env": [{"name": "DB_PASSWORD", "value": "planted"}, {"name": "POLICY", "value": "5"}]}]},
    )
    _, after = helm_release.shown([Change(helm_release.key(new), None, new)])
    assert "planted" not in str(after)
    assert {"name": "POLICY", "value": "5"} in after["Pod ai/it"]["spec"]["containers"][0]["env"]


def test_the_diff_leaves_out_what_does_not_change() -> None:
    same = thing(data={"a": "b"})
    assert helm_release.shown([Change(helm_release.key(same), same, same)]) == ({}, {})


def test_manifests_are_compared_without_regard_to_their_order() -> None:
    one, two = thing(), thing("Secret")
    assert helm_release.same_objects([one, two], [two, one])
    assert not helm_release.same_objects([one], [one, two])
