"""Hosts of better preference are taken where every cut stays what it is."""

from random import Random

from placement.fabric import hostset
from placement.objective.check import violations
from placement.tiers.fragmentation import Preference
from tests.build import exactly, fabric, gang, place_checked
from tests.cases import case


def test_a_gang_moves_to_the_rack_that_is_wholly_golden() -> None:
    cluster, rack = fabric(zones=1, racks=4, hosts=4), set(range(8, 12))
    free, golden = hostset.full(cluster.host_count), Preference(hostset.of(rack))
    assert not set(place_checked(cluster, free, gang(4)).hosts) & rack
    assert set(place_checked(cluster, free, gang(4), preference=golden).hosts) == rack


def test_hosts_to_take_last_are_taken_when_there_are_no_others() -> None:
    cluster, late = fabric(zones=1, racks=2, hosts=2), Preference(last=hostset.of([0, 1]))
    for hosts, taken in ((2, {2, 3}), (4, {0, 1, 2, 3})):
        found = place_checked(cluster, hostset.full(4), gang(hosts), preference=late)
        assert set(found.hosts) == taken


def test_no_cut_rises_no_spare_is_lost_and_the_taste_is_never_worse() -> None:
    for seed in range(30):
        with case(seed=seed):
            random = Random(seed)
            cluster = fabric(zones=3, racks=4, hosts=3)
            everyone = range(cluster.host_count)
            free = hostset.of(h for h in everyone if random.random() < 0.8)
            first = hostset.of(h for h in everyone if random.random() < 0.4)
            preference = Preference(
                first, hostset.of(h for h in everyone if random.random() < 0.3) & ~first
            )
            request = gang(
                random.choice((4, 6, 8, 12)), pp=random.choice((1, 2)), spares=exactly(2)
            )
            plain = place_checked(cluster, free, request)
            found = place_checked(cluster, free, request, preference=preference)
            assert found.cuts == plain.cuts
            assert len(found.spares) == len(plain.spares)
            assert preference.cost(found.hosts) <= preference.cost(plain.hosts)
            assert not violations(cluster, free, request, found)
