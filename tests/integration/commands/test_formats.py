"""Files for launchers and for NCCL: the right rank on the right host, in every notation."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import yaml

from network.collectives.nccl import Algorithm, NcclTuning, Operation, Protocol, nccl_tunings
from placement.fabric.hostlist import expand
from placement.fabric.reader import from_spec, preset
from placement.workload.training import DataParallel, Training
from scheduler.cli.offline.place import nccl_lines
from scheduler.cli.render.place import formats
from scheduler.cli.render.place.formats import GangOption, compress
from scheduler.cli.render.place.nccl_file import MOST_BYTES, nccl_file
from scheduler.cli.render.text import bytes_text
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
    inside = request(tp=8, traffic={"tp": 10})  # an axis inside a node has none
    assert nccl_tunings(network, inside, [0]) == ()


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


def test_sizes_stay_within_what_the_plugin_holds() -> None:
    for size in (1, 65_536, 3 * 2**30, 2**40):
        sent = (Operation.ALL_REDUCE, 8, 2, size, Algorithm.TREE, Protocol.LL128)
        tunings, is_on = [NcclTuning("dp", *sent)], False
        lines = nccl_file("j", tunings, [], is_rail_optimised=is_on, is_on_nvlink_racks=is_on)
        ((name, low, high, algorithm, protocol, *_),) = read(list(lines))
        assert (name, algorithm, protocol) == ("allreduce", "tree", "ll128")
        assert low <= min(size, MOST_BYTES) <= high


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
    network = from_spec(yaml.safe_load(RACKS))
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


# --- other launcher files ----------------------------------------------------------------------


HOSTS = ("z1-r0-h1", "z0-r0-h0", "z0-r0-h1", "z0-r1-h0")
GANG = GangOption("job", HOSTS, ("z0-r1-h1",), ranks_per_host=2)


ROLES = replace(GANG, roles=(("trainer", 3), ("server", 1)))
PLACES = f"trainer={HOSTS[0]}:29500,server={HOSTS[3]}:29500"


def test_ranks_of_roles_are_worlds_of_their_own() -> None:
    lines = [dict(item.split("=", 1) for item in line.split()) for line in formats.env(ROLES)]
    of_server = lines[6:]
    assert [each["RANK"] for each in lines] == ["0", "1", "2", "3", "4", "5", "0", "1"]
    assert {each["WORLD_SIZE"] for each in of_server} == {"2"}
    assert {each["MASTER_ADDR"] for each in of_server} == {HOSTS[3]}
    named = {"MUSTER_ROLE": "server", "MUSTER_FIRST_RANK": "6", "MUSTER_ROLES": PLACES}
    assert all(each.items() >= named.items() for each in of_server)
    *_, last = formats.torchrun(ROLES)
    assert f"--nnodes 1 --node-rank 0 --nproc-per-node 2 --master-addr {HOSTS[3]}" in last
    assert f"env MUSTER_ROLE=server MUSTER_FIRST_RANK=6 MUSTER_ROLES={PLACES} torchrun" in last
    of_node = formats.rendezvous_environment(ROLES, 1)
    assert (of_node["WORLD_SIZE"], of_node["NODE_RANK"], of_node["MUSTER_NODES"]) == ("6", "1", "3")
    assert formats.rendezvous_environment(ROLES, 3)["MASTER_ADDR"] == HOSTS[3]
    assert "# Role server: ranks 6 to 7." in formats.slurm(ROLES)


def test_k8s_is_a_service_and_a_pod_a_host_in_block_order() -> None:
    gang = replace(GANG, name="Team/llama_3")
    service, *pods = yaml.safe_load_all("\n".join(formats.k8s(gang)))
    assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
    name = service["metadata"]["name"]
    assert name == "team-llama-3"
    assert [pod["spec"]["nodeName"] for pod in pods] == list(HOSTS)
    assert [pod["metadata"]["name"] for pod in pods] == [f"{name}-{block}" for block in range(4)]
    for block, pod in enumerate(pods):
        (rank,) = pod["spec"]["containers"]
        env = {each["name"]: each["value"] for each in rank["env"]}
        assert (env["NODE_RANK"], env["PET_NODE_RANK"]) == (str(block), str(block))
        assert (env["WORLD_SIZE"], env["PET_NNODES"]) == ("8", "4")
        assert env["MASTER_ADDR"] == f"{name}-0.{name}"
        assert rank["resources"]["limits"] == {"nvidia.com/gpu": 2}
        assert pod["metadata"]["labels"].items() >= service["spec"]["selector"].items()


def slurm_commands(gang: GangOption) -> list[list[str]]:
    """What a shell makes of the marked lines."""
    marked = [line[3:] for line in formats.slurm(gang) if line.startswith("#$ ")]
    script = "\n".join(marked).replace("\\\n", "")
    return [shlex.split(line) for line in script.splitlines()]


def test_slurm_commands_allocate_the_gang_and_start_it_in_this_order() -> None:
    sbatch, srun = slurm_commands(GANG)
    assert sbatch[:4] == ["sbatch", "--exclusive", "-N", "4"]
    assert sorted(expand(sbatch[5])) == sorted(HOSTS)  # spares are named in a comment alone
    assert "#   z0-r1-h1" in formats.slurm(GANG)
    assert srun == ["SLURM_HOSTFILE=FILE", "srun", "-n", "8", "-m", "arbitrary", "COMMAND"]


def test_slurm_commands_of_a_scattered_gang_wrap_and_join_again() -> None:
    hosts = tuple(random.Random(0).sample(preset("roce-24k").hosts, 700))
    gang = GangOption("a\nb # c", hosts, hosts[:0], ranks_per_host=1)
    comments = [line for line in formats.slurm(gang) if line.startswith("#")]
    assert len(comments) + len(hosts) == len(list(formats.slurm(gang)))
    # Slurm reads lines of up to 8 KiB, and cuts them at the first unescaped #.
    assert max(map(len, comments)) < 4_096
    assert sorted(expand(slurm_commands(gang)[0][5])) == sorted(hosts)


def test_a_whole_fabric_compresses_to_one_expression() -> None:
    assert compress(preset("roce-24k").hosts) == "z[0-7]-r[000-191]-h[0-1]"


def test_bytes_have_three_digits() -> None:
    counts = {0: "0 B", 1_000: "1.00 KB", 999_600: "1.00 MB", 18_874_368_000: "18.9 GB"}
    assert {count: bytes_text(count) for count in counts} == counts
    assert bytes_text(5e21) == "5000 EB"
