"""Tables of text: a record a line, cells between commas, bars or tabs.

Columns are found by the names of a header, so that their order and further ones do not
matter. A line is a record: a cell may be quoted, and may not go over lines.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence

from simulator.traces.record import BadRecord, FieldError, Lines, Made, read_records

Row = Mapping[str, str]


def read_table(
    lines: Lines,
    make: Callable[[int, Row], Made],
    needed: Sequence[str | tuple[str, ...]],
    separator: str = ",",
) -> Iterator[Made | BadRecord]:
    """Yield what `make` makes of (line, row by column), in the order of the table. `needed`:
    columns, or of several one.

    Raises: FieldError when the header lacks a column that is needed.
    """
    rows = ((line, cells) for line, text in lines if (cells := split(text, separator)) != [""])
    if (head := next(rows, None)) is not None:
        names = _header(head[1], needed)
        yield from read_records(rows, lambda line, cells: make(line, _row(names, cells)))


def with_header(lines: Lines, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a table below a header, which some copies of it have and others do not.
    `names`: of its first columns."""
    stream = iter(lines)
    for line, text in stream:
        cells = split(text, ",")
        if cells[0] != names[0]:
            further = (f"further {at}" for at in range(len(cells) - len(names)))
            yield 0, ",".join((*names, *further))
        yield line, text
        yield from stream


def split(text: str, separator: str) -> list[str]:
    """Split a line into cells, without the blanks around them."""
    text = text.rstrip("\r\n")
    if separator == "," and '"' in text:
        try:
            return [cell.strip() for cell in next(csv.reader([text], strict=True), [""])]
        except csv.Error:
            pass  # quotes that do not pair stand for themselves
    return [cell.strip() for cell in text.split(separator)]


def _header(names: list[str], needed: Sequence[str | tuple[str, ...]]) -> list[str]:
    for each in needed:
        words = f"the column {each}" if isinstance(each, str) else " or ".join(each)
        if not {*names} & ({each} if isinstance(each, str) else {*each}):
            raise FieldError("header", f"must name {words}", ",".join(names)[:200])
    return names


def _row(names: list[str], cells: list[str]) -> dict[str, str]:
    if len(cells) != len(names):
        raise FieldError("columns", "must be as many as in the header", str(len(cells)))
    return dict(zip(names, cells, strict=True))
