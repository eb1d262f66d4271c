"""All zones at once: the least of every choice of counts, and no more than any layout of hosts."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.abreast import Abreast, is_small, proved
from placement.blockgraph import block_graph
from placement.bounds import Prover
from placement.cells import cell_views
from placement.grid import BlockGrid
from placement.pricing import Prices, pattern_cost
from placement.steps import BlockAxis
from placement.traffic import Pattern
from tests.build import request


def rows_of(rows: int, width: int, ring: int, weight: int, floor: int) -> BlockGrid:
    """Rows of one ring each. `floor`: slots that any part of two rows cuts between them."""
    step = np.full(width + 1, 2 * ring)
    step[[0, -1]] = 0
    return BlockGrid(
        rows=rows,
        width=width,
        row_weight=weight,
        row_wrap=0,
        slice_axes=(BlockAxis("dp", width, 1, Pattern.RING, ring),),
        step=step,
        offset=0,
        unit=Fraction(1),
        block=np.arange(rows * width).reshape(rows, width),
        slopes=(((0, floor), (weight, width - floor)),) * (rows - 1),
        floors=(weight * floor,) * (rows - 1) if floor else (),
    )


def priced(grid: BlockGrid, slots: list[int], most: int) -> Prices:
    """Prices of slots alone."""
    of_slots = grid.step - np.array(slots)[:, None] * np.arange(grid.width + 1)
    constant = (*(grid.width * price for price in slots), 0)
    nothing = np.zeros(grid.rows, dtype=np.int64)
    return Prices(of_slots, np.zeros(most + 1, dtype=np.int64), nothing, constant, 1)


def least_counts(grid: BlockGrid, room: list[int]) -> int | None:
    """The least doubled cost of all zones over every choice of counts; None if none fits."""
    rows = [p for p in product(range(grid.width + 1), repeat=len(room)) if sum(p) == grid.width]
    costs = [
        sum(pattern_cost(grid, pattern) for pattern in zip(*chosen, strict=True))
        for chosen in product(rows, repeat=grid.rows)
        if all(sum(held) <= c for held, c in zip(zip(*chosen, strict=True), room, strict=True))
    ]
    return min(costs, default=None)


@st.composite
def few_zones(draw: st.DrawFn) -> tuple[BlockGrid, list[int], list[int]]:
    rows, width, zones = draw(st.sampled_from([(2, 5, 3), (3, 4, 2), (2, 3, 4), (4, 5, 2)]))
    floor = draw(st.integers(0, 1))
    grid = rows_of(rows, width, draw(st.integers(1, 9)), draw(st.integers(1, 9)), floor)
    room = draw(st.lists(st.integers(1, rows * width), min_size=zones, max_size=zones))
    return grid, room, draw(st.lists(st.integers(0, 20), min_size=rows, max_size=rows))


@given(few_zones(), st.integers(1, 120))
@settings(max_examples=60)
def test_the_least_of_all_counts_is_found_or_the_limit_proved(
    case: tuple[BlockGrid, list[int], list[int]], limit: int
) -> None:
    grid, room, prices = case
    least = least_counts(grid, room)
    root = Abreast(grid, 1, room, priced(grid, prices, max(room)))
    found, _ = root.least(limit)
    below = (limit - 1) // root.unit * root.unit  # the most that whole edges cost below the limit
    assert found == (limit if least is None or least > below else least)


@given(
    st.sampled_from([(2, 5), (2, 7), (3, 7), (4, 9)]),
    st.tuples(*[st.integers(1, 9)] * 2),
    st.lists(st.integers(1, 6), min_size=2, max_size=3),
)
@settings(max_examples=40)
def test_no_layout_of_hosts_cuts_less(
    shape: tuple[int, int], weights: tuple[int, int], capacities: list[int]
) -> None:
    """Stages of `dp` cells that end inside hosts of `lot` cells."""
    (lot, dp), (ring, chain) = shape, weights
    traffic = {"dp": ring, "pp": chain}
    asked = request(dp=dp, pp=lot, traffic=traffic, order="tp-cp-dp-pp-ep")
    graph = block_graph(asked, lot)
    assert graph is not None
    zones = len(capacities)
    layouts = np.array(list(product(range(zones), repeat=graph.blocks)))
    held = (layouts[:, :, None] == np.arange(zones)).sum(axis=1)
    fits = layouts[(held <= capacities).all(axis=1)]
    if not len(fits):
        return
    least = 2 * min(graph.cost(layout) for layout in fits) / graph.scale
    view = cell_views(asked, lot)[0]
    room = [c * lot for c in capacities]
    prices = priced(view.grid, [int(view.grid.step.max()) // 2] * view.grid.rows, max(room))
    if not view.odd or not is_small(view.grid, room, prices):
        return
    root = Abreast(view.grid, lot, room, prices, view.inner)
    incumbent = int(least / view.grid.unit)
    assert view.grid.unit * proved(root, 0, incumbent) <= least


def test_what_the_root_mixes_does_not_fit_together() -> None:
    """Five stages of seven hosts in zones for 16, 11 and 9, one more than there are."""
    grid, room = rows_of(5, 7, 4, 3, 0), [16, 11, 9]
    prover = Prover(grid, room, [])
    assert prover.prove(400, 1) == 96
    assert prover.root_prices is not None
    assert Abreast(grid, 1, room, prover.root_prices).least(110)[0] == 98
