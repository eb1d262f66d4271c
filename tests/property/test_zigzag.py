"""Stages that end inside hosts, against every set of hosts."""

from itertools import product
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.bound.cells import floors
from placement.grid.block_grid import BlockGrid, block_grid
from placement.workload.request import Request
from tests.build import request

WEIGHT = st.integers(1, 9)


SHAPES = [
    (lot, cp, dp)
    for lot, cp, dp in product((2, 3, 4), (1, 2, 3), range(3, 13))
    if 2 * lot <= cp * dp <= 9 * lot
]
STAGGERED = [s for s in SHAPES if prod(s[1:]) % s[0] and 2 * prod(s[1:]) % s[0] == 0]


@st.composite
def stages(draw: st.DrawFn, shapes: list[tuple[int, int, int]], pp: int) -> tuple[Request, int]:
    """Stages of one or two rings, cells of one GPU, hosts of several cells."""
    lot, cp, dp = draw(st.sampled_from(shapes))
    traffic = {axis: draw(WEIGHT) for axis in ("cp", "dp", "pp")}
    return request(cp=cp, dp=dp, pp=pp, traffic=traffic, order="tp-cp-dp-pp-ep"), lot


def cells_of(asked: Request) -> BlockGrid:
    grid = block_grid(asked, 1)
    assert grid is not None
    return grid


def sets_of_hosts(hosts: int) -> np.ndarray:
    return np.array(list(product((0, 1), repeat=hosts)))


@given(stages(STAGGERED, pp=2))
def test_between_two_stages_a_part_pays_the_floor_and_some_part_no_more(
    job: tuple[Request, int],
) -> None:
    asked, lot = job
    grid = cells_of(asked)
    held = np.repeat(sets_of_hosts(grid.size // lot), lot, axis=1)
    here, after = held[:, : grid.width], held[:, grid.width :]
    is_part = (held.sum(axis=1) > 0) & (held.sum(axis=1) < grid.size)
    parted = np.count_nonzero(here != after, axis=1)[is_part]
    assert floors(grid, lot) == (grid.row_weight * parted.min(),)
