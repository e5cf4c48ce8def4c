"""All calls that the endpoint serves."""

from __future__ import annotations

from sandbox.cloud import cs, ecs_operations, ram_operations, sts
from sandbox.cloud.registry import Registry


def registry() -> Registry:
    return Registry((*cs.OPERATIONS, *ram_operations.OPERATIONS, *ecs_operations.OPERATIONS, *sts.OPERATIONS))
