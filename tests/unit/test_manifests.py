"""Manifests are read as Helm and the API server read them, not as Python's YAML 1.1."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.clients import manifests


# What sigs.k8s.io/yaml makes of each.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("y", True), ("n", False), ("yes", True), ("Off", False), ("true", True), ("'true'", "true"), ("yep", "yep"),
        ("010", 8), ("1_000", 1000), ("0x1f", 31),
        ("0o17", 15), ("-5", -5), ("08", 8.0),
        ("1e3", 1000.0), ("1e+06", 1000000.0), ("1.5", 1.5), (".5", 0.5), ("1.5.20", "1.5.20"), ("1.5e", "1.5e"),
        ("12:30", "12:30"), ("2024-05-31", "2024-05-31"), ("", None), ("~", None), ("null", None), ("-", [None]),
        ("v1", "v1"), ("=", "="), ("<<x", "<<x"),
    ],
)  # fmt: skip
def test_a_scalar_is_what_the_api_server_takes_it_for(text: str, value: Any) -> None:
    (found,) = manifests.parse(f"kind: A\nvalue: {text}\n" if text != "-" else "kind: A\nvalue:\n-\n")
    assert found["value"] == value
    assert type(found["value"]) is type(value)


def test_empty_documents_are_skipped_and_lists_are_taken_apart() -> None:
    text = "---\n# Source: a.yaml\n---\nkind: A\n---\nkind: BList\nitems: [{kind: B}, {kind: C}]\n---\n"
    assert [thing["kind"] for thing in manifests.parse(text)] == ["A", "B", "C"]


def test_merge_keys_work() -> None:
    (found,) = manifests.parse("base: &b {a: 1}\nkind: A\nmore: {<<: *b, c: 2}\n")
    assert found["more"] == {"a": 1, "c": 2}


def test_a_text_without_documents_is_nothing() -> None:
    assert manifests.parse("") == ()
    assert manifests.one("") == {}
