"""What the SDK's generated code says of each call: method, path, names and types of fields, shape of the answer."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from dataclasses import dataclass
from typing import Any

Shape = Any
# Where the typed client turns a list into the text of a JSON list before it sends it.
_SHRINK = "Shrink"


@dataclass(frozen=True)
class SdkCall:
    method: str
    path: str
    query: frozenset[str]
    body: frozenset[str]
    request: type | None
    answer: type


def call_of(package: str, action: str) -> SdkCall:
    """The call of an action, read from the source of the typed client. KeyError when the SDK has none."""
    client = importlib.import_module(f"{package}.client").Client
    models = importlib.import_module(f"{package}.models")
    for name, function in inspect.getmembers(client, inspect.isfunction):
        if name.endswith("with_options"):
            source = inspect.getsource(function)
            if f"action = '{action}'," in source:
                return _parsed(source, models)
    raise KeyError(action)


def _parsed(source: str, models: Any) -> SdkCall:
    request = re.search(r"(?:request|tmp_req): main_models\.(\w+),", source)
    path = re.search(r"pathname = f?'([^']+)'", source)
    method, answer = re.search(r"method = '(\w+)'", source), re.search(r"main_models\.(\w+Response)\(\)", source)
    assert path, source
    assert method, source
    assert answer, source
    return SdkCall(
        method[1],
        re.sub(r"\{DaraURL\.percent_encode\((\w+)\)\}", r"{\1}", path[1]),
        frozenset(re.findall(r"query\['([^']+)'\] =", source)),
        frozenset(re.findall(r"body\['([^']+)'\] =", source)),
        getattr(models, request[1]) if request else None,
        getattr(models, answer[1]),
    )


def shape_of(model: type) -> Shape:
    """The shape of a model in the notation of `sandbox.cloud.shapes`."""
    module = inspect.getmodule(model)
    names = {**vars(typing), **vars(module)}
    hints = typing.get_type_hints(model.__init__, names)
    wire = _wire_names(model)
    return {wire[attribute]: _shape(hint) for attribute, hint in hints.items() if attribute != "return"}


def answer_body(call: SdkCall) -> type | None:
    """The model of the answer's body; None when the SDK takes it as it comes or expects none."""
    hints = typing.get_type_hints(call.answer.__init__, {**vars(typing), **vars(inspect.getmodule(call.answer))})
    body = hints.get("body")
    return body if isinstance(body, type) and hasattr(body, "from_map") else None


def lost(model: type, answer: Any) -> list[str]:
    """The keys (as paths) that the model does not know, or gives back with another value."""
    return list(_differences(answer, model().from_map(answer).to_map(), ""))


def _differences(sent: Any, kept: Any, where: str) -> typing.Iterator[str]:
    if isinstance(sent, dict) and isinstance(kept, dict):
        for key, value in sent.items():
            if key not in kept:
                yield f"{where}.{key}"
            else:
                yield from _differences(value, kept[key], f"{where}.{key}")
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for one, other in zip(sent, kept, strict=True):
            yield from _differences(one, other, f"{where}[]")
    elif sent != kept:
        yield f"{where} = {sent!r} became {kept!r}"


def misfits(shape: Shape, value: Any, where: str = "") -> list[str]:
    """Where a value is not of the shape's types."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [where]
        return [found for key in value for found in misfits(shape.get(key, object), value[key], f"{where}.{key}")]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [where]
        return [found for each in value for found in misfits(shape[0], each, f"{where}[]")]
    if shape is float:
        shape = (int, float)
    right = shape is object or (isinstance(value, shape) and not (shape is int and isinstance(value, bool)))
    return [] if right else [where]


def _wire_names(model: type) -> dict[str, str]:
    source = inspect.getsource(model.to_map)
    plain = re.findall(r"result\['([^']+)'\] = self\.(\w+)", source)
    nested = re.findall(r"result\['([^']+)'\] = (?:\[\]|\{\})\s+if self\.(\w+) is not None", source)
    return {attribute: name for name, attribute in [*plain, *nested]}


def _shape(hint: Any) -> Shape:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return [_shape(arguments[0])]
    if origin is dict or hint is dict:
        return dict
    if isinstance(hint, type) and hasattr(hint, "to_map"):
        return shape_of(hint)
    return object if hint is typing.Any else hint
