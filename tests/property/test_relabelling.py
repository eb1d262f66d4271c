"""The referee sees domains, not names: equal shapes may change places."""

from hypothesis import given
from hypothesis import strategies as st

from placement.objective.cut import cut, egress
from placement.workload.request import Collective
from tests.build import fabric, request

ZONES, RACKS, HOSTS = 3, 2, 2
FABRIC = fabric(ZONES, RACKS, HOSTS, gpus=2)

SIZES = st.sampled_from(
    [
        {"tp": 2, "dp": 12},
        {"tp": 2, "pp": 3, "dp": 4},
        {"tp": 2, "cp": 2, "pp": 2, "dp": 3},
        {"pp": 6, "dp": 2, "tp": 2},
        {"ep": 4, "dp": 3, "pp": 2},
        {"dp": 10},
    ]
)
ORDERS = st.sampled_from(["tp-cp-ep-pp-dp", "tp-cp-ep-dp-pp", "dp-pp-ep-cp-tp"])
COLLECTIVES = st.sampled_from(list(Collective))


@st.composite
def relabellings(draw: st.DrawFn) -> list[int]:
    """Where each host goes when zones, racks within zones, and hosts within racks move."""
    to = [0] * FABRIC.host_count
    zones = draw(st.permutations(range(ZONES)))
    for zone in range(ZONES):
        racks = draw(st.permutations(range(RACKS)))
        for rack in range(RACKS):
            hosts = draw(st.permutations(range(HOSTS)))
            for host in range(HOSTS):
                old = (zone * RACKS + rack) * HOSTS + host
                to[old] = (zones[zone] * RACKS + racks[rack]) * HOSTS + hosts[host]
    return to


@given(
    to=relabellings(),
    order_of_hosts=st.permutations(range(FABRIC.host_count)),
    sizes=SIZES,
    order=ORDERS,
    collective=COLLECTIVES,
)
def test_relabelling_equal_domains_keeps_the_cut(
    to: list[int],
    order_of_hosts: list[int],
    sizes: dict[str, int],
    order: str,
    collective: Collective,
) -> None:
    req = request(
        **sizes,
        order=order,
        traffic={"tp": 17, "cp": 11, "ep": 5, "pp": 6, "dp": 7 * 11 * 6},
        collectives={"dp": collective, "tp": collective},
    )
    hosts = order_of_hosts[: req.hosts_needed(2)]
    moved = [to[host] for host in hosts]
    assert cut(FABRIC, req, moved) == cut(FABRIC, req, hosts)
    assert sorted(egress(FABRIC, req, moved)) == sorted(egress(FABRIC, req, hosts))


@given(order_of_hosts=st.permutations(range(FABRIC.host_count)), sizes=SIZES)
def test_inner_tiers_cut_at_least_what_outer_tiers_cut(
    order_of_hosts: list[int], sizes: dict[str, int]
) -> None:
    """A byte that leaves a zone leaves a rack."""
    req = request(**sizes, traffic={"tp": 17, "cp": 11, "ep": 5, "pp": 6, "dp": 7})
    zone, rack = cut(FABRIC, req, order_of_hosts[: req.hosts_needed(2)])
    assert zone.bytes_per_step <= rack.bytes_per_step
