"""Jobs whose blocks form no grid, against every assignment."""

from itertools import product
from math import ceil, gcd, prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.bound.cells import cells_of, floors
from placement.bound.pathwidth import PartBound
from placement.bound.pricing import pattern_cost
from placement.grid.layout import counts
from placement.objective.cut import cut_by_axis
from placement.proof.branch_and_price import Prover
from placement.proof.cell_proofs import CellProof
from placement.search.graph_slicing import block_orders
from placement.tiers.graph_zones import solve_ragged
from placement.workload.request import Collective, Limits, Request
from tests.build import request
from tests.property.grids import WEIGHT, enough, graph_of, grid_of, least_cut

AXES = ("tp", "cp", "pp", "dp")


def shapes(gpus: int) -> list[tuple[int, ...]]:
    """Sizes of the four axes that fill 2 to 8 hosts."""
    return [
        shape
        for shape in product(range(1, 10), repeat=len(AXES))
        if prod(shape) % gpus == 0 and 2 <= prod(shape) // gpus <= 8
    ]


SHAPES = {gpus: shapes(gpus) for gpus in (2, 4)}


@st.composite
def ragged(draw: st.DrawFn) -> tuple[Request, int]:
    gpus = draw(st.sampled_from((2, 4)))
    sizes = dict(zip(AXES, draw(st.sampled_from(SHAPES[gpus])), strict=True))
    order = "-".join(draw(st.permutations(AXES))) + "-ep"
    collective = draw(st.sampled_from(list(Collective)))
    traffic = {axis: draw(WEIGHT) for axis in AXES}
    asked = request(**sizes, traffic=traffic, collectives={"dp": collective}, order=order)
    return asked, gpus


@settings(max_examples=40)
@given(job=ragged(), capacities=st.lists(st.integers(1, 6), min_size=2, max_size=3))
def test_a_handful_of_blocks_is_solved(job: tuple[Request, int], capacities: list[int]) -> None:
    asked, gpus = job
    blocks = asked.hosts_needed(gpus)
    capacities = enough(capacities, blocks)
    _, step = solve_ragged(asked, gpus, capacities, Limits(rounds=20, trees=60))
    used = np.bincount(step.layout.ravel(), minlength=len(capacities))
    assert used.sum() == blocks
    assert np.all(used <= capacities)
    assert step.bound == step.cost == 2 * least_cut(asked, gpus, capacities)


@settings(max_examples=25)
@given(job=ragged(), capacities=st.lists(st.integers(1, 6), min_size=2, max_size=3))
def test_cells_never_prove_too_much(job: tuple[Request, int], capacities: list[int]) -> None:
    asked, gpus = job
    capacities = enough(capacities, asked.hosts_needed(gpus))
    least = least_cut(asked, gpus, capacities)
    cells = cells_of(asked, gpus)
    room = [c * cells.lot for c in capacities]
    prover = Prover(cells.grid, room, [], cells.lot)
    proved = prover.prove(ceil(2 * (least + 1) / cells.grid.unit), 40)
    assert cells.grid.to_bytes(proved) <= least
    layout = np.repeat(np.arange(len(capacities)), capacities)[: asked.hosts_needed(gpus)]
    proof = CellProof(asked, gpus, capacities, Limits().states)
    assert proof.by_sizes(Limits().entries) <= 2 * least
    for rounds in (2, 20):
        bound, _ = proof.prove(layout, 2 * (least + 1), rounds, 0)
        assert bound <= 2 * least
    graph = graph_of(asked, gpus)
    parts = PartBound(graph, block_orders(asked, gpus)).least_cut(capacities)
    assert parts <= 2 * least * graph.scale


@st.composite
def larger(draw: st.DrawFn) -> tuple[Request, int]:
    """Up to 120 hosts of 4 or 8 GPUs, pipeline and data outermost in either order."""
    gpus = draw(st.sampled_from((4, 8)))
    tp, cp, pp = draw(st.sampled_from((1, 2, 4))), draw(st.integers(1, 5)), draw(st.integers(2, 7))
    step = gpus // gcd(gpus, tp * cp * pp)
    dp = step * draw(st.integers(1, 6))
    order = draw(st.sampled_from(("tp-cp-pp-dp-ep", "tp-cp-dp-pp-ep")))
    collectives = {axis: draw(st.sampled_from(list(Collective))) for axis in ("cp", "dp")}
    traffic = {axis: draw(WEIGHT) for axis in AXES}
    sizes = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
    return request(**sizes, traffic=traffic, collectives=collectives, order=order), gpus


@settings(max_examples=80)
@given(job=larger(), seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(("any", "run", "axis")))
def test_zones_pay_at_least_what_cells_say_and_the_graph_counts_what_the_referee_does(
    job: tuple[Request, int], seed: int, kind: str
) -> None:
    """The inequality that the bounds rest on, for scattered and for compact layouts."""
    asked, gpus = job
    rng = np.random.default_rng(seed)
    blocks = asked.hosts_needed(gpus)
    layout = rng.integers(0, 3, blocks)
    if kind == "run":
        layout = np.roll(np.sort(layout), rng.integers(blocks))
    elif kind == "axis":
        order = rng.choice(np.array(block_orders(asked, gpus)))
        layout[order] = np.sort(layout)
    counted = sum(b for _, b in cut_by_axis(asked, gpus, layout))
    graph = graph_of(asked, gpus)
    assert counted - 2 <= graph.cost(layout) / graph.scale <= counted  # rounded up by axis
    cells = cells_of(asked, gpus)
    zones = np.repeat(layout, cells.cells_of_host)[cells.grid.block]
    patterns = [tuple(int(n) for n in rows) for rows in counts(zones, 3)]
    paid = sum(pattern_cost(cells.grid, pattern) for pattern in patterns)
    assert cells.grid.to_bytes(paid - cells.grid.offset) <= counted
    assert all(sum(pattern) % cells.lot == 0 for pattern in patterns)


@settings(max_examples=30)
@given(job=larger(), capacities=st.lists(st.integers(1, 40), min_size=2, max_size=4))
def test_larger_jobs_respect_capacities_and_bounds(
    job: tuple[Request, int], capacities: list[int]
) -> None:
    asked, gpus = job
    blocks = asked.hosts_needed(gpus)
    capacities = enough(capacities, blocks)
    _, step = solve_ragged(asked, gpus, capacities, Limits(rounds=6, trees=40))
    used = np.bincount(step.layout.ravel(), minlength=len(capacities))
    assert used.sum() == blocks
    assert np.all(used <= capacities)
    assert step.bound <= step.cost
    assert step.cost == 2 * sum(b for _, b in cut_by_axis(asked, gpus, step.layout.ravel()))


# Cells of a host, context groups and replicas: two stages end on whole hosts, one of them does not.
STAGGERED = [
    (lot, cp, dp)
    for lot, cp, dp in product((2, 3, 4), (1, 2, 3), range(3, 13))
    if 2 * lot <= cp * dp <= 9 * lot and cp * dp % lot and 2 * cp * dp % lot == 0
]


@given(sizes=st.sampled_from(STAGGERED), weights=st.tuples(*[st.integers(1, 9)] * 3))
def test_between_two_stages_a_part_pays_the_floor_and_some_part_no_more(
    sizes: tuple[int, int, int], weights: tuple[int, int, int]
) -> None:
    """Against every set of hosts, of stages that end inside hosts."""
    lot, cp, dp = sizes
    traffic = dict(zip(("cp", "dp", "pp"), weights, strict=True))
    grid = grid_of(request(cp=cp, dp=dp, pp=2, traffic=traffic, order="tp-cp-dp-pp-ep"), 1)
    held = np.repeat(list(product((0, 1), repeat=grid.size // lot)), lot, axis=1)
    here, after = held[:, : grid.width], held[:, grid.width :]
    is_part = (held.sum(axis=1) > 0) & (held.sum(axis=1) < grid.size)
    parted = np.count_nonzero(here != after, axis=1)[is_part]
    assert floors(grid, lot) == (grid.row_weight * parted.min(),)
