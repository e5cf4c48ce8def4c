"""Versions as people and packages write them: one order for all, and a third answer for what is none."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.ack.ai_suite.plugins.module_utils.core.versions import Version, at_least, parse

# Written as somebody wrote them in public: found, minimum, whether it is enough (None: cannot be known).
CASES: list[tuple[str, str, bool | None]] = [
    ("1.6-6", "1.6.3-3", False),
    ("v1.6.28", "1.4.3", True),
    ("v1.20.4-aliyun.1", "1.20", True),
    ("1.4.3-0ubuntu1", "1.4.3", True),
    ("1.18.8-aliyun.1", "1.18.8", True),
    ("v1.18.7-aliyun.2", "1.18.8", False),
    ("1.6.20~ds1", "1.4.3", True),
    ("1.3.7+unknown", "1.4.3", False),
    ("1.5.9-k3s1", "1.4.3", True),
    ("1.7.0-rc.1", "1.7.0", False),
    ("1.7.0-rc.1", "1.6.9", True),
    ("2.0.0-rc.3", "1.4.3", True),
    ("1.12.10", "1.12.6", True),
    ("1.12.5", "1.12.6", False),
    ("20+", "20", True),
    ("docker://19.3.5", "19.03.5", True),
    ("docker://19.03.5", "19.03.5", True),
    ("docker://19.3.4", "19.03.5", False),
    ("docker://17.03.0-ce", "19.03.5", False),
    ("docker://20.10.20", "19.03.5", True),
    ("docker://18.9.9", "19.03.5", False),
    ("containerd://v1.7.27", "1.4.3", True),
    ("545.29.06", "418.87.01", True),
    ("418.87.01", "418.87.01", True),
    ("418.87.1", "418.87.01", True),
    ("418.87.00", "418.87.01", False),
    ("418.87", "418.87.01", False),
    ("418.116.00", "418.87.01", True),
    ("418.126.02", "418.87.01", True),
    ("384.130", "418.87.01", False),
    ("410.57", "418.87.01", False),
    ("1000.1", "418.87.01", True),
    ("535.161.08-grid", "418.87.01", True),
    ("Unknown", "1.4.3", None),
    ("docker://Unknown", "1.4.3", None),
    ("containerd://", "1.4.3", None),
    ("n/a", "7.6", None),
    ("N/A", "418.87.01", None),
    ("", "1.4.3", None),
    ("   ", "1.4.3", None),
]
WRITTEN = st.from_regex(
    r"v?[0-9]{1,6}(\.[0-9]{1,6}){0,3}([-.~+](alpha|beta|rc|aliyun|ds)[.-]?[0-9]{0,2})?", fullmatch=True
)


@pytest.mark.parametrize(("found", "minimum", "enough"), CASES)
def test_a_found_version_reaches_its_minimum_or_not_or_cannot_be_read(
    found: str, minimum: str, enough: bool | None
) -> None:
    assert at_least(found, minimum) is enough


@pytest.mark.parametrize("found", [1.20, 418, None, True, ["1.2"], b"1.2"])
def test_what_yaml_turned_into_a_number_is_not_guessed_back(found: object) -> None:
    assert at_least(found, "1.2") is None


def test_a_version_is_shown_as_it_was_found() -> None:
    assert str(parse("docker://19.3.5")) == "docker://19.3.5"


def test_a_minimum_that_is_no_version_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="'latest' is no version"):
        at_least("1.2.3", "latest")


def test_alpha_beta_and_rc_are_ordered_and_below_their_release() -> None:
    written = ["1.0.0-alpha.1", "1.0.0-alpha.2", "1.0.0-beta.1", "1.0.0-rc.1", "1.0.0-rc.10", "1.0.0", "1.0.1-rc.1"]
    read = [version for version in map(parse, written) if version]
    assert [str(version) for version in sorted(reversed(read))] == written  # noqa: C414 - not in order before


def test_a_word_that_only_begins_like_a_pre_release_is_a_vendors_tail() -> None:
    assert at_least("1.2.3-precise1", "1.2.3") is True


@given(WRITTEN, WRITTEN, WRITTEN)
def test_the_order_is_total(one: str, two: str, three: str) -> None:
    a, b, c = parse(one), parse(two), parse(three)
    assert isinstance(a, Version)
    assert isinstance(b, Version)
    assert isinstance(c, Version)
    assert (a < b) + (a == b) + (a > b) == 1
    assert not (a <= b and b <= c) or a <= c
    assert a != b or hash(a) == hash(b)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
def test_the_order_is_that_of_the_padded_numbers(one: list[int], two: list[int]) -> None:
    padded = [tuple(numbers + [0] * (4 - len(numbers))) for numbers in (one, two)]
    texts = [".".join(map(str, numbers)) for numbers in (one, two)]
    assert at_least(texts[0], texts[1]) is (padded[0] >= padded[1])


@given(st.text())
@example("9" * 5000)
@example("1.2.3-rc" + "9" * 5000)
@example("\u0663.1")  # an Arabic digit is a digit to Python
def test_no_text_gives_a_traceback(text: str) -> None:
    assert at_least(text, "1.2.3") in (True, False, None)
