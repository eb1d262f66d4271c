"""`muster job NAME --format`: where the ranks of a live job are, also after a swap."""

from __future__ import annotations

import asyncio
from pathlib import Path

from typer.testing import CliRunner, Result

from scheduler.cli import program
from scheduler.v1 import service_pb2
from tests.serving import create, serving


async def test_files_follow_the_job_from_swap_to_swap_until_it_ends(tmp_path: Path) -> None:
    program.load_commands()
    async with serving(tmp_path) as served:

        async def printed(kind: str) -> Result:
            words = ["job", "a", "--format", kind]
            env = {"MUSTER_ADDRESS": served.ready.address}
            return await asyncio.to_thread(CliRunner().invoke, program.app, words, env=env)

        async def hosts() -> list[str]:
            job = await served.stub.GetJob(service_pb2.GetJobRequest(name="a"))
            return list(job.placement.hosts)

        await served.stub.CreateJob(create("a", 2))
        while not (first := await hosts()):
            await asyncio.sleep(0.02)
        at_first = await printed("hostfile")
        assert at_first.stdout.split() == first, at_first.output
        report = service_pb2.ReportHostRequest(name=first[1], signal="host-down")
        await served.stub.ReportHost(report)
        while (second := await hosts()) == first:
            await asyncio.sleep(0.02)
        assert (await printed("hostfile")).stdout.split() == second
        lines = (await printed("torchrun")).stdout.splitlines()
        assert [line.split()[0] for line in lines] == second
        assert "--node-rank 1" in lines[1]
        assert (await printed("rankfile")).stdout.startswith(f"rank 0={second[0]} slot=0\n")
        await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
        done = await printed("hostfile")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "muster: job a holds no hosts now\n"
