"""Sweeps and comparisons: every point once, whatever runs it, and nothing twice."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from scheduler.cli.program import load_commands
from simulator import study
from simulator.collectors.invariants import InvariantChecker, InvariantViolated
from simulator.experiment import experiment_of
from simulator.experiment_file import ParameterGrid, load_experiment_file
from simulator.report.study_page import charts
from simulator.report.study_table import BY_KEY, SeedRange, change_text, point_name
from simulator.run import run
from tests.browser import HAS_BROWSER, MISSING, opened
from tests.commands import invoke
from tests.refusals import refusal
from tests.studies import CASE, FABRIC, write


def muster(*words: str) -> Result:
    load_commands()
    result = invoke(*words)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path)
    (tmp_path / "wide.yaml").write_text(FABRIC.replace("count: 4", "count: 6"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages take longer than points: they are drawn where a test is about them."""
    if "page" not in request.node.name:
        monkeypatch.setattr("simulator.report.study_page.write_study", lambda *_: None)


@pytest.fixture(scope="module")
def one_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the case of `tests.studies` was swept once, without its page."""
    swept = tmp_path_factory.mktemp("swept")
    write(swept)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("simulator.report.study_page.write_study", lambda *_: None)
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
        "sweep", "case.yaml", "--report", "out", "--processes", "1", "--format", "json", *options
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
        assert found["points"][5]["totals"]["log_sha256"] == totals["log_sha256"]
        assert found["points"][5]["figures"]["wait_p95_s"] == totals["wait_s"]["p95"]

    def test_a_larger_grid_runs_what_is_new_alone(
        self, finished: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[study.PendingPoint] = []
        run_point = study.run_point
        monkeypatch.setattr(study, "run_point", lambda point: ran.append(point) or run_point(point))

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

        assert (
            again["points"][2]["totals"]["log_sha256"] == first["points"][2]["totals"]["log_sha256"]
        )

    def test_an_interrupted_sweep_keeps_what_is_done(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_point = study.run_point

        def interrupted(point: study.PendingPoint) -> dict[str, Any]:
            if point == waiting[2]:
                raise KeyboardInterrupt
            return run_point(point)

        store = study.PointStore(folder / "out")
        grid = load_experiment_file("case.yaml")
        waiting, _ = study.split(grid, store)
        monkeypatch.setattr(study, "run_point", interrupted)
        with pytest.raises(KeyboardInterrupt):
            study.run_points(waiting, store, 1)

        assert study.split(grid, store)[0] == waiting[2:]

    def test_csv_has_a_row_for_every_point_and_people_get_seeds_together(
        self, finished: Path
    ) -> None:
        result = muster(
            "sweep", "case.yaml", "--report", "out", "--processes", "1", "--format", "csv"
        )
        rows = list(csv.DictReader(result.stdout.splitlines()))

        assert result.stderr.startswith("8 of 8 points are finished already")
        assert len(rows) == 8
        assert [row["seed"] for row in rows[:4]] == ["3", "4", "3", "4"]
        parts = sum(float(v) for k, v in rows[0].items() if k.endswith("_host_s"))
        assert parts == pytest.approx(8 * float(rows[0]["makespan_s"]), rel=1e-6)
        assert (finished / "out" / "points.csv").read_text() == result.stdout
        lines = muster(
            "sweep", "case.yaml", "--report", "out", "--processes", "1"
        ).stdout.splitlines()
        assert lines[0] == "t.swf, seeds 3, 4; mean (least to most) over them"
        assert lines[2].split("  ")[-1].strip() == "spares 1, fifo"
        assert " to " in lines[4]

    def test_many_variants_are_rows_with_the_main_figures(self, folder: Path) -> None:
        shaped(folder, "spares: [0, 3]\n  checkpoint_s: [60, 120, 240, 480, 960]")
        lines = muster("sweep", "case.yaml", "--report", "out").stdout.splitlines()
        assert lines[2].split("  ")[-1].strip() == "restarts"
        assert lines[3].startswith("spares 0, checkpoint s 60 ")

    def test_spares_take_the_place_of_what_jobs_of_a_trace_state(self, folder: Path) -> None:
        shaped(folder, "spares: [0, 3]")
        found = table()

        assert [point["host_s"]["spare"] > 0 for point in found["points"]] == [False, True]
        assert found["notes"] == []

    def test_an_axis_that_changes_nothing_is_named(self, folder: Path) -> None:
        shaped(folder, "spares: [0, 3]\n  seed: {count: 2}")
        told = ["seed has no effect here: all its values give the same log"]

        assert table()["notes"] == told
        assert f"\nnote: {told[0]}\n" in muster("sweep", "case.yaml", "--report", "out").stdout
        assert (
            "note" not in muster("sweep", "case.yaml", "--report", "out", "--format", "csv").stdout
        )

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
        waiting, _ = study.split(grid, study.PointStore(folder / "out"))
        with (folder / "t.swf").open("a") as file:
            file.write("; more\n")

        assert "t.swf: differs from the one" in refusal(study.run_point, waiting[0])
        (folder / "taken").write_text("a file")
        told = refusal(muster, "sweep", "case.yaml", "--report", "taken")
        assert "--report: cannot be written" in told


@pytest.mark.slow
def test_what_a_point_complains_of_is_heard(folder: Path) -> None:
    (folder / "t.swf").write_text("; nothing\n")
    grid = load_experiment_file("case.yaml")
    store = study.PointStore(folder / "out")
    waiting, _ = study.split(grid, store)

    assert "t.swf: holds no job to replay" in refusal(study.run_points, waiting[:2], store, 2)


def test_a_point_that_is_void_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def void(*_: object) -> None:
        raise InvariantViolated("host-ns held: 3 on one side, 2 on the other")

    monkeypatch.setattr(InvariantChecker, "check", void)
    result = muster("sweep", "case.yaml", "--report", "out", "--processes", "1")

    assert result.exit_code == 1
    where = "spares 0, easy, seed 3"
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


# --- comparisons: the same trace and seeds, in several ways --------------------------


def comparing(*options: str) -> Result:
    command = ("t.swf", "--trace-format=swf", "--fabric=m.yaml", "--processes=1")
    return muster("compare", *command, *options)


def compared(*options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(comparing("--format", "json", *options).stdout)
    return found


def runs_of(found: dict[str, Any], variant: dict[str, Any]) -> list[dict[str, Any]]:
    return [point for point in found["points"] if point["digest"] in variant["points"]]


@pytest.mark.usefixtures("folder")
class TestCompare:
    def test_variants_that_do_the_same_are_named(self) -> None:
        options = ("--spares", "0", "--spares", "1", "--attach", "ring", "--placement=minimum-cut")
        told = "placement has no effect here: all its values give the same log"
        twice = compared("--placement", "minimum-cut", "--placement", "consecutive", "--limit=1")

        assert compared(*options)["notes"] == []
        assert twice["notes"] == [told]

    def test_every_combination_under_every_seed(self) -> None:
        found = compared(
            "--policy", "fifo", "--policy", "easy", "--fabric", "wide.yaml", "--seed", "4",
            "--seed", "5", "--failures", "poisson:rate=3000,repair_h=1", "--limit=4",
        )  # fmt: skip

        names = ["m, fifo", "m, easy", "wide, fifo", "wide, easy"]
        assert [variant["name"] for variant in found["variants"]] == names
        for variant in found["variants"]:
            assert [run["totals"]["seed"] for run in runs_of(found, variant)] == [4, 5]

    def test_variants_are_what_is_given_twice(self) -> None:
        for options, names in (
            (["--share-hosts"], ["production"]),
            (["--share-hosts", "--no-share-hosts"], ["share hosts", "no share hosts"]),
            (["--failures", "none", "--failures", "rsc1"], ["no failures", "rsc1"]),
        ):
            found = compared("--limit=4", *options)
            assert [variant["name"] for variant in found["variants"]] == names

    def test_figures_are_means_and_ranges_of_runs_with_the_same_failures(self) -> None:
        found = compared(
            "--policy", "fifo", "--policy", "easy", "--seed", "1", "--seed", "2",
            "--failures", "poisson:rate=9000,repair_h=1", "--limit=15",
        )  # fmt: skip
        fifo, easy = found["variants"]
        runs = [[run["totals"] for run in runs_of(found, each)] for each in (fifo, easy)]
        values = [run["wait_s"]["mean"] for run in runs[0]]

        assert len({*values, *(run["wait_s"]["mean"] for run in runs[1])}) > 2
        for one, other in zip(*runs, strict=True):
            assert one["failures"] == other["failures"]
        assert values[0] != values[1]
        assert fifo["figures"]["wait_mean_s"] == {
            "mean": pytest.approx(sum(values) / 2),
            "min": min(values),
            "max": max(values),
        }

    def test_people_get_variants_by_column(self) -> None:
        lines = comparing("--policy", "fifo", "--policy", "easy", "--limit=1").stdout.splitlines()

        assert lines[0] == "t.swf, seed 0"
        assert lines[2].split() == ["fifo", "easy"]
        assert lines[3].split() == ["completed", "1", "1"]
        assert "note: policy has no effect here: all its values give the same log" in lines

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (["--policy", "lifo"], "--policy: must be one of"),
            (["--policy", "easy", "--policy", "easy"], "--policy: easy is given twice"),
            (["--spares", "many"], "--spares: must be auto"),
            (["--failures", "sometimes"], "--failures: 'sometimes' is neither a file"),
            (["--seed", "-1"], "--seed: must be a whole number"),
            (["--checkpoint-s", "-1"], "--checkpoint-s: must be a whole number"),
            (["--fabric", "gone.yaml"], "gone.yaml: no such file"),
            ([f"--spares={i}" for i in range(50)], "makes 50 variants, more than 48"),
        ],
    )
    def test_bad_options_are_named(self, options: list[str], told: str) -> None:
        assert refusal(comparing, *options).startswith(told)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    write(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        comparing("--policy", "fifo", "--policy", "easy", "--report", "out")
    return folder / "out" / "index.html"


@pytest.mark.slow
def test_the_page_leads_to_every_run(page: Path) -> None:
    for name in ("01-fifo", "02-easy"):
        address = f"runs/{name}/seed-0/index.html"
        assert f'href="{address}"' in page.read_text()
        assert (page.parent / address).is_file()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BROWSER, reason=MISSING)
def test_a_browser_shows_it(page: Path) -> None:
    with opened(page) as shown:
        names = shown.run("return [...document.querySelectorAll('section')].map(s => s.id)")
        rows = shown.run("return document.querySelectorAll('table tr').length")
        worse = shown.run("return document.querySelectorAll('td.better, td.worse').length")

    assert shown.errors == []
    assert [url for url in shown.requests if not url.startswith("data:")] == [page.as_uri()]
    assert names == ["along-policy", "waits", "cuts"]
    assert rows > 8
    assert worse > 3


def test_variants_are_named_by_what_varies(folder: Path) -> None:
    base = {"trace": "t.swf", "trace_format": "swf", "fabric": "m.yaml"}
    grid = ParameterGrid.of(
        base, {"policy": ["easy"], "spares": ["0", "2%"], "checkpoint_s": [60, 600]}
    )
    waiting, _ = study.split(grid, study.PointStore(None), folder)

    assert [point.where for point in waiting][:2] == [
        "spares 0, checkpoint s 60",
        "spares 0, checkpoint s 600",
    ]
    assert waiting[2].folder == folder / "runs" / "03-spares-2-checkpoint-s-60" / "seed-0"
    assert point_name({"fabric": "a/b.yaml", "share_hosts": False}) == "b, no share hosts"


def test_a_range_of_one_value_is_that_value() -> None:
    figure = BY_KEY["utilization"]
    assert SeedRange.of([0.5, 0.5]).spread(figure) == ""
    assert SeedRange.of([0.4, 0.6]).spread(figure) == "40.00 % to 60.00 %"


def test_a_change_is_a_percentage_until_it_is_a_multiple() -> None:
    found = [change_text(change, 100) for change in (5, -50, 890, 21_202.9)]
    assert found == ["+5.0 %", "-50.0 %", "+890.0 %", "213 x"]
