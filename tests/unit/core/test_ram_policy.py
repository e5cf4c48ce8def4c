"""RAM policies: what a document means (I01), what makes room for a new version (I02), and what a role may do."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import ram_document, ram_policy
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.ram_policy import (
    DESCRIPTION,
    DOCUMENT,
    Observed,
    Policy,
    Role,
    Version,
    Wanted,
    decide,
)  # fmt: skip

CLUSTER = "c0123456789abcdef0123456789abcdef"
NAME = f"k8sWorkerRolePolicy-{CLUSTER}"
ROLE = f"KubernetesWorkerRole-{CLUSTER}"


def statement(action: Any, effect: str = "Allow", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": action, "Resource": resource, **more}


def document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "1", "Statement": list(statements)}


def meaning(*statements: dict[str, Any]) -> ram_document.Document:
    return ram_document.parse(document(*statements), "test")


# --- I01: same policy, different spelling ---

HAVE = document(
    statement("cs:GetUserConfig", resource=["*"]),
    statement(["log:GetProject", "log:CreateProject"]),
)
SAME = {
    "another order of everything": document(
        statement(["log:CreateProject", "log:GetProject"], resource=["*"]), statement(["cs:GetUserConfig"])
    ),
    "duplicates": document(
        statement(["cs:GetUserConfig", "cs:GetUserConfig"]),
        statement("cs:GetUserConfig"),
        statement(["log:GetProject", "log:CreateProject"]),
    ),
    "one statement for both": document(statement(["cs:GetUserConfig", "log:GetProject", "log:CreateProject"])),
    "white space": json.dumps(HAVE, indent=4),
    "URL encoding": quote(json.dumps(HAVE)),
}
DIFFERENT = {
    "another effect": document(
        statement("cs:GetUserConfig", "Deny"), statement(["log:GetProject", "log:CreateProject"])
    ),
    "an action less": document(statement("cs:GetUserConfig"), statement(["log:GetProject"])),
    "another case of letters": document(
        statement("cs:getUserConfig"), statement(["log:GetProject", "log:CreateProject"])
    ),
    "a narrower resource": document(
        statement("cs:GetUserConfig", resource="acs:cs:*:*:cluster/c1"),
        statement(["log:GetProject", "log:CreateProject"]),
    ),
    "a condition": document(
        statement("cs:GetUserConfig", Condition={"IpAddress": {"acs:SourceIp": "192.0.2.0/24"}}),
        statement(["log:GetProject", "log:CreateProject"]),
    ),
    "NotAction": document(
        {"Effect": "Allow", "NotAction": "cs:GetUserConfig", "Resource": "*"},
        statement(["log:GetProject", "log:CreateProject"]),
    ),
    "NotResource": document(
        {"Effect": "Allow", "Action": "cs:GetUserConfig", "NotResource": "*"},
        statement(["log:GetProject", "log:CreateProject"]),
    ),
}


@pytest.mark.parametrize("told", SAME.values(), ids=SAME)
def test_these_spellings_mean_the_same(told: Any) -> None:
    assert ram_document.same(ram_document.parse(HAVE, "have"), ram_document.parse(told, "told"))


@pytest.mark.parametrize("told", DIFFERENT.values(), ids=DIFFERENT)
def test_these_differences_count(told: Any) -> None:
    assert not ram_document.same(ram_document.parse(HAVE, "have"), ram_document.parse(told, "told"))


def test_conditions_are_compared_by_value_too() -> None:
    one = meaning(statement("a:B", Condition={"StringEquals": {"k": ["x", "y"], "l": "z"}}))
    other = meaning(statement("a:B", Condition={"StringEquals": {"l": ["z"], "k": ["y", "x", "y"]}}))
    assert ram_document.same(one, other)


def test_a_list_under_not_action_is_one_whole() -> None:
    whole = meaning({"Effect": "Allow", "NotAction": ["a:B", "c:D"], "Resource": "*"})
    parts = meaning(
        {"Effect": "Allow", "NotAction": "a:B", "Resource": "*"},
        {"Effect": "Allow", "NotAction": "c:D", "Resource": "*"},
    )
    assert not ram_document.same(whole, parts)


def test_what_is_sent_reads_back_as_the_same_and_is_the_same_text_each_time() -> None:
    parsed = ram_document.parse(HAVE, "have")
    assert ram_document.parse(ram_document.text(parsed), "sent") == parsed
    assert ram_document.text(parsed) == ram_document.text(ram_document.parse(ram_document.text(parsed), "sent"))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("{", "no JSON"),
        ("[]", "Version and Statement"),
        ({"Version": 1, "Statement": [statement("a:B")]}, 'the text "1"'),
        ({"Version": "2012-10-17", "Statement": [statement("a:B")]}, "2012-10-17"),
        (document(), "no list of statements"),
        (document(statement("a:B", "allow")), "Allow or Deny"),
        (document(statement([])), "Action"),
        (document({"Effect": "Allow", "Resource": "*"}), "either Action or NotAction"),
        (document({**statement("a:B"), "NotAction": "c:D"}), "either Action or NotAction"),
        (document(statement(["a:B", "describe"])), "describe"),
        (document(statement("a:B"), statement("a:B", Principal="*")), "statement 2"),
    ],
)
def test_a_malformed_document_is_refused_with_what_is_wrong(told: Any, said: str) -> None:
    with pytest.raises(AckError) as problem:
        ram_document.parse(told, "test")
    assert problem.value.code == "RAM-DOCUMENT"
    assert said in str(problem.value)


# --- what may be done ---

ACTION = "ecs:DescribePrice"
GRANTS = {
    "the action itself": ([statement(ACTION)], ""),
    "a wildcard": ([statement("ecs:Describe*")], ""),
    "a question mark": ([statement("ecs:DescribePric?")], ""),
    "everything": ([statement("*")], ""),
    "everything but something else": ([{"Effect": "Allow", "NotAction": "ram:*", "Resource": "*"}], ""),
    "nothing": ([statement("ecs:DescribeInstances")], "not granted"),
    "another case of letters": ([statement("ecs:describePrice")], "not granted"),
    "everything but this": ([{"Effect": "Allow", "NotAction": "ecs:*", "Resource": "*"}], "not granted"),
    "some resources only": ([statement(ACTION, resource="acs:ecs:*:*:instance/i-1")], "only for some"),
    "under a condition only": ([statement(ACTION, Condition={"Bool": {"acs:MFAPresent": "true"}})], "only for some"),
    "denied": ([statement("*"), statement(ACTION, "Deny")], "denied by suite"),
    "denied by a wildcard": ([statement(ACTION), statement("ecs:*", "Deny")], "denied by suite"),
    "denied for some resources": ([statement("*"), statement(ACTION, "Deny", resource="acs:x")], "denied by suite"),
    "denied unless listed": (
        [statement("*"), {"Effect": "Deny", "NotAction": "ecs:DescribeInstances", "Resource": "*"}],
        "denied by suite",
    ),
    "listed under a Deny's NotAction": (
        [statement("*"), {"Effect": "Deny", "NotAction": "ecs:*", "Resource": "*"}],
        "",
    ),
}


@pytest.mark.parametrize(("statements", "why"), GRANTS.values(), ids=GRANTS)
def test_whether_an_action_is_granted(statements: list[dict[str, Any]], why: str) -> None:
    told = ram_document.why_not(ACTION, {"suite": meaning(*statements)})
    assert told == why if why == "" else why in told


def test_a_needed_wildcard_needs_the_whole_of_it() -> None:
    assert ram_document.why_not("cs:*", {"a": meaning(statement("cs:Get*"))}) == "not granted"
    assert ram_document.why_not("cs:*", {"a": meaning(statement("cs:*"))}) == ""
    denied = meaning(statement("*"), statement("cs:DeleteCluster", "Deny"))
    assert ram_document.why_not("cs:*", {"a": denied}) == "denied by a"


def test_a_deny_in_one_policy_outweighs_an_allow_in_another() -> None:
    documents = {"ours": meaning(statement("*")), "theirs": meaning(statement("ecs:*", "Deny"))}
    assert ram_document.why_not(ACTION, documents) == "denied by theirs"


def test_actions_beyond_the_list_are_named() -> None:
    told = meaning(statement(["cs:GetClusters", "ecs:*", "oss:GetObject"]), statement("ram:*", "Deny"))
    assert list(ram_document.beyond(told, ["cs:*", "ecs:DescribePrice"])) == ["ecs:*", "oss:GetObject"]


# --- decisions ---


def want(**options: Any) -> Wanted:
    given = {"name": "", "document": None, "mode": "merge", "roles": (), **options}
    return ram_policy.wanted(CLUSTER, given["name"], given["document"], given["mode"], given["roles"])


def policy(told: dict[str, Any], *, ours: bool = True, versions: tuple[Version, ...] = ()) -> Policy:
    described = DESCRIPTION if ours else "made in the console"
    return Policy(described, "v1", json.dumps(told), versions or (Version("v1", True, "2026-01-01T00:00:00Z"),), "OLD")


def seen(have: Policy | None = None, *, attached: bool = False, others: dict[str, str] | None = None) -> Observed:
    texts = {f"Custom/{NAME}": have.text} if have and attached else {}
    return Observed(have, (Role(ROLE, {**texts, **(others or {})}),))


def verbs(plan: Plan) -> list[str]:
    return [action.verb for action in plan.actions]


def test_the_guide_lists_26_actions_and_its_document_is_the_default() -> None:
    assert len(ram_policy.ACTIONS) == len(set(ram_policy.ACTIONS)) == 26
    assert want().name == NAME
    assert ram_document.plain(want().document)["Statement"][0]["Resource"] == "*"


def test_an_absent_policy_is_created_then_attached() -> None:
    plan = decide(want(), seen())
    assert verbs(plan) == ["create", "attach"]
    assert plan.facts["roles"][0]["status"] == "Authorized"
    assert plan.before == {"policy": NAME, "document": None, "attached_to": []}
    assert plan.after["attached_to"] == [ROLE]


@pytest.mark.parametrize("mode", ["merge", "exact"])
@pytest.mark.parametrize("ours", [True, False])
def test_the_same_meaning_attached_is_nothing_to_do(mode: str, ours: bool) -> None:
    spelt = document(*({**statement(action), "Resource": ["*"]} for action in reversed(ram_policy.ACTIONS)))
    plan = decide(want(mode=mode), seen(policy(spelt, ours=ours), attached=True))
    assert (plan.actions, plan.before) == ((), plan.after)


def test_merge_takes_nothing_away_and_shows_what_it_adds() -> None:
    theirs = statement("oss:GetObject", resource="acs:oss:*:*:bucket/*")
    plan = decide(want(), seen(policy(document(theirs), ours=False), attached=True))
    assert verbs(plan) == ["add"]
    after = ram_document.parse(plan.actions[0].body["text"], "after")
    assert ram_document.same(after, (*meaning(theirs), *want().document))
    assert [len(side["document"]["Statement"]) for side in (plan.before, plan.after)] == [1, 2]
    assert plan.facts["roles"][0]["beyond"] == {f"Custom/{NAME}": ["oss:GetObject"]}


def test_merge_adds_nothing_that_a_wildcard_grants_already() -> None:
    wide = document(*(statement(f"{service}:*") for service in ("cs", "log", "ecs", "eci", "ims")))
    assert decide(want(), seen(policy(wide, ours=False), attached=True)).actions == ()


def test_merge_replaces_its_own_older_list_instead_of_piling_lists_up() -> None:
    older = document(statement(list(ram_policy.ACTIONS[:20])))
    plan = decide(want(), seen(policy(older), attached=True))
    assert len(json.loads(plan.actions[0].body["text"])["Statement"]) == 1
    plan = decide(want(), seen(policy(older, ours=False), attached=True))
    assert len(json.loads(plan.actions[0].body["text"])["Statement"]) == 2


def test_exact_makes_a_policy_of_ours_the_document_and_nothing_else() -> None:
    grown = document(*DOCUMENT["Statement"], statement("oss:*"))
    plan = decide(want(mode="exact"), seen(policy(grown), attached=True))
    assert verbs(plan) == ["add"]
    assert ram_document.same(ram_document.parse(plan.actions[0].body["text"], "after"), want().document)


def test_exact_refuses_a_policy_that_is_not_ours() -> None:
    with pytest.raises(AckError) as problem:
        decide(want(mode="exact"), seen(policy(document(statement("oss:*")), ours=False)))
    assert problem.value.code == "RAM-NOT-OURS"


def test_a_system_policy_of_that_name_is_never_touched() -> None:
    with pytest.raises(AckError) as problem:
        decide(want(), msgspec.structs.replace(seen(), system=True))
    assert problem.value.code == "RAM-SYSTEM"


# --- I02: the version limit ---

FIVE = tuple(
    Version(version_id, version_id == "v5", f"2026-01-0{day}T00:00:00Z")
    for version_id, day in (("v3", 2), ("v4", 3), ("v5", 1), ("v6", 4), ("v7", 5))
)


def test_the_oldest_version_by_date_that_is_not_the_default_makes_room() -> None:
    plan = decide(want(), seen(policy(document(statement("oss:*")), versions=FIVE), attached=True))
    assert "v3" in plan.actions[0].target
    assert plan.actions[0].body["rotate"] is True
    assert plan.facts["rotated"] == {"version_id": "v3", "document": "OLD"}


def test_the_oldest_is_told_by_date_and_not_by_number() -> None:
    days = (("v3", 4), ("v10", 3), ("v5", 1), ("v6", 2), ("v7", 5))
    versions = tuple(Version(each, each == "v5", f"2026-01-0{day}T00:00:00Z") for each, day in days)
    oldest = ram_policy.oldest_to_go(versions)
    assert oldest is not None
    assert oldest.version_id == "v6"


def test_nothing_makes_room_where_there_is_room() -> None:
    plan = decide(want(), seen(policy(document(statement("oss:*")), versions=FIVE[1:]), attached=True))
    assert plan.actions[0].body["rotate"] is False
    assert "rotated" not in plan.facts


def test_nothing_makes_room_when_nothing_changes() -> None:
    plan = decide(want(), seen(policy(dict(DOCUMENT), versions=FIVE), attached=True))
    assert plan.actions == ()
    assert "rotated" not in plan.facts


def test_a_document_that_is_too_long_is_refused_with_its_size_before_any_call() -> None:
    with pytest.raises(AckError) as problem:
        want(document=document(statement([f"oss:Get{number:060}" for number in range(90)])))
    assert problem.value.code == "RAM-TOO-LONG"
    assert "6144" in str(problem.value)


def test_a_document_that_grows_too_long_by_merging_is_refused_too() -> None:
    long = document(statement([f"oss:Get{number:060}" for number in range(80)]))
    with pytest.raises(AckError) as problem:
        decide(want(), seen(policy(long, ours=False)))
    assert problem.value.code == "RAM-TOO-LONG"


@pytest.mark.parametrize("name", ["with_underscore", "with.dot", "ünicode", "x" * 129, "with space"])
def test_a_name_that_ram_would_refuse_is_refused_before_any_call(name: str) -> None:
    with pytest.raises(AckError) as problem:
        want(name=name)
    assert problem.value.code == "RAM-NAME"


# --- roles and findings ---


@pytest.mark.parametrize(
    ("told", "pools", "roles"),
    [
        ("KubernetesWorkerRole-x", {}, ("KubernetesWorkerRole-x",)),
        ("", {}, (ROLE,)),
        ("", {"gpu": "gpu-role", "cpu": "", "more": "gpu-role"}, (ROLE, "gpu-role")),
    ],
)
def test_the_roles_are_the_clusters_and_those_of_pools(
    told: str, pools: dict[str, str], roles: tuple[str, ...]
) -> None:
    assert ram_policy.worker_roles(CLUSTER, told, pools) == roles


def codes(plan: Plan) -> set[str]:
    return {finding.code for finding in plan.findings}


def test_a_deny_elsewhere_leaves_the_role_unauthorized_and_is_named() -> None:
    plan = decide(want(), seen(others={"Custom/lock": json.dumps(document(statement("ims:*", "Deny")))}))
    role = plan.facts["roles"][0]
    assert role["status"] == "Unauthorized"
    assert role["missing"]["ims:ListUsers"] == "denied by Custom/lock"
    assert "RAM-UNAUTHORIZED" in codes(plan)


def test_a_narrower_document_leaves_the_role_unauthorized_with_each_missing_action() -> None:
    plan = decide(want(document=document(statement("cs:*"))), seen())
    assert set(plan.facts["roles"][0]["missing"]) == set(ram_policy.ACTIONS) - {"cs:*"}


def test_an_attached_policy_that_cannot_be_read_is_a_warning_and_stops_nothing() -> None:
    plan = decide(want(), seen(others={"System/odd": ""}))
    assert plan.facts["roles"][0]["unreadable"] == ["System/odd"]
    assert "RAM-UNREADABLE" in codes(plan)


def test_a_sixth_custom_policy_is_a_warning_since_ram_decides() -> None:
    five = {f"Custom/p{number}": json.dumps(document(statement("oss:*"))) for number in range(5)}
    assert "RAM-ROLE-FULL" in codes(decide(want(), seen(others=five)))
    assert "RAM-ROLE-FULL" not in codes(decide(want(), seen(policy(dict(DOCUMENT)), attached=True, others=five)))


def test_cs_star_is_told_as_a_risk_and_not_as_excess() -> None:
    plan = decide(want(), seen())
    assert [finding.severity for finding in plan.findings if finding.code == "RAM-WIDE"] == ["info"]
    assert plan.facts["roles"][0]["beyond"] == {}
