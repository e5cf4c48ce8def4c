"""Values of a Helm release: merged, read and set by path, and checked for what YAML and Helm would bend (case H02).

Helm reads every number as a 64-bit float: from a million up a template prints ``1e+06``. YAML has lost the zero of an
unquoted ``1.20`` before anybody looks at it. Labels, selectors, annotations and environments hold strings only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding, Severity

BENT_FROM = 1_000_000  # measured with Helm 3.21: 999999 is printed as it is, 1000000 as 1e+06

_STRING_MAP = re.compile(r".*(nodeselector|labels|annotations)|(.*_|extra)?env", re.IGNORECASE)
_VERSION = re.compile(r".*(version|tag)", re.IGNORECASE)
_QUOTE = "Quote it."


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``, map by map; lists and scalars are replaced, as Helm does."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def at(values: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, or None."""
    found: Any = values
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def put(values: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with ``value`` at a dotted path."""
    whole: Any = value
    for part in reversed(path.split(".")):
        whole = {part: whole}
    return merged(values, whole)


def check(values: Mapping[str, Any], *, large_integers: Severity = "error") -> tuple[Finding, ...]:
    """What would reach the chart as something else than was written, all of it in one pass."""
    return tuple(_walk(values, "values", "", False, large_integers))


def _walk(value: Any, path: str, key: str, strings: bool, large: Severity) -> Iterator[Finding]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            # A list of {name, value} under env: only the value is meant.
            inside = strings or _STRING_MAP.fullmatch(str(name)) is not None
            yield from _walk(below, f"{path}.{name}", str(name), inside, large)
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _walk(below, f"{path}[{number}]", key, strings, large)
    elif isinstance(value, bool | int | float):
        yield from _scalar(value, path, key, strings, large)


def _scalar(value: bool | int | float, path: str, key: str, strings: bool, large: Severity) -> Iterator[Finding]:
    found = f"{str(value).lower() if isinstance(value, bool) else value} ({type(value).__name__})"
    if strings:
        yield Finding("CMP-VALUE-STRING", path, found, "a string, as in every label, selector and environment", _QUOTE)
    elif not isinstance(value, bool) and _VERSION.fullmatch(key):
        yield Finding("CMP-VALUE-VERSION", path, found, "a quoted string: unquoted, 1.20 has become 1.2", _QUOTE)
    elif isinstance(value, int) and abs(value) >= BENT_FROM:
        required = f"a quoted string, or less than {BENT_FROM}: a template prints {float(value):.6g}"
        cure = "Quote it, or accept large_integers if the chart passes it on as a number."
        yield Finding("CMP-VALUE-INTEGER", path, found, required, cure, large)
