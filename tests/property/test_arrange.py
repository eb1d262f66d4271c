"""Runs of zones on a ring, turned row by row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.search.zone_order import _Ring, arranged


@st.composite
def counts(draw: st.DrawFn) -> np.ndarray:
    """Slots of each row in each of two to five zones; each row has twelve in all."""
    zones = draw(st.integers(2, 5))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        cuts = sorted(draw(st.lists(st.integers(0, 12), min_size=zones - 1, max_size=zones - 1)))
        rows.append(np.diff([0, *cuts, 12]))
    return np.array(rows).T


@given(counts(), st.integers(1, 4))
def test_zones_have_the_slots_that_they_are_given_in_one_run_a_row(
    slots: np.ndarray, period: int
) -> None:
    layout = arranged(slots, 3, period, 5)
    zones, rows = slots.shape
    assert layout.shape == (rows, 12)
    for s, row in enumerate(layout):
        assert np.bincount(row, minlength=zones).tolist() == slots[:, s].tolist()
        assert np.count_nonzero(row != np.roll(row, 1)) <= max(2, np.count_nonzero(slots[:, s]))
    assert np.array_equal(layout, arranged(slots, 3, period, 5))


def test_rows_are_turned_until_runs_lie_below_one_another() -> None:
    """Two zones above, three below that reach under both, and groups of three slots."""
    above, below = [9, 9, 0, 0, 0], [0, 0, 6, 9, 3]
    middle = [6, 3, 0, 9, 0]
    slots = np.array([above, middle, below]).T
    layout = arranged(slots, 1, 3, 100)
    apart = [int(np.count_nonzero(a != b)) for a, b in pairwise(layout)]
    assert apart == [9, 9]
    borders = [np.flatnonzero(row != np.roll(row, 1)) for row in layout]
    assert all(np.all(at % 3 == 0) for at in borders)


@given(counts(), st.sampled_from([1, 2, 3, 4, 6, 12]), st.sampled_from([0, 2, 20]), st.data())
def test_rows_are_turned_as_if_each_turn_was_tried(
    slots: np.ndarray, period: int, parted: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(slots))))
    ring = _Ring(slots, 3, period, parted)
    rows = ring.rows(order)

    def borders(row: np.ndarray) -> int:
        at = np.flatnonzero(row != np.roll(row, 1))
        return parted * int(np.count_nonzero(at % period))

    tried = [[np.roll(row, turn) for turn in range(12)] for row in rows]
    least = [borders(row) for row in tried[0]]
    for above, below in pairwise(tried):
        cut = [[3 * int(np.count_nonzero(a != b)) for a in above] for b in below]
        least = [
            min(map(sum, zip(least, apart, strict=True))) + borders(row)
            for apart, row in zip(cut, below, strict=True)
        ]
    assert ring.least(order) == min(least)
    turned = [ways[turn] for ways, turn in zip(tried, ring.turns(order), strict=True)]
    cuts = sum(3 * int(np.count_nonzero(a != b)) for a, b in pairwise(turned))
    assert cuts + sum(map(borders, turned)) == min(least)
