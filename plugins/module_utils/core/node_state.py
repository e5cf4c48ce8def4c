"""The states of a node that is being upgraded, as they stand on the node itself, and the patches that change them.

A run keeps nothing in its head: label, record and run id are written in one patch, and each patch first tests that the
node still belongs to the run that writes. A finished node carries nothing of ours.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import Node, Taint

PREFIX = "ai-suite.ack/"
RUN = f"{PREFIX}run"  # annotation: the run that owns the node; every write tests it
RECORD = f"{PREFIX}upgrade"  # annotation: Record as JSON
STATE = f"{PREFIX}upgrade-state"  # label: the state alone, for kubectl get nodes -L
SKIP = f"{PREFIX}upgrade-skip"  # label: hands off this node
TAINT = Taint(key=f"{PREFIX}quarantined", effect="NoSchedule")

Name = Literal["cordoned", "drained", "installer_replaced", "upgrading", "rebooting", "verifying", "quarantined"]
NAMES: tuple[str, ...] = get_args(Name)


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run must know to go on with a node that another run began. Times are UTC."""

    state: Name
    since: datetime  # when the state was entered
    at: datetime  # from when its time-outs count: since, or the moment at which a run took the node over
    started: datetime
    target: str
    version: str = ""  # loaded when the upgrade began
    attempt: int = 1  # how many runs have worked on it
    reason: str = ""
    cure: str = ""
    unschedulable: bool = False  # a cordon that was there before ours, and stays
    taints: tuple[Taint, ...] = ()  # as they were before us
    resources: dict[str, str] = {}  # GPU resources that were advertised before
    unit: str = ""  # name of the unit on the host, the same for every run that continues
    boot_id: str = ""  # before the restart
    restarted: datetime | None = None  # when the restart was asked for
    steps: dict[str, float] = {}  # seconds spent in each state that was left


class State(msgspec.Struct, frozen=True):
    """One row of the table. ``past``: the module may be uninstalled already, so the node is always finished."""

    name: str
    entered: str
    writes: str
    crash: str
    cure: str
    past: bool = False


_GIVEN_BACK = "the next run goes on; outside a window it gives the node back"
TABLE: tuple[State, ...] = (
    State(
        "pending",
        "isolation label, loaded version is not the target, no blocker",
        "nothing",
        "nothing",
        "nobody needs to",
    ),
    State(
        "cordoned",
        "a window is open and what is left of it holds one node, no node is busy, the failure budget is not spent, "
        "the node's Lease is ours, probe and gates hold",
        "one patch: run, record (prior cordon, taints, GPU resources), label, `spec.unschedulable`; then evictions",
        "a cordoned node, some of its pods evicted",
        _GIVEN_BACK,
    ),
    State(
        "drained",
        "every pod that must leave is gone, by UID",
        "record; deletes the installer pod of the old revision",
        "a cordoned node without workload, its installer pod old, new or between",
        _GIVEN_BACK,
    ),
    State(
        "installer_replaced",
        "the installer pod of the DaemonSet's current revision is ready on the node",
        "record",
        "the same; the old module is still loaded, and the new one comes with the next restart",
        _GIVEN_BACK,
    ),
    State(
        "upgrading",
        "the old `bootID` is recorded; then the unit is started on the host, once whoever asks",
        "record (`boot_id`, `unit`); the host keeps script, log and status in `/var/lib/ai-suite/<unit>`",
        "kubelet and runtime stopped, module uninstalled or about to be; a failed uninstall starts both again",
        "the next run, inside a window or not: it finds the unit's status and goes on",
        past=True,
    ),
    State(
        "rebooting",
        "the host says that the module is uninstalled, or that it has restarted",
        "record (`restarted` after the request); ECS `RebootInstance`, unless the guest restarts itself",
        "a node that is down, or waits for its restart with its kubelet stopped",
        "the next run, inside a window or not: it asks for the restart only if the host has not restarted",
        past=True,
    ),
    State(
        "verifying",
        "`bootID` has changed and the node is Ready",
        "record",
        "a cordoned node with the new module",
        "the next run, inside a window or not",
        past=True,
    ),
    State(
        "done",
        "`/proc/cgpu_km/version` is the target, installer pod ready, GPU resources as before",
        "one patch removes run, record, label and our cordon (a cordon that was there before stays)",
        "nothing",
        "nobody needs to",
    ),
    State(
        "restored",
        "failed, or the window closed, before the uninstall",
        "the same patch as done; the history says why (`on_failure: keep` leaves it cordoned, as quarantined)",
        "nothing",
        "the next run tries again",
    ),
    State(
        "quarantined",
        "failed after the uninstall began",
        "one patch: record with reason and cure, label, taint `ai-suite.ack/quarantined:NoSchedule`; stays cordoned",
        "the same",
        "a person: mend what the reason says, then run with `node_upgrade_retry_quarantined: true`",
    ),
)  # fmt: skip
PAST = frozenset(row.name for row in TABLE if row.past)


def table() -> str:
    """The table as docs/engine.md shows it."""
    head = "| state | entered when | writes | what a crash here leaves | who cures it |\n|---|---|---|---|---|"
    rows = (f"| `{r.name}` | {r.entered} | {r.writes} | {r.crash} | {r.cure} |" for r in TABLE)
    return "\n".join((head, *rows))


# --- reading ---


def owner(node: Node) -> str:
    """The run that works on a node, or ""."""
    return node.annotations.get(RUN, "")


def record_of(node: Node) -> Record | None:
    """The record on a node; None when there is none. Raises ValueError for one that cannot be read."""
    text = node.annotations.get(RECORD)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError as problem:
        raise ValueError(f"the annotation {RECORD} cannot be read: {problem}") from None


def advance(record: Record, state: Name, now: datetime, **changes: Any) -> Record:
    """The record in its next state; the time spent in the last one is kept."""
    steps = {**record.steps, record.state: round((now - record.since).total_seconds(), 1)}
    return msgspec.structs.replace(record, state=state, since=now, at=now, steps=steps, **{"reason": "", **changes})


def resumed(record: Record, now: datetime) -> Record:
    """The record as a run takes it over: time-outs count anew, since nobody worked meanwhile."""
    return msgspec.structs.replace(record, at=now, attempt=record.attempt + 1)


# --- patches (RFC 6902) ---

Operation = dict[str, Any]


def _pointer(*parts: str) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


_RUN_AT = _pointer("metadata", "annotations", RUN)
_RECORD_AT = _pointer("metadata", "annotations", RECORD)
_STATE_AT = _pointer("metadata", "labels", STATE)


def _test(path: str, value: Any) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _content(record: Record) -> list[Operation]:
    return [
        _add(_RECORD_AT, msgspec.json.encode(record).decode()),
        _add(_STATE_AT, record.state),
        _add("/spec/unschedulable", True),  # also when somebody uncordoned it meanwhile
    ]


def claim(node: Node, run: str, record: Record) -> list[Operation]:
    """Take a free node and cordon it. ``uid`` and the absent run are tested: nobody else's node, nor a new one."""
    maps = (("/metadata/annotations", node.metadata.annotations), ("/metadata/labels", node.metadata.labels))
    return [
        _test("/metadata/uid", node.metadata.uid),
        *(_add(path, {}) for path, there in maps if there is None),
        _test(_RUN_AT, None),
        _add(_RUN_AT, run),
        *_content(record),
    ]


def adopt(old_run: str, run: str, record: Record) -> list[Operation]:
    """Take over a node from a run that is dead: from here on that run's writes fail."""
    return [_test(_RUN_AT, old_run or None), _add(_RUN_AT, run), *_content(record)]


def write(run: str, record: Record) -> list[Operation]:
    """The next state of our own node."""
    return [_test(_RUN_AT, run), *_content(record)]


def quarantine(node: Node, run: str, record: Record) -> list[Operation]:
    """Keep it out of service: cordon, taint, label, reason. It belongs to no run any more."""
    taints = list(node.spec.taints or ())
    add = [] if any(t.key == TAINT.key for t in taints) else _with_taints(node, [*taints, TAINT])
    return [_test(_RUN_AT, run), *_content(record), *add, {"op": "remove", "path": _RUN_AT}]


def finish(node: Node, run: str, record: Record) -> list[Operation]:
    """Leave nothing of ours, and the cordon as it was before us."""
    taints = list(node.spec.taints or ())
    rest = [taint for taint in taints if taint.key != TAINT.key]
    uncordon = [] if record.unschedulable or not node.spec.unschedulable else [_add("/spec/unschedulable", False)]
    ours = ((_RECORD_AT, RECORD in node.annotations), (_STATE_AT, STATE in node.labels), (_RUN_AT, True))
    return [
        _test(_RUN_AT, run),
        *(_with_taints(node, rest) if len(rest) < len(taints) else []),
        *uncordon,
        *({"op": "remove", "path": path} for path, there in ours if there),
    ]


def _with_taints(node: Node, taints: list[Taint]) -> list[Operation]:
    """Write the whole list, if it is still the one that was seen: others write taints at any time."""
    seen = node.spec.taints
    before = None if seen is None else [_plain(taint) for taint in seen]
    return [_test("/spec/taints", before), _add("/spec/taints", [_plain(taint) for taint in taints])]


def _plain(taint: Taint) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(taint).items() if value}
