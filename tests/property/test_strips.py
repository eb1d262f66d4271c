"""Strips round a ring, the gaps between them, and what both cost, against trying them all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement.curves import by_curves
from placement.gaps import lopsided, narrow, piled
from placement.strips import strip_layouts
from tests.property.test_curves import cut, stages


@st.composite
def prices(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    """Of borders and single hosts over a period, and of a host between two stages."""
    period = draw(st.integers(1, 3))
    ends = draw(st.lists(st.integers(2, 9), min_size=period, max_size=period))
    less = draw(st.lists(st.integers(0, 2), min_size=period, max_size=period))
    border = np.array(ends)
    return border, border + np.roll(border, -1) - np.array(less), draw(st.integers(1, 9))


def paid_along(ends: np.ndarray, weight: int, places: np.ndarray) -> int:
    return int(ends[places % len(ends)].sum() + weight * np.abs(np.diff(places)).sum())


def split_anyhow(ends: np.ndarray, single: np.ndarray, begin: int, many: int) -> int:
    """The least that so many hosts from a place on pay in one stage."""
    if many == 0:
        return 0
    period = len(ends)
    whole = (
        single[begin % period]
        if many == 1
        else ends[begin % period] + ends[(begin + many) % period]
    )
    ways = [
        split_anyhow(ends, single, begin, k) + split_anyhow(ends, single, begin + k, many - k)
        for k in range(1, many)
    ]
    return int(min([whole, *ways]))


@given(prices(), st.integers(2, 3))
@settings(max_examples=10)
def test_no_narrow_gap_costs_less(paid: tuple[np.ndarray, np.ndarray, int], rows: int) -> None:
    ends, single, weight = paid
    found = narrow(rows, ends, single, weight)
    areas, most = rows * len(ends), min(4, found.shape[1] - 1)
    least = np.full((areas, most + 1), 10**6)
    curves = [np.array(c) for c in product(range(-2, 3 + len(ends)), repeat=rows)]
    for left, apart in product(curves, product(range(most + 1), repeat=rows)):
        hosts = sum(apart)
        if hosts <= most and 0 <= left[0] < len(ends):
            right = left + apart
            cost = paid_along(ends, weight, left) + paid_along(ends, weight, right)
            cost += sum(
                split_anyhow(ends, single, int(p), n) for p, n in zip(left, apart, strict=True)
            )
            for s in range(rows - 1):
                runs = (set(range(left[t], right[t])) for t in (s, s + 1))
                cost += weight * len(next(runs) ^ next(runs))
            at = int(left.sum()) % areas
            least[at, hosts] = min(least[at, hosts], cost)
    assert (found[:, : most + 1] <= least).all()
    assert (found[:, 0] == least[:, 0]).all()


@given(prices(), st.integers(2, 3))
@settings(max_examples=15)
def test_curves_on_one_side_of_a_line(paid: tuple[np.ndarray, np.ndarray, int], rows: int) -> None:
    ends, _, weight = paid
    ends = np.roll(ends, -int(ends.argmin()))
    areas = rows * len(ends)
    least = np.full(areas + 1, 10**6)
    for places in product(range(areas + 2), repeat=rows):
        if min(places) < len(ends):
            hosts = min(sum(places), areas)
            least[hosts] = min(least[hosts], paid_along(ends, weight, np.array(places)))
    assert lopsided(rows, ends, weight).tolist() == least.tolist()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 12))
def test_pieces_of_any_sizes(piece: list[int], most: int) -> None:
    least = [0]
    for n in range(1, most + 1):
        least.append(min(piece[k - 1] + least[n - k] for k in range(1, min(n, len(piece)) + 1)))
    assert piled(np.array(piece), most).tolist() == least


@given(
    st.integers(2, 7),
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(1, 12), min_size=n, max_size=n),
            st.lists(st.integers(0, 1), min_size=n, max_size=n),
        )
    ),
    st.integers(2, 9),
    st.integers(1, 10),
    st.lists(st.integers(0, 60), min_size=2, max_size=9),
)
@settings(max_examples=25)
def test_strips_are_layouts_that_no_bound_is_above(
    rows: int,
    edges_of: tuple[list[int], list[int]],
    groups: int,
    row_weight: int,
    capacities: list[int],
) -> None:
    next_, over = edges_of
    assume(len(next_) * groups >= 5)
    grid, ring, edges = stages(rows, next_ * groups, over * groups, row_weight)
    for layout in strip_layouts(grid, ring, capacities):
        held = np.bincount(layout.ravel(), minlength=len(capacities))
        assert layout.shape == (grid.rows, grid.width)
        assert (held <= capacities).all()
        assert by_curves(grid, ring, max(capacities)) <= 2 * cut(edges, layout.ravel())


@pytest.mark.parametrize(
    ("width", "near", "far", "over", "row_weight", "bound", "found"),
    [(125, 15, 25, 5, 20, 4685, 4770), (145, 25, 35, 0, 30, 5825, 5865)],
)
def test_nearly_full_zones_in_thirteen_stages(
    width: int, near: int, far: int, over: int, row_weight: int, bound: int, found: int
) -> None:
    """Ten hosts of each stage are too many for a zone, by two in all: so the borders of strips bend
    and now and then leave a few hosts between them, or strips give way to two bands of blocks."""
    next_ = [near, far, far, far, far] * (width // 5)
    grid, ring, edges = stages(13, next_, [over] * width, row_weight)
    (layout,) = strip_layouts(grid, ring, [128] * 17)
    assert by_curves(grid, ring, 128) == 2 * bound
    assert cut(edges, layout.ravel()) == found
