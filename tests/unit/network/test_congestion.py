"""Flows of a job, routed: what every link carries and what that costs; in any job and routing it is
what the referee counts, and perfect spreading is never slower."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from network.failures import links_without, sum_by
from network.flows import Flows, flows_of, merge_flows
from network.paths import Walker, trips_of
from network.routing import Congestion, Kind, Routing, _on_rails, parse_routing, route
from network.wiring import links
from placement.errors import BadInput
from placement.fabric.reader import preset
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.workload.request import Collective, Request
from tests.build import fabric, gang, regular, request, two_tiers
from tests.cases import case

ECMP, PINNED, ADAPTIVE = (parse_routing(name) for name in ("ecmp", "pinned", "adaptive"))
EVERY = [ECMP, parse_routing("e-ecmp:4"), PINNED, ADAPTIVE]
SMALL = fabric(zones=3, racks=4, hosts=2, gpus=2, oversubscription=2)
NIC = 5e10  # bytes per second


def infiniband(pods: int = 2, units: int = 4, hosts: int = 32, gpus: int = 2) -> Fabric:
    """Four spines a rail in each pod, so that one may fail."""
    tiers = ("pod", pods), ("su", units), ("host", hosts)
    return regular(*tiers, gpus=gpus, kind="infiniband")


def one_axis(source: list[int], target: list[int], size: float = NIC) -> Flows:
    """Flows of a second at line rate each."""
    ends = np.array(source), np.array(target)
    return Flows(*ends, np.full(len(source), size), np.zeros(len(source), dtype=np.int64), ("dp",))


def pairs(flows: Flows) -> Counter[tuple[int, int]]:
    """Bytes by (source, target)."""
    found: Counter[tuple[int, int]] = Counter()
    for source, target, size in zip(flows.src_gpu, flows.dst_gpu, flows.bytes, strict=True):
        found[int(source), int(target)] += size
    return found


# --- flows ---------------------------------------------------------------------


def test_rings_chains_and_all_to_all_send_what_their_edges_say() -> None:
    flows = flows_of(SMALL, request(dp=6, traffic={"dp": 10}), [0, 2, 4])
    # ranks 0..5 on GPUs 0 1 4 5 8 9
    assert pairs(flows) == {(1, 4): 10, (5, 8): 10, (9, 0): 10}
    inside = route(links(SMALL), flows_of(SMALL, request(dp=2, traffic={"dp": 5}), [0]), ECMP)
    assert (inside.seconds, inside.slowdown, inside.axes) == (0, 1, ())
    # A chain sends half of an edge each way.
    flows = flows_of(SMALL, request(tp=2, pp=3, traffic={"pp": 7}), [0, 2, 4])
    forwards = {(0, 4): 4, (1, 5): 4, (4, 8): 4, (5, 9): 4}
    assert pairs(flows) == forwards | {(b, a): 3 for a, b in forwards}
    # All to all has every ordered pair.
    flows = flows_of(SMALL, request(tp=2, ep=3, traffic={"ep": 5}), [0, 2, 4])
    ends = [(0, 4), (0, 8), (4, 8), (1, 5), (1, 9), (5, 9)]
    assert pairs(flows) == {pair: 5 for a, b in ends for pair in ((a, b), (b, a))}


def test_hierarchical_passes_shards_round_the_zones_then_inside() -> None:
    # Zones of 8 hosts: two ranks of the group in zone 0 (racks 0 and 1), two in zone 1.
    req = request(
        tp=2, dp=4, traffic={"dp": 30}, collectives={"dp": Collective.HIERARCHICAL}
    )  # S = 30 x 4 / 3 = 40
    flows = flows_of(SMALL, req, [0, 2, 8, 10])
    found = pairs(flows)
    assert {pair: found[pair] for pair in ((0, 16), (4, 20), (16, 0), (20, 4))} == {
        (0, 16): 10,
        (4, 20): 10,
        (16, 0): 10,
        (20, 4): 10,
    }  # half of S leaves each zone, shared by its two members
    assert (found[0, 4], found[4, 0], found[16, 20], found[20, 16]) == (20, 20, 20, 20)


def test_flows_of_two_jobs_keep_their_axes() -> None:
    one = flows_of(SMALL, request(tp=2, dp=2, traffic={"dp": 10}), [0, 2])
    other = flows_of(SMALL, request(tp=2, pp=2, dp=2, traffic={"pp": 4, "dp": 2}), [4, 6, 8, 10])
    both = merge_flows(one, other)
    by_axis = Counter(dict.fromkeys(both.axes, 0.0))
    for axis, size in zip(both.axis, both.bytes, strict=True):
        by_axis[both.axes[axis]] += size
    assert by_axis == {"tp": 0, "dp": 10 * 2 * 2 + 2 * 4 * 2, "pp": 4 * 2 * 2}


# --- routing -------------------------------------------------------------------


def test_routing_is_read_and_written() -> None:
    assert parse_routing("e-ecmp") == Routing(Kind.E_ECMP, 16)
    for text in ("ecmp", "e-ecmp:4", "pinned", "adaptive"):
        assert str(parse_routing(text)) == text


@pytest.mark.parametrize("text", ["ospf", "ecmp:4", "e-ecmp:0", "e-ecmp:", "e-ecmp:x", "e-ecmp:-1"])
def test_other_routings_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="routing: "):
        parse_routing(text)


def _random_flows(built: Fabric, seed: int = 3) -> Flows:
    order = np.random.default_rng(seed).permutation(built.host_count)
    req = gang(built.host_count, gpus=built.gpus_per_host, pp=built.host_count // 4, dp_bytes=1_000)
    return flows_of(built, req, list(order))


@pytest.mark.parametrize("routing", [ECMP, parse_routing("e-ecmp:4"), PINNED], ids=str)
def test_every_path_connects_its_ends(routing: Routing) -> None:
    for failed in [False, True]:
        for built in [SMALL, infiniband()]:
            with case(failed=failed, built=built):
                graph = links(built)
                if failed:
                    graph = links_without(graph, [graph.layers[1].switch_name(1)])
                flows = _on_rails(graph, _random_flows(built))
                trips = trips_of(graph, flows, routing.queue_pairs)
                at = trips.source.copy()
                hops = np.zeros(len(at), dtype=np.int64)
                for low, is_up, trip, cable in Walker(graph, 7, trips.target).hops(trips):
                    ports = graph.layers[low].uplinks
                    ends = [ports.lower[cable], ports.upper[cable]]
                    before, after = ends if is_up else reversed(ends)
                    assert (at[trip] == before).all()
                    at[trip] = after
                    hops[trip] += 1
                assert (at == trips.target).all()
                assert set(hops) <= {0, 2, 4}


def test_ecmp_keeps_a_connection_on_one_path_and_queue_pairs_spread_it() -> None:
    flows = one_axis([0], [8])  # rack 0 to rack 2 of the same zone, 4 uplinks
    used = [
        np.count_nonzero(route(links(SMALL), flows, routing).loads.up[1])
        for routing in (ECMP, parse_routing("e-ecmp:64"), PINNED, ADAPTIVE)
    ]
    assert used == [1, 4, 1, 4]


def test_hashes_depend_on_the_seed_alone() -> None:
    flows = _random_flows(SMALL)
    one, again, other = (route(links(SMALL), flows, ECMP, seed).loads for seed in (1, 1, 2))
    assert (one.up[1] == again.up[1]).all()
    assert (one.up[1] != other.up[1]).any()


def test_a_pinned_rack_that_is_one_jobs_is_perfect() -> None:
    whole = preset("roce-24k")
    flows = flows_of(whole, gang(64, dp_bytes=1_000), list(range(64)))
    found = route(links(whole), flows, PINNED)
    assert found.slowdown == pytest.approx(1)
    assert found.loads.up[1].max() == 1_000


def test_two_racks_of_one_flow_each_collide_in_proportion() -> None:
    """Two flows at line rate on one uplink take two seconds instead of one."""
    thin = regular(("rack", 2, {"oversubscription": 2}), ("host", 2), gpus=1)
    found = route(links(thin), one_axis([0, 1], [2, 3]), ECMP)
    assert found.seconds == pytest.approx(2)
    assert found.busiest.name == "r0-rtsw/ctsw"
    assert found.slowdown == pytest.approx(1)  # a single uplink: nothing spreads better


def test_the_busiest_link_is_named_and_mmr_is_the_fullest_of_those_that_could_share() -> None:
    found = route(links(SMALL), one_axis([0, 1], [8, 8]), ADAPTIVE)
    assert found.busiest.name == "z0-r2-rtsw/z0-r2-h0:nic0"
    assert found.busiest.bytes == pytest.approx(2 * NIC)
    assert found.seconds == pytest.approx(2)
    assert [load.seconds for load in found.axes] == [pytest.approx(2)]
    # MMR is the fullest of the links that could share a load.
    found = route(links(SMALL), one_axis([0], [8]), ECMP)
    assert found.mmr["rtsw-ctsw", "up"] == pytest.approx(4)
    assert found.mmr["rtsw-ctsw", "down"] == pytest.approx(4)
    assert found.mmr["ctsw-atsw", "up"] == 1  # nothing there
    assert found.mmr["nic-rtsw", "up"] == 1


def test_rails_are_changed_inside_the_host() -> None:
    """GPU 0 to GPU 99, another unit's: it leaves by the NIC of rail 1."""
    found = route(links(infiniband()), one_axis([0], [99]), ECMP)
    assert list(np.flatnonzero(found.loads.up[0])) == [1]
    assert list(np.flatnonzero(found.loads.down[0])) == [99]


@pytest.mark.parametrize("routing", EVERY, ids=str)
def test_adaptive_is_as_good_as_any(routing: Routing) -> None:
    flows = _random_flows(SMALL)
    best = route(links(SMALL), flows, ADAPTIVE)
    assert best.slowdown == pytest.approx(1)
    assert best.seconds <= route(links(SMALL), flows, routing).seconds * (1 + 1e-9)


# --- failures ------------------------------------------------------------------


def _up(found: Congestion, level: int) -> float:
    return float(found.loads.up[level + 1].sum())


@pytest.mark.parametrize("routing", EVERY, ids=str)
@pytest.mark.parametrize("built", [SMALL, infiniband()], ids=["roce", "infiniband"])
def test_failed_switches_move_their_flows(built: Fabric, routing: Routing) -> None:
    graph = links(built)
    flows = _random_flows(built)
    before = route(graph, flows, routing)
    failed = [graph.layers[-1].switch_name(0), graph.layers[1].switch_name(1)]
    after = route(graph, flows, routing, failed=failed)
    for level in range(2):
        assert _up(after, level) == pytest.approx(_up(before, level))
    assert after.ideal_s == before.ideal_s
    assert after.slowdown >= 1


def test_half_of_the_uplinks_doubles_the_time_of_what_needs_them_all() -> None:
    """Zone 0 to zone 1: 16 NICs, 2:1, so 8 uplinks in all; then 4."""
    graph = links(SMALL)
    flows = one_axis(list(range(16)), list(range(16, 32)))
    whole = route(graph, flows, ADAPTIVE)
    half = route(graph, flows, ADAPTIVE, failed=["atsw1"])
    assert (whole.seconds, half.seconds) == (pytest.approx(2), pytest.approx(4))
    assert half.slowdown == pytest.approx(2)


def test_adaptive_routing_turns_away_from_what_lies_behind() -> None:
    """One zone switch keeps 1 of 2 uplinks: racks send it less than the other three."""
    graph = links(SMALL)
    flows = one_axis(list(range(16)), list(range(16, 32)))
    found = route(graph, flows, ADAPTIVE, failed=["z0-ctsw0/atsw1"])
    even = 16 / 4  # flows on that switch's last uplink, spread by equal shares
    best = 16 / 7  # all seven uplinks equally
    assert best <= found.seconds < (even + best) / 2


@pytest.mark.parametrize("routing", EVERY, ids=str)
def test_hosts_without_a_path_are_bad_input(routing: Routing) -> None:
    for failed in ["z0-r0-rtsw", "z0-ctsw[0-3]", "z0-r0-rtsw/z0-ctsw[0-3]"]:
        with (
            case(failed=failed),
            pytest.raises(BadInput, match="failed: leaves hosts of the job no path"),
        ):
            route(links(SMALL), one_axis([0], [8]), routing, failed=[failed])


def test_failed_switches_that_a_job_does_not_use_change_nothing() -> None:
    flows = one_axis([0, 1], [8, 9])
    assert route(links(SMALL), flows, ADAPTIVE, failed=["z2-r0-rtsw"]).slowdown == 1


# --- any job, anywhere ----------------------------------------------------------------

FABRICS = [
    SMALL,
    two_tiers([2, 3], [1, 1, 4], [1], gpus=2),
    infiniband(3, 2, 2),
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
def placed_jobs(draw: st.DrawFn) -> tuple[Fabric, Request, list[int]]:
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


@given(job=placed_jobs(), routing=ROUTINGS, seed=st.integers(0, 9))
def test_bytes_over_each_tier_are_the_cut_and_switches_pass_on_what_they_get(
    job: tuple[Fabric, Request, list[int]], routing: str, seed: int
) -> None:
    where, what, hosts = job
    flows = flows_of(where, what, hosts)
    found = route(links(where), flows, parse_routing(routing), seed)
    rounded = sum(collective in ROUNDED for _, collective in what.collectives)
    for level, counted in enumerate(reversed(cut(where, what, hosts))):
        climbed = float(found.loads.up[level + 1].sum())
        # The referee rounds each of these axes up to whole bytes.
        assert climbed <= counted.bytes_per_step * (1 + 1e-9)
        assert climbed >= counted.bytes_per_step - max(rounded, 1e-6)
        assert found.loads.down[level + 1].sum() == pytest.approx(climbed)
    assert found.loads.up[0].sum() == pytest.approx(flows.bytes.sum())
    for level, layer in enumerate(found.links.layers):
        into, out = np.zeros(layer.switch_count), np.zeros(layer.switch_count)
        _add_above(found, level, into, out)
        _add_below(found, level, into, out)
        assert into == pytest.approx(out)
    busiest_nic = max(found.loads.up[0].max(), found.loads.down[0].max())
    assert found.seconds >= busiest_nic / found.links.link_bytes_per_s * (1 - 1e-9)
    if "domains" not in where.spec:  # uneven cables: equal shares are not the best
        assert found.slowdown >= 1 - 1e-9


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
