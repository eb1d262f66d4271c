"""Every point of a grid, each kept as a file as soon as it is finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.structs import struct
from scheduler.files.atomic_file import write as write_whole
from scheduler.files.errors import InputError, Problem, unwritable
from simulator.collectors.invariants import named
from simulator.experiment import experiment_of
from simulator.experiment_file import ParameterGrid
from simulator.inputs import digest
from simulator.options import Options
from simulator.pool import run_all
from simulator.report.figures import FIGURES
from simulator.report.points import plain
from simulator.run import run

Table = Mapping[str, Any]


class PointStore:
    """Finished points below a folder, each a JSON file named by its digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "points"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, "--report", error) from None

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the point of a digest, or None when it is not there or incomplete."""
        try:
            point: dict[str, Any] = json.loads((self._folder / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None
        return point if point.get("digest") == name else None

    def put(self, name: str, point: Mapping[str, Any]) -> None:
        """Store a point atomically: it is there whole or not at all, whenever the machine stops."""
        text = json.dumps({"digest": name, **point})
        write_whole(self._folder / f"{name}.json", text, "--report")


@struct(frozen=True, slots=True)
class PendingPoint:
    """A point that has to be run. `where`: its values on the axes of the grid."""

    name: str
    options: Options
    where: str


def split(grid: ParameterGrid, store: PointStore) -> tuple[list[PendingPoint], list[str]]:
    """Split the points of a grid into those to run and the digests of those that are there. Raises:
    InputError."""
    waiting: dict[str, PendingPoint] = {}
    ready: list[str] = []
    for point in grid.points:
        name = digest(point)
        if store.get(name) is not None:
            ready.append(name)
        else:
            waiting.setdefault(name, PendingPoint(name, point, _where(grid, point)))
    return list(waiting.values()), ready


def _where(grid: ParameterGrid, options: Options) -> str:
    return ", ".join(f"{key} {plain(options[key])}" for key in grid.axes) or "the only point"


def run_points(
    waiting: Sequence[PendingPoint],
    store: PointStore,
    processes: int,
    dask: str | None = None,
    on_done: Callable[[], None] | None = None,
) -> None:
    """Run these points, keeping each as it ends. Raises: InputError; InvariantViolated
    naming the point: points that ended before it are kept."""
    for number, result in run_all(run_point, waiting, processes, dask):
        store.put(waiting[number].name, result)
        if on_done:
            on_done()


def run_point(point: PendingPoint) -> dict[str, Any]:
    """Run one replay of a sweep, in a process of its own, perhaps on another machine.

    Raises: InputError when the files there are not the point's own.
    """
    if digest(point.options) != point.name:
        message = "differs from the one that the sweep was started with (or muster itself does)"
        raise InputError(Problem("", message, str(point.options["trace"])))
    with named(point.where):
        totals = run(experiment_of(point.options), has_report_data=True)
    host_s = totals.pop("report_data")["host_s"]
    return {"options": dict(point.options), "totals": totals, "host_s": host_s}


def collect(grid: ParameterGrid, store: PointStore) -> dict[str, Any]:
    """Return all points of the grid in its order, with the figures of each."""
    table = {
        "axes": {key: list(values) for key, values in grid.axes.items()},
        "points": [_point(grid, store, point) for point in grid.points],
    }
    return {**table, "notes": [*notes(table)]}


def _point(grid: ParameterGrid, store: PointStore, options: Options) -> dict[str, Any]:
    stored = store.get(digest(options))
    if stored is None:
        raise InputError(Problem("--report", "a finished point has gone; run again"))
    totals = stored["totals"]
    return {
        "digest": stored["digest"],
        "at": {key: options[key] for key in grid.axes},
        "figures": {figure.key: figure.of(totals) for figure in FIGURES},
        "host_s": stored["host_s"],
        "seconds": totals["seconds"],
        "warnings": totals["warnings"],
        "log_sha256": totals["log_sha256"],
    }


def notes(table: Table) -> Iterator[str]:
    """Return a sentence for each axis that changes nothing, and warnings of points, each once."""
    yield from dict.fromkeys(text for point in table["points"] for text in point["warnings"])
    for key, values in table["axes"].items():
        logs: dict[str, set[str]] = {}
        for point in table["points"]:
            elsewhere = json.dumps([value for axis, value in point["at"].items() if axis != key])
            logs.setdefault(elsewhere, set()).add(point["log_sha256"])
        if len(values) > 1 and all(len(digests) == 1 for digests in logs.values()):
            yield f"{key} has no effect here: all its values give the same log"
