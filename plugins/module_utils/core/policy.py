"""The cGPU policy: one for all sharing nodes of a cluster, in the environment variable POLICY of the installers.

Where the vendor's chart keeps it among its values is the operator's to say (``policy_path``); what counts is POLICY.
Source: "Manage the GPU sharing component", and the page on installing cGPU (0 fair share .. 5 native scheduling).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.core import values, workloads
from ansible_collections.ack.ai_suite.plugins.module_utils.core.component import Component
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError, joined
from ansible_collections.ack.ai_suite.plugins.module_utils.core.installer import INSTALLERS
from ansible_collections.ack.ai_suite.plugins.module_utils.core.snapshot import DaemonSet

FIRST = 5  # native scheduling: what the console suggests where nothing special is wanted


def running(daemonsets: Iterable[DaemonSet]) -> dict[str, str]:
    """POLICY of each installer that has one."""
    found = {ds.name: workloads.environment(ds, "POLICY") for ds in daemonsets if ds.name in INSTALLERS}
    return {name: policy for name, policy in found.items() if policy is not None}


def to_be(component: Component, installed: bool, found: Mapping[str, str]) -> int | None:
    """What POLICY must be afterwards: what is asked for, else what runs, else 5 on a first install.

    None means that the release's own values decide. Raises AckError where two policies run and none is asked for.
    """
    if not component.entry.policy or component.policy is not None:
        return component.policy
    if len(set(found.values())) > 1:
        told = joined([f"{name} {policy}" for name, policy in sorted(found.items())])
        raise AckError(
            component.subject,
            f"the installers run with different policies ({told}), and the inventory says none.",
            "All sharing nodes of a cluster must use one: set policy.",
            "CMP-POLICY-MIXED",
        )
    kept = next(iter(found.values()), None)
    if kept is not None and kept.isdecimal():
        return int(kept)
    return None if installed else FIRST


def first_values(component: Component, held: Mapping[str, Any], installed: bool, policy: int | None) -> dict[str, Any]:
    """The values to render with: those of the release (unless ``exact``), the inventory's over them, the policy where
    it was asked for or nothing is installed yet. A policy that is only kept goes in where rendering shows the need.
    """
    result = values.merged(held if component.keep_values else {}, component.values)
    stated = component.policy is not None or not installed
    return values.put(result, component.policy_path, policy) if policy is not None and stated else result


def differs(policy: int | None, found: Mapping[str, str]) -> bool:
    """Whether an installer has another policy than the one that is wanted."""
    return policy is not None and any(has != str(policy) for has in found.values())


def kept(component: Component, given: Mapping[str, Any], policy: int | None) -> dict[str, Any]:
    """The values with the policy that runs, where the chart's own would change it."""
    return values.put(given, component.policy_path, policy)


def check(component: Component, policy: int | None, found: Mapping[str, str], where: str) -> None:
    """Raise AckError (CMP-POLICY-PATH) unless every installer in ``found`` has the policy."""
    wrong = {name: has for name, has in found.items() if policy is not None and has != str(policy)}
    asked_in_vain = component.policy is not None and not found
    if not wrong and not asked_in_vain:
        return
    told = joined([f"{name} has {has}" for name, has in sorted(wrong.items())]) if wrong else "no installer has POLICY"
    raise AckError(
        component.subject,
        f"policy {policy} is wanted, but {where} {told}.",
        f"Set policy_path to where the chart's values hold the policy (now: {component.policy_path}).",
        "CMP-POLICY-PATH",
    )
