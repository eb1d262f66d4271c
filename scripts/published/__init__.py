"""Published values and ours, row by row.

rows.csv names the rows: what was published, what ours must be, and the evidence. A module of
this package computes some of them through muster's own code, by number in `OURS`.
docs/validation.md explains the rows; `make validate` prints them.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from scheduler.cli.render.text import columns

Value = float | str | bool | tuple[float | str, ...]
TABLE = Path(__file__).with_name("rows.csv")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Rule of equality with the published value, and its text in the table. `parts`: for each part
    of the value the least and the most that it may be, or the text that it must be."""

    text: str
    parts: tuple[tuple[float, float] | str, ...]

    def holds(self, ours: Value) -> bool:
        values = ours if isinstance(ours, tuple) else (ours,)
        return len(values) == len(self.parts) and all(map(_agrees, values, self.parts))


def _agrees(ours: float | str, part: tuple[float, float] | str) -> bool:
    if isinstance(part, str) or isinstance(ours, str):
        return ours == part
    return part[0] <= ours <= part[1]


def tolerance(text: str) -> Tolerance:
    """Parse what ours must be, parts of it between slashes: `= 1 / a` is exact, `2 ± 0.1` no
    further off than that, `2 ± 3 %` than a share, `1 to 2` lies between. `differs: 1 to 2` is known
    to be off the published value, for reasons that the page gives."""
    values, plus_minus, by = text.removeprefix("= ").removeprefix("differs: ").partition(" ± ")
    parts = tuple(_part(each, by) for each in values.split(" / "))
    return Tolerance("exact" if text.startswith("= ") else f"± {by}" if plus_minus else text, parts)


def _part(text: str, by: str) -> tuple[float, float] | str:
    low, to, high = text.partition(" to ")
    if to:
        return float(low), float(high)
    try:
        value = float(text)
    except ValueError:
        return text
    share, percent, _ = by.partition(" %")
    most = float(share or 0) * (value / 100 if percent else 1)
    return value - most, value + most


class Evidence(StrEnum):
    """Strength of a row's evidence, from the least to the most."""

    INPUT = "input"  # the value, or its parts, are given to muster: nothing is lost on the way
    FORMULA = "formula"  # the source's own formula, evaluated by muster's code
    FITTED = "fitted"  # a free number was chosen so that the row comes out
    DERIVED = "derived"  # printed nowhere: follows from published inputs by another method
    INDEPENDENT = "independent"  # printed by its source, computed here from other numbers


@dataclass(frozen=True, slots=True)
class Row:
    """One published value.

    `number`: the row of docs/validation.md. `published`: the value as its source prints
    it. `ours`: computes it; stochastic ones state their seed in `what`. `tolerance` has two
    sides: a result that is too good fails as well. `slow`: more than a second or two, left
    out of the unit tests.
    """

    number: str
    what: str
    published: str
    ours: Callable[[], Value]
    tolerance: Tolerance
    evidence: Evidence
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row computed. Units: seconds."""

    row: Row
    ours: Value
    seconds: float

    @property
    def passed(self) -> bool:
        return self.row.tolerance.holds(self.ours)

    @property
    def ours_text(self) -> str:
        return _text(self.ours)


def rows() -> list[Row]:
    """Return the rows of the table, in its order."""
    ours: dict[str, Callable[[], Value]] = {}
    for module in iter_modules(__path__):
        ours |= import_module(f"{__name__}.{module.name}").OURS
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                row["row"],
                row["what"],
                row["published"],
                ours.pop(row["row"]),
                tolerance(row["ours"]),
                Evidence(row["evidence"]),
                bool(row["slow"]),
            )
            for row in csv.DictReader(file)
        ]


def check(row: Row) -> Outcome:
    begin = time.perf_counter()
    ours = row.ours()
    return Outcome(row, ours, time.perf_counter() - begin)


def table(outcomes: Iterable[Outcome]) -> str:
    """Published value, ours, tolerance, pass or fail; one line a row."""
    head = ("row", "what", "evidence", "published", "ours", "tolerance", "", "s")
    lines = [head]
    for done in outcomes:
        row, verdict = done.row, "pass" if done.passed else "FAIL"
        ours, spent = done.ours_text, f"{done.seconds:.2f}"
        known = (row.number, row.what, row.evidence.value, row.published)
        lines.append((*known, ours, row.tolerance.text, verdict, spent))
    return columns(lines, right={7})


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return " / ".join(_text(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.4g}"
