"""Asynchronous tasks: records that the API shows, and the engine that carries their work on until it is done.

The work of a task is a function of the records (`KINDS`), called again and again; it says whether it is finished. So a
restarted endpoint simply goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.cloud.errors import CODES
from sandbox.cloud.faults import Fault
from sandbox.cloud.fleet import ClusterError
from sandbox.cloud.world import World, fresh_id, stamp_local

Record = dict[str, Any]
Work = Callable[[World, Record], bool]
RUNNING, PAUSED, SUCCESS, FAIL, CANCELED = "running", "paused", "success", "fail", "canceled"


class TaskFailed(Exception):
    """The work can't be finished; code and message go into the task's `error`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


@dataclass(frozen=True)
class Kind:
    """`carry_on` does the next step and says whether that was the last; `abandon` tidies up after fail and cancel."""

    carry_on: Work
    abandon: Callable[[World, Record], None] = lambda world, task: None


KINDS: dict[str, Kind] = {}


def start(
    world: World, task_type: str, *, target: Record, parameters: Record, notes: Record, items: Sequence[str] = (),
    faults: Sequence[Fault] = (),
) -> Record:  # fmt: skip
    """A new task, running from now on. `items` are what it works on, one by one; `notes` are for its own work."""
    asked = {fault.kind: fault for fault in faults}
    now = world.now()
    task = {
        "task_id": fresh_id("T-")[:26], "cluster_id": world.data["cluster"]["cluster_id"], "task_type": task_type,
        "state": RUNNING, "created": stamp_local(now), "updated": stamp_local(now), "target": target,
        "parameters": parameters, "result": dict.fromkeys(items, "initial"), "events": [], "error": None,
        "started": now.timestamp(), "notes": notes, "never_ends": "task-never-ends" in asked,
        "fails_with": (asked["task-fails"].code or "InternalError") if "task-fails" in asked else "",
        "hidden": "task-id-empty" in asked,
    }  # fmt: skip
    world.data["tasks"][task["task_id"]] = task
    event(world, task, "start", "Normal", f"{task_type} of {target['type']} {target['id']} started")
    return task


def answer_id(task: Record) -> str:
    """The id that the call answers with: empty when that fault was asked for."""
    return "" if task["hidden"] else str(task["task_id"])


def is_old_enough(world: World, task: Record) -> bool:
    """False for a moment after the start, and for ever when a fault says that the task never ends."""
    return bool(world.now().timestamp() - task["started"] >= world.settings.task_seconds and not task["never_ends"])


def event(world: World, task: Record, reason: str, level: str, message: str) -> None:
    task["events"].append({
        "action": task["task_type"], "level": level, "message": message, "reason": reason, "source": "cs",
        "timestamp": str(int(world.now().timestamp() * 1000)),
    })  # fmt: skip


def unfinished(world: World, target_id: str) -> list[Record]:
    """The tasks that work on a target now, or are paused."""
    tasks = [task for task in world.data["tasks"].values() if task["state"] in (RUNNING, PAUSED)]
    return [task for task in tasks if task["target"]["id"] == target_id]


def advance(world: World) -> bool:
    """Carry on every running task one step; True when there was one."""
    tasks = [task for task in world.data["tasks"].values() if task["state"] == RUNNING]
    for task in tasks:
        _advance_one(world, task)
    return bool(tasks)


def _advance_one(world: World, task: Record) -> None:
    try:
        if task["fails_with"]:
            if is_old_enough(world, task):
                known = CODES.get(task["fails_with"])
                raise TaskFailed(task["fails_with"], known.message if known else "A fault that was asked for.")
            return
        done = KINDS[task["task_type"]].carry_on(world, task)
    except TaskFailed as failed:
        task["error"] = {"code": failed.code, "message": failed.message}
        finish(world, task, FAIL, failed.message)
    except ClusterError as unreachable:
        # The cluster may be restarting: the task goes on when it is back.
        task["notes"]["cluster"] = str(unreachable)
    else:
        if done and is_old_enough(world, task):
            finish(world, task, SUCCESS, f"{task['task_type']} finished")


def finish(world: World, task: Record, state: str, message: str) -> None:
    task["state"], task["updated"] = state, stamp_local(world.now())
    event(world, task, state, "Warning" if state == FAIL else "Normal", message)
    if state in (FAIL, CANCELED):
        KINDS[task["task_type"]].abandon(world, task)


class Engine:
    """The thread that carries tasks on, and whatever else must happen by itself (`extras`)."""

    def __init__(self, world: World, *extras: Callable[[World], None]) -> None:
        self._world, self._extras = world, extras
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cloud-tasks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._world.settings.tick_seconds
        while not self._stop.wait(pause):
            begun = time.monotonic()
            try:
                with self._world.store.change():
                    advance(self._world)
                    for extra in self._extras:
                        extra(self._world)
            except Exception as bug:  # noqa: BLE001 - one bad task must not stop the others; it is in the log
                print(f"tasks: {bug!r}", flush=True)
            # A large cluster takes long to look at: the calls must still find the lock free most of the time.
            pause = max(self._world.settings.tick_seconds, 4 * (time.monotonic() - begun))
