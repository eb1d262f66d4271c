"""The innermost domain of any hosts, against a search through all of them."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.tiers.single_domain import parts, single_domains
from tests.build import regular, two_tiers


def three_tiers(*hosts_by_rack_by_row_by_zone: list[list[int]]) -> Fabric:
    tiers = [{"name": name} for name in ("zone", "row", "rack", "host")]
    domains = [domain(f"z{z}", rows) for z, rows in enumerate(hosts_by_rack_by_row_by_zone)]
    return from_spec({"name": "three", "gpus_per_host": 1, "tiers": tiers, "domains": domains})


def domain(name: str, inside: Any) -> dict[str, Any]:
    if isinstance(inside, int):
        return {"name": name, "hosts": inside}
    return {"name": name, "domains": [domain(f"{name}-{i}", each) for i, each in enumerate(inside)]}


FABRICS = st.sampled_from(
    (
        two_tiers([2, 2], [3, 1]),
        two_tiers([4], [2, 2], [1, 1, 1]),
        two_tiers([1, 2, 3], [3, 2, 1]),
        three_tiers([[2, 1], [2]], [[1, 2], [1, 1]]),
        three_tiers([[3], [1, 2]], [[2, 1, 2]]),
    )
)


def first_of_the_innermost(on: Fabric, free: list[int], gang: int, room: int) -> list[int]:
    """The hosts of the rack that the gang takes; none when no rack holds it."""

    def around(host: int, tier: int) -> list[int]:
        domain = on.tiers[tier].domain_by_host
        return [other for other in range(on.host_count) if domain[other] == domain[host]]

    def key(first: int) -> tuple[int, ...]:
        domains = [around(first, tier) for tier in range(len(on.tiers))]
        free_here = [sum(h in free for h in hosts) for hosts in domains]
        is_whole = [n == len(hosts) for n, hosts in zip(free_here, domains, strict=True)]
        return (free_here[0] < room, *is_whole, *free_here, first)

    racks = {around(host, -1)[0]: around(host, -1) for host in range(on.host_count)}
    fits = [first for first, hosts in racks.items() if sum(h in free for h in hosts) >= gang]
    return [h for h in racks[min(fits, key=key)] if h in free] if fits else []


@given(FABRICS, st.sets(st.integers(0, 11), min_size=1), st.integers(1, 3), st.integers(0, 2))
def test_the_innermost_domain_is_the_first_by_its_keys(
    on: Fabric, among: set[int], gang: int, spares: int
) -> None:
    free = sorted(host for host in among if host < on.host_count)
    expected = first_of_the_innermost(on, free, gang, gang + spares)
    found = single_domains(on, np.array(free, dtype=np.int64), gang, gang + spares)
    depth = len(on.tiers)

    assert [hosts.tolist() for hosts, tier in found if tier == depth] == [expected] * bool(expected)


def test_keys_beyond_64_bits_compare_as_well() -> None:
    """Nine tiers of up to 200 hosts: a key has more digits than a machine's integer."""
    outside = [(f"tier{k}", 1) for k in range(8)]
    deep = regular(*outside, ("rack", 2), ("host", 100), gpus=1)
    for free in ([0, 1, 2, 100, 101], [0, 1, 100, 101, 102], [*range(100), 100, 101], [0, 100]):
        found = single_domains(deep, np.array(free), 1, 2)

        assert [hosts.tolist() for hosts, _ in found] == [first_of_the_innermost(deep, free, 1, 2)]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any), st.data())
def test_a_gang_in_parts_fills_the_fullest_children(room: list[int], data: st.DataObject) -> None:
    gang = data.draw(st.integers(1, sum(room)))
    rest, expected = gang, []
    for free in sorted(room, reverse=True):
        expected += [min(free, rest)] if rest else []
        rest -= min(free, rest)

    assert parts(np.array(room), gang) == tuple(expected)
