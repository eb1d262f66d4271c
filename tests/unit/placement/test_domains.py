"""Which single domain takes a gang: the order of the docstring, spelt out host by host."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.domains import single_domains
from placement.fabric import Fabric
from tests.build import two_tiers

SHAPES = st.sampled_from(([[2, 2], [3, 1]], [[4], [2, 2], [1, 1, 1]], [[1, 2, 3], [3, 2, 1]]))


def first_of_the_innermost(on: Fabric, free: list[int], gang: int, room: int) -> list[int]:
    """The hosts of the rack that the gang takes; none when no rack holds it."""
    racks: dict[int, list[int]] = {}
    zones: dict[int, list[int]] = {}
    for host in range(on.host_count):
        racks.setdefault(int(on.tiers[1].domain_by_host[host]), []).append(host)
        zones.setdefault(int(on.tiers[0].domain_by_host[host]), []).append(host)

    def key(rack: int) -> tuple[int, ...]:
        zone = zones[int(on.tiers[0].domain_by_host[racks[rack][0]])]
        free_here = [sum(h in free for h in hosts) for hosts in (zone, racks[rack])]
        is_whole = [
            n == len(hosts) for n, hosts in zip(free_here, (zone, racks[rack]), strict=True)
        ]
        return (free_here[0] < room, *is_whole, *free_here, rack)

    fits = [rack for rack, hosts in racks.items() if sum(h in free for h in hosts) >= gang]
    return [h for h in racks[min(fits, key=key)] if h in free] if fits else []


@given(SHAPES, st.sets(st.integers(0, 11), min_size=1), st.integers(1, 3), st.integers(0, 2))
def test_the_innermost_domain_is_the_first_by_its_keys(
    shape: list[list[int]], among: set[int], gang: int, spares: int
) -> None:
    on = two_tiers(*shape)
    free = sorted(host for host in among if host < on.host_count)
    expected = first_of_the_innermost(on, free, gang, gang + spares)
    found = single_domains(on, np.array(free, dtype=np.int64), gang, gang + spares)

    assert [hosts.tolist() for hosts, tier in found if tier == 2] == [expected] * bool(expected)
