"""The page of a run: whole in itself, the same every time, and shown by a browser."""

import re
from pathlib import Path
from random import Random

import pytest

from placement.workload.request import SpareRule
from scheduler.console.theme import COLOURS
from scheduler.core.policies.costs import Costs
from simulator.experiment import Experiment, TraceSource
from simulator.report.run_charts import cuts, waits
from simulator.run import run
from tests.browser import HAS_BROWSER, MISSING, opened
from tests.build import regular
from tests.studies import ROW

FABRIC = regular(("zone", 4), ("host", 4))
FIGURES = ["waterfall", "utilisation", "waits", "cuts", "failures"]


def write_report(folder: Path, *, has_pages: bool = True) -> Path:
    random = Random(2)
    sizes = [1, 8, 16, 40, 100]
    trace = folder / "jobs <b>.swf"
    trace.write_text(
        "".join(ROW.format(i, i * 300, random.randrange(9000), sizes[i % 5]) for i in range(1, 60))
    )
    experiment = Experiment(
        FABRIC,
        trace=TraceSource(trace, "swf"),
        failures="poisson:rate=900,repair_h=2",
        spares=SpareRule(hosts=1),
        costs=Costs(600, 60),
    )
    run(experiment, folder / "report", has_pages=has_pages)
    return folder / "report"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(tmp_path_factory.mktemp("run"))


@pytest.mark.slow
def test_nothing_is_fetched_and_nothing_runs(report: Path) -> None:
    text = (report / "index.html").read_text()
    linked = re.findall(r'<a\b[^>]*\bhref="([^"]*)"', text)
    addresses = re.findall(r'\b(?:src|href)="([^"]*)"', text)

    assert "<script" not in text
    assert set(addresses) > set(linked)
    assert all(each.startswith(("data:", "#")) for each in set(addresses) - set(linked))
    assert all((report / each).exists() for each in linked)


def test_ids_are_used_and_unique_colours_of_any_theme_names_text_and_long_lists_rows(
    report: Path,
) -> None:
    text = (report / "index.html").read_text()
    ids = re.findall(r'\bid="([^"]+)"', text)
    used = re.findall(r'url\(#([^)]+)\)|xlink:href="#([^"]+)"', text)

    assert len(ids) == len(set(ids))
    assert {one or other for one, other in used} <= set(ids)
    assert set(FIGURES) <= set(ids)

    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert "var(--blue)" in drawn
    assert not [name for name, (shade, _) in COLOURS.items() if shade in drawn]
    assert "<b>" not in text
    assert "jobs &lt;b&gt;.swf" in text
    values = re.findall(r'<div( class="long")?><dt>[^<]*</dt><dd>([^<]*)</dd>', text)
    assert {bool(kind) for kind, _ in values} == {True, False}
    assert all(bool(kind) == (len(value) > 36) for kind, value in values)


def test_figures_are_files_as_well(report: Path) -> None:
    names = {path.name for path in (report / "figures").iterdir()}

    assert names == {f"{name}.{form}" for name in FIGURES for form in ("png", "svg")}
    for name in FIGURES:
        assert re.search("<title>[^<]{5,}", (report / "figures" / f"{name}.svg").read_text())
    assert "<title>" not in (report / "index.html").read_text().partition("</head>")[2]


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(report: Path, tmp_path: Path) -> None:
    again = write_report(tmp_path)
    for path in [report / "report_data.json", *sorted((report / "figures").iterdir())]:
        assert path.read_bytes() == (again / path.relative_to(report)).read_bytes(), path.name


@pytest.mark.slow
def test_a_panel_with_nothing_in_it_says_why(tmp_path: Path) -> None:
    trace = tmp_path / "one.swf"
    trace.write_text(ROW.format(1, 0, 600, 8))
    run(
        Experiment(FABRIC, trace=TraceSource(trace, "swf")),
        tmp_path / "report",
    )
    page = (tmp_path / "report" / "index.html").read_text()

    assert 'id="failures"' not in page  # for there were none
    assert 'id="waits"' in page
    assert "every job started within a second" in page
    assert "nothing crosses a zone" in page
    assert "2-8 GPUs (1 job)" in page


@pytest.mark.slow
@pytest.mark.skipif(not HAS_BROWSER, reason=MISSING)
@pytest.mark.parametrize("is_dark", [False, True])
def test_a_browser_shows_it(report: Path, is_dark: bool) -> None:
    page = report / "index.html"
    with opened(page, is_dark=is_dark) as shown:
        sizes = shown.run(
            "return [...document.querySelectorAll('section')].map(s => { const b ="
            " s.querySelector('svg').getBoundingClientRect(); return [s.id, b.width, b.height] })"
        )
        ground = shown.run("return getComputedStyle(document.body).backgroundColor")
        overflow = shown.run("return document.documentElement.scrollWidth > innerWidth")

    assert shown.errors == []
    assert [url for url in shown.requests if not url.startswith("data:")] == [page.as_uri()]
    assert [name for name, *_ in sizes] == FIGURES
    assert all(width > 600 and height > 100 for _, width, height in sizes)
    assert ground == ("rgb(16, 22, 29)" if is_dark else "rgb(247, 248, 250)")
    assert not overflow


def test_runs_in_which_no_job_ended_have_charts() -> None:
    assert waits([("", {"sizes": []})]).name == "waits"
    assert cuts([("", {"sizes": [], "outer_tier": ""})]).name == "cuts"
