"""Groups that lie whole, or what parting one costs."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.grid.block_grid import block_grid
from placement.grid.groups import groups_of
from placement.grid.layout import layout_cost
from placement.workload.request import Request
from tests.property.grids import requests


@given(req=requests(), seed=st.integers(0, 2**32 - 1), is_whole=st.booleans())
def test_groups_lie_whole_or_are_paid_for(req: Request, seed: int, is_whole: bool) -> None:
    """What `groups` rests on: a layout of groups cuts the same as one of blocks, and any other
    pays what has been taken off."""
    grid = block_grid(req, 2)
    assert grid is not None
    groups = groups_of(grid)
    if groups is None:
        return
    rng = np.random.default_rng(seed)
    layout = rng.integers(0, 3, (grid.rows, grid.width))
    if is_whole:
        of_groups = rng.integers(0, 3, (grid.rows, groups.whole.width))
        layout = groups.laid_out(of_groups)
        assert layout_cost(groups.whole, of_groups) == layout_cost(grid, layout)
        assert np.array_equal(grid.block[:, groups.group == 0][:, 0], groups.whole.block[:, 0])
        row = rng.integers(0, 2)  # one block of one group elsewhere
        layout[row % grid.rows, rng.integers(0, grid.width)] = 3
    by_group = [layout[:, groups.group == g] for g in range(groups.whole.width)]
    if any(np.any(part != part[:, :1]) for part in by_group):
        loose = layout_cost(groups.loose, layout)
        assert layout_cost(grid, layout) >= loose + groups.parted
