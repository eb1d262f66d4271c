"""The experiment file of `muster sweep`: options of a replay, and a grid of values for any of them.

docs/simulator.md has an example. Every combination of the grid is a point. Seeds are repetitions:
pages and tables show their mean and range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from muster.structs import struct
from placement import BadInput
from scheduler.files.errors import InputError
from scheduler.files.yaml12 import Document, load
from simulator.experiment import fabric_of
from simulator.inputs import resolve_path
from simulator.options import DEFAULTS, OPTIONS, Value, checked, conflicts

MOST_POINTS = 100_000
_NEEDED = tuple(option.key for option in OPTIONS if option.is_needed)
RANGES = ("from", "count", "step")


@struct(frozen=True, slots=True)
class ParameterGrid:
    """The grid of a sweep. `axes`: values by key, in the order of the file. `points`: every
    combination, the last axis fastest."""

    axes: dict[str, list[Value]]
    points: tuple[dict[str, Value], ...]

    @staticmethod
    def of(base: Mapping[str, Value], axes: dict[str, list[Value]]) -> ParameterGrid:
        """Return every combination of the axes on these values, and defaults for all others."""
        combined = product(*axes.values())
        points = ({**DEFAULTS, **base, **dict(zip(axes, each, strict=True))} for each in combined)
        return ParameterGrid(axes, tuple(points))


def load_experiment_file(path: str) -> ParameterGrid:
    """Read an experiment file. Raises: InputError with every fault found, each with its line."""
    document = load(path)
    body = dict(document.mapping())
    values = body.pop("grid", None)
    folder = Path(path).parent
    wrong: list[tuple[str, str]] = []
    base = _values(body, folder, wrong)
    axes = _axes(values, folder, wrong)
    wrong += _missing(base, axes)
    if wrong:
        raise document.error(*wrong)
    if (count := prod(map(len, axes.values()))) > MOST_POINTS:
        raise document.error(("grid", f"makes {count:,} points, more than {MOST_POINTS:,}"))
    grid = ParameterGrid.of(base, axes)
    _check_conflicts(document, grid.points)
    _check_fabrics(document, grid.points)
    return grid


def _values(body: Mapping[str, Any], folder: Path, wrong: list[tuple[str, str]]) -> dict[str, Any]:
    values: dict[str, Value] = {}
    for key, value in body.items():
        if key not in DEFAULTS:
            wrong.append((key, _unknown(key, [*DEFAULTS, "grid"])))
        else:
            values[key] = next(_one(key, key, value, folder, wrong), None)
    return values


def _axes(grid: Any, folder: Path, wrong: list[tuple[str, str]]) -> dict[str, list[Value]]:
    if not isinstance(grid, dict) or not grid:
        text = "is missing" if grid is None else "must be a mapping of keys to lists of values"
        wrong.append(("grid", f"{text}; for a single run use muster replay"))
        return {}
    axes: dict[str, list[Value]] = {}
    for key, values in grid.items():
        if key not in DEFAULTS:
            wrong.append((f"grid.{key}", _unknown(key, DEFAULTS)))
        else:
            axes[key] = _axis(key, values, folder, wrong)
    return axes


def _axis(key: str, values: Any, folder: Path, wrong: list[tuple[str, str]]) -> list[Value]:
    path = f"grid.{key}"
    if isinstance(values, dict):
        return _range(key, values, wrong)
    if not isinstance(values, list) or not values:
        wrong.append((path, "must be a list of at least one value"))
        return [None]
    good: list[Value] = []
    for at, value in enumerate(values):
        for item in _one(key, f"{path}.{at}", value, folder, wrong):
            if item in good:
                wrong.append((f"{path}.{at}", f"{item} is given twice"))
            good.append(item)
    return good


def _range(key: str, values: Mapping[str, Any], wrong: list[tuple[str, str]]) -> list[Value]:
    path = f"grid.{key}"
    numbers = {"from": 0, "step": 1, **values}
    if bad := [name for name in values if name not in RANGES]:
        wrong.append((f"{path}.{bad[0]}", f"unknown key; a range has {', '.join(RANGES)}"))
    elif not all(type(number) is int for number in numbers.values()) or "count" not in values:
        wrong.append((path, "a range has whole numbers: from, count and step"))
    elif not 1 <= numbers["count"] <= MOST_POINTS or not numbers["step"]:
        wrong.append((path, f"count must be from 1 to {MOST_POINTS:,}, and step not 0"))
    else:
        each = [numbers["from"] + i * numbers["step"] for i in range(numbers["count"])]
        return [item for value in each for item in _one(key, path, value, Path(), wrong)]
    return [None]


def _one(
    key: str, path: str, value: Any, folder: Path, wrong: list[tuple[str, str]]
) -> Iterator[Value]:
    """The value, if it is a good one."""
    if isinstance(value, list | dict):
        wrong.append((path, "must be one value; lists of values stand under grid"))
        return
    if value is None and key in _NEEDED:
        wrong.append((path, "must not be empty"))
        return
    try:
        yield checked(key, resolve_path(folder, key, value))
    except BadInput as error:
        wrong.append((path, error.message))


def _missing(
    base: Mapping[str, Value], axes: Mapping[str, Sequence[Value]]
) -> Iterator[tuple[str, str]]:
    for key in _NEEDED:
        if key not in base and key not in axes:
            yield key, "is missing"
    for key in axes:
        if key in base:
            yield key, "is given twice, here and in grid"


def _unknown(key: str, known: Sequence[str] | Mapping[str, Value]) -> str:
    near = get_close_matches(key, list(known), 1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
    return f"unknown key{hint}"


def _check_conflicts(document: Document, points: Sequence[Mapping[str, Value]]) -> None:
    wrong = dict(conflict for point in points for conflict in conflicts(point))
    if wrong:
        body = document.mapping()
        raise document.error(
            *((key if key in body else f"grid.{key}", text) for key, text in wrong.items())
        )


def _check_fabrics(document: Document, points: Sequence[Mapping[str, Value]]) -> None:
    """An oversubscription that a fabric cannot have is text before anything runs."""
    pairs = {(point["fabric"], point["oversubscription"]): point for point in points}
    for point in pairs.values():
        try:
            fabric_of(point)
        except InputError as error:
            if any(problem.source for problem in error.found):
                raise
            key = "oversubscription"
            path = key if key in document.mapping() else f"grid.{key}"
            raise document.error((path, error.found[0].message)) from None
