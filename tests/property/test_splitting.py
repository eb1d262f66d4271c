"""Prices of each zone's own: never above the least of all counts, and never worse than before."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.abreast import Abreast, _between
from placement.fabric import Ints
from placement.grid import BlockGrid
from placement.splitting import Splitting
from placement.transforms import INFINITE
from tests.property.test_abreast import few_zones, least_counts, priced, rows_of

Case = tuple[BlockGrid, list[int], list[int]]


def split(case: Case, lot: int = 1, scale: int = 64) -> Splitting:
    grid, room, prices = case
    most = max(room)
    of, between = priced(grid, prices, most), _between(grid) * scale
    part = np.arange(1, grid.rows + 1) * grid.width % lot
    ends = -of.sizes * scale
    return Splitting(between, grid.step * scale, of.slots * scale, ends, np.array(room), part, lot)


def bound(of: Splitting, room: list[int]) -> int:
    after, slots, constant = of.priced()
    zones = [_cheapest(after[z, 0], slots[z, 0], room[z]) for z in range(len(room))]
    return INFINITE if max(zones) >= INFINITE else sum(zones) + int(constant.sum())


def _cheapest(after: Ints, slots: Ints, room: int) -> int:
    held = range(min(len(slots) - 1, room) + 1)
    return min(min(INFINITE, int(after[n, n] + slots[n])) for n in held)


@given(few_zones())
@settings(max_examples=60)
def test_a_bound_that_rises_up_to_the_least_of_all_counts(case: Case) -> None:
    grid, room, _ = case
    least = least_counts(grid, room)
    of, scale, before = split(case), 64, -INFINITE
    if least is None:
        return
    for _ in range(6):
        found = bound(of, room)
        rounded = 2 * len(room) * (grid.rows + 1)  # at most one for each zone and each share
        assert before - rounded <= found
        assert found <= least * scale
        before = found
        of.improve(1)


@given(few_zones(), st.integers(0, 12), st.integers(1, 120))
@settings(max_examples=60)
def test_the_least_is_the_same_at_any_prices(case: Case, times: int, limit: int) -> None:
    grid, room, prices = case
    root = Abreast(grid, 1, room, priced(grid, prices, max(room)))
    first, _ = root.least(limit)
    for _ in range(times):
        root.improve()
    assert root.least(limit)[0] == first


def test_zones_of_ten_do_not_end_where_rows_do() -> None:
    """Three zones share five rows of six slots: all mix alike at first."""
    room = [10, 10, 10]
    case = rows_of(5, 6, 4, 3, 0), room, [3] * 5
    of = split(case)
    at_first = bound(of, room)
    of.improve(20)
    least = least_counts(case[0], room)
    assert least is not None
    assert at_first < bound(of, room) <= 64 * least
