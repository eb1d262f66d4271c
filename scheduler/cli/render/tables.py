"""Tables of lists: which columns, in which order of rows, fitted to a terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer

from muster.structs import struct
from scheduler.cli.render.text import columns, enum_word
from scheduler.files.errors import one_line

LEAST_WIDTH = 12  # of a column that is cut to fit a terminal
CUT = "..."
_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?( %)?")
_COLOURS = {
    "running": "green",
    "healthy": "green",
    "open": "green",
    "queued": "yellow",
    "interrupted": "yellow",
    "draining": "yellow",
    "cordoned": "yellow",
    "suspect": "yellow",
    "failed": "red",
    "down": "red",
    "cancelled": "bright_black",
    "completed": "bright_black",
}


@struct(frozen=True, slots=True)
class Column:
    """One column of a list.

    `is_wide`: shown with `-o wide` only, or where it is asked for by name. `is_text`: free text,
    which is cut first where a terminal is narrow. `is_minor`: left out next, unless it is asked
    for by name.
    """

    head: str
    cell: Callable[[Any], str]
    is_right: bool = False
    is_wide: bool = False
    is_text: bool = False
    is_minor: bool = False

    @property
    def key(self) -> str:
        """Key of the column in `--columns` and `--sort`: `used_gpu_h` of `USED GPU-H`."""
        return column_key(self.head)


def number_column(head: str, field: str, *, is_minor: bool = False) -> Column:
    """Return a column of the whole numbers that the message has in `field`."""
    return Column(head, lambda row: f"{getattr(row, field):,}", is_right=True, is_minor=is_minor)


def enum_column(head: str, field: str, *, is_wide: bool = False) -> Column:
    """Return a column of the words for an enum that the message has in `field`."""
    return Column(head, lambda row: enum_word(row, field), is_wide=is_wide)


@struct(frozen=True, slots=True)
class View:
    """Settings with which a list is shown. `width`: of the terminal, in characters; None: lines are
    not cut.

    `names`: the columns, in this order; empty: the list's own columns.
    """

    names: tuple[str, ...] = ()
    is_wide: bool = False
    has_heads: bool = True
    width: int | None = None
    is_coloured: bool = False


@dataclass(frozen=True)  # works out a field of its own
class ListTable:
    """The columns of a list, and the text where it has no rows."""

    columns: tuple[Column, ...]
    nothing: str
    by_key: dict[str, Column] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_key", {column.key: column for column in self.columns})

    def column(self, name: str) -> Column:
        """Return the column of this name. Raises: KeyError with a sentence that names the
        columns."""
        try:
            return self.by_key[column_key(name)]
        except KeyError:
            raise KeyError(f"{name!r} is not one of {', '.join(self.by_key)}") from None

    def order(self, things: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Sort by these columns, numbers by value; a name that begins with `-` sorts downwards.

        Raises: KeyError.
        """
        ordered = list(things)
        for name in reversed(names):
            cell = self.column(name.removeprefix("-")).cell
            ordered.sort(key=lambda thing: _rank(cell(thing)), reverse=name.startswith("-"))
        return ordered

    def describe(self, thing: Any) -> str:
        """Write a line for each column, also for wide ones, that says something of one thing."""
        cells = [(column.head.lower(), column.cell(thing)) for column in self.columns]
        return columns([(head, cell) for head, cell in cells if cell not in ("", "-")])

    def text(self, things: Sequence[Any], view: View | None = None) -> str:
        """Write a line for each thing. Raises: KeyError on an unknown column."""
        view = view or View()
        if view.names:
            shown = [self.column(name) for name in view.names]
        else:
            shown = [column for column in self.columns if view.is_wide or not column.is_wide]
        rows = [[one_line(column.cell(thing)) for column in shown] for thing in things]
        heads = [[column.head for column in shown]] if view.has_heads else []
        if not rows:
            return self.nothing if view.has_heads else ""
        if view.width is not None:
            if not view.names:
                shown, rows = _narrowed(shown, rows, view.width)
                heads = [[column.head for column in shown]] if view.has_heads else []
            rows = _fitted(shown, heads + rows, view.width)[len(heads) :]
        right = {i for i, column in enumerate(shown) if column.is_right}
        lines = columns(heads + rows, right).split("\n")
        if not view.is_coloured:
            return "\n".join(lines)
        states = [i for i, column in enumerate(shown) if column.key == "state"]
        for at, row in enumerate(rows, start=len(heads)):
            for i in states:
                lines[at] = _coloured(lines[at], row[i])
        return "\n".join(lines)


def terminal_view(*, is_wide: bool = False) -> View:
    """Return the settings for a table on standard output: lines are cut to the width of a terminal,
    and whole elsewhere."""
    is_terminal = sys.stdout.isatty()
    return View(
        is_wide=is_wide,
        width=shutil.get_terminal_size().columns if is_terminal and not is_wide else None,
        is_coloured=is_terminal and not os.environ.get("NO_COLOR"),
    )


def column_key(head: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", head.lower()).strip("_")


def _rank(cell: str) -> tuple[bool, float, str]:
    """Numbers by value, before text."""
    if _NUMBER.fullmatch(cell):
        return False, float(cell.removesuffix(" %").replace(",", "")), ""
    return True, 0.0, cell


def _narrowed(
    shown: Sequence[Column], rows: list[list[str]], width: int
) -> tuple[list[Column], list[list[str]]]:
    """Leave out columns until the others fit with their text cut: first those that say nothing,
    then minor ones, from the right."""

    def least(i: int) -> int:
        longest = max(len(shown[i].head), *(len(row[i]) for row in rows))
        return min(longest, max(LEAST_WIDTH, len(shown[i].head))) if shown[i].is_text else longest

    kept = list(range(len(shown)))
    says_nothing = [i for i in kept[1:] if all(row[i] in ("", "-", "0") for row in rows)]
    minor = [i for i in kept if shown[i].is_minor and i not in says_nothing]
    for i in (*says_nothing[::-1], *minor[::-1]):
        if sum(least(each) + 2 for each in kept) - 2 <= width:
            break
        kept.remove(i)
    return [shown[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _fitted(shown: Sequence[Column], rows: list[list[str]], width: int) -> list[list[str]]:
    """The rows with free text cut so that no line is wider, as far as that goes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(shown))]
    excess = sum(widths) + 2 * (len(shown) - 1) - width
    for i in sorted(
        (i for i, column in enumerate(shown) if column.is_text), key=widths.__getitem__
    )[::-1]:
        least = max(LEAST_WIDTH, len(shown[i].head))
        if excess > 0 and widths[i] > least:
            cut = min(excess, widths[i] - least)
            widths[i], excess = widths[i] - cut, excess - cut
    return [
        [
            cell if len(cell) <= most else cell[: most - len(CUT)] + CUT
            for cell, most in zip(row, widths, strict=True)
        ]
        for row in rows
    ]


def _coloured(line: str, state: str) -> str:
    colour = _COLOURS.get(state)
    word = rf"(?<=  ){re.escape(state)}(?=  |$)"
    if colour is None:
        return line
    return re.sub(word, lambda match: typer.style(match[0], fg=colour), line, count=1)
