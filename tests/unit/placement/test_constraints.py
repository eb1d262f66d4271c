"""Labels, one domain, few zones: kept in every placement, and proved impossible if so."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import Constraints, around, joinable, usable, zones_of
from placement.fabric.hostset import HostSet
from placement.fabric.links import with_links
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.placer import place
from placement.workload.request import (
    AUTO,
    Infeasible,
    Insufficient,
    Placement,
    Request,
    SpareRule,
)
from tests.build import everything, exactly, fabric, fabric_spec, gang, place_checked, two_tiers

LABELS = {"z[0-1]": {"gpu": "h100"}, "z2": {"gpu": "a100"}, "z1-r0-h0": {"gpu": "h200"}}


def labelled_fabric() -> Fabric:
    return from_spec({**fabric_spec(zones=3, racks=2, hosts=2), "labels": LABELS})


def wants(hosts: int, *, max_zones: int = 0, same: str = "", **labels: str) -> Request:
    """wants(4, same="rack", gpu="h100")"""
    return replace(gang(hosts), where=Constraints(max_zones, same, tuple(labels.items())))


def without(network: Fabric, *names: str) -> HostSet:
    return everything(network) & ~hostset.of(network.indices(names))


def test_what_is_said_of_a_host_goes_before_what_is_said_of_its_zone() -> None:
    network = labelled_fabric()
    values = {v: network.names(hostset.members(m)) for v, m in network.labels["gpu"].items()}
    assert values["h200"] == ("z1-r0-h0",)
    assert len(values["h100"]) == 7
    assert "z1-r0-h0" not in values["h100"]
    assert len(values["a100"]) == 4


def test_a_label_that_no_host_has_is_bad_input() -> None:
    network = labelled_fabric()
    with pytest.raises(BadInput, match="labelled gpu=b200; there are a100, h100, h200") as error:
        place(network, everything(network), wants(1, gpu="b200"))
    assert error.value.field == "constraints.hosts.gpu"
    with pytest.raises(BadInput, match="has such a label; there are gpu"):
        place(network, everything(network), wants(1, gup="h100"))


def test_more_hosts_than_have_the_label_are_never_possible_too_few_free_ones_for_now() -> None:
    network = labelled_fabric()
    answer = place(network, everything(network), wants(5, gpu="a100"))
    assert answer == Infeasible("needs 5 hosts with gpu=a100; small has 4 with gpu=a100")
    # Too few free hosts with the label is for now.
    network = labelled_fabric()
    free = without(network, "z2-r0-h0")
    answer = place(network, free, wants(4, gpu="a100"))
    assert isinstance(answer, Insufficient)
    assert (answer.needed, answer.free) == (4, 3)
    assert answer.reason == "needs 4 hosts with gpu=a100; free: 3 with gpu=a100"


def test_one_rack_waits_for_a_whole_rack() -> None:
    network = fabric(zones=2, racks=2, hosts=4)
    request = wants(4, same="rack")
    halves = without(network, "z0-r0-h0", "z0-r1-h0", "z1-r0-h0", "z1-r1-h0")
    answer = place(network, halves, request)
    assert isinstance(answer, Insufficient)
    assert answer.reason == "needs 4 hosts in one rack; free: at most 3 in one rack"
    found = place_checked(network, halves | hostset.of(network.indices(["z1-r1-h0"])), request)
    assert {network.domain(host, 1) for host in found.hosts} == {"z1-r1"}
    # One rack larger than any rack is never possible.
    network = fabric(zones=2, racks=2, hosts=4)
    answer = place(network, everything(network), wants(8, same="rack"))
    assert answer == Infeasible("needs 8 hosts in one rack; small has at most 4 in one rack")


def test_zone_and_rack_are_understood_whatever_tiers_are_called() -> None:
    spec = {**fabric_spec(), "tiers": [{"name": "pod", "count": 2}, {"name": "su", "count": 2}]}
    spec["tiers"].append({"name": "host", "count": 2})
    network = from_spec(spec)
    for name, domains in (("zone", 0), ("pod", 0), ("rack", 1), ("su", 1)):
        found = place_checked(network, everything(network), wants(2, same=name))
        assert len({network.domain(host, domains) for host in found.hosts}) == 1
    with pytest.raises(BadInput, match="no tier 'building'; there are pod, su"):
        place(network, everything(network), wants(2, same="building"))


def test_few_zones_are_the_roomiest() -> None:
    network = two_tiers([2], [4], [2], [4], gpus=8)
    found = place_checked(network, everything(network), wants(8, max_zones=2))
    assert {network.domain(host) for host in found.hosts} == {"z1", "z3"}
    answer = place(network, everything(network), wants(9, max_zones=2))
    assert answer == Infeasible("needs 9 hosts in at most 2 zones; uneven has at most 8 in 2 zones")


def test_a_host_that_joins_a_gang_keeps_its_constraints() -> None:
    network = labelled_fabric()
    where = Constraints(same="rack", labels=(("gpu", "h100"),))
    gang_hosts = hostset.of(network.indices(["z1-r0-h1"]))
    assert joinable(network, where, gang_hosts) == gang_hosts  # its neighbour is an h200


def test_a_broken_constraint_is_a_violation() -> None:
    network = labelled_fabric()
    free = everything(network)
    anywhere = place_checked(network, free, gang(8))
    for where, what in (
        (Constraints(max_zones=1), "lies in 2 zones, may lie in 1"),
        (Constraints(same="rack"), "must be in one"),
        (Constraints(labels=(("gpu", "a100"),)), "hosts without the labels gpu=a100"),
    ):
        wrong = violations(network, free, replace(gang(8), where=where), anywhere)
        assert len(wrong) == 1
        assert what in wrong[0]


def test_around_is_the_whole_domain() -> None:
    network = fabric()
    hosts = around(network, 1, hostset.of(network.indices(["z0-r1-h0"])))
    assert network.names(hostset.members(hosts)) == ("z0-r1-h0", "z0-r1-h1")


def test_no_gang_lies_across_zones_that_nothing_joins() -> None:
    apart = from_spec({**fabric_spec(zones=2, racks=2, hosts=2), "joined": False})
    assert zones_of(apart, hostset.of(place_checked(apart, everything(apart), gang(4)).hosts)) == 1
    answer = place(apart, everything(apart), gang(5))
    assert isinstance(answer, Infeasible)
    assert "at most 4 on one side" in str(answer)
    assert isinstance(place(apart, without(apart, "z0-r0-h0", "z1-r0-h0"), gang(4)), Insufficient)
    slow = with_links(apart, {"z0-r0": 0.5})
    assert slow.barred == apart.barred
    assert with_links(slow, {}) == apart


@given(
    taken=st.sets(st.integers(0, 15)),
    hosts=st.sampled_from([1, 2, 3, 4, 6]),
    spares=st.sampled_from([AUTO, exactly(0), exactly(1)]),
    max_zones=st.integers(0, 3),
    same=st.sampled_from(["", "zone", "rack"]),
    gpu=st.sampled_from(["", "a", "b"]),
)
def test_placed_exactly_when_some_choice_of_hosts_keeps_all(
    taken: set[int], hosts: int, spares: SpareRule, max_zones: int, same: str, gpu: str
) -> None:
    """Against the definition: the best domain, or the best zones, counted by hand."""
    spec = fabric_spec(zones=4, racks=2, hosts=2)
    network = from_spec({**spec, "labels": {"z[0-1]": {"gpu": "a"}, "z[2-3]": {"gpu": "b"}}})
    labels = (("gpu", gpu),) if gpu else ()
    where = Constraints(max_zones, same, labels)
    request = replace(gang(hosts), spares=spares, where=where)
    free = everything(network) & ~hostset.of(taken)
    answer = place(network, free, request)
    fit = [h for h in hostset.members(free) if gpu in ("", "ab"[network.domain(h) in ("z2", "z3")])]
    tier = {"": None, "zone": 0, "rack": 1}[same]
    counts: dict[str, int] = {}
    for host in fit:
        domain = network.domain(host, tier or 0)
        counts[domain] = counts.get(domain, 0) + 1
    most = 1 if same else max_zones or len(counts)
    room = sum(sorted(counts.values(), reverse=True)[:most])
    needed = hosts + request.spares.required(hosts)
    assert isinstance(answer, Placement) == (room >= needed)
    if isinstance(answer, Placement):
        assert violations(network, free, request, answer) == []
    else:
        assert usable(network, where, free, needed).bit_count() < needed
