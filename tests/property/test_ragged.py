"""Jobs whose blocks form no grid, against every assignment."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.cut import cut_by_axis
from placement.grid import block_axes
from placement.ragged import solve_ragged
from placement.request import Collective, Limits, Request
from tests.build import request

AXES = ("tp", "cp", "pp", "dp")
WEIGHT = st.integers(0, 12)


def shapes(gpus: int) -> list[tuple[int, ...]]:
    """Sizes of the four axes that fill 2 to 8 hosts."""
    return [
        shape
        for shape in product(range(1, 10), repeat=len(AXES))
        if prod(shape) % gpus == 0 and 2 <= prod(shape) // gpus <= 8
    ]


SHAPES = {gpus: shapes(gpus) for gpus in (2, 4)}


@st.composite
def ragged(draw: st.DrawFn) -> tuple[Request, int]:
    gpus = draw(st.sampled_from((2, 4)))
    sizes = dict(zip(AXES, draw(st.sampled_from(SHAPES[gpus])), strict=True))
    order = "-".join(draw(st.permutations(AXES))) + "-ep"
    collective = draw(st.sampled_from(list(Collective)))
    traffic = {axis: draw(WEIGHT) for axis in AXES}
    asked = request(**sizes, traffic=traffic, collectives={"dp": collective}, order=order)
    return asked, gpus


@settings(max_examples=150)
@given(job=ragged(), capacities=st.lists(st.integers(1, 6), min_size=2, max_size=3))
def test_bound_and_layout_enclose_the_optimum(
    job: tuple[Request, int], capacities: list[int]
) -> None:
    asked, gpus = job
    blocks = asked.hosts_needed(gpus)
    if sum(capacities) < blocks:
        capacities = [*capacities, blocks]
    _, step = solve_ragged(asked, gpus, capacities, Limits(rounds=20, trees=60))
    used = np.bincount(step.layout.ravel(), minlength=len(capacities))
    assert used.sum() == blocks
    assert np.all(used <= capacities)
    least = min(
        sum(b for _, b in cut_by_axis(asked, gpus, np.array(zones)))
        for zones in product(range(len(capacities)), repeat=blocks)
        if all(zones.count(z) <= c for z, c in enumerate(capacities))
    )
    assert step.bound <= 2 * least <= step.cost


def test_there_are_such_jobs() -> None:
    found = [
        shape
        for shape in SHAPES[4]
        if block_axes(request(**dict(zip(AXES, shape, strict=True))), 4) is None
    ]
    assert len(found) > 50
