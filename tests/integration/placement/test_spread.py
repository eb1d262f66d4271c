"""Arnold's measure: counted right, searched well, bounded truly."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric import hostset
from placement.grid.block_grid import BlockGrid, block_grid
from placement.tiers.spread import least_spread, most_zones, spread, spread_layouts
from placement.workload.request import NO_SPARES, Objective
from tests.build import flat, place_checked, request


def grid(rows: int, width: int) -> BlockGrid:
    found = block_grid(request(pp=rows, dp=width, traffic={"pp": 1, "dp": 1}), 1)
    assert found is not None
    return found


def test_the_most_zones_of_a_row_and_of_a_column() -> None:
    layout = np.array([[0, 0, 1, 2], [3, 3, 3, 3]])
    assert most_zones(grid(2, 4), layout) == (3, 2)
    assert spread(grid(2, 4), layout, 0.25) == 0.25 * 3 + 0.75 * 2


@pytest.mark.parametrize(("alpha", "zones"), [(0.0, (4, 1)), (0.5, (2, 2)), (1.0, (1, 4))])
def test_alpha_says_which_groups_stay_together(alpha: float, zones: tuple[int, int]) -> None:
    """Four zones of a quarter each: columns, squares, or rows."""
    on = grid(8, 8)
    best = min(spread_layouts(on, [16] * 4, alpha), key=lambda layout: spread(on, layout, alpha))
    assert most_zones(on, best) == zones
    assert spread(on, best, alpha) == least_spread(on, [16] * 4, alpha)


@settings(max_examples=60)
@given(
    shape=st.sampled_from([(r, w) for r, w in product(range(1, 5), repeat=2) if 2 <= r * w <= 8]),
    capacities=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    alpha=st.sampled_from((0.0, 0.2, 0.5, 0.8, 1.0)),
)
def test_no_layout_of_a_tiny_grid_is_below_the_bound(
    shape: tuple[int, int], capacities: list[int], alpha: float
) -> None:
    on = grid(*shape)
    if sum(capacities) < on.size:
        return
    zones = range(len(capacities))
    every = (np.array(each).reshape(on.rows, -1) for each in product(zones, repeat=on.size))
    least = min(spread(on, layout, alpha) for layout in every if fits(layout, capacities))
    assert least_spread(on, capacities, alpha) <= least + 1e-9
    found = spread_layouts(on, capacities, alpha)
    assert found
    for layout in found:
        assert fits(layout, capacities)
        assert spread(on, layout, alpha) >= least - 1e-9


def fits(layout: np.ndarray, capacities: list[int]) -> bool:
    return bool((np.bincount(layout.ravel(), minlength=len(capacities)) <= capacities).all())


def test_every_host_needed_still_makes_bands() -> None:
    """No zone is a whole number of columns: a shared column costs one zone more."""
    capacities = [13, 11, 9, 7]
    layouts = spread_layouts(grid(4, 10), capacities, 0.2)
    assert min(most_zones(grid(4, 10), layout)[1] for layout in layouts) == 2


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_the_placement_says_what_it_reached_and_what_none_is_below(alpha: float) -> None:
    on = flat(16, 16, 16, 16, tier="zone")
    req = request(pp=8, dp=8, traffic={"pp": 3, "dp": 10}, spares=NO_SPARES)
    req = replace(req, objective=Objective.SPREAD, spread_alpha=alpha)
    answer = place_checked(on, hostset.full(64), req)
    zone = on.tiers[0].domain_by_host[np.array(answer.hosts)].reshape(8, 8)  # dp, pp
    stages = max(len(set(line)) for line in zone.T.tolist())
    replicas = max(len(set(line)) for line in zone.tolist())
    reached = alpha * stages + (1 - alpha) * replicas
    assert answer.notes[0].startswith(f"spread {reached:g} (none is below {reached:g})")
