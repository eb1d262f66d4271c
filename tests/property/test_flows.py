"""What links carry is what the referee counts, whatever the job and the routing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from network.failures import sum_by
from network.flows import flows_of
from network.routing import Congestion, parse_routing, route
from network.wiring import links
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.workload.request import Collective, Request
from tests.build import fabric, regular, request, two_tiers

FABRICS = [
    fabric(zones=3, racks=2, hosts=2, gpus=2, oversubscription=2),
    two_tiers([2, 3], [1, 1, 4], [1], gpus=2),
    regular(("pod", 3), ("su", 2), ("host", 2), gpus=2, kind="infiniband"),
]
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
ROUNDED = (Collective.HIERARCHICAL, Collective.TREE)
ROUTINGS = st.sampled_from(["ecmp", "e-ecmp:3", "pinned", "adaptive"])


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Fabric, Request, list[int]]:
    where = draw(st.sampled_from(FABRICS))
    sizes = draw(SIZES)
    traffic = {axis: draw(st.integers(0, 99)) for axis in sizes}
    collective = draw(st.sampled_from(list(Collective)))
    ring_axes = [axis for axis in sizes if axis not in ("pp", "ep")]
    what = request(
        **sizes,
        order=draw(ORDERS),
        traffic=traffic,
        collectives=dict.fromkeys(ring_axes, collective),
    )
    hosts = draw(st.permutations(range(where.host_count)))
    return where, what, hosts[: what.hosts_needed(where.gpus_per_host)]


@given(job=jobs(), routing=ROUTINGS, seed=st.integers(0, 9))
def test_bytes_over_each_tier_are_the_cut(
    job: tuple[Fabric, Request, list[int]], routing: str, seed: int
) -> None:
    where, what, hosts = job
    found = route(links(where), flows_of(where, what, hosts), parse_routing(routing), seed)
    rounded = sum(collective in ROUNDED for _, collective in what.collectives)
    for level, counted in enumerate(reversed(cut(where, what, hosts))):
        climbed = float(found.loads.up[level + 1].sum())
        # The referee rounds each of these axes up to whole bytes.
        assert climbed <= counted.bytes_per_step * (1 + 1e-9)
        assert climbed >= counted.bytes_per_step - max(rounded, 1e-6)
        assert found.loads.down[level + 1].sum() == pytest.approx(climbed)


@given(job=jobs(), routing=ROUTINGS, seed=st.integers(0, 9))
def test_switches_pass_on_what_they_get(
    job: tuple[Fabric, Request, list[int]], routing: str, seed: int
) -> None:
    where, what, hosts = job
    flows = flows_of(where, what, hosts)
    found = route(links(where), flows, parse_routing(routing), seed)
    assert found.loads.up[0].sum() == pytest.approx(flows.bytes.sum())
    for level, layer in enumerate(found.links.layers):
        into, out = np.zeros(layer.switch_count), np.zeros(layer.switch_count)
        _add_above(found, level, into, out)
        _add_below(found, level, into, out)
        assert into == pytest.approx(out)


def _add_above(found: Congestion, level: int, into: np.ndarray, out: np.ndarray) -> None:
    if level < len(found.links.layers) - 1:
        ports = found.links.layers[level].uplinks
        size = found.links.layers[level].switch_count
        into += sum_by(ports.lower, found.loads.down[level + 1][:, None], size)[:, 0]
        out += sum_by(ports.lower, found.loads.up[level + 1][:, None], size)[:, 0]


def _add_below(found: Congestion, level: int, into: np.ndarray, out: np.ndarray) -> None:
    if level == 0:
        leaf = found.links.leaf_by_gpu
        into += np.bincount(leaf, found.loads.up[0], len(into))
        out += np.bincount(leaf, found.loads.down[0], len(out))
        return
    ports = found.links.layers[level - 1].uplinks
    into += sum_by(ports.upper, found.loads.up[level][:, None], len(into))[:, 0]
    out += sum_by(ports.upper, found.loads.down[level][:, None], len(out))[:, 0]


@given(job=jobs(), seed=st.integers(0, 9))
def test_perfect_spreading_is_never_slower(
    job: tuple[Fabric, Request, list[int]], seed: int
) -> None:
    where, what, hosts = job
    flows = flows_of(where, what, hosts)
    for routing in ("ecmp", "e-ecmp:3", "pinned"):
        found = route(links(where), flows, parse_routing(routing), seed)
        busiest_nic = max(found.loads.up[0].max(), found.loads.down[0].max())
        assert found.seconds >= busiest_nic / found.links.link_bytes_per_s * (1 - 1e-9)
        if "domains" not in where.spec:  # uneven cables: equal shares are not the best
            assert found.slowdown >= 1 - 1e-9
