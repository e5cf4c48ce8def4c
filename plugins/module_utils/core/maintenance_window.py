"""When work on nodes may start. Pure: the moment is an argument, and all arithmetic is done in UTC.

A window opens at a wall-clock time of a named zone: weekly (``days``, ``start``) or by a cron ``schedule``. It belongs
to the day on which it opens, also past midnight. It closes after ``duration`` of real time, or at the wall-clock time
``end``; the end itself is outside. Several windows are a union, from which ``blackouts`` are taken.

Daylight saving: an opening that the clocks jump over opens at the jump and closes at its wall-clock end; if nothing is
left, that opening is skipped. Of a time that comes twice the first counts, so only the wall-clock end makes a window
longer or shorter.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

# Windows that follow each other without a gap are looked at this far ahead, and no further.
HORIZON = timedelta(days=14)
LONGEST = timedelta(days=7)
# How far a next opening is looked for: "the last Friday of February" with a year of blackouts is still found.
FARTHEST = timedelta(days=3 * 366)


class Window(msgspec.Struct, frozen=True):
    """One rule. Exactly one of ``duration`` and ``end`` is given; ``end`` is minutes after midnight, 1440 for 24:00."""

    schedule: str
    zone: str
    duration: timedelta | None = None
    end: int | None = None


class Span(msgspec.Struct, frozen=True, order=True):
    """A stretch of real time in UTC, its end excluded."""

    opens: datetime
    closes: datetime


class Calendar(msgspec.Struct, frozen=True):
    """All windows of a cluster, and the spans in which none of them is open."""

    windows: tuple[Window, ...]
    blackouts: tuple[Span, ...] = ()


class State(msgspec.Struct, frozen=True):
    """What the calendar says of one moment: the span that is open, and the next one that opens after it."""

    now: datetime
    open: Span | None = None
    following: Span | None = None

    @property
    def left(self) -> timedelta:
        """Real time until the window closes; zero when none is open."""
        return self.open.closes - self.now if self.open else timedelta()


def state(calendar: Calendar, now: datetime) -> State:
    """Whether a window is open at ``now``, and when the next one opens."""
    coming = spans(calendar, now)
    first = next(coming, None)
    if first is None or first.opens > now:
        return State(now, None, first)
    return State(now, first, next(coming, None))


def spans(calendar: Calendar, now: datetime) -> Iterator[Span]:
    """The spans that are open at ``now`` or open later, in order; touching ones are one, blackouts are cut out."""
    united = _united(heapq.merge(*(_openings(window, now) for window in calendar.windows)), now + HORIZON)
    for span in united:
        yield from (part for part in _without(span, calendar.blackouts) if part.closes > now)


def skipped(window: Window, now: datetime, until: datetime) -> list[datetime]:
    """Wall-clock openings in this time that the clocks jump over, and of which nothing is left."""
    zone = ZoneInfo(window.zone)
    starts = itertools.takewhile(lambda s: instant(s, zone) <= until, _starts(window, now))
    return [start for start in starts if _span(window, start) is None and instant(start, zone) >= now]


def _openings(window: Window, now: datetime) -> Iterator[Span]:
    until = now + FARTHEST
    for start in _starts(window, now):
        span = _span(window, start)
        if span is None:
            continue
        if span.opens > until:
            return
        if span.closes > now:
            yield span


def _starts(window: Window, now: datetime) -> Iterator[datetime]:
    """Wall-clock starts, naive: daylight saving is dealt with here, and by one rule, not by the cron library."""
    since = now.astimezone(ZoneInfo(window.zone)).replace(tzinfo=None) - LONGEST - timedelta(days=1)
    return iter(CronSim(window.schedule, since))


def _span(window: Window, start: datetime) -> Span | None:
    zone = ZoneInfo(window.zone)
    opens = instant(start, zone)
    if window.duration is not None:
        jumped = opens.astimezone(zone).replace(tzinfo=None) != start
        closes = instant(start + window.duration, zone) if jumped else opens + window.duration
    else:
        day = start.replace(hour=0, minute=0)
        end = day + timedelta(minutes=window.end or 0)
        closes = instant(end if end > start else end + timedelta(days=1), zone)
    return Span(opens, closes) if closes > opens else None


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The UTC moment of a naive wall-clock time: the first of two, and for one that does not exist the jump itself."""
    first = wall.replace(tzinfo=zone).astimezone(UTC)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    # For a time that the clocks jump over, fold=1 is read with the offset after the jump, so it comes out earlier.
    return _jump(second, first, zone) if second < first else first


def _jump(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """The first second after ``low`` at which the zone's offset is that of ``high``."""
    after = high.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == after:
            high = middle
        else:
            low = middle
    return high


def _united(ordered: Iterator[Span], horizon: datetime) -> Iterator[Span]:
    current: Span | None = None
    for span in ordered:
        if current is None:
            current = span
        elif span.opens <= current.closes <= horizon:
            current = Span(current.opens, max(current.closes, span.closes))
        elif span.closes > current.closes:
            yield current
            current = Span(max(span.opens, current.closes), span.closes)
    if current is not None:
        yield current


def _without(span: Span, blackouts: Sequence[Span]) -> Iterator[Span]:
    opens = span.opens
    for blackout in sorted(blackouts):
        if blackout.closes <= opens or blackout.opens >= span.closes:
            continue
        if blackout.opens > opens:
            yield Span(opens, blackout.opens)
        opens = max(opens, blackout.closes)
    if opens < span.closes:
        yield Span(opens, span.closes)
