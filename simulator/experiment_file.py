"""The experiment file of `muster sweep`: options of a replay, and a grid of values for any of them.

docs/simulator.md has an example. Every combination of the grid is a point. Seeds are repetitions:
pages and tables show their mean and range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    body, folder = dict(document.mapping()), Path(path).parent
    given, wrong = body.pop("grid", None), list[tuple[str, str]]()
    base = {key: values[0] for key, values in _values(body, "", folder, wrong).items()}
    axes = {}
    if isinstance(given, dict) and given:
        axes = _values(given, "grid.", folder, wrong)
    else:
        text = "is missing" if given is None else "must be a mapping of keys to lists of values"
        wrong.append(("grid", f"{text}; for a single run use muster replay"))
    wrong += [(key, "is missing") for key in _NEEDED if key not in base and key not in axes]
    wrong += [(key, "is given twice, here and in grid") for key in axes if key in base]
    if wrong:
        raise document.error(*wrong)
    if (count := prod(map(len, axes.values()))) > MOST_POINTS:
        raise document.error(("grid", f"makes {count:,} points, more than {MOST_POINTS:,}"))
    grid = ParameterGrid.of(base, axes)
    _check_conflicts(document, grid.points)
    _check_fabrics(document, grid.points)
    return grid


def _values(
    section: Mapping[str, Any], above: str, folder: Path, wrong: list[tuple[str, str]]
) -> dict[str, list[Value]]:
    """Return the values of each key, one where the section is not the grid."""
    found: dict[str, list[Value]] = {}
    for key, raw in section.items():
        path = f"{above}{key}"
        if key not in DEFAULTS:
            known = list(DEFAULTS) if above else [*DEFAULTS, "grid"]
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            wrong.append((path, f"unknown key; {hint}"))
            continue
        good = found.setdefault(key, [])
        for at, value in enumerate(_listed(path, raw, wrong) if above else [raw]):
            place = f"{path}.{at}" if above else path
            if isinstance(value, list | dict):
                wrong.append((place, "must be one value; lists of values stand under grid"))
            elif value is None and key in _NEEDED:
                wrong.append((place, "must not be empty"))
            else:
                try:
                    item = checked(key, resolve_path(folder, key, value))
                except BadInput as error:
                    wrong.append((place, error.message))
                    continue
                if item in good:
                    wrong.append((place, f"{item} is given twice"))
                good.append(item)
        found[key] = good or [None]
    return found


def _listed(path: str, values: Any, wrong: list[tuple[str, str]]) -> list[Any]:
    """Return the values of an axis: a list, or a range of whole numbers."""
    if isinstance(values, list) and values:
        return values
    numbers = {"from": 0, "step": 1, **values} if isinstance(values, dict) else {}
    if not numbers:
        wrong.append((path, "must be a list of at least one value"))
    elif bad := [name for name in values if name not in RANGES]:
        wrong.append((f"{path}.{bad[0]}", f"unknown key; a range has {', '.join(RANGES)}"))
    elif not all(type(number) is int for number in numbers.values()) or "count" not in values:
        wrong.append((path, "a range has whole numbers: from, count and step"))
    elif not 1 <= numbers["count"] <= MOST_POINTS or not numbers["step"]:
        wrong.append((path, f"count must be from 1 to {MOST_POINTS:,}, and step not 0"))
    else:
        return [numbers["from"] + i * numbers["step"] for i in range(numbers["count"])]
    return []


def _check_conflicts(document: Document, points: Sequence[Mapping[str, Value]]) -> None:
    wrong = dict(conflict for point in points for conflict in conflicts(point))
    if any(point["decision_s"] == "measured" for point in points):
        wrong["decision_s"] = "must be a number: a point whose decisions are measured never repeats"
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
