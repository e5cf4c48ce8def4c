"""CS: what the API shows of tasks, and cancel, pause and resume."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sandbox.cloud import tasks
from sandbox.cloud.cs_clusters import cluster_of
from sandbox.cloud.errors import error
from sandbox.cloud.paging import page, slice_after
from sandbox.cloud.world import Call, World

Record = dict[str, Any]
# DescribeTaskInfo documents `initial` for what has not begun, `success` and `failed` for what has ended.
_RESULT = {"initial": "initial", "done": "success", "failed": "failed"}


def describe_task_info(world: World, call: Call) -> Record:
    task = _task(world, call)
    shown = {key: task[key] for key in ("task_id", "cluster_id", "task_type", "state", "created", "updated")}
    return {
        **shown,
        "target": task["target"],
        "parameters": task["parameters"],
        "current_stage": "" if task["state"] in (tasks.SUCCESS, tasks.CANCELED) else task["task_type"],
        "stages": [_stage(task)],
        "events": task["events"],
        "task_result": [{"data": item, "status": _RESULT[state]} for item, state in task["result"].items()],
        "error": task["error"] or {},
    }


def describe_cluster_tasks(world: World, call: Call) -> Record:
    cluster_of(world, call)
    found = [_listed(task) for task in sorted(world.data["tasks"].values(), key=lambda each: -each["started"])]
    number, size = call.query.get("page_number", 1), call.query.get("page_size", 50)
    answer: Record = {
        "requestId": call.request_id,
        "page_info": {"page_number": number, "page_size": size, "total_count": len(found)},
    }
    if "max_results" not in call.query and "next_token" not in call.query:
        return {**answer, "tasks": page(found, number, size, largest=100)}
    try:
        shown, token = slice_after(found, call.query.get("next_token", ""), call.query.get("max_results", 50))
    except ValueError:
        raise error("InvalidParameter.Paging", name="next_token", expected="one that was given out") from None
    return {**answer, "tasks": shown, "next_token": token}


def cancel_task(world: World, call: Call) -> None:
    task = _task(world, call, verb="canceled", only=(tasks.RUNNING, tasks.PAUSED))
    tasks.finish(world, task, tasks.CANCELED, "canceled on request")


def pause_task(world: World, call: Call) -> None:
    task = _task(world, call, verb="paused", only=(tasks.RUNNING,))
    task["state"] = tasks.PAUSED


def resume_task(world: World, call: Call) -> None:
    task = _task(world, call, verb="resumed", only=(tasks.PAUSED,))
    task["state"] = tasks.RUNNING


def _task(world: World, call: Call, *, verb: str = "", only: tuple[str, ...] = ()) -> Record:
    task: Record | None = world.data["tasks"].get(call.path["task_id"])
    if task is None:
        raise error("ErrorTaskNotFound", id=call.path["task_id"])
    if only and task["state"] not in only:
        raise error("TaskStateConflict", id=task["task_id"], state=task["state"], verb=verb)
    return task


def _listed(task: Record) -> Record:
    shown = {key: task[key] for key in ("task_id", "task_type", "state", "created", "updated")}
    return {**shown, "error": task["error"] or {}}


def _stage(task: Record) -> Record:
    ended = task["state"] in (tasks.SUCCESS, tasks.FAIL, tasks.CANCELED)
    stage: Record = {
        "state": task["state"],
        "message": task["events"][-1]["message"] if task["events"] else "",
        "start_time": datetime.fromtimestamp(task["started"], UTC).strftime("%Y-%m-%d %H:%M:%S"),
    }
    if ended:
        stage["end_time"] = datetime.fromisoformat(task["updated"]).strftime("%Y-%m-%d %H:%M:%S")
    return stage
