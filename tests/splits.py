"""Replays in one go and in pieces, by everything that they write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.case import run_case
from simulator.report import Report
from simulator.snapshot.marks import fields, marks
from simulator.snapshot.resume import Record, load
from simulator.snapshot.saver import Saver, Stopped, When
from simulator.study.options import DEFAULTS, Value, case_of

Files = dict[str, bytes]
TAKEN = ("seconds", "events_per_second")  # how long it took: all that may differ


def run(
    options: Mapping[str, Value],
    folder: Path,
    resume: Path | None = None,
    at_h: float | None = None,
    snapshot: Path | None = None,
    is_beside: bool = False,
) -> Files:
    """What a replay leaves in `folder`: of the trace, or of the rest of one. `is_beside`: a
    second process writes it."""
    resumed = load(resume, options, fields()) if resume else None
    record = resumed.record if resumed else Record.of({**DEFAULTS, **options})
    earlier = resumed.files if resumed else None
    report = Report(folder, earlier, has_pages=False)
    saver = Saver(snapshot, record, report, marks(), When(at_h=at_h)) if snapshot else None
    case = case_of(record.options)
    try:
        run_case(case, report, saver=saver, resumed=resumed, is_beside=is_beside)
    except Stopped:
        return {}
    return written(folder)


def written(folder: Path) -> Files:
    """All files of a report, without the time that it took."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    totals: dict[str, Any] = json.loads(found["totals.json"])
    taken = f"{totals['seconds']:.1f} s, {totals['events_per_second']:,.0f} a second"
    for name in ("summary.md", "index.html"):
        if name in found:
            found[name] = found[name].replace(taken.encode(), b"")
    rest = {key: value for key, value in totals.items() if key not in TAKEN}
    return {**found, "totals.json": json.dumps(rest).encode()}


def split(
    options: Mapping[str, Value], folder: Path, at_h: Sequence[float], is_beside: bool = False
) -> Files:
    """The same, stopped at each of these times and gone on with in another folder."""
    resume: Path | None = None
    for number, stop_h in enumerate(at_h):
        snapshot = folder / f"{number}.snap"
        found = run(
            {} if resume else options, folder / str(number), resume, stop_h, snapshot, is_beside
        )
        assert not found, f"it was over before {stop_h} h"
        resume = snapshot
    return run({} if resume else options, folder / "last", resume, is_beside=is_beside)
