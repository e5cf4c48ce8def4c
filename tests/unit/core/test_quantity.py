"""Kubernetes quantities by value, exactly."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.ack.ai_suite.plugins.module_utils.core.quantity import quantity, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("15", "15"), ("1k", "1000"), ("15000m", "15"), ("20480Mi", str(20 * 2**30)), ("20Gi", str(20 * 2**30)),
        ("1.5", "1.5"), ("0.1", "0.1"), ("12e6", "12000000"), ("1E3", "1000"), ("2E", "2e18"), ("-1Gi", str(-(2**30))),
        (".5", "0.5"), ("5.", "5"), ("+3", "3"), (" 7 ", "7"), ("100n", "1e-7"), (40, "40"), (1.5, "1.5"),
    ],
)  # fmt: skip
def test_a_quantity_has_the_value_that_kubernetes_gives_it(text: str | float, value: str) -> None:
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", [None, "", "GiB", "1GiB", "1 Gi", "0x10", "1e", "--1", "1e6Ki", "NaN", "Infinity"])
def test_what_is_no_quantity_is_none(text: str | None) -> None:
    assert quantity(text) is None
    assert whole(text) == 0


def test_a_whole_quantity_is_rounded_down() -> None:
    assert whole("1500m") == 1
    assert whole("1k") == 1000


@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi"]))
def test_suffixes_multiply_exactly(number: int, suffix: str) -> None:
    factor = {"": 1, "k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[suffix]
    assert quantity(f"{number}{suffix}") == number * factor


@given(st.text())
@example("9" * 5000)
@example("1e999")
@example("\u0663Gi")  # an Arabic digit is a digit to Python
def test_no_text_gives_a_traceback(text: str) -> None:
    assert isinstance(str(whole(text)), str)
