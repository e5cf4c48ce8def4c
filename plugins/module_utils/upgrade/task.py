"""One call of ``node_upgrade``: arguments in, plan, run, result. Knows no Ansible."""

from __future__ import annotations

import getpass
import hashlib
import re
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils import runner
from ansible_collections.ack.ai_suite.plugins.module_utils.clients import clock, connection
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.compute import Compute
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.kube import Kube
from ansible_collections.ack.ai_suite.plugins.module_utils.clients.node_shell import NodeShell
from ansible_collections.ack.ai_suite.plugins.module_utils.core import node_upgrade, upgrade_settings
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.node_upgrade import Work
from ansible_collections.ack.ai_suite.plugins.module_utils.core.plan import Plan
from ansible_collections.ack.ai_suite.plugins.module_utils.core.upgrade_settings import Settings
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.guard import Guard
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.host import Host
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.looks import Looks
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.progress import Progress
from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.run import Run

# A script travels in the address of a request: this much is accepted by every server on the way.
_LARGEST_SCRIPT = 32 * 1024


def run(
    arguments: Mapping[str, Any], *, host: str, emit: Callable[[str], None], check_mode: bool, diff: bool
) -> dict[str, Any]:
    """The result of the task. Raises AckError for everything that ends it early."""
    settings = upgrade_settings.settings(arguments, _uninstall_script(arguments.get("uninstall_script")))
    where = connection.connection(arguments)
    kube = Kube(where)
    ecs = Compute(where) if settings.reboot == "ecs" else None
    looks = Looks(kube, Host(NodeShell(kube), ecs))
    todo: Work

    def observe() -> Work:
        nonlocal todo
        todo = node_upgrade.work(settings, looks.everything(settings))
        if ecs is not None and todo.start:
            found = ecs.describe_instances([candidate.node.instance_id for candidate in todo.start])
            todo = node_upgrade.with_instances(todo, frozenset(found))
        return todo

    def apply(plan: Plan) -> dict[str, Any]:
        with Guard() as guard:
            progress = Progress(host, emit, guard, settings.timing.progress)
            by = _who()
            name = f"{clock.now():%Y%m%dt%H%M%Sz}-{by}-{secrets.token_hex(2)}"
            return Run(kube, looks, guard, progress, settings, name, by).execute(todo, observe)

    result = runner.run(
        observe, lambda seen: node_upgrade.plan(settings, seen), apply, check_mode=check_mode, diff=diff
    )
    return _judged(result, settings, emit, host)


def _judged(result: dict[str, Any], settings: Settings, emit: Callable[[str], None], host: str) -> dict[str, Any]:
    """Whether the task failed, and the last line."""
    waiting = result["waiting_for"]
    if waiting:
        left = result.get("not_started") or [row["node"] for row in result["nodes"] if row["status"] == "pending"]
        emit(f"[{host}] not done: {len(left)} node{'s' * (len(left) != 1)}; {waiting}")
    results = result.get("results") or {}
    wrong = [f"{name}: {told['reason']}" for name, told in results.items() if told["failed"]]
    held = [row for row in result["nodes"] if row["status"] == "quarantined" and row["node"] not in results]
    wrong += [f"{row['node']}: quarantined by an earlier run: {row['reason']}" for row in held]
    if settings.refused == "fail":
        wrong += [f"{row['node']}: it must not be upgraded" for row in result["nodes"] if row["status"] == "refused"]
    if wrong:
        sick = held or any(told["result"] == "quarantined" for told in results.values())
        how = "with node_upgrade_retry_quarantined: true" if sick else "again"
        cure = f"Mend the cause (see results), then run {how}."
        return result | _failure("UPG-NODES-FAILED", f"{len(wrong)} node(s) failed. {joined(wrong)}. {cure}")
    if waiting and settings.incomplete == "fail":
        return result | _failure("UPG-INCOMPLETE", f"{waiting}.")
    return result


def _failure(code: str, text: str) -> dict[str, Any]:
    return {"failed": True, "code": code, "msg": f"node_upgrade: {text} [{code}]"}


def _who() -> str:
    """User and computer, in characters that Kubernetes and systemd take."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "nobody"
    return re.sub(r"[^a-z0-9-]+", "-", f"{user}-{socket.gethostname().partition('.')[0]}".lower())[:40].strip("-")


def _uninstall_script(given: Mapping[str, Any] | None) -> bytes:
    """The operator's script, if it is the one that the checksum names."""
    if not given:
        return b""

    def wrong(problem: str, cure: str) -> AckError:
        return AckError(f"uninstall_script {given['path']}", problem, cure, "UPG-SCRIPT")

    try:
        content = Path(given["path"]).read_bytes()
    except OSError as problem:
        raise wrong(f"it cannot be read: {problem.strerror}.", "Give a file on the controller.") from None
    found = hashlib.sha256(content).hexdigest()
    if found != given["sha256"].strip().lower():
        raise wrong(f"its sha256 is {found}, not {given['sha256']}.", "Use the file that you have checked.")
    if not content or len(content) > _LARGEST_SCRIPT:
        raise wrong(f"it has {len(content)} bytes.", f"It may have up to {_LARGEST_SCRIPT}.")
    return content
