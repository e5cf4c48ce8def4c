"""The options of ``node_upgrade``, for the action plug-in that does the work and the module that documents it."""

from __future__ import annotations

from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import connection

# Times, versions and windows are raw: YAML and Ansible would turn what is not quoted into something else unnoticed.
ARGUMENT_SPEC: dict[str, Any] = {
    **connection.ARGUMENT_SPEC,
    "target_version": {"type": "raw"},
    "known_versions": {"type": "list", "elements": "raw"},
    "windows": {"type": "list", "elements": "raw", "required": True},
    "blackouts": {"type": "list", "elements": "raw"},
    "nodes": {"type": "list", "elements": "str"},
    "max_failures": {"type": "raw", "default": 1},
    "on_failure": {"type": "str", "choices": ["restore", "keep"], "default": "restore"},
    "refused": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
    "incomplete": {"type": "str", "choices": ["ok", "fail"], "default": "ok"},
    "retry_quarantined": {"type": "bool", "default": False},
    "reboot": {"type": "str", "choices": ["ecs", "guest"], "default": "ecs"},
    "drain": {
        "type": "dict",
        "options": {
            "force": {"type": "bool", "default": False},
            "delete_emptydir_data": {"type": "bool", "default": False},
            "honour_skip_label": {"type": "bool", "default": True},
            "grace_period": {"type": "int"},
            "timeout": {"type": "raw", "default": "15m"},
        },
    },
    "uninstall_script": {
        "type": "dict",
        "options": {
            "path": {"type": "path", "required": True},
            "sha256": {"type": "str", "required": True},
        },
    },
    "timing": {
        "type": "dict",
        "options": {
            "node": {"type": "raw", "default": "30m"},
            "installer": {"type": "raw", "default": "10m"},
            "host": {"type": "raw", "default": "15m"},
            "command": {"type": "raw", "default": "2m"},
            "settle": {"type": "raw", "default": "30s"},
            "boot": {"type": "raw", "default": "20m"},
            "verify": {"type": "raw", "default": "10m"},
            "poll": {"type": "raw", "default": "2s"},
            "lease": {"type": "raw", "default": "30s"},
            "progress": {"type": "raw", "default": "60s"},
        },
    },
}
