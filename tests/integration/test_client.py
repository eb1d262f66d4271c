"""The Python client: plain errors, harmless retries, watches that survive a restart."""

import asyncio
from dataclasses import replace
from itertools import islice
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from placement.errors import BadInput
from scheduler.cli import exit_codes, program
from scheduler.client import Client, ServiceError
from scheduler.core import State
from scheduler.core.model.commands import SubmitJob
from scheduler.core.policies.job_terms import RunSpec
from scheduler.engine.proposal import WriterStopped
from scheduler.files.errors import InputError
from scheduler.service.backend import Backend
from scheduler.v1 import job_pb2
from tests.build import spec
from tests.serving import RUNNING, Served, create, serving


async def test_a_gang_is_ended_by_whoever_runs_it(served: Served) -> None:
    """By the one call that no command makes."""
    await served.start("a", 2)
    with Client(served.ready.address) as client:
        ended = await asyncio.to_thread(client.end_job, "a", job_pb2.JOB_STATE_FAILED, 1, "nan")
    assert (ended.state, ended.reason) == (job_pb2.JOB_STATE_FAILED, "nan")


async def test_a_job_with_a_command_needs_a_server_with_agents(served: Served) -> None:
    with Client(served.ready.address) as client:
        job = replace(spec("a", 2), run=RunSpec(("sleep", "1")))
        for call in (client.create_job, client.supposed_job):
            with pytest.raises(ServiceError, match="this server has no agents") as caught:
                await asyncio.to_thread(call, job)
            assert [field for field, _ in caught.value.violations] == ["spec.run"]
        await asyncio.to_thread(client.create_job, spec("a", 2))
        with pytest.raises(ServiceError, match="no agents, so it has no logs"):
            await asyncio.to_thread(list, client.tail_logs("a"))


async def test_an_answer_that_was_lost_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is lost after the job was stored; the retry finds that job."""
    real = Backend.run
    lost: list[str] = []

    async def losing(self: Backend, command: object, prefix: str = "") -> State:
        state = await real(self, command, prefix)  # type: ignore[arg-type]
        if isinstance(command, SubmitJob) and not lost:
            lost.append(command.uid)
            raise WriterStopped
        return state

    monkeypatch.setattr(Backend, "run", losing)
    async with serving(tmp_path) as served:
        with Client(served.ready.address) as client:
            job = await asyncio.to_thread(client.create_job, spec("a"))
            assert [job.uid] == lost
            assert len(await asyncio.to_thread(client.list_jobs)) == 1


async def test_a_watch_survives_a_restart_of_the_server(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"

    def read(client: Client, count: int) -> list[tuple[int, str]]:
        changes = client.watch_jobs(after_version=1)
        return [(change.version, change.job.spec.name) for change in islice(changes, count)]

    with Client(address) as client:
        async with serving(tmp_path, listen=address) as served:
            reading = asyncio.create_task(asyncio.to_thread(read, client, 4))
            await asyncio.to_thread(client.create_job, spec("a"))
            await served.until("a", RUNNING)
        async with serving(tmp_path, listen=address) as served:
            await asyncio.to_thread(client.create_job, spec("b"))
            seen = await asyncio.wait_for(reading, 10)
    assert seen == [(2, "a"), (3, "a"), (4, "b"), (5, "b")]


def test_no_server_is_an_error_that_names_the_address(unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    client = Client(address, retries=False)
    with client, pytest.raises(ServiceError, match=f"no server answers at {address}") as caught:
        client.list_jobs()
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE.name


# --- how commands end that talk to a server, as docs/operations.md has it ------------

JOB = "name: {name}\nparallelism: {{dp: {dp}}}\ntraffic: {{dp: 1}}\n"


async def test_a_command_ends_as_the_page_says(tmp_path: Path) -> None:
    program.load_commands()
    fits, never, wrong = (tmp_path / name for name in ("fits.yaml", "never.yaml", "wrong.yaml"))
    fits.write_text(JOB.format(name="b", dp=8))
    never.write_text(JOB.format(name="c", dp=8_000))
    wrong.write_text("name: d\ncolour: red\n")
    cases: list[tuple[int, list[str]]] = [
        (0, ["submit", str(fits)]),
        (0, ["job", "a"]),
        (0, ["host", "z0-r0-h0"]),
        (0, ["tenant", "default"]),
        (0, ["health"]),
        (1, ["submit", str(fits), "--request-id", "other"]),
        (1, ["job", "nobody"]),
        (1, ["cancel", "nobody"]),
        (1, ["host", "nowhere"]),
        (1, ["tenant", "nobody"]),
        (1, ["cancel", "a", "--etag", "0123"]),
        (2, ["submit", str(wrong)]),
        (2, ["jobs", "--filter", "colour = red"]),
        (2, ["report", "z0-r0-h0", "--signal", "hiccups"]),
        (2, ["store", "verify", "--store", f"sqlite:///{tmp_path}/none.db"]),
        (4, ["submit", str(never)]),
        (4, ["submit", str(never), "--dry-run"]),
        (4, ["defrag", "--for-hosts", "99999"]),
        (4, ["defrag", "--for", "wide"]),
        (2, ["store", "compact", "--keep-days", "36501"]),
        (2, ["serve", "--resize-every-s", str(2**31)]),
        (2, ["serve", "--keep-log-days", "36501"]),
        (2, ["serve", "--lease-s", "86401"]),
        (2, ["serve", "--lease-s", "9"]),  # of a store that servers share
        (2, ["serve", "--advertise", "127.0.0.1:7443"]),
        (2, ["serve", "--advertise", "nowhere", "--store", "postgresql://127.0.0.1:1/x"]),
        (2, ["serve", "--snapshot-every", str(2**31)]),
        (2, ["serve", "--least-gain-percent", str(2**31)]),
    ]
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a"))
        await served.stub.CreateJob(create("wide", 8))  # no zone has so many hosts
        for code, words in cases:
            ended, said = await asyncio.to_thread(_run, words, served.ready.address)
            assert ended == code, (words, said)
            assert said
        address = served.ready.address
    for words in (["jobs"], ["health"]):
        ended, said = await asyncio.to_thread(_run, words, address)
        assert ended == 1
        assert address in said


def _run(words: list[str], address: str) -> tuple[int, str]:
    """Exit code and what was said, as `main` has it."""
    found = CliRunner().invoke(program.app, words, env={"MUSTER_ADDRESS": address})
    if isinstance(found.exception, InputError | BadInput):
        return exit_codes.BAD_INPUT, str(found.exception)
    return found.exit_code, found.output
