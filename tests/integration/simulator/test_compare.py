"""`muster compare`: the same trace and seeds, in several ways."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from simulator.compare import variants
from simulator.options import DEFAULTS
from simulator.report.comparison_page import change_text
from simulator.report.figures import BY_KEY, SeedRange
from tests.browser import HAS_BROWSER, MISSING, opened
from tests.integration.commands.test_replay_command import app
from tests.refusals import refusal
from tests.studies import FABRIC, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path)
    (tmp_path / "wide.yaml").write_text(FABRIC.replace("count: 4", "count: 6"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def muster(*options: str) -> Result:
    command = ["compare", "t.swf", "--trace-format=swf", "--fabric=m.yaml", "--processes=1"]
    result = CliRunner().invoke(app(), [*command, *options])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def compared(*options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(muster("--format", "json", *options).stdout)
    return found


@pytest.mark.usefixtures("folder")
class TestCompare:
    def test_variants_that_do_the_same_are_named(self) -> None:
        options = ("--spares", "0", "--spares", "1", "--attach", "ring", "--placement=minimum-cut")
        told = "gives the same log as minimum-cut"
        twice = compared("--placement", "minimum-cut", "--placement", "consecutive", "--limit=1")

        assert compared(*options)["notes"] == []
        assert twice["notes"] == [f"consecutive {told}"]
        shown = muster("--placement", "minimum-cut", "--placement", "consecutive", "--limit=1")
        assert f"note: consecutive {told}" in shown.stdout

    def test_every_combination_under_every_seed(self) -> None:
        found = compared(
            "--policy", "fifo", "--policy", "easy", "--fabric", "wide.yaml", "--seed", "4",
            "--seed", "5", "--failures", "poisson:rate=3000,repair_h=1", "--limit=4",
        )  # fmt: skip

        names = ["m, fifo", "m, easy", "wide, fifo", "wide, easy"]
        assert [variant["name"] for variant in found["variants"]] == names
        assert found["baseline"] == "m, fifo"
        for variant in found["variants"]:
            assert [run["seed"] for run in variant["runs"]] == [4, 5]

    @pytest.mark.parametrize(
        ("options", "names"),
        [
            (["--share-hosts"], ["run"]),
            (["--share-hosts", "--no-share-hosts"], ["share hosts", "no share hosts"]),
            (["--failures", "none", "--failures", "rsc1"], ["no failures", "rsc1"]),
        ],
    )
    def test_variants_are_what_is_given_twice(self, options: list[str], names: list[str]) -> None:
        found = compared("--limit=4", *options)
        assert [variant["name"] for variant in found["variants"]] == names

    def test_figures_are_means_and_ranges_of_runs_with_the_same_failures(self) -> None:
        found = compared(
            "--policy", "fifo", "--policy", "easy", "--seed", "1", "--seed", "2",
            "--failures", "poisson:rate=9000,repair_h=1", "--limit=15",
        )  # fmt: skip
        fifo, easy = found["variants"]
        values = [run["wait_s"]["mean"] for run in fifo["runs"]]

        assert len({*values, *(run["wait_s"]["mean"] for run in easy["runs"])}) > 2
        for one, other in zip(fifo["runs"], easy["runs"], strict=True):
            assert one["failures"] == other["failures"]
        assert values[0] != values[1]
        assert fifo["figures"]["wait_mean_s"] == {
            "mean": pytest.approx(sum(values) / 2),
            "min": min(values),
            "max": max(values),
        }

    def test_people_get_variants_by_column(self) -> None:
        lines = muster("--policy", "fifo", "--policy", "easy").stdout.splitlines()

        assert lines[0] == "t.swf, seed 0"
        assert lines[2].split() == ["fifo", "easy"]
        assert lines[3].split() == ["completed", "40", "40"]

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
        assert refusal(muster, *options).startswith(told)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    write(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        muster("--policy", "fifo", "--policy", "easy", "--report", "out")
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
    assert names == ["waits", "cuts"]
    assert rows > 8
    assert worse > 3


def test_variants_are_named_by_what_varies() -> None:
    axes = {"policy": ["easy"], "spares": ["0", "2%"], "checkpoint_s": [60, 600]}
    found = variants(DEFAULTS, axes)

    assert [variant.name for variant in found][:2] == [
        "spares 0, checkpoint s 60",
        "spares 0, checkpoint s 600",
    ]
    assert found[2].folder == "spares-2-checkpoint-s-60"


def test_a_range_of_one_value_is_that_value() -> None:
    figure = BY_KEY["utilization"]
    assert SeedRange.of([0.5, 0.5]).text(figure) == "50.00 %"
    assert SeedRange.of([0.4, 0.6]).text(figure) == "50.00 % (40.00 % to 60.00 %)"


@pytest.mark.parametrize(
    ("change", "baseline", "text"),
    [(5, 100, "+5.0 %"), (-50, 100, "-50.0 %"), (890, 100, "+890.0 %"), (21_202.9, 100, "213 x")],
)
def test_a_change_is_a_percentage_until_it_is_a_multiple(
    change: float, baseline: float, text: str
) -> None:
    assert change_text(change, baseline) == text
