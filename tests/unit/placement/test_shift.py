"""Few blocks at the borders of zones make the room that placing a gang again would."""

from dataclasses import replace

from placement.fabric import hostset
from placement.objective.cut import cut
from placement.replace.shift import shifted
from placement.workload.request import Objective
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
