"""Which pods leave a node: cases D01, D02, D06 and D11."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import drain
from ansible_collections.ack.ai_suite.plugins.module_utils.core.drain import Options, Sorted
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Pod, PodDisruptionBudget


def pod(name: str, owner: str = "", *, empty_dir: bool = False, phase: str = "Running", **metadata: Any) -> Pod:
    kind, _, owner_name = owner.partition("/")
    references = [{"kind": kind, "name": owner_name, "controller": True}] if owner else None
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "shop", "uid": name, "ownerReferences": references, **metadata},
            "spec": {"volumes": [{"name": "tmp", "emptyDir": {}}] if empty_dir else None},
            "status": {"phase": phase},
        },
        Pod,
    )


# Case D01, plus a DaemonSet pod whose DaemonSet is gone, and one that ACK's drain leaves alone.
NODE = [
    pod("ds-a", "DaemonSet/ds", empty_dir=True),
    pod("static-1", "Node/gpu-1", annotations={drain.MIRROR: "x"}),
    pod("web-1", "ReplicaSet/web"),
    pod("cache-1", "ReplicaSet/cache", empty_dir=True),
    pod("naked"),
    pod("naked-tmp", empty_dir=True),
    pod("done-1", phase="Succeeded", empty_dir=True),
    pod("job-1", "Job/j", phase="Failed"),
    pod("bye-1", "ReplicaSet/web", deletionTimestamp="2026-05-01T00:00:00Z"),
    pod("nothing", "ReplicaSet/web", annotations=None),
]
DAEMONSETS = {"shop/ds"}


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [p.name for p in pods]


def blocked(found: Sorted) -> dict[str, tuple[str, ...]]:
    return {verdict.pod.name: verdict.why for verdict in found.blocked}


def test_without_flags_every_blocker_is_listed_with_every_reason() -> None:
    found = drain.classify(NODE, DAEMONSETS, Options(ignore_daemonsets=False))
    assert blocked(found) == {
        "ds-a": ("managed by a DaemonSet",),
        "cache-1": ("has emptyDir data",),
        "naked": ("managed by no controller",),
        "naked-tmp": ("has emptyDir data", "managed by no controller"),
    }


def test_leave_to_lose_empty_dir_data_is_no_leave_to_lose_unmanaged_pods() -> None:
    found = drain.classify(NODE, DAEMONSETS, Options(delete_emptydir_data=True))
    assert list(blocked(found)) == ["naked", "naked-tmp"]


def test_with_all_flags_only_daemonset_and_mirror_pods_stay() -> None:
    found = drain.classify(NODE, DAEMONSETS, Options(delete_emptydir_data=True, force=True))
    assert names(found.evict) == ["web-1", "cache-1", "naked", "naked-tmp", "done-1", "job-1", "nothing"]
    assert names(found.leaving) == ["bye-1"]
    assert names(found.stay) == ["ds-a", "static-1"]
    assert found.blocked == ()
    assert names(found.remaining)[-1] == "bye-1"


def test_finished_pods_never_block() -> None:
    done = [
        pod("a", phase="Succeeded", empty_dir=True),
        pod("b", phase="Failed"),
        pod("c", "DaemonSet/x", phase="Failed"),
    ]
    found = drain.classify(done, set(), Options())
    assert (names(found.evict), found.blocked) == (["a", "b", "c"], ())


@pytest.mark.parametrize(("force", "fate"), [(False, "blocked"), (True, "evict")])
def test_a_pod_whose_daemonset_is_gone_needs_force(force: bool, fate: str) -> None:
    found = drain.classify([pod("orphan", "DaemonSet/gone")], DAEMONSETS, Options(force=force))
    assert [len(found.blocked), len(found.evict)] == ([1, 0] if fate == "blocked" else [0, 1])


@pytest.mark.parametrize(("honour", "stays"), [(True, 1), (False, 0)])
def test_the_skip_label_of_ack_is_honoured(honour: bool, stays: int) -> None:
    fuse = pod("fuse", "ReplicaSet/f", labels={drain.SKIP_LABEL: "skip"})
    assert len(drain.classify([fuse], set(), Options(honour_skip_label=honour)).stay) == stays


def budget(name: str, selector: dict[str, Any] | None, **status: int) -> PodDisruptionBudget:
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": selector}, "status": status},
        PodDisruptionBudget,
    )


WEB = {"matchLabels": {"app": "web"}}


def test_a_pod_under_two_budgets_is_told_before_anything_is_touched() -> None:
    two = [budget("a", WEB), budget("b", {}), budget("none", None)]
    for phase, count in (("Running", 1), ("Pending", 0), ("Succeeded", 0)):
        found = drain.classify([pod("w", "ReplicaSet/web", labels={"app": "web"}, phase=phase)], set(), Options())
        wrong = drain.findings("gpu-1", found, two)
        assert [finding.code for finding in wrong] == ["UPG-DRAIN-BUDGETS"] * count
    assert (
        "shop/a, shop/b"
        in drain.findings("gpu-1", Sorted(evict=(pod("w", "ReplicaSet/web", labels={"app": "web"}),)), two)[0].found
    )


def test_each_blocker_is_a_finding_with_a_cure() -> None:
    found = drain.findings("gpu-1", drain.classify(NODE, DAEMONSETS, Options()), [])
    assert [(f.subject, f.found) for f in found] == [
        ("gpu-1", "pod shop/cache-1: has emptyDir data"),
        ("gpu-1", "pod shop/naked: managed by no controller"),
        ("gpu-1", "pod shop/naked-tmp: has emptyDir data"),
        ("gpu-1", "pod shop/naked-tmp: managed by no controller"),
    ]
    assert all(f.cure for f in found)


def test_a_stuck_pod_is_told_with_its_budget() -> None:
    held = budget("web", WEB, desiredHealthy=1, currentHealthy=1, disruptionsAllowed=0)
    web = pod("web-0", "ReplicaSet/web", labels={"app": "web"})
    assert drain.stuck(web, [held], "") == "shop/web-0: budget shop/web needs 1 healthy, has 1, allows 0"
    gone = pod("t-0", "ReplicaSet/t", deletionTimestamp="2026-05-01T00:00:00Z", finalizers=["example.test/hold"])
    assert "since 2026-05-01T00:00:00Z, held by example.test/hold" in drain.stuck(gone, [], "")
    assert drain.stuck(web, [], "the webhook said no") == "shop/web-0: the webhook said no"


@pytest.mark.parametrize(
    ("resources", "git_version", "expected"),
    [
        ([], "v1.18.8-aliyun.1", "policy/v1beta1"),
        ([], "v1.21.3", "policy/v1beta1"),
        ([], "v1.22.0", "policy/v1"),
        ([], "v1.31.1-aliyun.1", "policy/v1"),
        ([{"name": "pods/eviction", "group": "policy", "version": "v1beta1"}], "v1.31.1", "policy/v1beta1"),
        ([{"name": "pods"}, {"name": "pods/eviction", "group": "policy", "version": "v1"}], "v1.20.4", "policy/v1"),
    ],
)
def test_the_eviction_version_comes_from_discovery_then_from_the_version(
    resources: list[dict[str, str]], git_version: str, expected: str
) -> None:
    assert drain.eviction_version(resources, git_version) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [(201, "accepted"), (404, "gone"), (409, "gone"), (429, "later"), (0, "later"), (503, "later"),
     (403, "refused"), (500, "refused"), (422, "refused")],
)  # fmt: skip
def test_only_budgets_and_busy_servers_are_tried_again(status: int, expected: str) -> None:
    assert drain.answer(status) == expected


def test_pauses_grow_and_a_hint_wins() -> None:
    assert [drain.pause(n) for n in range(6)] == [0.5, 1, 2, 4, 5, 5]
    assert drain.pause(0, hint=10) == 10


def test_an_eviction_names_the_pod_by_uid_and_a_grace_period_of_zero_is_zero() -> None:
    assert drain.eviction_body(pod("w"), "policy/v1", None)["deleteOptions"] == {"preconditions": {"uid": "w"}}
    assert drain.eviction_body(pod("w"), "policy/v1", 0)["deleteOptions"]["gracePeriodSeconds"] == 0
