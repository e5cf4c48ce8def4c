"""Write the documents that are made from the code; ``--check`` says which are not current.

A generated part stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; the rest of the file is hand-written.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent

# One row a noun: what it is for. The columns are the places where its pieces must be; a test checks that they exist.
NOUNS: Mapping[str, str] = {
    "preflight": "what would go wrong, before anything is changed",
    "ram_policy": "the worker role's RAM policy: Authorized or not",
    "component": "`ack-ai-installer` and the other Helm releases of the suite",
    "node_pool": "GPU node pools and their scheduling labels",
    "gpu_inspect": "where GPU memory went, card by card",
    "node_upgrade": "cGPU on the nodes, off-peak, one after another",
}
READERS = ("preflight", "gpu_inspect")


def pieces(noun: str) -> dict[str, str]:
    """The files of a noun, by the column of the README's table."""
    module = f"{noun}_info" if noun in READERS else noun
    return {
        "playbook": f"playbooks/{noun}.yml",
        "role": f"roles/{noun}/README.md",
        "module": f"plugins/modules/{module}.py",
        "rules": f"plugins/module_utils/core/{noun}.py",
        "tests": f"tests/unit/core/test_{noun}.py",
        "scenario": f"molecule/{'read' if noun in READERS else noun}/converge.yml",
        "errors": f"docs/errors/{noun}.md",
    }


def noun_table() -> str:
    columns = list(pieces("preflight"))
    lines = ["| noun | what it is for | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for noun, purpose in NOUNS.items():
        links = " | ".join(f"[{Path(path).name}]({path})" for path in pieces(noun).values())
        lines.append(f"| `{noun}` | {purpose} | {links} |")
    return "\n".join(lines)


def _kind(option: Mapping[str, Any]) -> str:
    kind = str(option.get("type", "str"))
    if kind == "list" and "elements" in option:
        kind = f"list of {option['elements']}"
    return kind + (", one of " + ", ".join(f"`{c}`" for c in option["choices"]) if "choices" in option else "")


def _default(option: Mapping[str, Any]) -> str:
    if option.get("required"):
        return "required"
    value = option.get("default")
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _text(description: Any) -> str:
    text = " ".join(description) if isinstance(description, list) else str(description)
    return re.sub(r"[BICOVEP]\(([^)]*)\)", r"`\1`", " ".join(text.split())).replace("|", "\\|")


def option_rows(options: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, option in options.items():
        yield f"| `{prefix}{name}` | {_kind(option)} | {_default(option)} | {_text(option.get('description', ''))} |"
        nested = "[]." if option.get("type") == "list" else "."
        yield from option_rows(option.get("options") or {}, f"{prefix}{name}{nested}")


def option_table(role: Path) -> str:
    spec = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]
    head = "| variable | type | default | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(option_rows(spec.get("options") or {}))


def engine() -> str:
    from ansible_collections.ack.ai_suite.plugins.module_utils.core import node_state

    return node_state.table()


def parts() -> Iterator[tuple[Path, str, Callable[[], str]]]:
    """Each generated part: the file, the name of the part, and what makes it."""
    charts = importlib.import_module("tools.charts")
    yield ROOT / "README.md", "nouns", noun_table
    for role in sorted((ROOT / "roles").iterdir()):
        yield role / "README.md", "options", lambda role=role: option_table(role)
    for chart in sorted((ROOT / "charts").iterdir()):
        yield chart / "README.md", "values", lambda chart=chart: charts.table(chart)
    yield ROOT / "docs" / "engine.md", "states", engine
    cloud = importlib.import_module("sandbox.cloud.documentation")
    for name in ("faults", "calls", "codes"):
        yield ROOT / "docs" / "sandbox-cloud.md", name, getattr(cloud, name)


def renewed(path: Path, name: str, make: Callable[[], str]) -> str:
    text = path.read_text()
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    if begin not in text or end not in text:
        raise SystemExit(f"{path.relative_to(ROOT)}: it lacks the marks {begin} and {end}.")
    return text[: text.index(begin) + len(begin)] + "\n" + make() + "\n" + text[text.index(end) :]


def main(check: bool) -> int:
    sys.path[:0] = [str(ROOT), str(ROOT / ".ansible" / "collections")]
    stale = 0
    for path, name, make in parts():
        text = renewed(path, name, make)
        if text == path.read_text():
            continue
        stale += 1
        print(f"{path.relative_to(ROOT)}: {name} {'is not current; run: make docs' if check else 'written'}")
        if not check:
            path.write_text(text)
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
