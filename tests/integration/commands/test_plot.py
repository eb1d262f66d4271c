"""Pictures of placements: where hosts stand, what colours mean, the same bytes again."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from placement.objective.cut import egress
from placement.placer import place
from placement.workload.request import Objective, Placement, Request, SpareRule, StepBound, TierCut
from scheduler.cli import plot
from scheduler.cli.plot import figure as colours
from scheduler.cli.plot.figure import block_title, group_words, plan, uplink_seconds
from tests.build import coordinates, fabric, flat, gang, two_tiers
from tests.commands import Muster

BARE = from_spec({"name": "bare", "gpus_per_host": 8, "tiers": [{"name": "host", "count": 12}]})
FABRICS = {
    "regular": fabric(zones=8, racks=6, hosts=2),
    "roce-24k": preset("roce-24k"),
    "ib-24k": preset("ib-24k"),
    "unequal": two_tiers([2, 1], [3], [5, 5, 1]),
    "one tier": flat(4, 4, 2),
    "bare": BARE,
    "many": flat(*[2] * 100),
}


def placed(found: Fabric, request: Request, free: int | None = None) -> Placement:
    answer = place(found, hostset.full(found.host_count) if free is None else free, request)
    assert isinstance(answer, Placement)
    return answer


# --- places ------------------------------------------------------------------------


@pytest.mark.parametrize("name", FABRICS)
def test_hosts_stand_in_their_block_each_in_a_square_of_its_own(name: str) -> None:
    found = FABRICS[name]
    places = plan(found, 11.5)
    corner, blocks = places.corner, places.blocks
    order = np.lexsort((corner[:, 0], np.round(corner[:, 1], 6)))
    along = np.diff(corner[order], axis=0)
    same_row = np.abs(along[:, 1]) < 1e-6
    assert (along[same_row, 0] > 1 - 1e-6).all()
    assert (np.diff(np.unique(np.round(corner[:, 1], 6))) > 1 - 1e-5).all()
    of_host = found.tiers[0].domain_by_host if found.tiers else np.zeros(found.host_count, int)
    assert (corner >= blocks[of_host] - 1e-9).all()
    assert (corner + 1 <= blocks[of_host] + places.block + 1e-9).all()


@pytest.mark.parametrize("name", FABRICS)
def test_frames_are_apart_and_on_the_paper(name: str) -> None:
    places = plan(FABRICS[name], 11.5)
    frames = [(x, y, x + places.block[0], y + places.block[1]) for x, y in places.blocks.tolist()]
    for a, b in combinations(frames, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for left, top, right, low in frames:
        assert min(left, top) >= -1e-9
        assert right <= places.size[0] + 1e-6
        assert low <= places.size[1] + 1e-6


# --- colours ------------------------------------------------------------------------


def test_groups_are_the_coordinates_of_ranks() -> None:
    found, request = fabric(zones=3, racks=4, hosts=2), gang(20, pp=4, dp=5)
    answer = placed(found, request)
    stages, replicas = (
        colours.grouped(found, request, answer, kind).group_by_host for kind in ("stage", "replica")
    )
    for block, host in enumerate(answer.hosts):
        at = coordinates(request.parallelism, block * found.gpus_per_host)
        assert (stages[host], replicas[host]) == (at["pp"], at["dp"])
    outside = set(range(found.host_count)) - set(answer.hosts)
    assert all(stages[host] == -1 for host in outside)


@pytest.mark.parametrize(
    ("hosts", "shape", "kind"),
    [
        (16, {"pp": 4, "dp": 4, "pp_bytes": 1_000, "dp_bytes": 30}, "replica"),
        (16, {"pp": 4, "dp": 4, "pp_bytes": 1, "dp_bytes": 30}, "stage"),
        (8, {"dp": 8}, "replica"),  # never an axis of one
    ],
)
def test_colours_are_of_what_zones_keep_together(
    hosts: int, shape: dict[str, Any], kind: str
) -> None:
    """Dear pipelines stay in a zone whole; else stages do."""
    found = fabric(zones=4, racks=2, hosts=2)
    request = gang(hosts, **shape)
    assert colours.grouping(found, request, placed(found, request)).kind == kind


def test_colours_differ_from_each_other_and_from_states() -> None:
    states = {colours.FREE, colours.BUSY, colours.SPARE}
    for count in (1, 21, 22, 128):
        assert len({*colours.palette(count)} | states) == count + len(states)


def test_states_part_the_hosts_that_carry_no_rank() -> None:
    found, request = fabric(zones=2, racks=4, hosts=2), gang(4, dp=4, spares=SpareRule(hosts=2))
    free = hostset.full(16) & ~hostset.of([0, 1, 9])
    answer = placed(found, request, free)
    states = colours.states(found, answer, free)
    everyone = [*answer.hosts, *states.spare, *states.busy, *states.free]
    assert sorted(map(int, everyone)) == list(range(16))
    assert states.busy.tolist() == [0, 1, 9]
    assert tuple(states.spare.tolist()) == answer.spares


def test_words_above_a_block() -> None:
    for groups, words in (
        ([], ""),
        ([3, 3], "stage 3"),
        ([0, 1, 2], "stages 0-2"),
        ([0, 2, 3], "stages 0, 2-3"),
        ([0, 2, 4, 6], "4 stages"),
        ([9, 10], "stages 9-10"),
    ):
        assert group_words(np.array(groups, dtype=np.int64), "stage") == words
    long, words = "IBLEAF-01-02", "stage 3"
    titles = [block_title(long, words, letters) for letters in (40, 12, 6)]
    assert titles == [f"{long}   {words}", long, "…01-02"]


# --- files -------------------------------------------------------------------------


def draw(path: Path, name: str = "regular") -> bytes:
    found = FABRICS[name]
    request = gang(10, gpus=found.gpus_per_host, dp=10)
    plot.draw(found, request, placed(found, request), path, name="job")
    return path.read_bytes()


@pytest.mark.parametrize("name", [name for name in FABRICS if not name.endswith("24k")])
@pytest.mark.parametrize("suffix", [".PNG", ".svg"])
def test_every_fabric_is_drawn(tmp_path: Path, name: str, suffix: str) -> None:
    drawn = draw(tmp_path / f"picture{suffix}", name)
    assert drawn.startswith(b"\x89PNG" if suffix == ".PNG" else b"<?xml")
    assert len(drawn) > 5_000
    if name == "regular":
        assert draw(tmp_path / f"again{suffix}") == drawn


def test_an_svg_has_a_square_a_host_and_no_date(tmp_path: Path) -> None:
    text = draw(tmp_path / "a.svg").decode()
    colour = colours.FREE.lower()
    assert text.count(f"fill: {colour}") >= FABRICS["regular"].host_count - 12
    assert "dc:date" not in text
    assert "<title>job on small: 10 hosts · 80 ranks" in text


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (Objective.TIME, "1 spare · 2.6 s a step, gap 4.00 % · 120 B a step between zones"),
        (Objective.CUT, "1 spare · 120 B a step between zones, gap 50.00 % · 2.6 s a step"),
        (Objective.SPREAD, "1 spare · 120 B a step between zones · 2.6 s a step"),
    ],
)
def test_the_gap_is_that_of_the_objective(tmp_path: Path, objective: Objective, words: str) -> None:
    request = replace(gang(10, dp=10), objective=objective)
    placement = Placement(
        tuple(range(10)), (10,), (TierCut("zone", 120),), 60, step=StepBound(2.6, 2.5)
    )
    plot.draw(FABRICS["regular"], request, placement, tmp_path / "a.svg", name="job")
    title = (tmp_path / "a.svg").read_text().partition("</title>")[0]
    assert title.endswith(words)


# --- the option ---------------------------------------------------------------------


def test_place_draws_what_it_placed(place: Muster) -> None:
    done = place("--plot", "a.svg")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("placed: job")
    assert Path("a.svg").stat().st_size > 5_000
    Path("busy").write_text("z[0-2]-r[0-1]-h[0-3]\n")
    done = place("--busy", "busy", "--plot", "a.png")
    assert (done.code, "not drawn" in done.err) == (3, True)
    assert not Path("a.png").exists()


def test_another_suffix_is_refused_before_anything_else(place: Muster) -> None:
    for name in ("a.pdf", "a", "png", "a.png.gz"):
        done = place("--plot", name, job="gone.yaml")
        assert (done.code, done.out) == (2, "")
        assert done.err == f"--plot: {name} must end in .png or .svg\n"


def test_uplinks_are_busy_as_the_cut_says() -> None:
    found, request = fabric(zones=4, racks=2, hosts=2), gang(16, pp=4, dp=4)
    answer = placed(found, request)
    leaving = egress(found, request, answer.hosts)
    seconds = uplink_seconds(found, request, answer)
    assert seconds.tolist() == pytest.approx(leaving / found.tiers[0].uplink_bytes_per_s)
