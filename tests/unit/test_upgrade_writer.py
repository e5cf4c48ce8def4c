"""Writes to nodes: fenced by the run's id, repeated only where that is safe, never on top of somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import KubeError
from ansible_collections.ack.ai_suite.plugins.module_utils.core import node_state, run_history
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_state import Record
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Pod
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.writer import Writer

NOW = datetime(2026, 5, 4, 2, tzinfo=UTC)
CORDONED = Record("cordoned", NOW, NOW, NOW, "1.5.20", "1.5.13")


def error(status: int, **more: Any) -> KubeError:
    return KubeError("API", f"{status}", "", f"KUB-{status}", status=status, **more)


def apply(target: dict[str, Any], op: str, path: str, value: Any = None) -> None:
    """The operations that the engine uses, as the API server understands them: a test for null wants nothing there."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])
    for parent in parents:
        target = target[parent]
    if op == "add":
        target[last] = value
    elif (op == "test" and target.get(last) != value) or (op == "remove" and last not in target):
        raise error(422)
    elif op == "remove":
        del target[last]


class Api:
    """One node behind JSON patches, as the API server applies them. ``surprises`` are met before or after a patch."""

    def __init__(self) -> None:
        self.node: dict[str, Any] | None = {
            "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]},
        }
        self.before: list[Callable[[], None]] = []
        self.after: list[Callable[[], None]] = []
        self.created: list[tuple[str, Any]] = []

    def find(self, path: str, kind: Any = dict) -> Any:
        return None if self.node is None else msgspec.convert(deepcopy(self.node), kind)

    def patch(self, path: str, body: Any, kind: str = "json") -> dict[str, Any]:
        if self.before:
            self.before.pop(0)()
        if self.node is None:
            raise error(404)
        changed = deepcopy(self.node)
        for operation in body:
            apply(changed, **operation)
        self.node = changed
        if self.after:
            self.after.pop(0)()
        return deepcopy(changed)


class Free:
    """A guard that never minds."""

    def check(self) -> None:
        pass

    def sleep(self, seconds: float) -> None:
        pass


@pytest.fixture
def api() -> Api:
    return Api()


def writer(api: Any, run: str = "run-1") -> Writer:
    guard: Any = Free()
    return Writer(api, guard, run)


def claim(api: Api, run: str = "run-1") -> Node:
    own = writer(api, run)
    return own.node(own.fresh("n"), "", lambda now: node_state.claim(now, run, CORDONED))


def refuse(status: int) -> Callable[[], None]:
    def act() -> None:
        raise error(status)

    return act


def test_a_claim_cordons_and_writes_everything_in_one_patch(api: Api) -> None:
    node = claim(api)
    assert node.spec.unschedulable
    assert node_state.owner(node) == "run-1"
    assert node_state.record_of(node) == CORDONED
    assert node.labels[node_state.STATE] == "cordoned"


def test_a_second_claim_is_refused(api: Api) -> None:
    claim(api)
    with pytest.raises(AckError, match=r"it belongs to run run-1 now, not to run-2.*UPG-NODE-LOST"):
        claim(api, "run-2")


def test_a_node_of_the_same_name_that_is_another_one_is_not_claimed(api: Api) -> None:
    own = writer(api)
    seen = own.fresh("n")
    assert api.node is not None
    api.node["metadata"]["uid"] = "another"
    with pytest.raises(KubeError, match="422"):
        own.node(seen, "", lambda _: node_state.claim(seen, "run-1", CORDONED))


def test_after_an_adoption_the_old_runs_writes_are_refused(api: Api) -> None:
    node = claim(api)
    heir = writer(api, "run-2")
    heir.node(node, "run-1", lambda _: node_state.adopt("run-1", "run-2", CORDONED))
    before = deepcopy(api.node)
    for late in (
        lambda now: node_state.write("run-1", CORDONED),
        lambda now: node_state.finish(now, "run-1", CORDONED),
        lambda now: node_state.quarantine(now, "run-1", CORDONED),
    ):
        with pytest.raises(AckError, match="UPG-NODE-LOST"):
            writer(api).node(node, "run-1", late)
    assert api.node == before


@pytest.mark.parametrize("status", [0, 500, 503])
def test_a_claim_whose_answer_was_lost_is_found_and_not_repeated(api: Api, status: int) -> None:
    api.after = [refuse(status)]
    assert node_state.owner(claim(api)) == "run-1"


@pytest.mark.parametrize("status", [0, 429, 503])
def test_a_write_that_got_no_answer_is_sent_again(api: Api, status: int) -> None:
    node = claim(api)
    api.before = [refuse(status), refuse(status)]
    drained = node_state.advance(CORDONED, "drained", NOW)
    node = writer(api).node(node, "run-1", lambda _: node_state.write("run-1", drained))
    assert node_state.record_of(node) == drained


def test_an_uncordon_whose_answer_was_lost_is_found(api: Api) -> None:
    node = claim(api)
    api.after = [refuse(0)]
    writer(api).node(node, "run-1", lambda now: node_state.finish(now, "run-1", CORDONED), leaves=True)
    assert api.node is not None
    assert api.node["metadata"]["annotations"] == {"c": "d"}
    assert api.node["metadata"]["labels"] == {"a": "b"}
    assert api.node["spec"]["unschedulable"] is False


def test_a_refusal_that_another_try_cannot_change_is_an_error(api: Api) -> None:
    node = claim(api)
    api.before = [refuse(403)]
    with pytest.raises(KubeError, match="403"):
        writer(api).node(node, "run-1", lambda _: node_state.write("run-1", CORDONED))


def test_a_node_that_was_deleted_or_cleaned_by_hand_is_told(api: Api) -> None:
    node = claim(api)
    assert api.node is not None
    api.node["metadata"]["annotations"] = {}
    with pytest.raises(AckError, match=r"somebody removed our state from it.*UPG-NODE-LOST"):
        writer(api).node(node, "run-1", lambda _: node_state.write("run-1", CORDONED))
    api.node = None
    with pytest.raises(AckError, match="UPG-NODE-GONE"):
        writer(api).node(node, "run-1", lambda _: node_state.write("run-1", CORDONED))


def test_a_quarantine_adds_our_taint_to_those_that_others_write_meanwhile(api: Api) -> None:
    node = claim(api)

    def somebody() -> None:
        assert api.node is not None
        api.node["spec"]["taints"].append({"key": "unreachable", "effect": "NoExecute"})

    api.before = [somebody]
    sick = node_state.advance(CORDONED, "quarantined", NOW, reason="no boot", cure="look")
    node = writer(api).node(node, "run-1", lambda now: node_state.quarantine(now, "run-1", sick), leaves=True)
    assert [taint.key for taint in node.spec.taints or ()] == ["other", "unreachable", node_state.TAINT.key]
    assert (node_state.owner(node), node_state.record_of(node)) == ("", sick)

    again = writer(api, "run-2").node(node, "", lambda now: node_state.claim(now, "run-2", CORDONED))
    done = writer(api, "run-2").node(again, "run-2", lambda now: node_state.finish(now, "run-2", CORDONED), leaves=True)
    assert [taint.key for taint in done.spec.taints or ()] == ["other", "unreachable"]


def test_a_cordon_that_was_there_before_stays(api: Api) -> None:
    assert api.node is not None
    api.node["spec"]["unschedulable"] = True
    before = msgspec.structs.replace(CORDONED, unschedulable=True)
    own = writer(api)
    node = own.node(own.fresh("n"), "", lambda now: node_state.claim(now, "run-1", before))
    own.node(node, "run-1", lambda now: node_state.finish(now, "run-1", before), leaves=True)
    assert api.node["spec"]["unschedulable"] is True


# --- evictions ---


class Evictions:
    def __init__(self, answers: dict[str, KubeError | None]) -> None:
        self.answers = answers
        self.bodies: list[Any] = []

    def get(self, path: str) -> dict[str, Any]:
        return {"resources": [{"name": "pods/eviction", "group": "policy", "version": "v1"}]}

    def version(self) -> str:
        return "v1.36.1"

    def create(self, path: str, body: Any) -> None:
        self.bodies.append(body)
        answer = self.answers[body["metadata"]["name"]]
        if answer is not None:
            raise answer


def test_evictions_tell_what_is_to_be_tried_again_and_what_never_works() -> None:
    api = Evictions({
        "granted": None, "gone": error(404), "renamed": error(409), "forbidden": error(403), "two-budgets": error(500),
        "budget": error(429, causes=["The disruption budget web needs 2"], retry_after=7),
    })  # fmt: skip
    pods = [
        msgspec.convert({"metadata": {"name": name, "namespace": "shop", "uid": name}}, Pod) for name in api.answers
    ]
    refused = {each.pod.name: each for each in writer(api).evict(pods, 0)}
    assert {name: each.final for name, each in refused.items()} == {
        "forbidden": True, "two-budgets": True, "budget": False,
    }  # fmt: skip
    assert (refused["budget"].text, refused["budget"].retry_after) == ("The disruption budget web needs 2", 7)
    assert {body["apiVersion"] for body in api.bodies} == {"policy/v1"}
    assert writer(api).evict([], None) == []


# --- history ---


class Maps:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.map: dict[str, Any] | None = None

    def find(self, path: str) -> Any:
        self.calls.append("find")
        return self.map

    def create(self, path: str, body: Any) -> None:
        self.calls.append("create")
        self.map = body

    def patch(self, path: str, body: Any, kind: str) -> None:
        self.calls.append(kind)
        assert self.map is not None
        self.map["data"] |= body["data"]


def test_the_history_is_looked_at_once_and_then_only_written() -> None:
    api, entry = Maps(), run_history.Entry("run-1", "me", "1.5.20", NOW)
    own = writer(api)
    own.history(entry)
    own.history(entry)
    writer(api, "run-2").history(msgspec.structs.replace(entry, run="run-2"))
    assert api.calls == ["find", "create", "merge", "find", "merge"]
    assert api.map is not None
    assert sorted(api.map["data"]) == ["run-1", "run-2"]
