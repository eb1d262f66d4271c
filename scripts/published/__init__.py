"""Published values and ours, row by row.

A module of this package names its rows in `ROWS`; `rows()` finds them all. A row says
what was published, computes the same through muster's own code, and what counts as
equal. docs/validation.md explains the rows; `make validate` prints them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules

from scheduler.cli.render.text import columns

Value = float | str | bool | tuple[float | str, ...]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Rule of equality with the published value, and its text in the table."""

    text: str
    holds: Callable[[Value], bool]


def exactly(value: Value) -> Tolerance:
    return Tolerance("exact", lambda ours: ours == value)


def within(value: float, by: float) -> Tolerance:
    """No further than `by`, in the value's own unit."""
    return Tolerance(f"± {by:g}", lambda ours: abs(_number(ours) - value) <= by)


def near(value: float, share: float) -> Tolerance:
    """No further than a share of the value: `near(2.42, 0.01)` is one percent."""
    return Tolerance(
        f"± {100 * share:g} %", lambda ours: abs(_number(ours) - value) <= share * value
    )


def between(low: float, high: float) -> Tolerance:
    return Tolerance(f"{low:g} to {high:g}", lambda ours: low <= _number(ours) <= high)


def differs(low: float, high: float) -> Tolerance:
    """Ours is known to be off the published value, for reasons that the page gives."""
    return Tolerance(f"differs: {low:g} to {high:g}", between(low, high).holds)


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
    """The rows of every module of this package, by number."""
    published: list[Row] = []
    for module in sorted(iter_modules(__path__), key=lambda published: published.name):
        published += import_module(f"{__name__}.{module.name}").ROWS
    return sorted(published, key=lambda row: _natural(row.number))


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


def _number(value: Value) -> float:
    if isinstance(value, bool | str | tuple):
        raise TypeError(f"{value!r} has no distance to a number")
    return value


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return " / ".join(_text(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.4g}"


def _natural(number: str) -> tuple[tuple[bool, int, str], ...]:
    """`2` before `10`, `25` before `25b`."""
    parts = re.findall(r"\d+|\D+", number)
    return tuple((not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in parts)
