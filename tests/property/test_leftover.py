"""Sparing what is left never costs bytes, and never changes who carries what."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric.tree import Fabric, Ints
from placement.grid.block_grid import block_grid
from placement.objective.cut import cut
from placement.search.graph_slicing import slice_grid
from placement.tiers.fragmentation import rate_harm, rehoused
from placement.tiers.seating import Descent, Seating
from placement.workload.request import Limits, Request
from tests.build import request, two_tiers

ZONE = st.lists(st.integers(1, 5), min_size=1, max_size=4)
FABRICS = st.builds(lambda zones: two_tiers(*zones), st.lists(ZONE, min_size=2, max_size=3))


def key(on: Fabric, req: Request, free: Ints, hosts: tuple[int, ...]) -> tuple[int, ...]:
    bytes_ = (tier.bytes_per_step for tier in cut(on, req, hosts))
    return (*bytes_, *rate_harm(on, free, hosts))


@settings(max_examples=80, deadline=None)
@given(
    on=FABRICS,
    rows=st.integers(1, 3),
    weights=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    share=st.floats(0.3, 1.0),
    data=st.data(),
)
def test_sparing_costs_no_cut_on_any_tier(
    on: Fabric, rows: int, weights: tuple[int, int], share: float, data: st.DataObject
) -> None:
    taken = data.draw(st.sets(st.integers(0, on.host_count - 1), max_size=on.host_count // 3))
    free = np.array([host for host in range(on.host_count) if host not in taken])
    width = int(len(free) * share) // rows
    if not width:
        return
    req = request(pp=rows, dp=width, traffic={"pp": weights[0], "dp": weights[1]})
    grid = block_grid(req, 1)
    assert grid is not None
    zone = on.tiers[0].domain_by_host
    room = np.bincount(zone[free], minlength=len(on.tiers[0].domains))
    layout = slice_grid(grid, room.tolist(), 20, 0)
    descent = Descent(on, grid, Limits(trees=20))
    for number in np.unique(layout):
        descent.into(layout == number, free[zone[free] == number], 1)
    plain = np.empty(grid.size, dtype=np.int64)
    plain[grid.block] = descent.host
    nothing = np.zeros(len(room), dtype=np.int64)
    seating = Seating(on, req, free, grid, Limits(trees=20))
    seated = seating.seated(list(seating.in_zones(layout, nothing, nothing)))
    before = key(on, req, free, tuple(plain.tolist()))
    assert min(key(on, req, free, hosts) for hosts in seated) <= before
    for hosts in seated:
        assert len(set(hosts)) == grid.size
        assert set(hosts) <= set(free.tolist())
        after = key(on, req, free, hosts)
        assert after[0] <= before[0]
    again = rehoused(on, free, tuple(plain.tolist()))
    assert key(on, req, free, again)[:2] == before[:2]
    assert key(on, req, free, again) <= before
