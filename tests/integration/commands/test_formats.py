"""Launcher files: the right rank on the right host, in every notation."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace

import pytest
import yaml

from placement.fabric.hostlist import expand
from placement.fabric.reader import preset
from scheduler.cli.render.place import formats
from scheduler.cli.render.place.formats import GangOption, compress
from scheduler.cli.render.text import bytes_text

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
    assert sorted(expand(sbatch[5])) == sorted(HOSTS)
    assert srun == ["SLURM_HOSTFILE=FILE", "srun", "-n", "8", "-m", "arbitrary", "COMMAND"]


def test_slurm_commands_of_a_scattered_gang_wrap_and_join_again() -> None:
    hosts = tuple(random.Random(0).sample(preset("roce-24k").hosts, 700))
    gang = GangOption("a\nb # c", hosts, hosts[:0], ranks_per_host=1)
    comments = [line for line in formats.slurm(gang) if line.startswith("#")]
    assert len(comments) + len(hosts) == len(list(formats.slurm(gang)))
    # Slurm reads lines of up to 8 KiB, and cuts them at the first unescaped #.
    assert max(map(len, comments)) < 4_096
    assert sorted(expand(slurm_commands(gang)[0][5])) == sorted(hosts)


def test_spares_are_named_but_not_allocated() -> None:
    assert "#   z0-r1-h1" in formats.slurm(GANG)
    assert "z0-r1-h1" not in expand(slurm_commands(GANG)[0][5])


def test_a_whole_fabric_compresses_to_one_expression() -> None:
    assert compress(preset("roce-24k").hosts) == "z[0-7]-r[000-191]-h[0-1]"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1_000, "1.00 KB"),
        (999_600, "1.00 MB"),
        (18_874_368_000, "18.9 GB"),
        (5e21, "5000 EB"),
    ],
)
def test_bytes_have_three_digits(count: float, text: str) -> None:
    assert bytes_text(count) == text
