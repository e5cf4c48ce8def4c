"""Text in columns, laid out as Go's text/tabwriter does it (padding 2, blanks, left-aligned).

A cell belongs to a column as long as the lines follow each other and each has a cell after it; a line without that
cell ends the column, and the next one starts with a width of its own. Blanks at the end of a line are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

_PADDING = 2


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """The lines with their cells in columns. The last cell of a line is of no column."""
    widths = [[0] * (len(line) - 1) for line in lines]
    _measure(lines, widths, 0, 0, len(lines))
    return [
        "".join(cell.ljust(width) for cell, width in zip(line, [*sizes, 0], strict=True)).rstrip()
        for line, sizes in zip(lines, widths, strict=True)
    ]


def _measure(lines: Sequence[Sequence[str]], widths: list[list[int]], column: int, start: int, end: int) -> None:
    """Set the widths of ``column`` and those right of it for the lines from ``start`` to ``end``."""
    at = start
    while at < end:
        if len(lines[at]) - 1 <= column:
            at += 1
            continue
        stop = at
        while stop < end and len(lines[stop]) - 1 > column:
            stop += 1
        width = max(len(line[column]) for line in lines[at:stop]) + _PADDING
        for row in widths[at:stop]:
            row[column] = width
        _measure(lines, widths, column + 1, at, stop)
        at = stop
