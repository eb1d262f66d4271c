"""Any job with constraints on a small fabric, against every choice of hosts."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from placement.fabric import hostset
from placement.fabric.constraints import Constraints, usable
from placement.fabric.reader import from_spec
from placement.objective.check import violations
from placement.placer import place
from placement.workload.request import AUTO, Placement, SpareRule
from tests.build import everything, exactly, fabric_spec, gang


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
