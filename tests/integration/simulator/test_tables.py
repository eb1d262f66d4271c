"""Jobs and events as tables: one row each."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from placement.fabric.tree import from_spec
from placement.workload.request import SpareRule
from simulator.collectors.tables import EVENTS
from simulator.experiment import Experiment, TraceSource
from simulator.report.folder import ReportFolder
from simulator.run import run

ROW = "{} {} -1 {} {} -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"
SPEC = {"name": "m", "gpus_per_host": 2, "tiers": [{"name": "host", "count": 4}]}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    sizes = [(1, 0, 100, 6), (2, 5, 60, 3), (3, 6, 10, 1), (4, 8, 20, 1)]
    (tmp_path / "t.swf").write_text("".join(ROW.format(*size) for size in sizes))
    (tmp_path / "f.csv").write_text("time_s,host,state,cause\n50,h0,down,gpu\n70,h0,up,\n")
    experiment = Experiment(
        from_spec(SPEC),
        trace=TraceSource(tmp_path / "t.swf", "swf"),
        failures=str(tmp_path / "f.csv"),
        spares=SpareRule(hosts=1),
    )
    run(experiment, ReportFolder(tmp_path / "r", has_pages=False))
    return tmp_path / "r"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_there_is_a_row_for_every_event(report: Path) -> None:
    found = rows(report / "events.csv")
    log = [json.loads(line) for line in (report / "events.jsonl").read_text().splitlines()]

    assert list(found[0]) == list(EVENTS)
    assert [(int(row["version"]), row["type"]) for row in found] == [
        (line["version"], line["type"]) for line in log
    ]


def test_events_say_what_their_kind_has(report: Path) -> None:
    found = rows(report / "events.csv")
    start = next(row for row in found if row["type"] == "JobStarted")
    moves = [(r["time_s"], r["host"], r["move"]) for r in found if r["type"] == "HostMoved"]
    swap = next(row for row in found if row["type"] == "GangSwapped")

    assert (start["job"], start["hosts"], start["spares"]) == ("1", "3", "1")
    assert moves == [("50.0", "h0", "fail"), ("70.0", "h0", "repair")]
    assert swap["reason"].startswith("h0 > h")
