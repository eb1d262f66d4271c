"""Few blocks at the borders of zones make the room that placing a gang again would: no zone holds
too many, nothing moves that need not, and of two zones no single block could have gone for less."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement.fabric import hostset
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.replace.shift import shifted
from placement.workload.request import Collective, Objective, Request
from tests.build import fabric, flat, request


def test_a_full_zone_between_two_others_passes_blocks_on() -> None:
    on = flat(8, 8, 8)
    two_chains = request(pp=10, dp=2, traffic={"pp": 5, "dp": 1})
    zones = [0] * 4 + [1] * 4 + [2] * 2
    beside = [list(range(8 * zone, 8 * zone + 8)) for zone in range(3)]
    old = tuple(beside[zone].pop(0) for zone in zones * 2)
    found = shifted(on, two_chains, old, hostset.full(24), [6, 8, 8])
    assert found is not None
    assert [on.zone_of(host) for host in found] == ([0] * 3 + [1] * 4 + [2] * 3) * 2
    stays = [now == was for now, was in zip(found, old, strict=True)]
    assert stays == ([True] * 3 + [False] + [True] * 3 + [False] + [True] * 2) * 2
    assert cut(on, two_chains, found) == cut(on, two_chains, old)


def test_a_block_apart_from_its_neighbours_comes_home_where_there_is_room() -> None:
    on = flat(5, 5)
    chain = request(pp=5, traffic={"pp": 5})
    found = shifted(on, chain, (0, 1, 7, 3, 4), hostset.full(10), [5, 5])
    assert found == (0, 1, 2, 3, 4)


def test_what_does_not_fit_or_minimises_something_else_is_left_alone() -> None:
    on = fabric(zones=2, racks=1, hosts=2)
    ring = request(tp=8, dp=4)
    everything = hostset.full(4)
    assert shifted(on, ring, (0, 1, 2, 3), everything, [2, 1]) is None
    spread = replace(ring, objective=Objective.SPREAD)
    assert shifted(on, spread, (0, 1, 2, 3), everything, [2, 2]) is None


GANGS = st.builds(
    lambda pp, dp, ep, weights, collective, order: request(
        pp=pp,
        dp=dp,
        ep=ep,
        traffic=dict(zip(("pp", "dp", "ep"), weights, strict=True)),
        collectives={"dp": collective},
        order=order,
    ),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 3),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(list(Collective)),
    st.sampled_from(("tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp")),
)


def bytes_of(on: Fabric, asked: Request, hosts: Sequence[int]) -> int:
    return cut(on, asked, hosts)[0].bytes_per_step


def in_zones(on: Fabric, hosts: Sequence[int]) -> list[int]:
    zones = [on.zone_of(host) for host in hosts]
    return [zones.count(zone) for zone in range(on.zone_count)]


@settings(max_examples=30)
@given(asked=GANGS, zones=st.integers(2, 4), data=st.data())
def test_no_zone_holds_too_many_and_what_may_stay_stays(
    asked: Request, zones: int, data: st.DataObject
) -> None:
    blocks = asked.hosts_needed(1)
    on = flat(*[blocks] * zones)
    old = tuple(data.draw(st.permutations(range(on.host_count)))[:blocks])
    lost = data.draw(st.sets(st.sampled_from(old), max_size=blocks))
    room = hostset.full(on.host_count) & ~hostset.of(lost)
    there = [(room & hostset.of(range(z * blocks, (z + 1) * blocks))) for z in range(zones)]
    most = [data.draw(st.integers(0, hosts.bit_count())) for hosts in there]
    found = shifted(on, asked, old, room, most)
    assert (found is None) == (sum(most) < blocks)
    assume(found is not None)
    assert found is not None
    assert found == shifted(on, asked, old, room, most)
    assert len(set(found)) == blocks
    assert not hostset.of(found) & ~room
    held = in_zones(on, found)
    assert all(count <= limit for count, limit in zip(held, most, strict=True))
    for was, now in zip(old, found, strict=True):
        assert was == now or was in lost or on.zone_of(was) != on.zone_of(now)


@settings(max_examples=30)
@given(asked=GANGS, data=st.data())
def test_one_block_goes_the_cheapest_way_from_zone_to_zone(
    asked: Request, data: st.DataObject
) -> None:
    blocks = asked.hosts_needed(1)
    on = flat(blocks, blocks)
    old = tuple(data.draw(st.permutations(range(on.host_count)))[:blocks])
    held = in_zones(on, old)
    assume(held[0])
    most = [held[0] - 1, held[1] + 1]
    found = shifted(on, asked, old, hostset.full(on.host_count), most)
    assert found is not None
    others = sorted({*range(blocks, 2 * blocks)} - {*old})
    tried = [
        bytes_of(on, asked, [others[0] if b == block else h for b, h in enumerate(old)])
        for block in range(blocks)
        if on.zone_of(old[block]) == 0
    ]
    assert bytes_of(on, asked, found) <= min(tried)
