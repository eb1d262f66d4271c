"""Sweeps: every point once, whatever runs it, and nothing twice."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from simulator import sweep
from simulator.collectors.invariants import InvariantChecker, InvariantViolated
from simulator.experiment import experiment_of
from simulator.experiment_file import load_experiment_file
from simulator.report.sweep_page import charts
from simulator.run import run
from tests.integration.commands.test_replay_command import app
from tests.refusals import refusal
from tests.studies import CASE, write


def muster(*arguments: str) -> Result:
    result = CliRunner().invoke(app(), ["sweep", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages take longer than points: they are drawn where a test is about them."""
    if "page" not in request.node.name:
        monkeypatch.setattr("simulator.report.sweep_page.write_sweep", lambda *_: None)


@pytest.fixture(scope="module")
def one_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the case of `tests.studies` was swept once, without its page."""
    swept = tmp_path_factory.mktemp("swept")
    write(swept)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("simulator.report.sweep_page.write_sweep", lambda *_: None)
        patched.chdir(swept)
        (swept / "table.json").write_text(json.dumps(table()))
    return swept


@pytest.fixture
def finished(folder: Path, one_sweep: Path) -> Path:
    """The test's folder, with the points and the table of that sweep."""
    shutil.copytree(one_sweep, folder, dirs_exist_ok=True)
    return folder


def shaped(folder: Path, grid: str) -> None:
    """A case of two gangs with a shape, one of which states its spares."""
    job = {"submit_s": 0, "run_s": 60, "parallelism": {"dp": 4}, "traffic": {"dp": 1}}
    lines = [json.dumps({**job, **more}) for more in ({"spares": 1}, {"submit_s": 90})]
    (folder / "t.jsonl").write_text("\n".join(lines))
    head = "trace: t.jsonl\ntrace_format: muster\nfabric: m.yaml\n"
    (folder / "case.yaml").write_text(f"{head}grid:\n  {grid}\n")


def table(*options: str) -> dict[str, Any]:
    result = muster(
        "case.yaml", "--report", "out", "--processes", "1", "--format", "json", *options
    )
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.usefixtures("folder")
class TestSweep:
    @pytest.mark.slow
    def test_points_are_what_replays_are(self) -> None:
        found = table()
        grid = load_experiment_file("case.yaml")

        assert [point["at"]["policy"] for point in found["points"]] == [
            point["policy"] for point in grid.points
        ]
        totals = run(experiment_of(grid.points[5]))
        assert found["points"][5]["log_sha256"] == totals["log_sha256"]
        assert found["points"][5]["figures"]["wait_p95_s"] == totals["wait_s"]["p95"]

    def test_a_larger_grid_runs_what_is_new_alone(
        self, finished: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[sweep.PendingPoint] = []
        run_point = sweep.run_point
        monkeypatch.setattr(sweep, "run_point", lambda point: ran.append(point) or run_point(point))

        assert table() == json.loads((finished / "table.json").read_text())
        assert ran == []
        (finished / "case.yaml").write_text(CASE.replace("[0, 1]", "[0, 1, 2]"))
        assert len(table()["points"]) == 12
        assert [point.options["spares"] for point in ran] == ["2"] * 4

    @pytest.mark.usefixtures("finished")
    def test_values_that_are_names_are_not_joined_by_lines(self) -> None:
        by_policy = next(chart for chart in charts(table()) if chart.name == "along-policy")
        lines = [line for axes in by_policy.figure.axes for line in axes.get_lines()]

        assert lines
        assert {line.get_linestyle() for line in lines} == {"None"}

    def test_a_point_that_is_not_whole_is_run_again(self, finished: Path) -> None:
        first = table()
        victim = finished / "out" / "points" / f"{first['points'][2]['digest']}.json"
        victim.write_text(victim.read_text()[:100])
        again = table()

        assert again["points"][2]["log_sha256"] == first["points"][2]["log_sha256"]

    def test_an_interrupted_sweep_keeps_what_is_done(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_point, ran = sweep.run_point, []

        def interrupted(point: sweep.PendingPoint) -> dict[str, Any]:
            if len(ran) == 3:
                raise KeyboardInterrupt
            ran.append(point)
            return run_point(point)

        store = sweep.PointStore(folder / "out")
        waiting, _ = sweep.split(load_experiment_file("case.yaml"), store)
        with monkeypatch.context() as patched:
            patched.setattr(sweep, "run_point", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sweep.run_points(waiting, store, 1)
        result = muster("case.yaml", "--report", "out", "--processes", "1")

        assert "3 of 8 points are finished already" in result.stderr

    def test_csv_has_a_row_for_every_point_and_people_get_seeds_together(
        self, finished: Path
    ) -> None:
        result = muster("case.yaml", "--report", "out", "--processes", "1", "--format", "csv")
        rows = list(csv.DictReader(result.stdout.splitlines()))

        assert len(rows) == 8
        assert [row["seed"] for row in rows[:4]] == ["3", "4", "3", "4"]
        parts = sum(float(v) for k, v in rows[0].items() if k.endswith("_host_s"))
        assert parts == pytest.approx(8 * float(rows[0]["makespan_s"]), rel=1e-6)
        assert (finished / "out" / "points.csv").read_text() == result.stdout
        lines = muster("case.yaml", "--report", "out", "--processes", "1").stdout.splitlines()
        assert lines[0].split()[:2] == ["spares", "policy"]
        assert len(lines) == 5
        assert " to " in lines[1]

    def test_spares_take_the_place_of_what_jobs_of_a_trace_state(self, folder: Path) -> None:
        shaped(folder, "spares: [0, 3]")
        found = table()

        assert [point["host_s"]["spare"] > 0 for point in found["points"]] == [False, True]
        assert found["notes"] == []

    def test_an_axis_that_changes_nothing_is_named(self, folder: Path) -> None:
        shaped(folder, "spares: [0, 3]\n  seed: {count: 2}")
        told = ["seed has no effect here: all its values give the same log"]

        assert table()["notes"] == told
        assert muster("case.yaml", "--report", "out").stdout.endswith(f"note: {told[0]}\n")
        assert "note" not in muster("case.yaml", "--report", "out", "--format", "csv").stdout

    @pytest.mark.slow
    def test_the_page_has_a_figure_for_every_axis(self, folder: Path) -> None:
        table()
        page = (folder / "out" / "index.html").read_text()

        assert 'id="along-spares"' in page
        assert 'id="along-policy"' in page
        assert 'id="along-seed"' not in page

    def test_no_figure_goes_below_zero(self, folder: Path) -> None:
        shaped(folder, "spares: [0, 3]")  # and nothing restarts
        (chart,) = charts(table())
        drawn = [axes for axes in chart.figure.axes if axes.get_visible()]

        titles = {axes.get_title(loc="left") for axes in drawn}
        assert (titles >= {"goodput"}, "restarts" in titles) == (True, False)
        assert "The same at all points: " in chart.words
        assert "restarts 0" in chart.words
        assert all(axes.get_ylim()[0] >= 0 for axes in drawn)

    def test_a_trace_that_changed_and_a_folder_that_is_none_are_told(self, folder: Path) -> None:
        grid = load_experiment_file("case.yaml")
        waiting, _ = sweep.split(grid, sweep.PointStore(folder / "out"))
        with (folder / "t.swf").open("a") as file:
            file.write("; more\n")

        assert "t.swf: differs from the one" in refusal(sweep.run_point, waiting[0])
        (folder / "taken").write_text("a file")
        told = refusal(muster, "case.yaml", "--report", "taken")
        assert "--report: cannot be written" in told


@pytest.mark.slow
def test_what_a_point_complains_of_is_heard(folder: Path) -> None:
    (folder / "t.swf").write_text("; nothing\n")
    grid = load_experiment_file("case.yaml")
    store = sweep.PointStore(folder / "out")
    waiting, _ = sweep.split(grid, store)

    assert "t.swf: holds no job to replay" in refusal(sweep.run_points, waiting[:2], store, 2)


def test_a_point_that_is_void_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def void(*_: object) -> None:
        raise InvariantViolated("host-ns held: 3 on one side, 2 on the other")

    monkeypatch.setattr(InvariantChecker, "check", void)
    result = muster("case.yaml", "--report", "out", "--processes", "1")

    assert result.exit_code == 1
    where = "spares 0, policy easy, seed 3"
    assert f"the replay is void, {where}: host-ns held: 3 on one side" in result.stderr


KILLED = """
import os, signal, sys, time
from simulator.pool import run_all

def told(number):
    os.write(1, f"{os.getpid()}\\n".encode())  # at once: workers share the pipe
    time.sleep(60)

if __name__ == "__main__":
    for _ in run_all(told, [1, 2], 2):
        pass
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as run:
        workers = [int(run.stdout.readline()) for _ in range(2)]
        run.kill()
        # The pipe is closed once the last of those who can write to it has gone.
        assert run.stdout.read() == ""
    assert len(set(workers)) == 2
