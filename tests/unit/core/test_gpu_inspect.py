"""GPU usage: the documented tables to the letter, the cases of people whose sums were wrong, and sums as a law."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_inspect
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.gpu_inspect import NodeUsage, Usage, usage
from ansible_collections.ack.ai_suite.plugins.module_utils.core.gpu_inspect_table import details, table, warnings
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Pod, from_json

MEM, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
ALLOCATION, INDEX = "scheduler.framework.gpushare.allocation", "ALIYUN_COM_GPU_MEM_IDX"


def node(name: str, mem: Any = None, count: Any = None, ip: str = "10.0.0.1", **more: Any) -> Node:
    told = {key: str(value) for key, value in ((MEM, mem), (COUNT, count)) if value is not None}
    capacity = {f"aliyun.com/gpu-{key}": value for key, value in more.get("capacity", {}).items()} or told
    body = {
        "metadata": {"name": name, "labels": more.get("labels")},
        "status": {
            "allocatable": told,
            "capacity": capacity,
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": ip}],
        },
    }
    return msgspec.convert(body, Node)


def pod(name: str, limits: list[Any], annotations: dict[str, str] | None = None, on: str = "n", **more: Any) -> Pod:
    def containers(amounts: list[Any]) -> list[dict[str, Any]]:
        return [{"name": f"c{i}", "resources": {"limits": {MEM: str(mem)}}} for i, mem in enumerate(amounts)]

    body = {
        "metadata": {"name": name, "namespace": more.get("namespace", "ai"), "annotations": annotations,
                     "deletionTimestamp": more.get("deleted")},
        "spec": {"nodeName": on, "containers": containers(limits), "initContainers": containers(more.get("init", []))},
        "status": {"phase": more.get("phase", "Running")},
    }  # fmt: skip
    return msgspec.convert(body, Pod)


def on_card(name: str, memory: int, card: int, on: str = "n") -> Pod:
    return pod(name, [memory], {ALLOCATION: json.dumps({"0": {str(card): memory}})}, on)


def one(told: Usage) -> NodeUsage:
    (only,) = told.nodes
    return only


def held(told: Usage) -> list[int]:
    return [card.allocated for card in one(told).cards]


def codes(told: Usage) -> list[tuple[str, str]]:
    return [(finding.code, finding.subject) for finding in told.findings]


def test_the_table_of_the_guide_is_printed_to_the_letter() -> None:
    told = usage([node("cn-shanghai.192.168.6.104", 15, 1, "192.168.6.104")], [])
    assert (
        table(told)
        == """\
NAME                       IPADDRESS      GPU0(Allocated/Total)  GPU Memory(GiB)
cn-shanghai.192.168.6.104  192.168.6.104  0/15                   0/15
----------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
0/15 (0%)"""
    )


def test_the_documented_table_of_two_small_cards_is_printed_to_the_letter() -> None:
    told = usage([node("cn-shanghai.192.168.0.4", 14, 2, "192.168.0.4")], [])
    assert (
        table(told)
        == """\
NAME                     IPADDRESS    GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)
cn-shanghai.192.168.0.4  192.168.0.4  0/7                    0/7                    0/14
---------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
0/14 (0%)"""
    )


@pytest.mark.parametrize(
    ("placed", "line"),
    [
        ([15, 9, 0, 0], "15/15                  9/15                   0/15                   0/15"),
        ([4, 0, 4, 4], "4/15                   0/15                   4/15                   4/15"),
    ],
)
def test_binpack_and_spread_look_as_in_the_documents(placed: list[int], line: str) -> None:
    pods = [on_card(f"p{card}", memory, card) for card, memory in enumerate(placed) if memory]
    lines = table(usage([node("n", 60, 4)], pods)).splitlines()
    assert lines[1] == f"n     10.0.0.1   {line}                   {sum(placed)}/60"
    assert lines[-1] == f"{sum(placed)}/60 ({sum(placed) * 100 // 60}%)"


def test_a_card_that_a_node_lacks_and_a_pending_pod_have_their_columns() -> None:
    nodes = [node("b", 30, 2, "10.0.0.2"), node("a", 15, 1, "10.0.0.1")]
    told = usage(nodes, [pod("waits", [3], on="a"), on_card("runs", 7, 1, on="b")])
    assert (
        table(told)
        == """\
NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)  GPU Memory(GiB)
a     10.0.0.1   0/15                   0/0                    3                   3/15
b     10.0.0.2   0/15                   7/15                                       7/30
-----------------------------------------------
Allocated/Total GPU Memory In Cluster:
10/45 (22%)"""
    )


def test_a_cluster_without_shared_cards_says_so() -> None:
    told = usage([node("cpu")], [])
    assert (
        table(told)
        == """\
NAME  IPADDRESS  GPU Memory(GiB)

Allocated/Total GPU Memory In Cluster:
0/0 (0%)"""
    )
    assert codes(told) == [("GPU-NOTHING-SHARED", "cluster")]


def test_the_details_are_laid_out_as_the_original_prints_them() -> None:
    nodes = [node("worker-1", 47, 1, "192.168.0.53"), node("worker-2", 47, 1, "192.168.0.54")]
    pods = [
        pod("gpu-share-pod3", [11], {INDEX: "0"}, "worker-1", namespace="default"),
        pod("jupyter-admin888", [4], None, "worker-1", namespace="jupyterhub"),
        pod("gpu-share-pod2", [11], {INDEX: "0"}, "worker-2", namespace="default"),
        pod("gpu-share-pod1", [11], {INDEX: "0"}, "worker-2", namespace="default"),
    ]
    assert (
        details(usage(nodes, pods))
        == """\

NAME:       worker-1
IPADDRESS:  192.168.0.53

NAME              NAMESPACE   GPU0(Allocated)  Pending(Allocated)
gpu-share-pod3    default     11               0
jupyter-admin888  jupyterhub  0                4
Allocated :       15 (31%)
Total :           47
------------------------------------------------------------------------

NAME:       worker-2
IPADDRESS:  192.168.0.54

NAME            NAMESPACE  GPU0(Allocated)
gpu-share-pod1  default    11
gpu-share-pod2  default    11
Allocated :     22 (46%)
Total :         47
------------------------------------------------------------------------


Allocated/Total GPU Memory In Cluster:  37/94 (39%)"""
    )


# --- cards, units, zeros ---

ODD_NODES = [
    node("mix1", 88, 2), node("mix2", 2, 2, labels={"aliyun.accelerator/nvidia_mem": "2002MiB"}),
    node("odd", 45, 2), node("zero", 0, 8), node("nocount", 44), node("zerocount", 44, 0),
    node("mib", 32510, 1), node("gib", 31, 1), node("quantity", "1k", 4),
    node("lost", 31, 2, capacity={"mem": "62", "count": "2"}),
]  # fmt: skip


def shown(name: str) -> NodeUsage:
    return next(told for told in usage(ODD_NODES, []).nodes if told.name == name)


def test_odd_nodes_give_no_traceback_and_each_gets_its_line() -> None:
    told = usage(ODD_NODES, [])
    assert [found.name for found in told.nodes] == sorted({told.name for told in ODD_NODES} - {"zero"})
    assert len(table(told).splitlines()) == 1 + len(told.nodes) + 1 + 1 + 2


def test_a_total_that_cards_do_not_divide_is_shown_whole_and_warned_of() -> None:
    assert (shown("odd").total, [card.total for card in shown("odd").cards]) == (45, [22, 22])
    assert ("GPU-UNEQUAL-CARDS", "node odd") in codes(usage(ODD_NODES, []))
    assert "0/45 GiB" in table(usage(ODD_NODES, []))


def test_cards_without_memory_are_explained() -> None:
    (found,) = usage([node("zero", 0, 8)], []).findings[1:]
    assert (found.code, found.found) == ("GPU-NO-MEMORY", "8 cards and no aliyun.com/gpu-mem")
    assert "MiB is too fine" in found.cure


@pytest.mark.parametrize("name", ["nocount", "zerocount"])
def test_a_node_without_a_number_of_cards_shows_its_total_and_unknown_cards(name: str) -> None:
    told = usage([next(n for n in ODD_NODES if n.name == name), node("other", 15, 1)], [])
    assert table(told).splitlines()[1 + (name > "other")].split() == [name, "10.0.0.1", "unknown", "0/44"]
    assert ("GPU-NO-COUNT", f"node {name}") in codes(told)


def test_units_are_told_apart_by_node_and_never_summed_together() -> None:
    told = usage([node("mib", 32510, 1), node("gib", 31, 1)], [on_card("p", 1000, 0, on="mib")])
    lines = table(told).splitlines()
    assert lines[0].endswith("GPU Memory")
    assert lines[1].endswith("0/31 GiB")
    assert lines[2].endswith("1000/32510 MiB")
    assert lines[-2:] == ["0/31 GiB (0%)", "1000/32510 MiB (3%)"]
    assert ("GPU-MIXED-UNITS", "cluster") in codes(told)


def test_a_card_of_more_than_a_hundred_gib_is_not_taken_for_mib_when_its_label_says_otherwise() -> None:
    label = {"aliyun.accelerator/nvidia_mem": "144384MiB"}
    assert one(usage([node("h20-3e", 141 * 8, 8, labels=label)], [])).unit == "GiB"


def test_quantities_are_read_by_value() -> None:
    assert (shown("quantity").total, shown("quantity").unit) == (1000, "MiB")
    assert [card.total for card in shown("quantity").cards] == [250] * 4


def test_a_lost_card_is_named_and_the_healthy_one_keeps_its_size() -> None:
    told = usage([node("lost", 31, 2, capacity={"mem": "62", "count": "2"})], [])
    assert (one(told).total, [card.total for card in one(told).cards]) == (31, [31, 31])
    (found,) = told.findings
    assert (found.code, found.found) == ("GPU-CARD-LOST", "31 of 62 GiB allocatable")
    assert found.cure.startswith("1 card not healthy?")


def test_equal_cards_are_assumed_until_a_label_disagrees() -> None:
    assert codes(usage([node("mix1", 88, 2)], [])) == []
    told = usage([node("mix", 60, 2, labels={"aliyun.accelerator/nvidia_mem": "46068MiB"})], [])
    assert codes(told) == [("GPU-UNEQUAL-CARDS", "node mix")]


# --- several containers, several cards ---

G03_NODE = node("n", 62, 2)
G03_PODS = [
    pod("v1", [8], {INDEX: "1", "ALIYUN_COM_GPU_MEM_POD": "8"}),
    pod("v2", [1, 7], {ALLOCATION: '{"0":{"1":1},"1":{"1":7}}'}),
    pod("wide", [6], {ALLOCATION: '{"0":{"0":3,"1":3}}'}),
    pod("both", [2], {INDEX: "1", ALLOCATION: '{"0":{"0":2}}'}),
    pod("broken", [4], {INDEX: "0", ALLOCATION: "{0:{"}),
    pod("ghost", [5], {INDEX: "7"}),
    pod("init", [2], {INDEX: "0"}, init=[9]),
    pod("lies", [2], {ALLOCATION: '{"0":{"0":20}}'}),
]


def test_containers_and_cards_are_summed_as_the_scheduler_wrote_them() -> None:
    told = usage([G03_NODE], G03_PODS)
    assert held(told) == [31, 19]
    assert (one(told).pending, one(told).allocated, one(told).total) == (5, 55, 62)
    assert (
        table(told).splitlines()[1]
        == "n     10.0.0.1   31/31                  19/31                  5                   55/62"
    )


def test_what_is_odd_about_a_ledger_is_said_with_the_pods_name() -> None:
    assert codes(usage([G03_NODE], G03_PODS)) == [
        ("GPU-ANNOTATION", "pod ai/broken on node n"),
        ("GPU-NO-SUCH-CARD", "pod ai/ghost on node n"),
        ("GPU-LEDGER", "pod ai/lies on node n"),
    ]
    assert any("card 7" in line for line in warnings(usage([G03_NODE], G03_PODS)))


def test_a_thousand_equal_oddities_are_four_lines() -> None:
    told = list(warnings(usage([G03_NODE], [pod(f"p{number}", [1], {INDEX: "9"}) for number in range(1000)])))
    assert len(told) == 4
    assert told[-1] == "GPU-NO-SUCH-CARD: 997 more, see the JSON output."


def test_a_pod_on_two_cards_is_listed_once_with_both() -> None:
    lines = [line.split() for line in details(usage([G03_NODE], G03_PODS)).splitlines() if line.startswith("wide ")]
    assert lines == [["wide", "ai", "3", "3", "0"]]


@pytest.mark.parametrize("annotation", ["", "{}", "null", "[]", '{"0":3}', '{"0":{"x":3}}', '{"0":{"0":-3}}',
                                        '{"0":{"0":"3"}}', '{"0":{"99999999":3}}', "\ud800"])  # fmt: skip
def test_a_ledger_that_cannot_be_read_falls_back_to_the_index(annotation: str) -> None:
    assert held(usage([G03_NODE], [pod("p", [3], {ALLOCATION: annotation, INDEX: "1"})])) == [0, 3]


@pytest.mark.parametrize("index", ["-1", "x", "", "1,2", "٣", "9" * 5000])
def test_an_index_that_is_no_card_counts_as_pending(index: str) -> None:
    told = usage([G03_NODE], [pod("p", [3], {INDEX: index})])
    assert (held(told), one(told).pending) == ([0, 0], 3)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_hold_nothing(phase: str) -> None:
    assert held(usage([G03_NODE], [pod("p", [3], {INDEX: "0"}, phase=phase)])) == [0, 0]


def test_terminating_pods_still_hold_their_memory() -> None:
    assert held(usage([G03_NODE], [pod("p", [3], {INDEX: "0"}, deleted="2026-01-01T00:00:00Z")])) == [3, 0]


def test_pods_that_are_not_on_a_shown_node_are_not_counted() -> None:
    pods = [pod("elsewhere", [3], {INDEX: "0"}, "other"), pod("nowhere", [3], None, ""), pod("no-gpu", [0])]
    assert one(usage([G03_NODE], pods)).allocated == 0


def test_pods_on_a_node_that_advertises_nothing_are_named() -> None:
    told = usage([node("dead", 0, 1)], [on_card("p", 3, 0, on="dead")])
    assert [code for code, _ in codes(told)] == ["GPU-NOTHING-SHARED", "GPU-NO-MEMORY", "GPU-NOT-ADVERTISED"]


def test_a_card_whose_pods_hold_more_than_it_has_is_named() -> None:
    told = usage([node("n", 30, 2)], [on_card("p", 9, 1), on_card("q", 9, 1)])
    (found,) = told.findings
    assert (found.code, found.subject, found.found) == ("GPU-OVERBOOKED", "node n card 1", "18 of 15 GiB")


def test_computing_power_is_shown_in_the_data() -> None:
    notes = {ALLOCATION: '{"0":{"1":3}}', "gpushare.alibabacloud.com/core-percentage": '{"0":{"1":30}}'}
    told = usage([G03_NODE], [pod("p", [3], notes), pod("q", [3], notes)])
    assert [card.core for card in one(told).cards] == [0, 60]
    assert [card.pods for card in one(told).cards] == [0, 2]


def test_only_the_named_nodes_are_shown_and_an_unknown_name_is_refused() -> None:
    nodes = [node("a", 15, 1), node("b", 15, 1)]
    assert [told.name for told in usage(nodes, [], ["b"]).nodes] == ["b"]
    with pytest.raises(AckError, match="node c: it does not exist") as refused:
        usage(nodes, [], ["b", "c"])
    assert refused.value.code == "GPU-NO-NODE"


def test_the_order_does_not_depend_on_the_order_of_the_lists() -> None:
    nodes = [node(name, 30, 2) for name in "cab"]
    pods = [on_card(f"p{number}", number, number % 2, on="cab"[number % 3]) for number in range(1, 9)]
    forward, backward = usage(nodes, pods), usage(nodes[::-1], pods[::-1])
    assert table(forward) == table(backward)
    assert details(forward) == details(backward)
    assert gpu_inspect.data(forward) == gpu_inspect.data(backward)


def test_the_data_survive_json() -> None:
    told = gpu_inspect.data(usage([G03_NODE], G03_PODS))
    assert json.loads(json.dumps(told)) == told
    assert told["cluster"] == [{"unit": "GiB", "allocated": 55, "total": 62, "percent": 88}]
    assert told["nodes"][0]["pods"][0]["cards"] == {"0": 2}


# --- laws ---

LEDGERS = st.dictionaries(
    st.integers(0, 3).map(str), st.dictionaries(st.integers(0, 5).map(str), st.integers(0, 40), max_size=3), max_size=3
)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=3), LEDGERS | st.none(), st.none() | st.integers(-1, 9)))
)
def test_the_sums_are_what_went_in(told: list[tuple[list[int], dict[str, dict[str, int]] | None, int | None]]) -> None:
    pods, wanted = [], 0
    for number, (limits, ledger, index) in enumerate(told):
        notes = {ALLOCATION: json.dumps(ledger)} if ledger is not None else {}
        notes |= {INDEX: str(index)} if index is not None else {}
        pods.append(pod(f"p{number}", limits, notes))
        written = sum(sum(cards.values()) for cards in (ledger or {}).values())
        placed = bool(ledger) and any(ledger.values())
        wanted += (written if placed else sum(limits)) if sum(limits) > 0 else 0
    counted = one(usage([G03_NODE], pods))
    assert counted.allocated == wanted
    assert sum(card.allocated for card in counted.cards) + counted.pending == wanted
    assert sum(sum(share.cards.values()) + share.pending for share in counted.pods) == wanted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
QUANTITIES = st.text(max_size=6) | st.integers(-5, 10**12).map(str) | st.sampled_from(["1k", "1e9", "15Gi", "0", "7"])


@given(JSON.map(json.dumps) | st.text(), st.text(max_size=5), QUANTITIES, QUANTITIES, QUANTITIES)
def test_no_annotation_and_no_quantity_gives_a_traceback(
    ledger: str, index: str, limit: str, memory: str, count: str
) -> None:
    notes = {ALLOCATION: ledger, INDEX: index, "gpushare.alibabacloud.com/core-percentage": ledger}
    told = usage([node("n", memory, count)], [pod("p", [limit], notes)])
    assert table(told)
    assert details(told)
    assert json.dumps(gpu_inspect.data(told))


@given(st.binary(max_size=60) | JSON.map(json.dumps).map(str.encode)
       | st.lists(st.dictionaries(st.sampled_from(["kind", "metadata", "spec", "status"]),
                                  JSON | st.sampled_from(["Node", "Pod"]))).map(
           lambda items: json.dumps({"kind": "List", "items": items}).encode()))  # fmt: skip
def test_a_file_gives_a_table_or_one_clear_error(text: bytes) -> None:
    try:
        snapshot = from_json(text)
    except AckError as refused:
        told = refused.code
    else:
        told = table(usage(snapshot.nodes, snapshot.pods))
    assert told == "SNP-NOT-JSON" or told.startswith("NAME")
