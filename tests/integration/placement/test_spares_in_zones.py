"""Spares lie in the gang's own zones, as far as the cut allows, or wherever a site insists."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from placement import Sizing, place
from placement.fabric import hostset
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.spares.holding import hold_spares
from placement.workload.request import (
    AUTO,
    Collective,
    Insufficient,
    Objective,
    Placement,
    Request,
)
from tests.build import fabric, fabric_spec, place_checked, request
from tests.cases import case

OFTEN = Sizing(failures_per_host_day=0.1, repair_days=1, epsilon=0.1)


def _drawn(rng: random.Random) -> tuple[Fabric, list[int], Request]:
    """Four to eight blocks on two or three zones of six hosts, none of which holds them."""
    while True:
        on = fabric(zones=rng.choice([2, 3]), racks=2, hosts=3)
        free = [host for host in range(on.host_count) if rng.random() < 0.75]
        pp, dp = rng.choice([1, 2, 3]), rng.choice([2, 3, 4, 5])
        room = on.tiers[0].count(np.array(free))
        if 4 <= pp * dp <= 8 and room.max() < pp * dp <= room.sum():
            break
    traffic = {"tp": 1, "pp": rng.choice([1, 2, 5]), "dp": rng.choice([1, 2, 5])}
    kind = rng.choice([Collective.RING, Collective.HIERARCHICAL])
    gang = request(tp=on.gpus_per_host, pp=pp, dp=dp, traffic=traffic)
    return on, free, replace(gang, spares=AUTO, collectives=(("dp", kind),))


def _lacking(on: Fabric, free: list[int], gang: Request, hosts: tuple[int, ...]) -> int:
    most = len(free) - len(hosts)
    return hold_spares(on, gang, np.array(free), hosts, most, OFTEN).lacking


def test_no_layout_of_the_same_cut_leaves_the_zones_more_spares() -> None:
    rng = random.Random(1)
    for number in range(10):
        with case(number=number):
            on, free, gang = _drawn(rng)
            answer = place_checked(on, hostset.of(free), gang, sizing=OFTEN)
            zone, blocks = on.tiers[0].domain_by_host, len(answer.hosts)
            best = _lacking(on, free, gang, answer.hosts)
            for zones in product(range(len(on.tiers[0].domains)), repeat=blocks):
                pools = {z: [host for host in free if zone[host] == z] for z in set(zones)}
                if all(count <= len(pools[z]) for z, count in Counter(zones).items()):
                    hosts = tuple(pools[z].pop() for z in zones)
                    bytes_ = cut(on, gang, hosts)[0].bytes_per_step
                    assert bytes_ >= answer.cut
                    assert bytes_ > answer.cut or _lacking(on, free, gang, hosts) >= best


@pytest.mark.parametrize("objective", [Objective.CUT, Objective.TIME, Objective.SPREAD])
@pytest.mark.parametrize("segment", [0, 2])
@pytest.mark.parametrize(
    "sizing", [Sizing(in_zone=True), Sizing(per_zone=2), Sizing(racks=1)], ids=str
)
def test_a_site_that_insists_has_its_spares_in_each_zone_or_a_reason(
    objective: Objective, segment: int, sizing: Sizing
) -> None:
    on = fabric(zones=3, racks=3, hosts=6)
    gang = request(tp=8, dp=32, traffic={"tp": 1, "dp": 1})
    where = replace(gang.where, segment=segment)
    gang = replace(gang, spares=AUTO, objective=objective, compute_s=1.0, where=where)
    everywhere = hostset.full(on.host_count)
    answer = place_checked(on, everywhere, gang, sizing=sizing)
    tier = on.tiers[-1 if segment else 0]
    used = tier.count(np.array(answer.hosts))
    spare = tier.count(np.array(answer.spares, dtype=np.int64))
    racks = 0 if segment else sizing.racks  # a spare serves the rack of its segment alone
    for blocks, held in zip(used.tolist(), spare.tolist(), strict=True):
        assert not blocks or held >= sizing.size(blocks) + 6 * racks


def test_spares_that_no_zone_has_room_for_are_refused_by_name() -> None:
    on = fabric(zones=2, racks=2, hosts=2)
    gang = replace(request(tp=8, dp=7, traffic={"tp": 1, "dp": 1}), spares=AUTO)
    for objective in Objective:
        answer = place(
            on,
            hostset.full(8),
            replace(gang, objective=objective, compute_s=1.0),
            sizing=Sizing(per_zone=2),
        )
        assert isinstance(answer, Insufficient)
        assert "2 of 4 in z0" in answer.reason
    place_checked(on, hostset.full(8), gang)


@pytest.mark.parametrize("compute_s", [1e-9, 1.0])
def test_a_gang_is_placed_by_time_wherever_it_can_be_by_the_cut(compute_s: float) -> None:
    """Candidates on parts of the free hosts have the spares set aside once, not once more."""
    rng = random.Random(3)
    for number in range(2):
        with case(number=number):
            on = fabric(zones=3, racks=3, hosts=2)
            free = hostset.of(rng.sample(range(on.host_count), rng.randrange(8, 14)))
            gang = request(tp=8, pp=2, dp=2, traffic={"tp": 1, "pp": 10**9, "dp": 10**9})
            gang = replace(gang, spares=AUTO, compute_s=compute_s, cut_slack=0.0)
            by_cut, by_time = (
                place(on, free, replace(gang, objective=each), sizing=Sizing(per_zone=1))
                for each in (Objective.CUT, Objective.TIME)
            )
            assert type(by_time) is type(by_cut)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("sizing", [Sizing(per_zone=2), replace(OFTEN, in_zone=True)])
def test_spares_of_a_zone_lie_behind_its_feeds_in_turns(
    objective: Objective, sizing: Sizing
) -> None:
    """A zone of four racks of four hosts, two behind each feed."""
    labels = {"z[0-1]-r[0-1]": {"power": "a"}, "z[0-1]-r[2-3]": {"power": "b"}}
    on = from_spec({**fabric_spec(zones=2, racks=4, hosts=4), "labels": labels})
    gang = request(tp=8, dp=18, traffic={"tp": 1, "dp": 1})
    gang = replace(gang, spares=AUTO, objective=objective, compute_s=1.0)
    answer = place_checked(on, hostset.full(on.host_count), gang, sizing=sizing)
    zone_of = on.tiers[0].domain_by_host
    for zone in range(2):
        spares = [host for host in answer.spares if zone_of[host] == zone]
        behind = [sum(hosts >> s & 1 for s in spares) for hosts in on.labels["power"].values()]
        assert sum(behind) >= 2
        assert max(behind) - min(behind) <= 1


@pytest.mark.parametrize("segment", [0, 2])
def test_spares_are_insisted_on_where_the_gang_would_take_every_free_host(segment: int) -> None:
    on = fabric(zones=2, racks=1, hosts=4)
    gang = request(tp=8, dp=8, traffic={"tp": 1, "dp": 1})
    gang = replace(gang, spares=AUTO, where=replace(gang.where, segment=segment))
    assert isinstance(place(on, hostset.full(8), gang), Placement)
    refused = place(on, hostset.full(8), gang, sizing=Sizing(per_zone=1))
    assert isinstance(refused, Insufficient)
    capped = place(on, hostset.full(8), gang, sizing=Sizing(per_zone=1), most_spares=0)
    assert isinstance(capped, Placement)  # its tenant may hold no more hosts


def test_a_side_without_room_for_spares_leaves_the_other_side() -> None:
    on = fabric(zones=3, racks=1, hosts=6)
    barred = replace(on, barred=((0, 0),))
    gang = replace(request(tp=8, dp=5, traffic={"tp": 1, "dp": 1}), spares=AUTO)
    free = hostset.of([*range(6), 6, 7, 8, 12, 13])  # z0 whole, five hosts of the others
    answer = place_checked(barred, free, gang, sizing=Sizing(per_zone=1))
    assert {on.domain(host) for host in answer.hosts} == {"z0"}
