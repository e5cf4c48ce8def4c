"""What the endpoint serves: one declaration for each call, and how a request finds it (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from sandbox.cloud.errors import error
from sandbox.cloud.shapes import Shape
from sandbox.cloud.world import Call, World

VERSIONS = {"CS": "2015-12-15", "RAM": "2015-05-01", "ECS": "2014-05-26", "STS": "2015-04-01"}
PRODUCTS = {version: product for product, version in VERSIONS.items()}


@dataclass(frozen=True)
class Operation:
    """A call. CS is ROA (method and path tell it), the others are RPC (POST /, the action tells it).

    `query` is the shape of the query (RPC: of query and form together), `body` that of the JSON body, `required` names
    what must be sent (RPC parameters, or top-level fields of the body), `write` is the answer to "does it write?",
    `makes_task` marks what is finished by an asynchronous task.
    """

    product: str
    action: str
    handler: Callable[[World, Call], Any]
    write: bool
    method: str = "POST"
    path: str = "/"
    query: Mapping[str, Shape] = field(default_factory=dict)
    body: Shape = None
    required: tuple[str, ...] = ()
    makes_task: bool = False

    @property
    def roa(self) -> bool:
        return self.product == "CS"


class Registry:
    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations = tuple(operations)
        self._rpc = {(each.product, each.action): each for each in self.operations if not each.roa}
        self._roa = [(re.compile(_pattern(each.path)), each) for each in self.operations if each.roa]

    def find(self, version: str, action: str, method: str, path: str) -> tuple[Operation, dict[str, str]]:
        """The operation of a request, and the names in its path. Raises InvalidVersion or InvalidAction.NotFound."""
        product = PRODUCTS.get(version)
        if product is None:
            raise error("InvalidVersion")
        if product != "CS":
            return self._find_rpc(product, action, method, path), {}
        for pattern, operation in self._roa:
            found = pattern.fullmatch(path)
            if found and operation.method == method and operation.action == action:
                return operation, {name: unquote(value) for name, value in found.groupdict().items()}
        raise error("InvalidAction.NotFound")

    def _find_rpc(self, product: str, action: str, method: str, path: str) -> Operation:
        operation = self._rpc.get((product, action))
        if operation is None or path != "/":
            raise error("InvalidAction.NotFound")
        if method not in ("POST", "GET"):
            raise error("UnsupportedHTTPMethod")
        return operation


def _pattern(path: str) -> str:
    return re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
