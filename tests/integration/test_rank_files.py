"""`muster job NAME --format`: where the ranks of a live job are, also after a swap, read as the
tools read it that the files are for."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import yaml
from typer.testing import CliRunner, Result

from placement.fabric.hostlist import expand
from scheduler.cli import program
from scheduler.v1 import service_pb2
from tests.serving import Served, create

GPUS = 8  # of each host

Places = dict[int, tuple[str, int]]  # rank -> host, local rank


def printing(served: Served) -> Callable[..., Awaitable[Result]]:
    program.load_commands()

    async def printed(*words: str) -> Result:
        env = {"MUSTER_ADDRESS": served.ready.address}
        return await asyncio.to_thread(CliRunner().invoke, program.app, words, env=env)

    return printed


def _hostfile(text: str) -> Places:
    """MPI's: slots of the hosts in their order."""
    return {
        block * GPUS + local: (host, local)
        for block, host in enumerate(text.split())
        for local in range(GPUS)
    }


def _rankfile(text: str) -> Places:
    """Open MPI's: `rank N=HOST slot=SLOT`."""
    found: Places = {}
    for line in text.splitlines():
        rank, slot = line.split()[1:]
        number, _, host = rank.partition("=")
        assert int(number) not in found
        found[int(number)] = (host, int(slot.removeprefix("slot=")))
    return found


def _slurm(text: str) -> Places:
    """SLURM_HOSTFILE: the nth line that is no comment is task n; and who is allocated."""
    commands = [line[3:] for line in text.splitlines() if line.startswith("#$ ")]
    sbatch, srun = (
        shlex.split(line) for line in "\n".join(commands).replace("\\\n", "").split("\n")
    )
    hosts = [line for line in text.splitlines() if not line.startswith("#")]
    assert sorted(expand(sbatch[sbatch.index("-w") + 1])) == sorted(set(hosts))
    assert srun[srun.index("-n") + 1] == str(len(hosts))
    return {task: (host, hosts[:task].count(host)) for task, host in enumerate(hosts)}


def _torchrun(text: str) -> Places:
    """A command for each host: torchrun numbers ranks by node and process."""
    found: Places = {}
    for line in text.splitlines():
        host, program_name, *words = shlex.split(line)
        option = dict(zip(words[::2], words[1::2], strict=True))
        assert (program_name, option["--nnodes"]) == ("torchrun", str(len(text.splitlines())))
        node, each = int(option["--node-rank"]), int(option["--nproc-per-node"])
        found |= {node * each + local: (host, local) for local in range(each)}
    masters = {line.split("--master-addr ")[1].split()[0] for line in text.splitlines()}
    assert masters == {found[0][0]}
    return found


def _env(text: str) -> Places:
    """env://, a line a rank."""
    lines = [dict(word.split("=", 1) for word in shlex.split(line)) for line in text.splitlines()]
    found = {int(e["RANK"]): (e["HOST"], int(e["LOCAL_RANK"])) for e in lines}
    assert {e["WORLD_SIZE"] for e in lines} == {str(len(found))}
    assert {e["MASTER_ADDR"] for e in lines} == {found[0][0]}
    return found


def _k8s(text: str) -> Places:
    """A service, and pods on nodes, in which torchrun reads PET_."""
    service, *pods = yaml.safe_load_all(text)
    assert (service["kind"], {pod["kind"] for pod in pods}) == ("Service", {"Pod"})
    found: Places = {}
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        env = {each["name"]: each["value"] for each in container["env"]}
        node, each = int(env["PET_NODE_RANK"]), int(env["PET_NPROC_PER_NODE"])
        assert env["PET_NNODES"] == str(len(pods))
        assert container["resources"]["limits"]["nvidia.com/gpu"] == each
        found |= {node * each + local: (pod["spec"]["nodeName"], local) for local in range(each)}
    return found


READERS: dict[str, Callable[[str], Places]] = {
    "hostfile": _hostfile,
    "rankfile": _rankfile,
    "slurm": _slurm,
    "torchrun": _torchrun,
    "env": _env,
    "k8s": _k8s,
}


def tuner_lines(text: str) -> list[list[str]]:
    """What NCCL's example tuner plugin takes of its file: ten fields a line, but for comments."""
    lines = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    assert {len(line) for line in lines} == {10}
    assert {line[3] for line in lines} <= {"ring", "tree", "pat"}
    return lines


async def test_files_follow_the_job_from_swap_to_swap_until_it_ends(served: Served) -> None:
    printed = printing(served)

    async def printed_all(hosts: Sequence[str]) -> set[str]:
        """Kinds of which a rank meets others at the first port of a job."""
        found = set()
        for kind, reader in READERS.items():
            done = await printed("job", "a", "--format", kind)
            assert reader(done.stdout) == _hostfile("\n".join(hosts)), done.output
            found |= {kind} if "29500" in done.stdout else set()
        return found

    await served.stub.CreateJob(create("a", 2))
    first = await served.hosts_of("a")
    assert await printed_all(first) == {"torchrun", "env", "k8s"}
    report = service_pb2.ReportHostRequest(name=first[1], signal="host-down")
    await served.stub.ReportHost(report)
    second = await served.hosts_of("a", but=first)
    assert first[1] not in second
    assert await printed_all(second) == set()  # ranks of the first attempt that are left are alone
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
    done = await printed("job", "a", "--format", "env")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "muster: job a holds no hosts now\n"


async def test_nccl_is_tuned_for_the_hosts_that_the_job_has_now(served: Served) -> None:
    printed = printing(served)
    await served.stub.CreateJob(create("a", 2))
    first = await served.hosts_of("a")
    at_first = await printed("job", "a", "--format", "nccl")
    assert at_first.exit_code == 0, at_first.output
    assert {(line[6], line[7]) for line in tuner_lines(at_first.stdout)} == {("2", "2")}
    assert "within one rack" in at_first.stdout
    for host in [first[1], *(f"{first[1].rpartition('-')[0]}-h{n}" for n in range(2))]:
        if host != first[0]:
            report: Any = service_pb2.ReportHostRequest(name=host, signal="host-down")
            await served.stub.ReportHost(report)
    await served.hosts_of("a", but=first)
    after = await printed("job", "a", "--format", "nccl")
    assert tuner_lines(after.stdout)
    assert "within one rack" not in after.stdout  # the rack has one host left
