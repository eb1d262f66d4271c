"""Spread against every layout of tiny grids."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.grid.block_grid import block_grid
from placement.tiers.spread import least_spread, spread, spread_layouts
from tests.build import request

CAPACITIES = st.lists(st.integers(1, 6), min_size=2, max_size=3)
ALPHA = st.sampled_from((0.0, 0.2, 0.5, 0.8, 1.0))


@settings(max_examples=60)
@given(rows=st.integers(1, 4), width=st.integers(1, 4), capacities=CAPACITIES, alpha=ALPHA)
def test_no_layout_is_below_the_bound(
    rows: int, width: int, capacities: list[int], alpha: float
) -> None:
    blocks = rows * width
    if not 2 <= blocks <= 8 or sum(capacities) < blocks:
        return
    grid = block_grid(request(pp=rows, dp=width, traffic={"pp": 1, "dp": 1}), 1)
    assert grid is not None
    every = (np.array(zones) for zones in product(range(len(capacities)), repeat=blocks))
    fitting = (z for z in every if (np.bincount(z, minlength=len(capacities)) <= capacities).all())
    least = min(spread(grid, zones.reshape(grid.rows, grid.width), alpha) for zones in fitting)
    assert least_spread(grid, capacities, alpha) <= least + 1e-9
    for layout in spread_layouts(grid, capacities, alpha):
        assert (np.bincount(layout.ravel(), minlength=len(capacities)) <= capacities).all()
        assert spread(grid, layout, alpha) >= least - 1e-9
