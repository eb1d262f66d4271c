"""The placer against every possible assignment, on fabrics small enough to try them all."""

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric import hostset
from placement.fabric.tree import Fabric
from placement.placer import place
from placement.workload.request import Collective, Insufficient, Placement, Request, SpareRule
from tests.build import place_checked, request, two_tiers
from tests.property.grids import least_cut

RACK = st.integers(1, 3)
ZONE = st.lists(RACK, min_size=1, max_size=2)
FABRICS = st.builds(lambda zones: two_tiers(*zones), st.lists(ZONE, min_size=1, max_size=3))
BYTES = st.sampled_from((0, 1, 3, 10, 150))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Up to seven blocks of one rank on one to three axes."""
    sizes = draw(
        st.fixed_dictionaries({axis: st.integers(1, 7) for axis in ("pp", "dp", "cp")}).filter(
            lambda sizes: prod(sizes.values()) <= 7
        )
    )
    return request(
        **sizes,
        traffic={axis: draw(BYTES) for axis in sizes},
        collectives={"dp": draw(st.sampled_from(list(Collective)))},
        order=draw(st.sampled_from(("tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp"))),
        spares=draw(st.sampled_from((SpareRule(), SpareRule(hosts=0), SpareRule(hosts=1)))),
    )


@settings(max_examples=60)
@given(fabric=FABRICS, req=requests(), taken=st.sets(st.integers(0, 17), max_size=6))
def test_no_placement_beats_the_bound(fabric: Fabric, req: Request, taken: set[int]) -> None:
    free = hostset.full(fabric.host_count) & ~hostset.of(taken)
    needed = req.hosts_needed(1)
    room = free.bit_count() - needed - req.spares.required(needed)
    if room < 0:
        assert not isinstance(place(fabric, free, req), Placement)
        return
    answer = place_checked(fabric, free, req)
    assert place(fabric, free, req) == answer
    zone = fabric.tiers[0]
    free_hosts = np.array(hostset.members(free))
    capacities = np.bincount(zone.domain_by_host[free_hosts], minlength=len(zone.domains))
    least = least_cut(req, 1, capacities.tolist())
    assert answer.lower_bound <= least <= answer.cut
    if answer.is_optimal:
        assert answer.cut == least


@settings(max_examples=30)
@given(fabric=FABRICS, req=requests())
def test_too_few_free_hosts_are_insufficient(fabric: Fabric, req: Request) -> None:
    needed = req.hosts_needed(1) + req.spares.required(req.hosts_needed(1))
    if needed > fabric.host_count:
        return
    answer = place(fabric, hostset.full(needed - 1), req)
    assert isinstance(answer, Insufficient)
    assert answer.free == needed - 1
    assert sum(free for _, free in answer.free_by_domain) == needed - 1
