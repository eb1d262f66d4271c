"""`muster rendezvous`: a host's place in a gang, for ranks that others start."""

import asyncio
import json
import os
import shlex
import subprocess
import sys

from scheduler.v1 import service_pb2
from tests.e2e.processes import MUSTER
from tests.serving import Served, create


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
    await served.stub.CreateJob(create("a", 2))
    first = await served.hosts_of("a")
    found = variables((await asked(served, "--host", first[1])).stdout)
    assert json.loads((await asked(served, "--host", first[1], "-o", "json")).stdout) == found
    assert (found["NODE_RANK"], found["GROUP_RANK"]) == ("1", "1")
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("2", "8")
    assert (found["MASTER_ADDR"], found["WORLD_SIZE"]) == (first[0], "16")
    assert found["CROSS_SLURM_PROCID"] == found["SLURM_PROCID"] == "1"
    await served.stub.ReportHost(service_pb2.ReportHostRequest(name=first[1], signal="host-down"))
    second = await served.hosts_of("a", but=first)
    after = variables((await asked(served, SLURMD_NODENAME=second[1])).stdout)
    assert (after["NODE_RANK"], after["TORCHELASTIC_RESTART_COUNT"]) == ("1", "1")
    assert after["MASTER_PORT"] != found["MASTER_PORT"]
    lost = await asked(served, "--host", first[1])
    assert (lost.returncode, lost.stdout) == (6, "")
    assert f"host {first[1]} is not in the gang of job a, attempt 2" in lost.stderr


async def test_it_becomes_the_command_and_no_shell_reads_it(served: Served) -> None:
    await served.stub.CreateJob(create("a", 2))
    (host, _) = await served.hosts_of("a")
    shown = "import os, sys; print(os.environ['PET_NODE_RANK'], sys.argv[1]); sys.exit(7)"
    words = ("--host", host, "--", sys.executable, "-c", shown, "$HOME; x")
    done = await asked(served, *words)
    assert (done.returncode, done.stdout) == (7, "0 $HOME; x\n")
    none = await asked(served, "--host", host, "--", "/no/such/program")
    assert (none.returncode, none.stderr) == (
        127,
        "muster: /no/such/program: No such file or directory\n",
    )


async def test_it_waits_for_hosts_and_says_what_for(served: Served) -> None:
    await served.stub.CreateJob(create("before", 8))
    await served.until("before", 2)
    await served.stub.CreateJob(create("a", 2))
    late = await asked(served, "--timeout", "1s")
    assert late.returncode == 124
    assert "waiting: job a is queued: needs 2 hosts" in late.stderr
    waits = asyncio.create_task(asked(served, "--host", "z0-r0-h0", "--standby"))
    await asyncio.sleep(0.5)
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="before"))
    first = await served.hosts_of("a")
    assert first == ["z0-r0-h0", "z0-r0-h1"]
    assert variables((await waits).stdout)["NODE_RANK"] == "0"
    standby = asyncio.create_task(asked(served, "--host", "z0-r1-h0", "--standby"))
    await asyncio.sleep(0.5)
    for host in ("z0-r0-h1", "z1-r0-h0", "z1-r0-h1", "z1-r1-h0", "z1-r1-h1"):
        await served.stub.ReportHost(service_pb2.ReportHostRequest(name=host, signal="host-down"))
    if "z0-r1-h0" not in await served.hosts_of("a", but=first):
        await served.stub.ReportHost(
            service_pb2.ReportHostRequest(name="z0-r1-h1", signal="host-down")
        )
    assert variables((await standby).stdout)["NODE_RANK"] == "1"


async def test_a_job_that_is_not_there_is_refused(served: Served) -> None:
    unknown = await asked(served, "--host", "z0-r0-h0")
    await served.stub.CreateJob(create("a", 2))
    await served.hosts_of("a")
    await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
    cancelled = await asked(served, "--host", "z0-r0-h0")
    for done, words in ((unknown, "no job 'a'"), (cancelled, "has ended: cancelled")):
        assert done.returncode == 1
        assert words in done.stderr
