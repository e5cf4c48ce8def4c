"""The tables of docs/sandbox-cloud.md, made from the code."""

from __future__ import annotations

from sandbox.cloud.errors import CODES
from sandbox.cloud.faults import KINDS
from sandbox.cloud.operations import registry
from sandbox.cloud.registry import VERSIONS


def calls() -> str:
    lines = ["| product | call | request | writes | task |", "|---|---|---|---|---|"]
    for each in registry().operations:
        request = f"`{each.method} {each.path}`" if each.roa else f"`POST /`, version {VERSIONS[each.product]}"
        answers = ["yes" if each.write else "no", "yes" if each.makes_task else ""]
        lines.append(f"| {each.product} | {each.action} | {request} | {' | '.join(answers)} |")
    return "\n".join(lines)


def codes() -> str:
    lines = ["| code | HTTP | source |", "|---|---|---|"]
    lines += [f"| `{name}` | {code.status} | {code.source or '**invented**'} |" for name, code in CODES.items()]
    return "\n".join(lines)


def faults() -> str:
    return "\n".join(
        ["| kind | what it does |", "|---|---|", *(f"| `{kind}` | {what} |" for kind, what in KINDS.items())]
    )
