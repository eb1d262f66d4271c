"""What a placement leaves free: counted right, and least on cases small enough to try all."""

from functools import partial
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric import hostset
from placement.fabric.tree import Fabric
from placement.grid.block_grid import block_grid
from placement.objective.cut import cut
from placement.search.graph_slicing import slice_grid
from placement.tiers.fragmentation import count_free_domains, rate_harm, rehoused
from placement.tiers.seating import Descent, Seating
from placement.workload.request import Limits, Placement, Request, SpareRule
from tests.build import fabric, place_checked, request, two_tiers

Key = tuple[tuple[int, ...], tuple[int, ...]]


def key(on: Fabric, free: list[int], req: Request, hosts: tuple[int, ...]) -> Key:
    """Bytes on each tier, outermost first, and the harm to what stays free."""
    cuts = tuple(tier.bytes_per_step for tier in cut(on, req, hosts))
    return cuts, rate_harm(on, np.array(free), hosts)


def best(on: Fabric, free: list[int], req: Request) -> Key:
    """Over every list of free hosts."""
    return min(key(on, free, req, hosts) for hosts in permutations(free, req.hosts_needed(1)))


def placed(on: Fabric, free: list[int], req: Request) -> Placement:
    return place_checked(on, hostset.of(free), req)


def test_whole_domains_are_counted_tier_by_tier_and_breaking_a_zone_harms_more() -> None:
    on = fabric(zones=3, racks=2, hosts=2)
    zone, rack = count_free_domains(on, np.arange(12), [0, 4, 5])
    assert (zone.tier, zone.whole, zone.largest) == ("zone", 1, 4)
    assert (rack.tier, rack.whole, rack.largest) == ("rack", 4, 2)
    # Breaking a zone harms more than breaking racks.
    on = fabric(zones=2, racks=3, hosts=2)
    free = np.arange(1, 12)  # the first zone is broken already
    assert rate_harm(on, free, [2, 4]) < rate_harm(on, free, [6])


RING = {"dp": 10}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "zones", "taken", "sizes"),
    [
        ("a broken zone of the same room", [[2], [2, 1], [3]], {2}, {"dp": 2}),
        ("one host beside a busy one", [[3], [3], [2, 2]], {0}, {"dp": 1}),
        ("a broken rack of more room than a whole one", [[2, 3]], {2}, {"dp": 2}),
        ("two zones, their racks broken already", [[3], [2, 1], [3]], {1, 5}, {"dp": 4}),
        ("stages in two zones", [[2, 2], [3, 1], [3]], {4}, {"dp": 3, "pp": 2}),
        ("the last block in the smallest gap", [[2, 2, 2], [1]], {5}, {"dp": 3}),
    ],
)
def test_the_harm_is_the_least_of_all(
    name: str, zones: list[list[int]], taken: set[int], sizes: dict[str, int]
) -> None:
    on = two_tiers(*zones)
    free = [host for host in range(on.host_count) if host not in taken]
    req = request(traffic={"dp": 10, "pp": 3}, **sizes)
    assert key(on, free, req, placed(on, free, req).hosts) == best(on, free, req)


def test_a_whole_rack_is_broken_when_that_cuts_less() -> None:
    """Two neighbours in one rack, though two broken racks have a host each."""
    on = two_tiers([2, 2, 2])
    answer = placed(on, [0, 2, 4, 5], request(dp=2, traffic=RING))
    assert set(answer.hosts) == {4, 5}
    assert answer.cuts[1].bytes_per_step == 0


def test_spares_stand_in_broken_racks() -> None:
    on = two_tiers([2, 2, 2, 3])
    free = [0, 1, 2, 4, 5, 6, 7, 8]  # host 3 is busy: its rack is broken
    answer = placed(on, free, request(dp=2, traffic=RING, spares=SpareRule(hosts=1)))
    assert answer.spares == (2,)


def test_spares_that_find_no_room_beside_the_gang_leave_whole_zones_alone() -> None:
    """The gang fills a zone; of the others two are whole, and one lacks a busy host."""
    on = two_tiers([2], [4], [3], [3])
    free = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11]
    answer = placed(on, free, request(dp=4, traffic=RING, spares=SpareRule(hosts=1)))
    assert set(answer.hosts) == {2, 3, 4, 5}
    assert set(answer.spares) < {6, 7}
    assert count_free_domains(on, np.array(free), answer.hosts + answer.spares)[0].whole == 2


ZONE = st.lists(st.integers(1, 5), min_size=1, max_size=4)
FABRICS = st.builds(lambda zones: two_tiers(*zones), st.lists(ZONE, min_size=2, max_size=3))


@settings(max_examples=50)
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
    rated = partial(key, on, free.tolist(), req)
    seating = Seating(on, req, free, grid, Limits(trees=20))
    seated = seating.seated(list(seating.in_zones(layout, nothing, nothing)))
    before = rated(tuple(plain.tolist()))
    assert min(rated(hosts) for hosts in seated) <= before
    for hosts in seated:
        assert len(set(hosts)) == grid.size
        assert set(hosts) <= set(free.tolist())
        assert rated(hosts)[0][0] <= before[0][0]
    again = rated(rehoused(on, free, tuple(plain.tolist())))
    assert again[0] == before[0]
    assert again <= before
