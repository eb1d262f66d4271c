"""Jobs and events as tables: the same in CSV and Parquet, one row each."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from placement.fabric.tree import from_spec
from placement.workload.request import SpareRule
from scheduler.files.errors import InputError
from simulator.collectors import tables
from simulator.collectors.tables import EVENTS, JOBS, need_parquet
from simulator.experiment import Experiment, TraceSource
from simulator.report.folder import ReportFolder
from simulator.run import run

ROW = "{} {} -1 {} {} -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"
SPEC = {"name": "m", "gpus_per_host": 2, "tiers": [{"name": "host", "count": 4}]}


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tables, "BATCH", 7)  # several row groups
    sizes = [(1, 0, 100, 6), (2, 5, 60, 3), (3, 6, 10, 1), (4, 8, 20, 1)]
    (tmp_path / "t.swf").write_text("".join(ROW.format(*size) for size in sizes))
    (tmp_path / "f.csv").write_text("time_s,host,state,cause\n50,h0,down,gpu\n70,h0,up,\n")
    experiment = Experiment(
        from_spec(SPEC),
        trace=TraceSource(tmp_path / "t.swf", "swf"),
        failures=str(tmp_path / "f.csv"),
        spares=SpareRule(hosts=1),
    )
    run(experiment, ReportFolder(tmp_path / "r", has_pages=False, has_parquet=True))
    return tmp_path / "r"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_there_is_a_row_for_every_event(report: Path) -> None:
    found = rows(report / "events.csv")
    log = [json.loads(line) for line in (report / "events.jsonl").read_text().splitlines()]

    assert list(found[0]) == [name for name, _ in EVENTS]
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


@pytest.mark.parametrize(("name", "columns"), [("jobs", JOBS), ("events", EVENTS)])
def test_parquet_has_the_same_rows(report: Path, name: str, columns: tables.Columns) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = parquet.ParquetFile(report / f"{name}.parquet")
    kinds = dict(columns)

    def read(row: dict[str, str]) -> dict[str, Any]:
        return {key: kinds[key](text) if text else None for key, text in row.items()}

    assert file.read().to_pylist() == [read(row) for row in rows(report / f"{name}.csv")]
    assert name == "jobs" or file.metadata.num_row_groups > 1


def test_without_pyarrow_it_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables.importlib.util, "find_spec", lambda _: None)

    with pytest.raises(InputError, match=r"--parquet: needs pyarrow, which is not installed"):
        need_parquet()
