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
from network.collectives.recommend import advice, nccl_tunings
from network.collectives.schedules import Algorithm
from network.flows import flows_of
from network.step_simulation import simulate_step
from placement.fabric import hostset
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from placement.objective.axis_loads import axis_loads
from placement.objective.cut import cut, cut_by_axis, egress
from placement.objective.step_time import step_time
from placement.replace.swaps import added_cut
from placement.tiers.step_clock import step_clock
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Collective, Objective, Request
from placement.workload.traffic import axis_traffic, without_trees
from placement.workload.training import Batch, DataParallel, Training
from placement.workload.trees import both_trees, depth_of_trees, tree_edges
from scheduler.files.certificates import certificate
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_job
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import fabric, flat, place_checked
from tests.unit.placement.test_latency import buildings

# Those whose ranks send to others than their neighbours.
OTHERS = [Collective.TREE, Collective.HALVING_DOUBLING, Collective.HALVING_DOUBLING_FAR]
SHAPES = [(2, 1), (7, 1), (8, 1), (16, 8), (24, 8), (20, 4)]


def summed(n: int, payload: int, tp: int = 1, **more: int) -> Request:
    """`payload`: the vector of each group, of which the edge of a ring carries 2 (n-1)/n."""
    traffic, used = (("dp", 2 * (n - 1) * payload // n),), (("dp", Collective.TREE),)
    return Request(Parallelism(tp=tp, dp=n, **more), traffic, used)


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
def test_the_checker_counts_the_same_bytes(size: int, node: int) -> None:
    draw, request = np.random.default_rng(size), summed(size, 720 * size + 1, pp=2)
    (axis,) = (each for each in axis_traffic(request, node) if each.axis == "dp")
    said = {"size": size, "stride": axis.stride, "pattern": "tree", "edge_bytes": axis.edge_bytes}
    for _ in range(5):
        zones = draw.integers(0, 3, 2 * size // node)
        counted = dict(cut_by_axis(request, node, zones)).get("dp", 0)
        at = np.repeat(zones, node).tolist()
        assert counted == crossing({**said, "node": axis.node}, at)


def test_no_tree_cuts_less_than_the_hierarchy_that_bounds_it() -> None:
    draw = np.random.default_rng(3)
    for size, node in SHAPES:
        request = summed(size, 1_000 * size, pp=2)
        for _ in range(10):
            zones = draw.integers(0, 4, 2 * size // node)
            both = (cut_by_axis(each, node, zones) for each in (request, without_trees(request)))
            trees, hierarchies = (dict(by_axis).get("dp", 0) for by_axis in both)
            assert trees >= hierarchies


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
    spec = {**preset("nvl72-24k").spec, "name": "nv"}
    spec["tiers"] = [
        {"name": "su", "count": 2, "oversubscription": 4},
        {"name": "rack", "count": 2, "scale_up": {"gbps_per_gpu": 7200}},
        {"name": "host", "count": 4},
    ]
    return from_spec(spec)


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


def test_nccl_is_told_of_trees() -> None:
    network, request = fabric(2, 2, 4), summed(128, 10**6)
    ours = nccl_tunings(network, request, range(16))
    assert {each.algorithm for each in ours} == {Algorithm.TREE}
    (item,) = advice(network, request, range(16))
    assert item.used is Algorithm.TREE
    counted = item.of(Algorithm.TREE)
    assert counted is not None
    assert counted.cut_bytes == cut(network, request, range(16))[0].bytes_per_step


MODEL = (
    "model: {layers: 8, hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8, vocab: 128256,"
    " sequence: 8192}\nbatch: {global_sequences: 32}\n"
)


def test_the_job_file_takes_trees_where_whole_vectors_are_summed(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    head = f"name: a\nparallelism: {{tp: 8, dp: 2}}\n{MODEL}collectives: {{dp: tree}}\n"
    path.write_text(f"{head}training: {{data_parallel: ddp}}\n")
    spec = load_job(str(path))
    assert dict(spec.request.collectives) == {"dp": Collective.TREE}
    assert spec_from_proto(spec_to_proto(spec)) == spec
    path.write_text(head)
    with pytest.raises(InputError) as refused:
        load_job(str(path))
    assert "job.yaml:5: collectives.dp: a tree sums whole vectors" in str(refused.value)
    assert "training.data_parallel: ddp" in str(refused.value)


def test_the_table_of_algorithms_counts_the_trees_that_a_job_would_be_placed_with() -> None:
    network = fabric(2, 2, 2, gpus=8)
    training = Training(data_parallel=DataParallel.DDP)
    stated = replace(summed(64, 64_000_000), training=training)
    found = [
        advice(network, each, range(8))[0].of(Algorithm.TREE)
        for each in (stated, replace(stated, collectives=()))
    ]
    assert found[0] == found[1] is not None


def test_groups_that_sum_over_trees_are_spread_as_those_of_rings() -> None:
    network, request = fabric(2, 2, 4, gpus=8), replace(job(tp=8, pp=2, dp=6), spares=NO_SPARES)
    notes = []
    for used in (Collective.TREE, Collective.RING):
        asked = replace(request, objective=Objective.SPREAD, collectives=(("dp", used),))
        placed = place_checked(network, hostset.full(16), asked)
        assert placed.cut == cut(network, asked, placed.hosts)[0].bytes_per_step
        notes.append([note for note in placed.notes if note.startswith("spread ")])
    assert notes[0] == notes[1] != []
