"""Runs of zones on a ring, turned row by row."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.search.integer_cover import _least, arranged


@st.composite
def counts(draw: st.DrawFn) -> np.ndarray:
    """Slots of each row in each of two to five zones; each row has twelve in all."""
    zones = draw(st.integers(2, 5))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        cuts = sorted(draw(st.lists(st.integers(0, 12), min_size=zones - 1, max_size=zones - 1)))
        rows.append(np.diff([0, *cuts, 12]))
    return np.array(rows).T


@given(counts())
def test_zones_have_the_slots_that_they_are_given_in_one_run_a_row(slots: np.ndarray) -> None:
    layout = arranged(slots, 3)
    zones, rows = slots.shape
    assert layout.shape == (rows, 12)
    for s, row in enumerate(layout):
        assert np.bincount(row, minlength=zones).tolist() == slots[:, s].tolist()
        assert np.count_nonzero(row != np.roll(row, 1)) <= max(2, np.count_nonzero(slots[:, s]))
    assert np.array_equal(layout, arranged(slots, 3))


@given(counts(), st.data())
def test_rows_are_turned_as_if_each_turn_was_tried(slots: np.ndarray, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(slots))))
    rows = [np.repeat(order, counts) for counts in slots[order].T]
    tried = [
        min(int(np.count_nonzero(above != np.roll(below, turn))) for turn in range(12))
        for above, below in pairwise(rows)
    ]
    assert _least(slots[order]) == sum(tried)
