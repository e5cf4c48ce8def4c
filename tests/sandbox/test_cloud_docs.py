"""The document of the endpoint is true, and its error table is what the code raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.cloud import documentation
from sandbox.cloud.errors import CODES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "sandbox-cloud.md"


@pytest.mark.parametrize("make", [documentation.faults, documentation.calls, documentation.codes])
def test_the_tables_in_the_document_are_those_of_the_code(make: Callable[[], str]) -> None:
    name = make.__name__
    text = DOCUMENT.read_text()
    written = text[text.index(f"<!-- begin {name} -->") : text.index(f"<!-- end {name} -->")]
    assert written.split("\n", 1)[1].strip() == make().strip(), "run: make docs"


def test_every_code_in_the_table_is_raised_and_every_raised_code_is_in_the_table() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "sandbox" / "cloud").glob("*.py") if path.stem != "errors")
    raised = set(re.findall(r'error\(\s*"([A-Za-z.*]+)"', sources))
    only_by_fault = {"NoPermission", "ServiceUnavailable", "Throttling.User", "Missing*"}
    assert raised <= set(CODES)
    assert set(CODES) - raised == only_by_fault


def test_a_code_has_a_source_or_is_marked_as_invented() -> None:
    assert [name for name, code in CODES.items() if bool(code.source) == code.invented] == []
