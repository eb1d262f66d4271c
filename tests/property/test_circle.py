"""Sets on a circle, against every set."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.bound.ring_cuts import least_cuts
from placement.grid.isoperimetry import MUCH


@st.composite
def circles(draw: st.DrawFn) -> tuple[dict[tuple[int, int], int], list[int]]:
    """Edges over one to three of 7 to 9 blocks, of one or two cells."""
    blocks = draw(st.integers(7, 9))
    edges: dict[tuple[int, int], int] = {}
    for a in range(blocks):
        for d in (1, 2, 3):
            b = (a + d) % blocks
            edges[min(a, b), max(a, b)] = draw(st.integers(0, 9))
    return edges, draw(st.lists(st.integers(1, 2), min_size=blocks, max_size=blocks))


@given(circles(), st.integers(1, 18))
def test_no_set_cuts_less_and_some_set_no_more(
    circle: tuple[dict[tuple[int, int], int], list[int]], most: int
) -> None:
    edges, cells = circle
    least = np.full(sum(cells) + 1, MUCH)
    for chosen in product((0, 1), repeat=len(cells)):
        held = sum(n for n, is_in in zip(cells, chosen, strict=True) if is_in)
        cut = sum(w for (a, b), w in edges.items() if chosen[a] != chosen[b])
        least[held] = min(least[held], cut)
    told = least_cuts(edges, cells, most)
    assert told is not None
    every = np.full(most + 1, MUCH)
    every[: len(least)] = least[: most + 1]
    assert told.tolist() == every.tolist()


def test_long_edges_are_not_for_it() -> None:
    assert least_cuts({(0, 20): 1}, [1] * 40, 10) is None
