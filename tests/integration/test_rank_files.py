"""Where the ranks of a live job are, also after a swap: `muster job NAME --format`, read as the
tools read it that the files are for, and `muster rendezvous`."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from typer.testing import Result

from scheduler.cli import program
from tests.commands import muster
from tests.e2e.processes import MUSTER
from tests.serving import Served, create

GPUS = 8  # of each host

Places = dict[int, tuple[str, int]]  # rank -> host, local rank


def printing(served: Served) -> Callable[..., Awaitable[Result]]:
    program.load_commands()
    return partial(muster, served)


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


READERS: dict[str, Callable[[str], Places]] = {
    "hostfile": _hostfile,
    "rankfile": _rankfile,
    "torchrun": _torchrun,
    "env": _env,
}


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
    assert await printed_all(first) == {"torchrun", "env"}
    tuned = (await printed("job", "a", "--format", "nccl")).stdout
    assert "within one rack" in tuned
    assert first == ["z0-r0-h0", "z0-r0-h1"]
    for host in ("z0-r1-h0", "z1-r0-h0", "z1-r1-h0", first[1]):  # each rack has one left
        await served.report(host, "host-down")
    second = await served.hosts_of("a", but=first)
    assert first[1] not in second
    assert await printed_all(second) == set()  # ranks of the first attempt that are left are alone
    assert "within one rack" not in (await printed("job", "a", "--format", "nccl")).stdout
    await served.cancel("a")
    done = await printed("job", "a", "--format", "env")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "muster: job a holds no hosts now\n"


# --- `muster rendezvous`, for ranks that others start ------------------------------------------


async def asked(served: Served, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, for it becomes the command."""
    env = os.environ | {"MUSTER_ADDRESS": served.ready.address} | more
    return await asyncio.to_thread(
        subprocess.run,
        [MUSTER, "rendezvous", "a", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def variables(text: str) -> dict[str, str]:
    pairs = [line.split("=", 1) for line in text.splitlines()]
    return {key: shlex.split(value)[0] for key, value in pairs}


async def test_a_host_gets_its_place_and_after_a_swap_that_of_the_lost_one(served: Served) -> None:
    unknown = await asked(served, "--host", "z0-r0-h0")
    assert (unknown.returncode, "no job 'a'" in unknown.stderr) == (1, True)
    await served.stub.CreateJob(create("a", 2))
    first = await served.hosts_of("a")
    found = variables((await asked(served, "--host", first[1])).stdout)
    assert json.loads((await asked(served, "--host", first[1], "-o", "json")).stdout) == found
    assert (found["NODE_RANK"], found["GROUP_RANK"]) == ("1", "1")
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("2", "8")
    assert (found["MASTER_ADDR"], found["WORLD_SIZE"]) == (first[0], "16")
    assert found["CROSS_SLURM_PROCID"] == found["SLURM_PROCID"] == "1"
    await served.report(first[1], "host-down")
    second = await served.hosts_of("a", but=first)
    after = variables((await asked(served, SLURMD_NODENAME=second[1])).stdout)
    assert (after["NODE_RANK"], after["TORCHELASTIC_RESTART_COUNT"]) == ("1", "1")
    assert after["MASTER_PORT"] != found["MASTER_PORT"]
    lost = await asked(served, "--host", first[1])
    assert (lost.returncode, lost.stdout) == (6, "")
    assert f"host {first[1]} is not in the gang of job a, attempt 2" in lost.stderr
    await served.cancel("a")
    ended = await asked(served, "--host", first[0])
    assert (ended.returncode, "has ended: cancelled" in ended.stderr) == (1, True)


async def test_it_becomes_the_command_and_no_shell_reads_it(served: Served) -> None:
    await served.stub.CreateJob(create("a", 2))
    (host, _) = await served.hosts_of("a")
    shown = "import os, sys; print(os.environ['PET_NODE_RANK'], sys.argv[1]); sys.exit(7)"
    words = ("--host", host, "--", sys.executable, "-c", shown, "$HOME; x")
    done = await asked(served, *words)
    assert (done.returncode, done.stdout) == (7, "0 $HOME; x\n")
    none = await asked(served, "--host", host, "--", "/no/such/program")
    said = "muster: /no/such/program: No such file or directory\n"
    assert (none.returncode, none.stderr) == (127, said)


async def test_it_waits_for_hosts_and_says_what_for(served: Served) -> None:
    await served.start("before", 8)
    await served.stub.CreateJob(create("a", 2))
    late = await asked(served, "--timeout", "1s")
    assert late.returncode == 124
    assert "waiting: job a is queued: needs 2 hosts" in late.stderr
    # It waits for the job, and then until its host takes the place of one that is lost.
    standby = asyncio.create_task(asked(served, "--host", "z0-r1-h0", "--standby"))
    await asyncio.sleep(0.5)
    await served.cancel("before")
    first = await served.hosts_of("a")
    assert first == ["z0-r0-h0", "z0-r0-h1"]
    for host in ("z0-r0-h1", "z1-r0-h0", "z1-r0-h1", "z1-r1-h0", "z1-r1-h1"):
        await served.report(host, "host-down")
    if "z0-r1-h0" not in await served.hosts_of("a", but=first):
        await served.report("z0-r1-h1", "host-down")
    assert variables((await standby).stdout)["NODE_RANK"] == "1"
