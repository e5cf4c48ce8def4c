"""Node pools as an inventory asks for them, and everything about that which is wrong before anybody is asked.

Sources: CS API reference (CreateClusterNodePool), ACK "Labels used by ACK to control GPUs", "Manage the GPU sharing
component" (regions, CPU policy, ECS only, 20 pods a card), Kubernetes' syntax of labels and taints.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ansible_collections.ack.ai_suite.plugins.module_utils.core import gpu_labels, preflight, preflight_facts
from ansible_collections.ack.ai_suite.plugins.module_utils.core.cloud import Taint, without_nulls
from ansible_collections.ack.ai_suite.plugins.module_utils.core.compatibility import Tables, instance_family
from ansible_collections.ack.ai_suite.plugins.module_utils.core.errors import AckError
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.preflight_rules import Context

API = "CS API reference: CreateClusterNodePool"
LABELS = 'ACK "Labels used by ACK to control GPUs"'
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
ACCEPTED = ("mode_change", "shrink")
LARGEST = 500  # nodes; ACK's quota for a pool may be higher, and then the API would take more
_NAME = re.compile(r"[\w.\u4e00-\u9fff-]{1,63}")
# Of the rules of preflight, those that a specification alone can break.
_JUDGED = ("PRE-REGION", "PRE-ECS", "PRE-CPU-POLICY", "PRE-GPU-SERIES", *preflight.LABEL_RULES)


class Pool(msgspec.Struct, frozen=True):
    """One pool as asked for. None, and an empty list, leave a setting as it is, or to ACK where the pool is made."""

    name: str
    kind: str = ""
    desired_size: int | None = None
    instance_types: tuple[str, ...] = ()
    vswitch_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    labels: dict[str, Any] = {}
    absent_labels: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    absent_taints: tuple[str, ...] = ()
    cpu_policy: Literal["none", "static"] | None = None
    runtime: str | None = None
    runtime_version: str | None = None
    image_type: str | None = None
    image_id: str | None = None
    key_pair: str | None = None
    system_disk_category: str | None = None
    system_disk_size: int | None = None
    instance_charge_type: Literal["PostPaid", "PrePaid"] | None = None
    ram_role_name: str | None = None
    accept: tuple[Literal["mode_change", "shrink"], ...] = ()

    @property
    def subject(self) -> str:
        return f"pool {self.name}"


def pools(given: Sequence[Mapping[str, Any]]) -> tuple[Pool, ...]:
    """The pools that the options describe. Raises AckError (POOL-SPEC) for one that cannot be read."""
    return tuple(_pool(told) for told in given)


def _pool(told: Mapping[str, Any]) -> Pool:
    try:
        return msgspec.convert({**without_nulls(told), "labels": dict(told.get("labels") or {})}, Pool)
    except msgspec.ValidationError as problem:
        raise AckError(
            f"pool {told.get('name') or 'without a name'}", f"its specification cannot be read: {problem}.",
            "See the README of the role node_pool for what each key holds.", "POOL-SPEC",
        ) from None  # fmt: skip


def findings(wanted: Sequence[Pool], region: str, tables: Tables) -> list[Finding]:
    """Everything that is wrong with the specifications, in one pass; nothing was asked of anybody yet."""
    found = [
        _finding(f"pool {name}", f"{count} entries", "one entry for each pool", "Join them.")
        for name, count in Counter(pool.name for pool in wanted).items()
        if count > 1
    ]
    for pool in wanted:
        found += [*_settings(pool), *_labels(pool), *_taints(pool)]
        found += judged(_for_preflight(pool), region, tables)
    return found


def judged(pool: preflight_facts.Pool, region: str, tables: Tables) -> Iterator[Finding]:
    """What the rules of preflight say of the nodes that a pool will have."""
    machine = preflight_facts.planned(pool, region)
    report = preflight.judge("nodes", [machine], Context(preflight_facts.Cluster(region_id=region), tables))
    for finding in report.findings:
        untold = finding.code == "PRE-GPU-SERIES" and not pool.instance_types  # the pool may exist: then it has them
        if finding.code in _JUDGED and not untold:
            yield finding


def with_max_pod(labels: Mapping[str, str], absent: Iterable[str]) -> dict[str, str]:
    """Labels with the limit of 20 pods a card, where cGPU isolates and nobody wants it away."""
    if not gpu_labels.has_isolation(labels) or gpu_labels.MAX_POD in absent:
        return dict(labels)
    return {**labels, gpu_labels.MAX_POD: labels.get(gpu_labels.MAX_POD, str(gpu_labels.PODS_PER_CARD))}


def _for_preflight(pool: Pool) -> preflight_facts.Pool:
    return preflight_facts.Pool(
        name=pool.name, kind=pool.kind, labels=pool.labels, instance_types=pool.instance_types,
        cpu_policy=pool.cpu_policy or "none",
    )  # fmt: skip


def _settings(pool: Pool) -> Iterator[Finding]:
    subject = pool.subject
    if not _NAME.fullmatch(pool.name):
        yield _finding(subject, f"name {pool.name!r}", "1 to 63 letters, digits, '-', '_', '.'", "Correct the name.")
    if pool.desired_size is not None and not 0 <= pool.desired_size <= LARGEST:
        yield _finding(subject, f"desired_size {pool.desired_size}", f"0 to {LARGEST}", "Correct desired_size.")
    if len(pool.instance_types) > 10:
        yield _finding(subject, f"{len(pool.instance_types)} instance types", "at most 10", "Leave some out.")
    for kind in pool.instance_types:
        if not instance_family(kind):
            yield _finding(subject, f"instance type {kind!r}", "for example ecs.gn6i-c4g1.xlarge", "Correct it.")
    if pool.system_disk_size is not None and not 20 <= pool.system_disk_size <= 2048:
        yield _finding(subject, f"system_disk_size {pool.system_disk_size}", "20 to 2048 GiB", "Correct it.")


def _labels(pool: Pool) -> Iterator[Finding]:
    both = sorted(set(pool.labels) & set(pool.absent_labels))
    if both:
        yield _finding(pool.subject, f"{', '.join(both)} in labels and absent_labels", "one of them", "Decide.")
    if gpu_labels.SCHEDULE in pool.absent_labels:
        yield _finding(
            pool.subject, f"{gpu_labels.SCHEDULE} in absent_labels", f"{gpu_labels.SCHEDULE}: default",
            "Removing the label does not bring whole cards back: write default.", LABELS,
        )  # fmt: skip


def _taints(pool: Pool) -> Iterator[Finding]:
    for taint in pool.taints:
        if taint.effect not in EFFECTS:
            told, legal = f"taint {taint.key} with effect {taint.effect!r}", f"one of {', '.join(EFFECTS)}"
            yield _finding(pool.subject, told, legal, "Correct the effect.")
        yield from (
            msgspec.structs.replace(finding, code="POOL-SPEC", found=f"taint {finding.found}")
            for finding in gpu_labels.label_findings({taint.key: taint.value}, pool.subject)
            if finding.code == "PRE-LABEL-SYNTAX"
        )


def _finding(subject: str, found: str, required: str, cure: str, source: str = API) -> Finding:
    return Finding("POOL-SPEC", subject, found, required, cure, source=source)
