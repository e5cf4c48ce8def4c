"""Node pools: what is refused before anybody is asked, what a change sends, and what it must never do (L01)."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import cloud, node_pool, node_pool_spec
from ansible_collections.ack.ai_suite.plugins.module_utils.core.compatibility import Tables, tables
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import errors
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_pool_change import Observed
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import (
    Container,
    Meta,
    Node,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
)

REGION = "cn-hangzhou"
MODE = "ack.node.gpu.schedule"
NEW: dict[str, Any] = {
    "name": "gpu",
    "instance_types": ["ecs.gn6i-c4g1.xlarge"],
    "vswitch_ids": ["vsw-1"],
    "labels": {MODE: "cgpu"},
}


def asked(*given: dict[str, Any], region: str = REGION, known: Tables = Tables()) -> list[str]:  # noqa: B008 - frozen
    """The errors that specifications have by themselves."""
    found = errors(node_pool_spec.findings(node_pool_spec.pools(given), region, known))
    return [f"{finding.code}: {finding.found}; {finding.cure}" for finding in found]


# --- before anybody is asked ---


def test_a_pool_as_the_readme_has_it_is_fine() -> None:
    assert asked(NEW) == []


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "isolation in a region without it": ({"region": "me-east-1"}, "PRE-REGION"),
    "isolation on a pool that is not of ECS": ({"kind": "lingjun"}, "PRE-ECS"),
    "isolation with CPU policy static": ({"cpu_policy": "static"}, "PRE-CPU-POLICY"),
    "core_mem with CPU policy static": ({"labels": {MODE: "core_mem"}, "cpu_policy": "static"}, "PRE-CPU-POLICY"),
    "an instance type without a card": ({"instance_types": ["ecs.g7.xlarge"]}, "PRE-GPU-SERIES"),
    "one of two types without a card": (
        {"instance_types": ["ecs.gn7i-c8g1.2xlarge", "ecs.g7.xlarge"]},
        "PRE-GPU-SERIES",
    ),
    "what is no instance type": ({"instance_types": ["gn6i"]}, "POOL-SPEC"),
    "a mode that is a boolean": ({"labels": {MODE: True}}, "PRE-LABEL-SYNTAX"),
    "a mode that does not exist": ({"labels": {MODE: "cGPU"}}, "PRE-LABEL-VALUE"),
    "a key with a space": ({"labels": {"my label": "x"}}, "PRE-LABEL-SYNTAX"),
    "a value with brackets": ({"labels": {"key": "NVIDIA-TITAN-X-(Pascal)"}}, "PRE-LABEL-SYNTAX"),
    "a number as a value": ({"labels": {"rack": 12}}, "PRE-LABEL-SYNTAX"),
    "two modes at once": ({"labels": {MODE: "cgpu", "gpushare": "true"}}, "PRE-LABEL-RIVALS"),
    "another limit of pods a card": ({"labels": {MODE: "cgpu", "ack.node.gpu.max-pod": "30"}}, "PRE-LABEL-VALUE"),
    "removing the mode's label": ({"labels": {}, "absent_labels": [MODE]}, "POOL-SPEC"),
    "a label wanted and unwanted": ({"absent_labels": [MODE]}, "POOL-SPEC"),
    "a negative size": ({"desired_size": -1}, "POOL-SPEC"),
    "a tiny disk": ({"system_disk_size": 10}, "POOL-SPEC"),
    "a name with a slash": ({"name": "a/b"}, "POOL-SPEC"),
    "eleven instance types": ({"instance_types": [f"ecs.gn6i-c{n}g1.xlarge" for n in range(11)]}, "POOL-SPEC"),
    "a taint with a bad key": ({"taints": [{"key": "a b", "effect": "NoSchedule"}]}, "POOL-SPEC"),
}


@pytest.mark.parametrize(("change", "code"), REFUSED.values(), ids=REFUSED)
def test_refused_before_anybody_is_asked(change: dict[str, Any], code: str) -> None:
    region = change.get("region", REGION)
    given = {key: value for key, value in change.items() if key != "region"}
    assert code in [line.partition(":")[0] for line in asked({**NEW, **given}, region=region)]


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {MODE: "share"}, "region": "me-east-1"},
        {"labels": {MODE: "share"}, "kind": "edge"},
        {"labels": {}, "instance_types": ["ecs.g7.xlarge"], "cpu_policy": "static"},
        {"labels": {MODE: "topology"}, "cpu_policy": "static"},
        {"instance_types": ["ecs.gn5i-c2g1.large"]},
        {"desired_size": 0},
        {"instance_types": [], "vswitch_ids": []},
    ],
)
def test_accepted_since_nothing_forbids_it(change: dict[str, Any]) -> None:
    region = change.get("region", REGION)
    given = {key: value for key, value in change.items() if key != "region"}
    assert asked({**NEW, **given}, region=region) == []


def test_everything_that_is_wrong_is_told_at_once() -> None:
    bad = {**NEW, "labels": {MODE: True, "my label": "x", "key": "NVIDIA-TITAN-X-(Pascal)"}, "desired_size": -1}
    assert len(asked(bad, bad)) >= 9  # four a pool, and the name that is there twice


def test_a_region_that_the_operator_added_to_the_table_is_fine() -> None:
    assert asked(NEW, region="me-east-1", known=tables(extended={"isolation_regions": ["me-east-1"]})) == []


def test_an_unlisted_family_is_a_warning() -> None:
    found = node_pool_spec.findings(
        node_pool_spec.pools([{**NEW, "instance_types": ["ecs.gn9x-c8g1.2xlarge"]}]), REGION, Tables()
    )
    assert [(finding.code, finding.severity) for finding in found] == [("PRE-GPU-SERIES", "warning")]


@pytest.mark.parametrize(
    "given",
    [
        {**NEW, "runtime_version": 1.6},
        {**NEW, "taints": [{"key": "a", "effect": "NoSchedule", "value": True}]},
        {**NEW, "desired_size": "many"},
        {**NEW, "labels": {5: "x"}},
    ],
)
def test_a_specification_that_cannot_be_read_names_the_place(given: dict[str, Any]) -> None:
    with pytest.raises(AckError) as problem:
        node_pool_spec.pools([given])
    assert problem.value.code == "POOL-SPEC"
    assert "pool gpu" in str(problem.value)


# --- against what is there ---


def pool(
    labels: dict[str, str] | None = None,
    *,
    nodes: int = 0,
    state: str = "active",
    healthy: int | None = None,
    **more: Any,
) -> cloud.NodePool:
    told = {
        "nodepool_info": {"name": "gpu", "nodepool_id": "np1", "type": "ess"},
        "scaling_group": {
            "instance_types": NEW["instance_types"], "vswitch_ids": ["vsw-1"], "desired_size": nodes,
            **more.pop("scaling_group", {}),
        },
        "kubernetes_config": {
            "labels": [{"key": key, "value": value} for key, value in (labels or {}).items()],
            "taints": [], "cpu_policy": "none", "runtime": "containerd", **more.pop("kubernetes_config", {}),
        },
        "status": {"state": state, "total_nodes": nodes, "healthy_nodes": nodes if healthy is None else healthy,
                   **more.pop("status", {})},
        **more,
    }  # fmt: skip
    return cloud.read(told, cloud.NodePool)


def node(name: str, labels: dict[str, str]) -> Node:
    return Node(metadata=Meta(name=name, labels={"alibabacloud.com/nodepool-id": "np1", **labels}))


def gpu_pod(name: str, on: str, resource: str = "aliyun.com/gpu-mem", phase: str = "Running") -> Pod:
    container = Container(name="c", resources=Resources(limits={resource: "3"}))
    return Pod(Meta(name=name, namespace="ai"), PodSpec(node_name=on, containers=[container]), PodStatus(phase=phase))


def decide(want: dict[str, Any], *pools: cloud.NodePool, nodes: Any = (), pods: Any = ()) -> Plan:
    seen = Observed(tuple(pools), tuple(nodes), tuple(pods))
    return node_pool.decide(node_pool_spec.pools([{"name": "gpu", **want}]), seen, REGION, Tables())


def refused(want: dict[str, Any], *pools: cloud.NodePool, **more: Any) -> list[str]:
    with pytest.raises(AckError) as problem:
        decide(want, *pools, **more)
    assert problem.value.code == "POOL-REFUSED"
    return [found["code"] for found in problem.value.details["findings"] if found["severity"] == "error"]


def sent(plan: Plan) -> dict[str, Any]:
    assert len(plan.actions) == 1
    body: dict[str, Any] = plan.actions[0].body["body"]
    return body


def codes(plan: Plan) -> set[str]:
    return {finding.code for finding in plan.findings}


CGPU = {MODE: "cgpu", "ack.node.gpu.max-pod": "20"}


def test_an_absent_pool_is_made_with_size_0_unless_a_size_is_told() -> None:
    body = sent(decide(NEW))
    assert body == {
        "nodepool_info": {"name": "gpu", "type": "ess"},
        "scaling_group": {
            "instance_charge_type": "PostPaid", "desired_size": 0, "instance_types": ["ecs.gn6i-c4g1.xlarge"],
            "vswitch_ids": ["vsw-1"],
        },
        "kubernetes_config": {
            "labels": [{"key": MODE, "value": "cgpu"}, {"key": "ack.node.gpu.max-pod", "value": "20"}], "taints": [],
        },
    }  # fmt: skip
    assert sent(decide({**NEW, "desired_size": 3}))["scaling_group"]["desired_size"] == 3


def test_the_limit_of_pods_a_card_is_added_only_where_cgpu_isolates() -> None:
    assert [
        label["key"] for label in sent(decide({**NEW, "labels": {MODE: "share"}}))["kubernetes_config"]["labels"]
    ] == [MODE]
    unwanted = decide({**NEW, "absent_labels": ["ack.node.gpu.max-pod"]})
    assert sent(unwanted)["kubernetes_config"]["labels"] == [{"key": MODE, "value": "cgpu"}]


def test_an_absent_pool_without_types_and_switches_is_refused() -> None:
    assert refused({"labels": {MODE: "cgpu"}}) == ["POOL-INCOMPLETE"]


def test_a_pool_that_is_as_wanted_is_left_alone() -> None:
    there = pool({**CGPU, "theirs": "x"}, nodes=2)
    plan = decide({**NEW, "desired_size": 2, "cpu_policy": "none", "runtime": "containerd"}, there)
    assert (plan.actions, plan.before, plan.after) == ((), {}, {})


def test_what_is_not_told_is_left_alone() -> None:
    assert decide({}, pool(CGPU, nodes=2)).actions == ()


def test_the_order_of_lists_does_not_count() -> None:
    there = pool(CGPU, scaling_group={"instance_types": ["ecs.gn7i-c8g1.2xlarge", "ecs.gn6i-c4g1.xlarge"]})
    assert decide({"instance_types": ["ecs.gn6i-c4g1.xlarge", "ecs.gn7i-c8g1.2xlarge"]}, there).actions == ()


def test_a_new_label_is_sent_with_all_labels_and_taints_of_others() -> None:
    taints = [{"key": "theirs", "value": "y", "effect": "NoSchedule"}]
    there = pool({**CGPU, "theirs": "x"}, nodes=1, kubernetes_config={"taints": taints})
    body = sent(decide({"labels": {"ack.node.gpu.placement": "spread"}}, there, nodes=[node("a", CGPU)]))
    assert body == {
        "kubernetes_config": {
            "labels": [{"key": key, "value": value}
                       for key, value in {**CGPU, "theirs": "x", "ack.node.gpu.placement": "spread"}.items()],
            "taints": taints,
        },
        "update_nodes": True,
    }  # fmt: skip


def test_a_change_of_size_alone_sends_nothing_else() -> None:
    assert sent(decide({"desired_size": 5}, pool(CGPU, nodes=2))) == {"scaling_group": {"desired_size": 5}}


def test_existing_nodes_are_not_mentioned_where_there_are_none() -> None:
    assert "update_nodes" not in sent(decide({"labels": {"team": "a"}}, pool(CGPU)))


def test_labels_and_taints_are_removed_only_when_named() -> None:
    taints = [{"key": "old", "effect": "NoSchedule"}, {"key": "theirs", "effect": "NoExecute"}]
    there = pool({**CGPU, "gpushare": "false"}, kubernetes_config={"taints": taints})
    body = sent(decide({"absent_labels": ["gpushare"], "absent_taints": ["old"]}, there))["kubernetes_config"]
    assert [label["key"] for label in body["labels"]] == list(CGPU)
    assert body["taints"] == [{"key": "theirs", "value": "", "effect": "NoExecute"}]


def test_a_taint_is_told_by_key_and_effect() -> None:
    taints = [{"key": "gpu", "value": "a", "effect": "NoSchedule"}, {"key": "gpu", "value": "a", "effect": "NoExecute"}]
    there = pool(CGPU, kubernetes_config={"taints": taints})
    body = sent(decide({"taints": [{"key": "gpu", "value": "b", "effect": "NoSchedule"}]}, there))["kubernetes_config"]
    assert body["taints"] == [{**taints[0], "value": "b"}, taints[1]]


def test_the_diff_shows_each_node_whose_labels_change() -> None:
    nodes = [node("a", CGPU), node("b", {**CGPU, "team": "old", "kubernetes.io/hostname": "b"})]
    plan = decide({"labels": {"team": "new"}}, pool(CGPU, nodes=2), nodes=nodes)
    assert plan.before["gpu"]["nodes"] == {"a": CGPU, "b": {**CGPU, "team": "old"}}
    assert plan.after["gpu"]["nodes"] == {"a": {**CGPU, "team": "new"}, "b": {**CGPU, "team": "new"}}


def test_a_pool_of_unknown_size_has_as_many_as_there_are() -> None:
    there = pool(CGPU, nodes=2, scaling_group={"desired_size": None})
    assert decide({"desired_size": 2}, there).actions == ()


# --- the mode ---


@pytest.mark.parametrize(("old", "new"), [("mig", "cgpu"), ("cgpu", "share"), ("", "core_mem"), ("cgpu", "default")])
def test_a_pool_without_nodes_may_get_any_mode(old: str, new: str) -> None:
    plan = decide({"labels": {MODE: new}}, pool({MODE: old} if old else {}))
    assert {"key": MODE, "value": new} in sent(plan)["kubernetes_config"]["labels"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("", "cgpu", "POOL-MODE-POPULATED"),
        ("default", "topology", "POOL-MODE-POPULATED"),
        ("cgpu", "default", "POOL-MODE-POPULATED"),
        ("cgpu", "core_mem", "POOL-MODE-PATH"),
        ("share", "cgpu", "POOL-MODE-PATH"),
        ("mig", "default", "POOL-MODE-PATH"),
    ],
)
def test_the_mode_of_a_pool_with_nodes_is_not_changed_in_passing(old: str, new: str, code: str) -> None:
    have = {MODE: old} if old else {}
    assert code in refused({"labels": {MODE: new}}, pool(have, nodes=1), nodes=[node("a", have)])


def test_no_mode_and_default_are_one_mode() -> None:
    plan = decide({"labels": {MODE: "default"}}, pool({}, nodes=1), nodes=[node("a", {})], pods=[gpu_pod("p", "a")])
    assert sent(plan)["update_nodes"] is True


def test_an_accepted_change_of_mode_goes_through_where_no_pod_holds_a_gpu() -> None:
    done = gpu_pod("done", "a", phase="Succeeded")
    plan = decide(
        {"labels": {MODE: "cgpu"}, "accept": ["mode_change"]}, pool({}, nodes=1), nodes=[node("a", {})], pods=[done]
    )
    assert sent(plan)["update_nodes"] is True


@pytest.mark.parametrize(
    "resource", ["aliyun.com/gpu-mem", "nvidia.com/gpu", "aliyun.com/gpu", "aliyun.com/gpu-core.percentage"]
)
def test_an_accepted_change_of_mode_is_refused_under_a_pod_that_holds_a_gpu(resource: str) -> None:
    seen = {"nodes": [node("a", {}), node("b", {})], "pods": [gpu_pod("p", "b", resource)]}
    assert refused({"labels": {MODE: "cgpu"}, "accept": ["mode_change"]}, pool({}, nodes=2), **seen) == [
        "POOL-MODE-PODS"
    ]


def test_l01_the_refusal_names_the_two_pods_of_the_node_that_was_labelled_by_hand() -> None:
    nodes = [node("a", CGPU), node("b", {MODE: "share", "gpushare": "true"})]
    pods = [gpu_pod("one", "b"), gpu_pod("two", "b"), gpu_pod("elsewhere", "a")]
    with pytest.raises(AckError) as problem:
        decide({"labels": {"ack.node.gpu.placement": "spread"}}, pool(CGPU, nodes=2), nodes=nodes, pods=pods)
    assert "ai/one, ai/two" in str(problem.value)
    assert "elsewhere" not in str(problem.value)


def test_only_the_pods_of_nodes_whose_mode_would_change_have_to_be_known() -> None:
    nodes = (node("a", CGPU), node("b", {MODE: "share"}), node("c", {MODE: "mig"}))
    seen = Observed((pool(CGPU, nodes=3),), nodes)
    wanted = node_pool_spec.pools([{"name": "gpu", "labels": {"team": "x"}}])
    assert node_pool.flipped(wanted, seen) == ["b", "c"]
    assert node_pool.flipped(node_pool_spec.pools([{"name": "gpu"}]), seen) == []


def test_leaving_isolation_tells_that_the_module_stays_loaded() -> None:
    plan = decide(
        {"labels": {MODE: "default"}, "accept": ["mode_change"]}, pool(CGPU, nodes=1), nodes=[node("a", CGPU)]
    )
    assert "POOL-MODULE-STAYS" in codes(plan)


def test_a_label_for_isolation_on_a_pool_that_turns_out_static_is_refused_before_a_write() -> None:
    there = pool({}, node_config={"kubelet_configuration": {"cpuManagerPolicy": "static"}})
    assert refused({"labels": {MODE: "cgpu"}}, there) == ["PRE-CPU-POLICY"]


def test_a_label_for_isolation_on_a_pool_that_turns_out_to_be_edge_is_refused_before_a_write() -> None:
    there = pool({}, nodepool_info={"name": "gpu", "nodepool_id": "np1", "type": "edge"})
    assert refused({"labels": {MODE: "cgpu"}}, there) == ["PRE-ECS"]


# --- sizes and what cannot be changed ---


def test_losing_nodes_has_to_be_accepted() -> None:
    assert refused({"desired_size": 1}, pool(CGPU, nodes=3)) == ["POOL-SHRINK"]
    assert sent(decide({"desired_size": 1, "accept": ["shrink"]}, pool(CGPU, nodes=3)))
    assert sent(decide({"desired_size": 1}, pool(CGPU, nodes=3, status={"total_nodes": 1})))


def test_a_size_that_is_kept_is_not_taken_for_a_loss_of_surplus_nodes() -> None:
    there = pool(CGPU, nodes=3, status={"total_nodes": 4})
    assert decide({"desired_size": 3}, there).actions == ()


def test_the_size_of_a_pool_that_scales_by_itself_is_not_ours() -> None:
    assert refused({"desired_size": 5}, pool(CGPU, nodes=3, auto_scaling={"enable": True})) == ["POOL-AUTOSCALES"]


@pytest.mark.parametrize("want", [{"kind": "lingjun"}, {"ram_role_name": "other"}])
def test_what_ack_does_not_change_is_refused(want: dict[str, Any]) -> None:
    assert refused(want, pool({}, scaling_group={"ram_role_name": "gpu-nodes"})) == ["POOL-FIXED"]


def test_two_pools_of_one_name_are_not_guessed_between() -> None:
    with pytest.raises(AckError) as problem:
        decide({}, pool(), pool())
    assert problem.value.code == "POOL-AMBIGUOUS"


def test_drift_between_a_pool_and_its_nodes_is_reported() -> None:
    plan = decide({}, pool(CGPU, nodes=2), nodes=[node("a", CGPU), node("b", {MODE: "share"})])
    drifted = [finding for finding in plan.findings if finding.code == "POOL-DRIFT"]
    assert [finding.subject for finding in drifted] == ["node b"]
    assert f"{MODE}=share" in drifted[0].found
    assert "no ack.node.gpu.max-pod" in drifted[0].found


def test_what_only_new_nodes_get_is_told() -> None:
    plan = decide({"image_type": "Ubuntu", "labels": {"ack.aliyun.com/nvidia-driver-version": "550.90.07"}},
                  pool({}, nodes=1), nodes=[node("a", {})])  # fmt: skip
    told = next(finding for finding in plan.findings if finding.code == "POOL-LATER")
    assert "image_type" in told.found
    assert "nvidia-driver-version" in told.found


# --- whether the nodes are there ---


@pytest.mark.parametrize(
    ("there", "changed", "standing"),
    [
        (pool(nodes=2), True, "ready"),
        (pool(nodes=0), True, "ready"),
        (pool(nodes=2, healthy=1), True, "coming"),
        (pool(nodes=2, healthy=1), False, "short"),
        (pool(nodes=2, state="scaling"), False, "coming"),
        (pool(nodes=2, status={"initial_nodes": 1, "healthy_nodes": 1}), False, "coming"),
        (pool(nodes=2, healthy=1, auto_scaling={"enable": True}), True, "ready"),
    ],
)
def test_standing_of_a_pool(there: cloud.NodePool, changed: bool, standing: str) -> None:
    assert node_pool.standing(there, changed=changed) == standing
