"""`--format nccl`: lines that NCCL's example tuner plugin reads, and what stands beside them."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from network.collectives.nccl import Protocol
from network.collectives.recommend import NcclTuning, nccl_tunings
from network.collectives.schedules import Algorithm, Operation
from placement.fabric.reader import from_spec
from placement.workload.training import DataParallel, Training
from scheduler.cli.offline.place import nccl_lines
from scheduler.cli.render.place.nccl_file import MOST_BYTES, nccl_file
from scheduler.files.job import job_from_mapping
from tests.build import fabric, gang, request
from tests.commands import MINI, Muster

RACKS = """name: racks
kind: infiniband
gpus_per_host: 4
tiers: [{name: rack, count: 4, scale_up: {gbps_per_gpu: 7200}}, {name: host, count: 4}]
"""
JOB = (
    "name: a-job\nparallelism: {tp: 4, ep: 4, dp: 4}\ntraffic: {tp: 9, ep: 90000000, dp: 4000000}\n"
)


def read(lines: list[str]) -> list[tuple[str, int, int, str, str, int, int, int, int, int]]:
    """As the plugin reads them: comments skipped, ten fields, names that it knows."""
    found = []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        collective, low, high, algorithm, protocol, *rest = line.split(",")
        assert collective in {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"}
        known = {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"}
        assert algorithm in known
        assert protocol in {"ll", "ll128", "simple"}
        channels, nodes, ranks, operations, buffers = map(int, rest)
        assert 0 <= int(low) <= int(high) <= 2**32 - 1
        found.append(
            (collective, int(low), int(high), algorithm, protocol, channels, nodes, ranks,
             operations, buffers)
        )  # fmt: skip
    return found


def test_a_placement_on_nvlink_racks(place: Muster) -> None:
    Path("mini.yaml").write_text(RACKS)
    Path("job.yaml").write_text(JOB)
    lines = place("--format", "nccl").out.splitlines()
    # ep lies in a rack each, so that dp crosses racks with one rank in each of four nodes.
    assert [(c, n, r) for c, *_, n, r, _, _ in read(lines)] == [
        ("allgather", 4, 4),
        ("reducescatter", 4, 4),
    ]
    payload = 4_000_000 * 4 // 6  # the ring's edge carries 2 (n-1)/n of it
    assert all(low < payload < high for _, low, high, *_ in read(lines))
    commands = [line.removeprefix("#$ ") for line in lines if line.startswith("#$ ")]
    assert commands == [
        "export NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=FILE",
        "export NCCL_MNNVL_ENABLE=1",
        "export NCCL_CROSS_NIC=0",
    ]
    assert "# ep: groups of 4, all_to_all, within one rack" in lines


def test_a_small_all_reduce_takes_a_tree_and_a_large_one_a_ring() -> None:
    network = fabric(zones=1, racks=32, hosts=2)
    training = Training(data_parallel=DataParallel.DDP)
    for sent, algorithm in ((4_000, Algorithm.TREE), (4_000_000_000, Algorithm.RING)):
        job = replace(gang(64, dp=64, dp_bytes=sent), training=training)
        (tuning,) = nccl_tunings(network, job, range(64))
        assert tuning.operation is Operation.ALL_REDUCE
        assert (tuning.algorithm, tuning.nodes, tuning.ranks) == (algorithm, 64, 64)


def test_groups_on_other_numbers_of_nodes_have_lines_of_their_own() -> None:
    network = fabric(zones=1, racks=2, hosts=4)
    job = request(dp=16, tp=4, traffic={"dp": 4_000}, order="dp-tp")
    assert {t.nodes for t in nccl_tunings(network, job, range(8))} == {2}
    uneven = request(dp=12, tp=4, traffic={"dp": 4_000}, order="dp-tp")
    assert {t.nodes for t in nccl_tunings(network, uneven, range(6))} == {2}


def test_tensor_parallelism_sums_the_activations_of_a_micro_batch_in_each_call() -> None:
    model = {"layers": 4, "hidden": 4096, "ffn": 14336, "heads": 32, "vocab": 1000}
    model |= {"kv_heads": 16, "sequence": 8192}
    shape = {
        "parallelism": {"tp": 16},
        "batch": {"global_sequences": 2},
        "training": {"sequence_parallel": False},
    }
    job = job_from_mapping({"name": "a", "model": model, **shape})
    (tuning,) = nccl_tunings(fabric(zones=1, racks=1, hosts=2), job.request, range(2))
    assert (tuning.axis, tuning.operation) == ("tp", Operation.ALL_REDUCE)
    assert tuning.payload_bytes == 8192 * 4096 * 2


def test_an_axis_inside_a_node_has_no_line() -> None:
    network = fabric(zones=1, racks=2, hosts=2)
    assert nccl_tunings(network, request(tp=8, traffic={"tp": 10}), [0]) == ()


@pytest.mark.parametrize("payload", [1, 65_536, 3 * 2**30, 2**40])
def test_sizes_stay_within_what_the_plugin_holds(payload: int) -> None:
    tuning = NcclTuning(
        "dp", Operation.ALL_REDUCE, 8, 2, payload, Algorithm.TREE, Protocol.LL128, 1.0
    )
    ((name, low, high, algorithm, protocol, *_),) = read(
        list(nccl_file("j", [tuning], [], is_rail_optimised=False, is_on_nvlink_racks=False))
    )
    assert (name, algorithm, protocol) == ("allreduce", "tree", "ll128")
    assert low <= min(payload, MOST_BYTES) <= high


def test_all_to_all_is_said_to_go_point_to_point_and_over_what() -> None:
    hosts, racks = {"ep": False}, {"ep": True, "cp": False}
    apart = list(nccl_file("j", [], [], is_rail_optimised=True, is_on_nvlink_racks=False))
    assert not any("all-to-all" in line or "PXN" in line for line in apart)
    inside = list(
        nccl_file("j", [], [], is_rail_optimised=True, is_on_nvlink_racks=False, exchanged=hosts)
    )
    assert "# ep: all-to-all, point to point over the NVLink of a host" in inside
    assert not any("PXN" in line for line in inside)
    text = "\n".join(
        nccl_file("j", [], [], is_rail_optimised=True, is_on_nvlink_racks=True, exchanged=racks)
    )
    assert "#$ export NCCL_P2P_PXN_LEVEL=2" in text
    assert "# cp: all-to-all, point to point over the NVLink of a rack" in text
    assert "to send once to each rack\n# and forward there over NVLink takes a library" in text


def test_a_group_of_experts_in_two_racks_leaves_its_node() -> None:
    network = from_spec(
        {
            "name": "racks", "kind": "infiniband", "gpus_per_host": 4,
            "tiers": [
                {"name": "rack", "count": 4, "scale_up": {"gbps_per_gpu": 7200}},
                {"name": "host", "count": 4},
            ],
        }
    )  # fmt: skip
    job = request(tp=4, ep=4, traffic={"tp": 9, "ep": 4_000})
    inside, apart = (
        "\n".join(nccl_lines("j", network, job, hosts)) for hosts in ([0, 1, 2, 3], [0, 1, 4, 5])
    )
    assert "# ep: all-to-all, point to point over the NVLink of a rack" in inside
    assert "# ep: all-to-all, point to point, a message for each pair of ranks" in apart


def test_queue_pairs_of_the_fabric_are_set_for_nccl(place: Muster, tmp_path: Path) -> None:
    plain = place("--format", "nccl").out
    (tmp_path / "hashed.yaml").write_text(f"{MINI}routing: e-ecmp:4\n")
    hashed = place("--format", "nccl", fabric="hashed.yaml").out
    assert "NCCL_IB" not in plain
    assert "#$ export NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_SPLIT_DATA_ON_QPS=0\n" in hashed


def test_the_schedule_of_an_axis_is_written_and_an_axis_that_has_none_named(place: Muster) -> None:
    Path("mini.yaml").write_text(RACKS)
    Path("job.yaml").write_text(JOB + "collectives: {dp: tree}\n")
    text = place("--format", "msccl").out
    assert ET.fromstring(text).get("ngpus") == "4"
    assert text.startswith("<!-- dp of 'a-job': groups of 4 ranks, tree -->\n<!-- in a step 1 x ")
    Path("job.yaml").write_text(JOB + "collectives: {dp: hierarchical}\n")
    refused = place("--format", "msccl")
    assert refused.code == 2
    assert "job.yaml:4: collectives.dp: is hierarchical" in refused.err
