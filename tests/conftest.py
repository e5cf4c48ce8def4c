"""One sandbox for a whole test session (one per worker under xdist), and the real kubectl and helm against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.support import Sandbox, fresh_sandbox

Runner = Callable[..., str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proof", action="store_true", help="also run what takes longer than CI allows")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "proof: takes longer than CI allows; runs with --proof")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--proof"):
        skip = pytest.mark.skip(reason="takes longer than CI allows; give --proof")
        for item in items:
            if "proof" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with fresh_sandbox("pytest") as own:
        yield own


@pytest.fixture(scope="session")
def kubectl(sandbox: Sandbox) -> Runner:
    """``kubectl("get", "nodes", "-o", "name")``: the real kubectl as administrator, or with ``kubeconfig=``."""
    return partial(sandbox.run, "kubectl")


@pytest.fixture(scope="session")
def helm(sandbox: Sandbox) -> Runner:
    """``helm("list", "-A")``: the real helm as administrator, or with ``kubeconfig=``."""
    return partial(sandbox.run, "helm")
