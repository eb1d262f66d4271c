"""Double binary trees of an all-reduce: bytes, placement, step, simulation, certificate, NCCL; and
what holds for them holds for collectives in rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from muster.certificate import digest
from muster.verify import Refused, crossing, verify
from network.collectives.nccl import Algorithm, nccl_tunings
from network.flows import flows_of
from network.step_simulation import simulate_step
from placement.fabric import hostset
from placement.fabric.tree import Fabric
from placement.objective.axis_loads import axis_loads
from placement.objective.cut import cut, cut_by_axis, egress
from placement.objective.step_time import step_time
from placement.replace.swaps import added_cut
from placement.tiers.step_clock import step_clock
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Collective, Objective, Request
from placement.workload.traffic import axis_traffic, without_trees
from placement.workload.training import Batch
from placement.workload.trees import both_trees, depth_of_trees, tree_edges
from scheduler.files.certificates import certificate
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_job
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import fabric, flat, job_to_mapping, place_checked, regular
from tests.unit.placement.test_latency import buildings

# Those whose ranks send to others than their neighbours.
NEAR, FAR = Collective.HALVING_DOUBLING, Collective.HALVING_DOUBLING_FAR
OTHERS = [Collective.TREE, NEAR, FAR]
SHAPES = [(2, 1), (7, 1), (8, 1), (16, 8), (24, 8), (20, 4)]


def summed(n: int, payload: int, tp: int = 1, **more: int) -> Request:
    """`payload`: the vector of each group, of which the edge of a ring carries 2 (n-1)/n."""
    tree = data_parallel(n, Collective.TREE, 2 * (n - 1) * payload // n)
    return replace(tree, parallelism=Parallelism(tp=tp, dp=n, **more))


def data_parallel(n: int, used: Collective, sent: int) -> Request:
    """`sent`: what the edge of a ring carries."""
    return Request(Parallelism(dp=n), traffic=(("dp", sent),), collectives=(("dp", used),))


def job(used: Collective = Collective.TREE, **sizes: int) -> Request:
    return Request(
        Parallelism(**sizes),  # type: ignore[arg-type]
        traffic=(("tp", 10**8), ("pp", 10**8), ("dp", 4 * 10**9)),
        collectives=(("dp", used),),
        batch=Batch(16 * sizes["dp"]),
        compute_s=0.5,
        objective=Objective.TIME,
    )


@pytest.mark.parametrize(("size", "node"), SHAPES)
def test_every_rank_is_reached_and_sends_no_more_than_in_a_ring(size: int, node: int) -> None:
    tail, head, parts = tree_edges(size, node)
    assert parts.sum() == 4 * node * (size - 1)  # 2 (n-1) vectors
    assert Counter(zip(tail, head, strict=True)) == Counter(zip(head, tail, strict=True))
    leaves = tail // node != head // node
    by_host = np.bincount(tail[leaves] // node, parts[leaves], size // node)
    assert by_host.max(initial=0) <= 4 * node  # twice the vector over the cards of a host


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13, 64])
def test_leaves_of_one_tree_are_inner_nodes_of_the_other(n: int) -> None:
    trees = both_trees(n)
    inner = [set(parent.tolist()) for _, parent in trees]
    for child, parent in trees:
        known = {*range(n)} - set(child.tolist())
        assert len(known) == 1
        for a, b in zip(child.tolist(), parent.tolist(), strict=True):
            assert b in known
            known.add(a)
    assert len(inner[0] & inner[1]) <= 1 + n % 2
    assert depth_of_trees(n) <= max(0, int(np.log2(n))) + 1


@pytest.mark.parametrize(("size", "node"), SHAPES)
def test_the_checker_counts_the_same_bytes_and_none_fewer_than_the_hierarchy_that_bounds_them(
    size: int, node: int
) -> None:
    draw, request = np.random.default_rng(size), summed(size, 720 * size + 1, pp=2)
    (axis,) = (each for each in axis_traffic(request, node) if each.axis == "dp")
    said = {"size": size, "stride": axis.stride, "pattern": "tree", "edge_bytes": axis.edge_bytes}
    for _ in range(10):
        zones = draw.integers(0, 4, 2 * size // node)
        both = (cut_by_axis(each, node, zones) for each in (request, without_trees(request)))
        trees, hierarchies = (dict(by_axis).get("dp", 0) for by_axis in both)
        assert trees >= hierarchies
        assert trees == crossing({**said, "node": axis.node}, np.repeat(zones, node).tolist())


@pytest.mark.parametrize("used", OTHERS)
def test_no_order_of_ranks_cuts_less_than_what_is_called_optimal(used: Collective) -> None:
    three, ring = flat(4, 3, 1), summed(8, 8_000)
    request = replace(ring, collectives=(("dp", used),))
    placed = place_checked(three, hostset.full(8), request)
    zones = {*permutations([0] * 4 + [1] * 3 + [2])}
    best = min(sum(b for _, b in cut_by_axis(request, 1, np.array(each))) for each in zones)
    assert placed.cut == best
    assert 0 < placed.lower_bound <= best
    if used is Collective.TREE:  # 2 (Z-1) = 4 vectors over any two trees
        assert placed.cut == 5 * 8_000
        assert placed.lower_bound >= 4 * 8_000


def test_a_moved_block_cuts_what_its_edges_say() -> None:
    request, zones = summed(24, 24_000, pp=2), np.array([0, 0, 1, 1, 2, 2])
    sent = [
        sum(b for _, b in cut_by_axis(request, 8, np.where(np.arange(6) == 1, to, zones)))
        for to in range(3)
    ]
    added = added_cut(request, 8, zones, 1, 3)
    assert (added - added[0]).tolist() == pytest.approx([each - sent[0] for each in sent])


@pytest.mark.parametrize("tp", [1, 8])
def test_a_host_sends_over_its_cards_what_leaves_it(tp: int) -> None:
    """With and without a chain in each host: NVLink carries the rest of what ranks send."""
    network = fabric(2, 2, 4)
    (load,) = (
        each
        for each in axis_loads(network, summed(128 // tp, 128_000, tp), range(16))
        if each.traffic.axis == "dp"
    )
    by_layer = {each.layer: each for each in load.loads}
    assert by_layer["nic"].bytes_per_step == 2 * 15 * 128_000 * tp
    assert by_layer["nic"].busiest_bytes_per_step == 2 * 128_000 * tp
    assert ("scale-up" in by_layer) is (tp == 1)
    flows = flows_of(network, summed(128 // tp, 128_000, tp), range(16))
    assert flows.bytes.sum() == pytest.approx(2 * 15 * 128_000 * tp)
    assert sum(egress(network, summed(128 // tp, 128_000, tp), range(16))) == pytest.approx(
        cut(network, summed(128 // tp, 128_000, tp), range(16))[0].bytes_per_step
    )


def racks_of_nvlink() -> Fabric:
    rack = ("rack", 2, {"scale_up": {"gbps_per_gpu": 7200}})
    unit = ("su", 2, {"oversubscription": 4})
    return regular(unit, rack, ("host", 4), gpus=4, kind="infiniband", gpu="GB200")


@pytest.mark.parametrize("used", OTHERS)
def test_no_layout_is_faster_than_the_bound(used: Collective) -> None:
    draw = np.random.default_rng(5)
    for network, request in (
        (fabric(2, 2, 4), job(used, tp=8, pp=2, dp=8)),
        (fabric(2, 2, 4), job(used, pp=2, dp=64)),
        (racks_of_nvlink(), job(used, pp=4, dp=16)),
    ):
        bound_s = step_clock(network, request).bound(np.arange(16))
        for _ in range(30):
            hosts = draw.permutation(16).tolist()
            assert step_time(network, request, hosts).seconds >= bound_s * (1 - 1e-9)


@pytest.mark.parametrize("used", OTHERS)
def test_the_simulation_sends_the_same_bytes(used: Collective) -> None:
    network, request = fabric(2, 2, 4, oversubscription=1), job(used, tp=8, pp=2, dp=8)
    formula_s = step_time(network, request, range(16)).seconds
    played_s = simulate_step(network, request, range(16), 0.5).seconds
    assert played_s == pytest.approx(formula_s, rel=0.1)


def test_a_pass_goes_up_or_down_the_longest_branch() -> None:
    """Where a ring has fifteen messages in turn, a tree of sixteen hosts has four."""
    far = buildings(latency_us=100)
    tree = summed(16, 16_000, 8)
    ring = Request(tree.parallelism, tree.traffic)
    late = [axis_loads(far, each, range(16))[-1].latency_s for each in (ring, tree)]
    assert late[0] == pytest.approx(2 * 8 * 2 * 100e-6)  # two edges of fifteen leave a building
    assert late[1] == pytest.approx(2 * 8 * 2 * 100e-6)  # 0 - 8 - 4
    scattered = [8 * (rank % 2) + rank // 2 for rank in range(16)]
    late = [axis_loads(far, each, scattered)[-1].latency_s for each in (ring, tree)]
    assert late[0] == pytest.approx(2 * 8 * 15 * 100e-6)
    assert late[1] <= 2 * 8 * 4 * 100e-6


@pytest.mark.parametrize("sizes", [{"tp": 8, "dp": 16}, {"dp": 128}])
def test_the_cut_is_certified_and_what_was_changed_is_refused(sizes: dict[str, int]) -> None:
    network, request = fabric(2, 2, 4), job(**sizes)
    placed = place_checked(network, hostset.full(16), request)
    content = certificate(network, hostset.full(16), request, placed)
    report = verify(content)
    assert report.step is None
    proved, claimed = report.bounds["zone"]
    assert 0 < proved <= claimed == placed.lower_bound
    content["claims"]["cuts"][0]["bytes"] -= 1
    content["digests"]["claims"] = digest(content["claims"])
    with pytest.raises(Refused, match="zone cut"):
        verify(content)


def test_nccl_is_told_of_trees_and_of_pat_where_groups_have_one_rank_a_node() -> None:
    network, request = fabric(2, 2, 4), summed(128, 10**6)
    ours = nccl_tunings(network, request, range(16))
    assert {each.algorithm for each in ours} == {Algorithm.TREE}
    # NCCL gets PAT where groups have one rank a node.
    alone, shared = fabric(2, 2, 4, gpus=1), fabric(2, 2, 4)
    ours = nccl_tunings(alone, data_parallel(16, Collective.PAT, RING_BYTES), range(16))
    assert {each.algorithm for each in ours} == {Algorithm.PAT}
    ring = nccl_tunings(alone, data_parallel(16, Collective.RING, RING_BYTES), range(16))
    assert {each.algorithm for each in ring} == {Algorithm.RING}
    dense = nccl_tunings(shared, data_parallel(128, Collective.PAT, RING_BYTES), range(16))
    assert {each.algorithm for each in dense} == {Algorithm.RING}  # NCCL has no PAT there


@pytest.mark.parametrize(
    ("named", "used", "written"),
    [("halving-doubling", NEAR, "halving_doubling"), ("tree", Collective.TREE, "tree")],
)
def test_the_job_file_takes_either_spelling_and_keeps_it_over_the_wire(
    tmp_path: Path, named: str, used: Collective, written: str
) -> None:
    path = tmp_path / "job.yaml"
    head = "name: a\nparallelism: {tp: 8, dp: 2}\ntraffic: {dp: 1}\n"
    path.write_text(f"{head}collectives: {{dp: {named}}}\n")
    spec = load_job(str(path))
    assert dict(spec.request.collectives) == {"dp": used}
    assert spec_from_proto(spec_to_proto(spec)) == spec
    assert job_to_mapping(spec)["collectives"] == {"dp": written}


MODEL = (
    "model: {layers: 8, hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8, vocab: 128256,"
    " sequence: 8192}\nbatch: {global_sequences: 32}\n"
)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("double-binary-tree", ("must be", "pat")),
        ("tree", ("a tree sums whole vectors", "training.data_parallel: ddp")),  # not of FSDP
    ],
)
def test_collectives_that_cannot_be_are_refused_by_line(
    tmp_path: Path, named: str, says: tuple[str, str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"name: a\nparallelism: {{tp: 8, dp: 2}}\n{MODEL}collectives: {{dp: {named}}}\n"
    )
    with pytest.raises(InputError) as refused:
        load_job(str(path))
    assert f"job.yaml:5: collectives.dp: {says[0]}" in str(refused.value)
    assert says[1] in str(refused.value)


def test_groups_that_sum_over_trees_are_spread_as_those_of_rings() -> None:
    network, request = fabric(2, 2, 4, gpus=8), replace(job(tp=8, pp=2, dp=6), spares=NO_SPARES)
    notes = []
    for used in (Collective.TREE, Collective.RING):
        asked = replace(request, objective=Objective.SPREAD, collectives=(("dp", used),))
        placed = place_checked(network, hostset.full(16), asked)
        assert placed.cut == cut(network, asked, placed.hosts)[0].bytes_per_step
        notes.append([note for note in placed.notes if note.startswith("spread ")])
    assert notes[0] == notes[1] != []


# --- rounds whose partners are their own ------------------------------------------------

RING_BYTES = 2 * 63 * 1_000  # of 64 ranks with a payload of 64,000


def test_near_first_crosses_least_and_far_first_most() -> None:
    two = flat(32, 32)
    crossed = {
        used: cut(two, data_parallel(64, used, RING_BYTES), range(64))[0].bytes_per_step
        for used in (NEAR, FAR, Collective.RING)
    }
    assert crossed == {NEAR: 2 * 64_000, FAR: 64 * 64_000, Collective.RING: 2 * RING_BYTES}


@pytest.mark.parametrize("n", [3, 6, 12, 24])
def test_ranks_send_as_much_as_in_a_ring_where_sizes_are_odd(n: int) -> None:
    sent = 2 * (n - 1) * 720
    for used in (NEAR, FAR):
        rounds = axis_traffic(data_parallel(n, used, sent))
        assert sum(each.edge_bytes for each in rounds) == sent
        assert np.prod([each.size for each in rounds]) == n
        assert [each.axis for each in rounds] == [f"dp/{each.stride}" for each in rounds]


def test_ranks_are_ordered_for_the_rounds() -> None:
    """Far first, the large messages go between ranks that are far apart: these share a zone."""
    cuts = {}
    for used in (NEAR, FAR):
        request = data_parallel(16, used, 2 * 15 * 1_000)
        placed = place_checked(flat(8, 8), hostset.full(16), request)
        cuts[used] = placed.cut
    assert cuts[NEAR] == cuts[FAR] == 2 * 16_000


def test_the_step_takes_one_round_after_the_other() -> None:
    flows = flows_of(fabric(2, 2, 4), job(NEAR, tp=8, pp=2, dp=8), range(16))
    assert set(flows.axes) == {"tp", "pp", "dp/1", "dp/2", "dp/4"}
    axes = step_time(fabric(2, 2, 4), job(NEAR, tp=8, pp=2, dp=8), range(16)).axes
    (dp,) = (axis for axis in axes if axis.load.traffic.axis == "dp")
    assert [each.traffic.axis for each in dp.load.rounds] == ["dp/1", "dp/2", "dp/4"]
    assert dp.seconds == pytest.approx(sum(each.seconds for each in dp.load.rounds))
    assert dp.load.traffic.size == 8
