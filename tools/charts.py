"""The table of values of a chart, from its schema and its defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml


def table(chart: Path) -> str:
    """One row a value, nested ones by their path."""
    schema = json.loads((chart / "values.schema.json").read_text())
    defaults = yaml.safe_load((chart / "values.yaml").read_text()) or {}
    head = "| value | type | default | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(_rows(schema, schema, defaults, ""))


def _rows(whole: Mapping[str, Any], part: Mapping[str, Any], given: Any, path: str) -> Iterator[str]:
    for name, value in (part.get("properties") or {}).items():
        found = _resolved(whole, value)
        default = given.get(name) if isinstance(given, Mapping) else None
        here = f"{path}{name}"
        yield f"| `{here}` | {_kind(found)} | {_default(part, name, found, default)} | {found['description']} |"
        if found.get("type") == "array":
            yield from _rows(whole, _resolved(whole, found.get("items") or {}), None, f"{here}[].")
        else:
            yield from _rows(whole, found, default, f"{here}.")


def _resolved(whole: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with its ``$ref`` followed; what stands beside the reference wins."""
    if "$ref" not in part:
        return dict(part)
    found: Any = whole
    for step in str(part["$ref"]).removeprefix("#/").split("/"):
        found = found[step]
    return {**found, **{key: value for key, value in part.items() if key != "$ref"}}


def _kind(part: Mapping[str, Any]) -> str:
    if "enum" in part:
        return " or ".join(f"`{choice}`" for choice in part["enum"])
    kind = part.get("type", "")
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{kind}, {part['minimum']} to {part['maximum']}" if "minimum" in part else kind


def _default(parent: Mapping[str, Any], name: str, part: Mapping[str, Any], given: Any) -> str:
    if given is None:
        return "required" if name in parent.get("required", ()) or name == "image" else ""
    return "" if part.get("type") == "object" else f"`{json.dumps(given)}`"
