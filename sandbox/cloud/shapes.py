"""Shapes of requests, and the check that refuses what does not fit (pure).

A shape is `str`, `int`, `bool`, `float`, `dict` (free keys), `{name: shape}` (these keys and no other) or `[shape]`.
The services themselves ignore a field that they do not know; here it is an error, so that a typo is found in a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sandbox.cloud.errors import CloudError, error

Shape = Any
_WORDS = {str: "a string", int: "a whole number", bool: "true or false", float: "a number", dict: "an object"}


def of_json(shape: Shape, value: Any, action: str, where: str = "") -> Any:
    """A decoded JSON body that fits the shape; keys with null count as not sent. Raises InvalidParameter.*."""
    if isinstance(shape, Mapping):
        _expect(isinstance(value, dict), action, where, "an object")
        known = {key: _known(shape, key, action, where) for key in value}
        sent = {key: each for key, each in value.items() if each is not None}
        return {key: of_json(known[key], each, action, _join(where, key)) for key, each in sent.items()}
    if isinstance(shape, list):
        _expect(isinstance(value, list), action, where, "a list")
        return [of_json(shape[0], each, action, _join(where, str(number))) for number, each in enumerate(value, 1)]
    fits = {
        str: isinstance(value, str),
        bool: isinstance(value, bool),
        int: isinstance(value, int) and not isinstance(value, bool),
        float: isinstance(value, int | float) and not isinstance(value, bool),
        dict: isinstance(value, dict),
    }[shape]
    _expect(fits, action, where, _WORDS[shape])
    return value


def of_strings(shape: Mapping[str, Shape], pairs: Iterable[tuple[str, str]], action: str) -> dict[str, Any]:
    """Query or form parameters that fit the shape: `Tag.1.Key=a` becomes a list, `true` a boolean, `3` a number."""
    nested: dict[str, Any] = {}
    for key, text in pairs:
        place = nested
        *parents, last = key.split(".")
        for part in parents:
            place = place.setdefault(part, {})
            _expect(isinstance(place, dict), action, key, "sent once")
        place[last] = text
    return {key: _typed(_known(shape, key, action, ""), value, action, key) for key, value in nested.items()}


def _typed(shape: Shape, value: Any, action: str, where: str) -> Any:
    if isinstance(shape, list) and isinstance(value, dict):
        _expect(all(key.isdigit() for key in value), action, where, "a list, numbered from 1")
        ordered = sorted(value.items(), key=lambda item: int(item[0]))
        return [_typed(shape[0], each, action, _join(where, key)) for key, each in ordered]
    if isinstance(shape, Mapping) and isinstance(value, dict):
        return {
            key: _typed(_known(shape, key, action, where), each, action, _join(where, key))
            for key, each in value.items()
        }
    _expect(isinstance(value, str), action, where, _WORDS.get(shape, "a list") if isinstance(shape, type) else "a list")
    return _from_text(shape, value, action, where)


def _from_text(shape: Shape, text: str, action: str, where: str) -> Any:
    if shape is str:
        return text
    if shape is bool:
        _expect(text.lower() in ("true", "false"), action, where, _WORDS[bool])
        return text.lower() == "true"
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    return of_json(shape, value, action, where)


def _known(shape: Mapping[str, Shape], key: str, action: str, where: str) -> Shape:
    if key not in shape:
        raise error("InvalidParameter.Unknown", name=_join(where, key), action=action)
    return shape[key]


def _expect(fits: bool, action: str, where: str, expected: str) -> None:
    if not fits:
        raise _type_error(action, where, expected)


def _type_error(action: str, where: str, expected: str) -> CloudError:
    return error("InvalidParameter.Type", name=where or "body", action=action, expected=expected)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def cut(shape: Shape, value: Any) -> Any:
    """The value without the keys that the shape lacks: what an answer may show of a record."""
    if isinstance(shape, Mapping) and isinstance(value, Mapping):
        return {key: cut(shape[key], each) for key, each in value.items() if key in shape}
    if isinstance(shape, list) and isinstance(value, list):
        return [cut(shape[0], each) for each in value]
    return value
