"""Replays of one grid side by side: every point once, each kept as soon as it is finished."""

from __future__ import annotations

import json
import os
import re
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
from simulator.report.study_table import FIGURES, SeedRange, Table, point_name
from simulator.run import run


class PointStore:
    """Finished points by their digests: JSON files below a folder, or in memory where it is None.
    Raises: InputError on a folder that cannot be made."""

    def __init__(self, folder: Path | None) -> None:
        self._texts: dict[str, str] = {}
        self._folder = folder and folder / "points"
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise unwritable(self._folder.parent, "--report", error) from None

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the point of a digest, or None when it is not there or incomplete."""
        try:
            file = self._folder / f"{name}.json" if self._folder else None
            text = file.read_text() if file else self._texts.get(name, "")
            point: dict[str, Any] = json.loads(text)
        except (OSError, ValueError):
            return None
        return point if point.get("digest") == name else None

    def put(self, name: str, point: Mapping[str, Any]) -> None:
        """Store a point atomically: it is there whole or not at all, whenever the machine stops."""
        text = json.dumps({"digest": name, **point})
        if self._folder is None:
            self._texts[name] = text
        else:
            write_whole(self._folder / f"{name}.json", text, "--report")


@struct(frozen=True, slots=True)
class PendingPoint:
    """A point that has to be run. `where`: its values on the axes of the grid. `folder`: of the
    report of its run; None: it gets none."""

    name: str
    options: Options
    where: str
    folder: Path | None = None


def split(
    grid: ParameterGrid, store: PointStore, reports: Path | None = None
) -> tuple[list[PendingPoint], list[str]]:
    """Split the points of a grid into those to run and the digests of those that are there.
    `reports`: where each run gets a report below runs/. Raises: InputError."""
    waiting: dict[str, PendingPoint] = {}
    ready: list[str] = []
    folders: dict[str, str] = {}
    for point in grid.points:
        name = digest(point)
        if store.get(name) is not None:
            ready.append(name)
            continue
        variant = point_name(_place(grid, point)) or str(point["policy"])
        slug = re.sub(r"[^A-Za-z0-9.=_-]+", "-", variant).strip("-.")[:80]
        folder = folders.setdefault(variant, f"{len(folders) + 1:02d}-{slug}")
        where = point_name(_place(grid, point, has_seed=True)) or "the only point"
        report = reports and reports / "runs" / folder / f"seed-{point['seed'] or 0}"
        waiting.setdefault(name, PendingPoint(name, point, where, report))
    return list(waiting.values()), ready


def _place(grid: ParameterGrid, point: Options, has_seed: bool = False) -> dict[str, Any]:
    """Return its values on the axes that have several."""
    varied = [key for key, values in grid.axes.items() if len(values) > 1]
    return {key: point[key] for key in varied if has_seed or key != "seed"}


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
    """Run one replay of a study, in a process of its own, perhaps on another machine.

    Raises: InputError when the files there are not the point's own.
    """
    if digest(point.options) != point.name:
        message = "differs from the one that the sweep was started with (or muster itself does)"
        raise InputError(Problem("", message, str(point.options["trace"])))
    with named(point.where):
        totals = run(experiment_of(point.options), point.folder, has_report_data=True)
    host_s = totals.pop("report_data")["host_s"]
    folder = os.fspath(point.folder) if point.folder else None
    return {"options": dict(point.options), "totals": totals, "host_s": host_s, "report": folder}


def collect(grid: ParameterGrid, store: PointStore) -> Table:
    """Return all points of the grid in its order, and its variants: points that differ in their
    seeds alone, with the mean and range of each figure."""
    points = [_point(grid, store, point) for point in grid.points]
    groups: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        place = {key: value for key, value in point["at"].items() if key != "seed"}
        groups.setdefault(json.dumps(place), []).append(point)
    shared = [
        sentence
        for sentence in points[0]["totals"]["assumptions"]
        if all(sentence in point["totals"]["assumptions"] for point in points)
    ]
    return {
        "axes": {key: list(values) for key, values in grid.axes.items()},
        "variants": [_variant(grid, group) for group in groups.values()],
        "points": points,
        "notes": [*_notes(grid, points)],
        "assumptions": shared,
    }


def _point(grid: ParameterGrid, store: PointStore, options: Options) -> dict[str, Any]:
    stored = store.get(digest(options))
    if stored is None:
        raise InputError(Problem("--report", "a finished point has gone; run again"))
    return {
        "digest": stored["digest"],
        "at": {key: options[key] for key in grid.axes},
        "figures": {figure.key: figure.of(stored["totals"]) for figure in FIGURES},
        "host_s": stored["host_s"],
        "totals": stored["totals"],
        "report": stored.get("report"),
    }


def _variant(grid: ParameterGrid, points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    at = {key: value for key, value in points[0]["at"].items() if key != "seed"}
    varied = {key: value for key, value in at.items() if len(grid.axes[key]) > 1}
    return {
        "name": point_name(varied) or points[0]["totals"]["policy"],
        "at": at,
        "figures": {
            figure.key: SeedRange.of([point["figures"][figure.key] for point in points]).data()
            for figure in FIGURES
        },
        "points": [point["digest"] for point in points],
    }


def _notes(grid: ParameterGrid, points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return a sentence for each axis that changes nothing, and warnings of points, each once."""
    yield from dict.fromkeys(text for point in points for text in point["totals"]["warnings"])
    for key, values in grid.axes.items():
        logs: dict[str, set[str]] = {}
        for point in points:
            elsewhere = json.dumps([value for axis, value in point["at"].items() if axis != key])
            logs.setdefault(elsewhere, set()).add(point["totals"]["log_sha256"])
        if len(values) > 1 and all(len(digests) == 1 for digests in logs.values()):
            yield f"{key} has no effect here: all its values give the same log"
