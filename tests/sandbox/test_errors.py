"""Every error of the sandbox is documented, and every documented one exists."""

from __future__ import annotations

import re

from sandbox.layout import REPOSITORY

CODE = re.compile(r"SBX-[A-Z-]*[A-Z]")


def test_codes_in_the_source_and_in_the_document_are_the_same() -> None:
    sources = "".join(path.read_text() for path in (REPOSITORY / "sandbox").rglob("*.py"))
    documented = re.findall(r"^\| `(SBX-[A-Z-]+)`", (REPOSITORY / "docs/errors/sandbox.md").read_text(), re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert set(CODE.findall(sources)) == set(documented)
