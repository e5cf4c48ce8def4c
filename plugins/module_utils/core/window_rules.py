"""Windows as an inventory writes them: every mistake is found in one pass, none is guessed at.

YAML reads an unquoted ``22:00`` as the number 1320, so only text is a time here.
"""

from __future__ import annotations

import difflib
import functools
import re
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from cronsim import CronSim, CronSimError

from ansible_collections.ack.ai_suite.plugins.module_utils.core import duration as lengths
from ansible_collections.ack.ai_suite.plugins.module_utils.core.findings import Finding
from ansible_collections.ack.ai_suite.plugins.module_utils.core.maintenance_window import (
    LONGEST,
    Calendar,
    Span,
    Window,
    instant,
)

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FULL = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
KEYS = ("days", "start", "end", "duration", "schedule", "timezone")
MIDNIGHT = 24 * 60
BLACKOUT_KEYS = ("from", "to", "timezone")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
# What people write for a zone that has another name, or that several zones share.
_MEANT = {
    "asia/beijing": "Asia/Shanghai", "beijing": "Asia/Shanghai", "cst": "Asia/Shanghai", "prc": "Asia/Shanghai",
    "china": "Asia/Shanghai", "utc+8": "Asia/Shanghai", "gmt+8": "Asia/Shanghai", "utc+08:00": "Asia/Shanghai",
    "hkt": "Asia/Hong_Kong", "sgt": "Asia/Singapore", "jst": "Asia/Tokyo", "wib": "Asia/Jakarta",
    "cet": "Europe/Berlin", "cest": "Europe/Berlin", "est": "America/New_York", "edt": "America/New_York",
    "pst": "America/Los_Angeles", "pdt": "America/Los_Angeles", "gmt": "UTC", "z": "UTC",
}  # fmt: skip


@functools.cache
def zones() -> frozenset[str]:
    """The names in the time zone database; empty when there is none. Reading it takes a tenth of a second."""
    return frozenset(zoneinfo.available_timezones())


class _Judge:
    """Collects what is wrong with one entry of a list."""

    def __init__(self, subject: str, findings: list[Finding]) -> None:
        self.subject = subject
        self.findings = findings

    def wrong(self, code: str, found: Any, required: str, cure: str) -> None:
        self.findings.append(Finding(code, self.subject, repr(found), required, cure))

    def knows(self, entry: Any, keys: Sequence[str]) -> bool:
        if not isinstance(entry, Mapping):
            self.wrong("UPG-WINDOW-FORM", entry, f"a mapping with {', '.join(keys)}", "Write it as key: value lines.")
            return False
        for key in entry:
            if key not in keys and entry[key] is not None:
                near = difflib.get_close_matches(str(key), keys, 1)
                cure = f"Did you mean {near[0]}?" if near else "Remove it."
                self.wrong("UPG-WINDOW-FORM", key, f"one of {', '.join(keys)}", cure)
        return True

    def zone(self, name: Any) -> zoneinfo.ZoneInfo | None:
        """An IANA zone; abbreviations are refused, since CST alone is four different ones."""
        known = zones()
        if not known:
            self.wrong(
                "UPG-WINDOW-TZDATA",
                "no time zone database",
                "the IANA database",
                "pip install tzdata on the controller.",
            )
            return None
        if isinstance(name, str) and (name == "UTC" or ("/" in name and name in known)):
            return zoneinfo.ZoneInfo(name)
        self.wrong("UPG-WINDOW-ZONE", name or "no timezone", "an IANA time zone", _zone_cure(name, known))
        return None

    def time(self, key: str, text: Any) -> int | None:
        """Minutes after midnight."""
        if isinstance(text, str) and _TIME.fullmatch(text):
            return int(text[:2]) * 60 + int(text[3:])
        cure = "Quote the time: YAML reads 22:00 as the number 1320." if isinstance(text, int) else "Write 'HH:MM'."
        self.wrong("UPG-WINDOW-TIME", text, f"{key} as quoted text 'HH:MM'", cure)
        return None

    def days(self, given: Any) -> tuple[int, ...]:
        """Days as numbers of cron, Sunday 0; absent means every day."""
        if given is None:
            return tuple(range(7))
        names = [str(day).strip().lower() for day in given] if isinstance(given, list | tuple) else []
        numbers = [_day(name) for name in names]
        if not numbers or None in numbers:
            self.wrong("UPG-WINDOW-DAYS", given, f"a list of {', '.join(DAYS)}", "Leave days out for every day.")
            return ()
        return tuple(sorted({number for number in numbers if number is not None}))

    def duration(self, text: Any) -> timedelta | None:
        length = lengths.duration(text)
        if length is None:
            self.wrong("UPG-WINDOW-DURATION", text, "a length of time", lengths.HELP)
        elif length > LONGEST:
            self.wrong("UPG-WINDOW-DURATION", text, "7 days at most", "Use several windows, or every day and 24h.")
        return length


def _day(name: str) -> int | None:
    place = DAYS.index(name) if name in DAYS else _FULL.index(name) if name in _FULL else None
    return None if place is None else (place + 1) % 7


def _zone_cure(name: Any, known: Iterable[str]) -> str:
    if not isinstance(name, str) or not name:
        return "Add timezone, for example timezone: Asia/Shanghai."
    meant = _MEANT.get(name.lower().replace(" ", ""))
    by_case = {zone.lower(): zone for zone in known}
    near = difflib.get_close_matches(name.lower(), by_case, 1)
    suggestion = meant or (by_case[near[0]] if near else "")
    return f"Did you mean {suggestion}?" if suggestion else "Use a name like Asia/Shanghai or UTC."


def calendar(windows: Any, blackouts: Any = ()) -> tuple[Calendar, list[Finding]]:
    """The calendar that an inventory describes, and everything that is wrong with it; use it only if nothing is."""
    findings: list[Finding] = []
    if not isinstance(windows, list | tuple) or not windows:
        _Judge("windows", findings).wrong(
            "UPG-WINDOW-NONE", windows, "a list with one window at least", "Say when work may start: days, start, ..."
        )
        windows = ()
    read = [_window(entry, _Judge(f"windows[{place}]", findings)) for place, entry in enumerate(windows)]
    dark = [_blackout(entry, _Judge(f"blackouts[{place}]", findings)) for place, entry in enumerate(blackouts or ())]
    return Calendar(tuple(w for w in read if w is not None), tuple(b for b in dark if b is not None)), findings


def _window(entry: Any, judge: _Judge) -> Window | None:
    if not judge.knows(entry, KEYS):
        return None
    given = {key: entry[key] for key in KEYS if entry.get(key) is not None}
    zone = judge.zone(given.get("timezone"))
    if ("start" in given) == ("schedule" in given):
        judge.wrong("UPG-WINDOW-FORM", sorted(given), "either start or schedule", "Give one of the two.")
        return None
    if ("end" in given) == ("duration" in given) or ("schedule" in given and "end" in given):
        judge.wrong(
            "UPG-WINDOW-FORM", sorted(given), "either duration or end (end only with start)", "Give one of the two."
        )
        return None
    start = judge.time("start", given["start"]) if "start" in given else None
    schedule = _weekly(start, given.get("days"), judge) if "start" in given else _cron(given, judge)
    length = judge.duration(given["duration"]) if "duration" in given else None
    end = _end(start, given["end"], judge) if "end" in given else None
    if zone is None or schedule is None or (length is None) == (end is None):
        return None
    return Window(schedule, zone.key, length, end)


def _weekly(start: int | None, given_days: Any, judge: _Judge) -> str | None:
    days = judge.days(given_days)
    if start == MIDNIGHT:
        judge.wrong("UPG-WINDOW-TIME", "24:00", "a start before 24:00", "Write '00:00' and the day after.")
    if start is None or start == MIDNIGHT or not days:
        return None
    return f"{start % 60} {start // 60} * * {','.join(map(str, days))}"


def _cron(given: Mapping[str, Any], judge: _Judge) -> str | None:
    schedule = given["schedule"]
    if "days" in given:
        judge.wrong("UPG-WINDOW-FORM", "days", "no days beside a schedule", "Put the days into the schedule.")
        return None
    try:
        if not isinstance(schedule, str) or len(schedule.split()) != 5:
            raise CronSimError("Five fields are needed")
        CronSim(schedule, datetime(2000, 1, 1))
    except CronSimError as problem:
        judge.wrong(
            "UPG-WINDOW-SCHEDULE",
            schedule,
            f"a cron schedule ({problem})",
            "For example '0 2 * * 5L', the last Friday.",
        )
        return None
    return schedule


def _end(start: int | None, text: Any, judge: _Judge) -> int | None:
    end = judge.time("end", text)
    if end is not None and end == start:
        judge.wrong("UPG-WINDOW-TIME", text, "an end that is not the start", "For a whole day: duration '24h'.")
        return None
    return end


def _blackout(entry: Any, judge: _Judge) -> Span | None:
    if not judge.knows(entry, BLACKOUT_KEYS):
        return None
    zone = judge.zone(entry.get("timezone"))
    first = _moment(entry.get("from"), judge, last=False)
    last = _moment(entry["to"] if entry.get("to") is not None else entry.get("from"), judge, last=True)
    if zone is None or first is None or last is None:
        return None
    span = Span(instant(first, zone), instant(last, zone))
    if span.closes <= span.opens:
        judge.wrong("UPG-WINDOW-BLACKOUT", str(entry["to"]), f"a moment after {entry['from']}", "Swap the two.")
        return None
    return span


def _moment(text: Any, judge: _Judge, *, last: bool) -> datetime | None:
    """A date (whole, so the last one ends at its midnight) or a date and time, without a zone of its own."""
    try:
        if "T" not in str(text) and " " not in str(text):
            return datetime.combine(date.fromisoformat(str(text)), datetime.min.time()) + timedelta(days=int(last))
        moment = datetime.fromisoformat(str(text))
        if moment.tzinfo is None:
            return moment
    except ValueError:
        pass
    judge.wrong("UPG-WINDOW-BLACKOUT", text, "a date '2026-12-31' or '2026-12-31 18:00'", "Quote it; zone: timezone.")
    return None
