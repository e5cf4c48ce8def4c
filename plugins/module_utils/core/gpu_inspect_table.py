"""GPU usage as ``kubectl inspect cgpu`` prints it: the same columns, lines and dashes, in a stable order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ansible_collections.ack.ai_suite.plugins.module_utils.core.columns import aligned
from ansible_collections.ack.ai_suite.plugins.module_utils.core.gpu_inspect import (
    Card,
    NodeUsage,
    PodShare,
    Usage,
    percent,
)


def table(usage: Usage) -> str:
    """One line a node. Where nodes count in different units, each line and each sum says its own."""
    mixed = len(usage.cluster) > 1
    most = max((len(node.cards) for node in usage.nodes), default=0)
    pending = any(node.has_pending for node in usage.nodes)
    heading = ["NAME", "IPADDRESS", *(f"GPU{index}(Allocated/Total)" for index in range(most))]
    heading += ["PENDING(Allocated)"] if pending else []
    rows = [[*heading, "GPU Memory" if mixed else f"GPU Memory({usage.cluster[0].unit})"]]
    rows += [_row(node, most, pending, mixed) for node in usage.nodes]
    # The original counts the first line as it wrote it, cells ending in tabs, and adds 20.
    dashes = sum(len(cell) + 1 for cell in rows[1]) + 20 if usage.nodes else 0
    return "\n".join([*aligned(rows), "-" * dashes, "Allocated/Total GPU Memory In Cluster:", *_sums(usage)])


def _row(node: NodeUsage, most: int, pending: bool, mixed: bool) -> list[str]:
    unknown = "unknown" if not node.cards else "0/0"
    cells = [node.name, node.address, *(_card(card) for card in node.cards)]
    cells += [unknown] * (most - len(node.cards))
    if pending:
        cells.append(str(node.pending) if node.has_pending else "")
    return [*cells, f"{node.allocated}/{node.total}" + (f" {node.unit}" if mixed else "")]


def _card(card: Card) -> str:
    return f"{card.allocated}/{card.total}"


def _sums(usage: Usage) -> list[str]:
    mixed = len(usage.cluster) > 1
    return [
        f"{total.allocated}/{total.total}{' ' + total.unit if mixed else ''} ({total.percent}%)"
        for total in usage.cluster
    ]


def details(usage: Usage) -> str:
    """One block a node, one line a pod; memory on no known card stands in the last column."""
    lines: list[list[str]] = []
    dashes = 0
    for node in usage.nodes:
        rows = [_pod(node, share) for share in node.pods]
        # As the original: the pods' lines of the first node that has any, as written, and 10 more.
        dashes = dashes or sum(sum(len(cell) + 1 for cell in row[:-1]) + 1 for row in rows) + 10
        lines += [[""], ["NAME:", node.name], ["IPADDRESS:", node.address], [""], _heading(node), *rows]
        lines += [["Allocated :", f"{node.allocated} ({percent(node.allocated, node.total)}%)", ""]]
        lines += [["Total :", f"{node.total} ", ""], ["-" * dashes]]
    lines += [[""], [""]]
    first, *more = _sums(usage)
    lines += [["Allocated/Total GPU Memory In Cluster:", first, ""], *(["", other, ""] for other in more)]
    return "\n".join(aligned(lines))


def _heading(node: NodeUsage) -> list[str]:
    cells = ["NAME", "NAMESPACE", *(f"GPU{card.index}(Allocated)" for card in node.cards)]
    return [*cells, *(["Pending(Allocated)"] if node.has_pending else []), ""]


def _pod(node: NodeUsage, share: PodShare) -> list[str]:
    cells = [share.name, share.namespace, *(str(share.cards.get(card.index, 0)) for card in node.cards)]
    return [*cells, *([str(share.pending)] if node.has_pending else []), ""]


def warnings(usage: Usage, most: int = 3) -> Iterator[str]:
    """What is odd, for the error stream or Ansible's warnings: one line each, and of a kind the first ``most``."""
    told: Counter[str] = Counter()
    for finding in usage.findings:
        told[finding.code] += 1
        if told[finding.code] <= most:
            yield f"{finding.code} {finding.subject}: {finding.found}; expected {finding.required}. {finding.cure}"
    for code, number in told.items():
        if number > most:
            yield f"{code}: {number - most} more, see the JSON output."
