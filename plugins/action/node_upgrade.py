"""The upgrade of a fleet, on the controller, so that it can print progress while it works (docs/engine.md)."""

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

try:
    from ansible_collections.ack.ai_suite.plugins.module_utils import runner
    from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade import task
    from ansible_collections.ack.ai_suite.plugins.module_utils.upgrade.options import ARGUMENT_SPEC

    MISSING = ""
except ImportError as problem:
    MISSING = f"{problem}. Run Ansible from the environment that has the requirements of ack.ai_suite (make setup)."


class ActionModule(ActionBase):
    """Arguments in, one result out; everything else is in ``module_utils/upgrade``."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        if MISSING:
            raise AnsibleActionFail(MISSING)
        if self._task.async_val:
            raise AnsibleActionFail("node_upgrade cannot run with async: it prints progress and watches its parent.")
        _, validated = self.validate_argument_spec(ARGUMENT_SPEC)
        arguments = json.loads(json.dumps(validated, default=str))  # without Ansible's tags, which only it understands
        host = (task_vars or {}).get("inventory_hostname", "cluster")
        try:
            done = task.run(
                arguments,
                host=host,
                emit=lambda line: self._display.display(line, stderr=True),
                check_mode=self._task.check_mode,
                diff=self._task.diff,
            )
        except Exception as problem:  # noqa: BLE001 - the outermost edge: one clear error, never a traceback
            done = {"failed": True, **runner.failure(problem)}
        result.update(done)
        return result
