"""When a window is open: cases W01 and W03, unions, blackouts, and every kind of wrong window."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ansible_collections.ack.ai_suite.plugins.module_utils.core import maintenance_window as windows
from ansible_collections.ack.ai_suite.plugins.module_utils.core import window_rules
from ansible_collections.ack.ai_suite.plugins.module_utils.core.maintenance_window import Calendar, Span


def calendar(*entries: dict[str, Any], blackouts: list[dict[str, Any]] | None = None) -> Calendar:
    read, findings = window_rules.calendar(list(entries), blackouts)
    assert findings == []
    return read


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def is_open(read: Calendar, text: str) -> bool:
    return windows.state(read, moment(text)).open is not None


def spans(read: Calendar, since: str, count: int) -> list[tuple[str, str]]:
    found = itertools.islice(windows.spans(read, moment(since)), count)
    return [(f"{span.opens:%Y-%m-%dT%H:%MZ}", f"{span.closes:%Y-%m-%dT%H:%MZ}") for span in found]


# --- W01: past midnight ---

NIGHT = {"days": ["mon", "tue", "wed", "thu", "fri"], "start": "21:00", "timezone": "America/Los_Angeles"}


@pytest.mark.parametrize("form", [{"end": "05:00"}, {"duration": "8h"}])
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2019-04-04T00:49-07:00", True),  # opened on Wednesday
        ("2019-04-04T22:49-07:00", True),
        ("2019-04-05T05:00-07:00", False),  # the end is outside
        ("2019-04-05T04:59:59-07:00", True),
        ("2019-04-05T08:59-07:00", False),
        ("2019-04-06T00:49-07:00", True),  # Saturday, opened on Friday
        ("2019-04-06T22:00-07:00", False),
        ("2019-04-08T00:49-07:00", False),  # Monday, would have opened on Sunday
        ("2019-04-08T21:00-07:00", True),  # the start is inside
    ],
)
def test_a_window_past_midnight_belongs_to_the_day_on_which_it_opens(
    form: dict[str, str], at: str, expected: bool
) -> None:
    assert is_open(calendar({**NIGHT, **form}), at) is expected


def test_an_end_of_24_00_is_midnight() -> None:
    read = calendar({"start": "20:00", "end": "24:00", "timezone": "UTC"})
    assert spans(read, "2026-05-01T10:00+00:00", 1) == [("2026-05-01T20:00Z", "2026-05-02T00:00Z")]


def test_a_window_of_all_day_every_day_never_closes_within_the_horizon() -> None:
    read = calendar({"start": "00:00", "duration": "24h", "timezone": "Asia/Shanghai"})
    found = windows.state(read, moment("2026-05-01T10:00+00:00"))
    assert found.left >= windows.HORIZON


# --- W03: daylight saving ---


@pytest.mark.parametrize(
    ("zone", "opens_on", "start", "end", "expected"),
    [
        ("Europe/Berlin", "2026-03-28", "22:00", "03:00", ("2026-03-28T21:00Z", "2026-03-29T01:00Z")),  # 4 h
        ("Europe/Berlin", "2026-10-24", "22:00", "03:00", ("2026-10-24T20:00Z", "2026-10-25T02:00Z")),  # 6 h
        ("Europe/Berlin", "2026-03-29", "02:30", "04:00", ("2026-03-29T01:00Z", "2026-03-29T02:00Z")),
        ("Europe/Berlin", "2026-10-25", "02:00", "03:00", ("2026-10-25T00:00Z", "2026-10-25T02:00Z")),
        ("Europe/Berlin", "2026-03-29", "02:00", "03:00", None),  # the hour does not exist
        ("America/Sao_Paulo", "2018-11-04", "00:00", "01:00", None),  # midnight does not exist
        ("Australia/Lord_Howe", "2026-10-04", "02:00", "02:30", None),  # half an hour does not exist
        ("Asia/Shanghai", "2026-03-29", "01:00", "05:00", ("2026-03-28T17:00Z", "2026-03-28T21:00Z")),
    ],
)
def test_boundaries_are_wall_clock_times_and_lengths_are_real(
    zone: str, opens_on: str, start: str, end: str, expected: tuple[str, str] | None
) -> None:
    read = calendar({"start": start, "end": end, "timezone": zone})
    day = datetime.fromisoformat(opens_on).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    openings = (s for s in windows.spans(read, day) if s.opens >= day)
    first = next(openings)
    today = first.opens - day < timedelta(hours=23)
    assert ((f"{first.opens:%Y-%m-%dT%H:%MZ}", f"{first.closes:%Y-%m-%dT%H:%MZ}") if today else None) == expected
    gone = windows.skipped(read.windows[0], day, day + timedelta(hours=23))
    assert (gone == []) is (expected is not None)


def test_a_duration_is_real_time_on_the_days_of_the_change() -> None:
    read = calendar({"start": "22:00", "duration": "5h", "timezone": "Europe/Berlin"})
    for day in ("2026-03-28", "2026-10-24", "2026-07-01"):
        span = next(windows.spans(read, moment(f"{day}T12:00+02:00")))
        assert span.closes - span.opens == timedelta(hours=5)


@pytest.mark.parametrize(
    ("start", "duration", "expected"),
    [
        ("02:00", "1h", "2026-03-30T00:00Z"),  # skipped: the next one opens a day later
        ("02:30", "90m", "2026-03-29T01:00Z"),  # from the jump to 04:00 of the wall clock, as with an end
    ],
)
def test_a_duration_from_an_hour_that_does_not_exist_ends_by_the_wall_clock(
    start: str, duration: str, expected: str
) -> None:
    read = calendar({"start": start, "duration": duration, "timezone": "Europe/Berlin"})
    assert spans(read, "2026-03-29T00:00+01:00", 1)[0][0] == expected
    assert next(windows.spans(read, moment("2026-03-29T00:00+01:00"))).closes <= moment("2026-03-30T03:00+02:00")


def test_time_left_is_real_time_in_the_night_of_the_change() -> None:
    read = calendar({"start": "22:00", "end": "03:00", "timezone": "Europe/Berlin"})
    assert windows.state(read, moment("2026-03-28T22:00+01:00")).left == timedelta(hours=4)
    assert windows.state(read, moment("2026-10-24T22:00+02:00")).left == timedelta(hours=6)


# --- several windows, schedules, blackouts ---


def test_windows_are_a_union_and_touching_ones_are_one() -> None:
    read = calendar(
        {"days": ["sat"], "start": "22:00", "end": "24:00", "timezone": "UTC"},
        {"days": ["sun"], "start": "00:00", "duration": "4h", "timezone": "UTC"},
        {"days": ["sun"], "start": "11:00", "duration": "2h", "timezone": "Asia/Shanghai"},
    )
    assert spans(read, "2026-05-02T00:00+00:00", 2) == [
        ("2026-05-02T22:00Z", "2026-05-03T05:00Z"),
        ("2026-05-09T22:00Z", "2026-05-10T05:00Z"),
    ]


def test_the_state_names_the_opening_after_the_open_window() -> None:
    read = calendar({"days": ["mon"], "start": "01:00", "duration": "3h", "timezone": "UTC"})
    found = windows.state(read, moment("2026-05-04T02:00+00:00"))
    assert (found.open, found.left) == (
        Span(moment("2026-05-04T01:00+00:00"), moment("2026-05-04T04:00+00:00")),
        timedelta(hours=2),
    )
    assert found.following is not None
    assert found.following.opens == moment("2026-05-11T01:00+00:00")


def test_a_schedule_says_monthly_things() -> None:
    read = calendar({"schedule": "0 2 * * 5L", "duration": "4h", "timezone": "Asia/Shanghai"})
    assert spans(read, "2026-05-01T00:00+08:00", 2) == [
        ("2026-05-28T18:00Z", "2026-05-28T22:00Z"),
        ("2026-06-25T18:00Z", "2026-06-25T22:00Z"),
    ]


def test_an_opening_years_ahead_is_found() -> None:
    read = calendar({"schedule": "0 2 29 2 *", "duration": "1h", "timezone": "UTC"})
    assert spans(read, "2026-03-01T00:00+00:00", 1) == [("2028-02-29T02:00Z", "2028-02-29T03:00Z")]


def test_blackouts_cut_windows_and_whole_days_are_whole() -> None:
    read = calendar(
        {"start": "22:00", "duration": "4h", "timezone": "Asia/Shanghai"},
        blackouts=[
            {"from": "2026-05-02", "timezone": "Asia/Shanghai"},
            {"from": "2026-05-03 23:00", "to": "2026-05-04 00:30", "timezone": "Asia/Shanghai"},
        ],
    )
    assert spans(read, "2026-05-01T12:00+08:00", 5) == [
        ("2026-05-01T14:00Z", "2026-05-01T16:00Z"),  # until midnight, when the blackout begins
        ("2026-05-02T16:00Z", "2026-05-02T18:00Z"),  # from midnight, when it ends
        ("2026-05-03T14:00Z", "2026-05-03T15:00Z"),
        ("2026-05-03T16:30Z", "2026-05-03T18:00Z"),
        ("2026-05-04T14:00Z", "2026-05-04T18:00Z"),
    ]


def test_an_endless_blackout_means_never_and_ends_the_search() -> None:
    read = calendar(
        {"start": "22:00", "duration": "4h", "timezone": "UTC"},
        blackouts=[{"from": "2020-01-01", "to": "2100-01-01", "timezone": "UTC"}],
    )
    found = windows.state(read, moment("2026-05-01T12:00+08:00"))
    assert (found.open, found.following) == (None, None)


# --- wrong windows ---

GOOD = {"days": ["mon"], "start": "22:00", "duration": "4h", "timezone": "Asia/Shanghai"}


@pytest.mark.parametrize(
    ("change", "code", "hint"),
    [
        ({"timezone": None}, "UPG-WINDOW-ZONE", "Asia/Shanghai"),
        ({"timezone": "Asia/Beijing"}, "UPG-WINDOW-ZONE", "Did you mean Asia/Shanghai?"),
        ({"timezone": "CST"}, "UPG-WINDOW-ZONE", "Did you mean Asia/Shanghai?"),
        ({"timezone": "EST"}, "UPG-WINDOW-ZONE", "Did you mean America/New_York?"),
        ({"timezone": "UTC+8"}, "UPG-WINDOW-ZONE", "Did you mean Asia/Shanghai?"),
        ({"timezone": "asia/shanghai"}, "UPG-WINDOW-ZONE", "Did you mean Asia/Shanghai?"),
        ({"timezone": "Europe/Berlni"}, "UPG-WINDOW-ZONE", "Did you mean Europe/Berlin?"),
        ({"timezone": 8}, "UPG-WINDOW-ZONE", "Asia/Shanghai"),
        ({"start": 1320}, "UPG-WINDOW-TIME", "Quote the time"),
        ({"start": "22"}, "UPG-WINDOW-TIME", "HH:MM"),
        ({"start": "24:00"}, "UPG-WINDOW-TIME", "00:00"),
        ({"start": "9:00"}, "UPG-WINDOW-TIME", "HH:MM"),
        ({"duration": None, "end": "22:00"}, "UPG-WINDOW-TIME", "24h"),
        ({"duration": None, "end": 300}, "UPG-WINDOW-TIME", "Quote the time"),
        ({"days": []}, "UPG-WINDOW-DAYS", "every day"),
        ({"days": ["mon", "tues"]}, "UPG-WINDOW-DAYS", "every day"),
        ({"days": "mon"}, "UPG-WINDOW-DAYS", "every day"),
        ({"duration": 4}, "UPG-WINDOW-DURATION", "unit"),
        ({"duration": "4"}, "UPG-WINDOW-DURATION", "unit"),
        ({"duration": "0h"}, "UPG-WINDOW-DURATION", "unit"),
        ({"duration": "8d"}, "UPG-WINDOW-DURATION", "several windows"),
        ({"duration": None}, "UPG-WINDOW-FORM", "one of the two"),
        ({"end": "23:00"}, "UPG-WINDOW-FORM", "one of the two"),
        ({"schedule": "0 2 * * *"}, "UPG-WINDOW-FORM", "one of the two"),
        ({"start": None, "schedule": "0 2 * * *"}, "UPG-WINDOW-FORM", "days"),
        ({"start": None, "days": None, "schedule": "0 2 * *"}, "UPG-WINDOW-SCHEDULE", "5L"),
        ({"start": None, "days": None, "schedule": "0 25 * * *"}, "UPG-WINDOW-SCHEDULE", "5L"),
        ({"zone": "Asia/Shanghai"}, "UPG-WINDOW-FORM", "Did you mean timezone?"),
    ],
)
def test_a_wrong_window_is_refused_with_its_cure(change: dict[str, Any], code: str, hint: str) -> None:
    _, findings = window_rules.calendar([{**GOOD, **change}])
    assert code in [finding.code for finding in findings]
    assert any(hint in finding.cure or hint in finding.required for finding in findings)
    assert all(finding.subject == "windows[0]" for finding in findings)


@pytest.mark.parametrize("given", [None, [], "mon 22:00", [["mon"]]])
def test_no_window_at_all_is_refused(given: Any) -> None:
    _, findings = window_rules.calendar(given)
    assert {finding.code for finding in findings} <= {"UPG-WINDOW-NONE", "UPG-WINDOW-FORM"}
    assert findings


@pytest.mark.parametrize(
    "blackout",
    [
        {"from": "2026-05-02"},  # no zone
        {"from": "2. May", "timezone": "UTC"},
        {"from": "2026-05-03", "to": "2026-05-01", "timezone": "UTC"},
        {"from": "2026-05-03 10:00+08:00", "timezone": "UTC"},
        {"start": "2026-05-03", "timezone": "UTC"},
    ],
)
def test_a_wrong_blackout_is_refused(blackout: dict[str, str]) -> None:
    _, findings = window_rules.calendar([GOOD], [blackout])
    assert findings
    assert {finding.subject for finding in findings} == {"blackouts[0]"}


def test_all_mistakes_of_all_windows_come_at_once() -> None:
    _, findings = window_rules.calendar([{**GOOD, "timezone": None, "days": []}, {**GOOD, "start": 1320}])
    assert [(f.subject, f.code) for f in findings] == [
        ("windows[0]", "UPG-WINDOW-ZONE"), ("windows[0]", "UPG-WINDOW-DAYS"), ("windows[1]", "UPG-WINDOW-TIME"),
    ]  # fmt: skip


def test_a_missing_time_zone_database_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_rules, "zones", frozenset)
    _, findings = window_rules.calendar([GOOD])
    assert [finding.code for finding in findings] == ["UPG-WINDOW-TZDATA"]
