"""`muster route` over real servers, of which one is lost in the middle."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from scheduler.cli import program
from scheduler.client import Client, ServiceError
from scheduler.core import JobSpec
from scheduler.v1 import job_pb2, service_pb2
from tests.build import fabric_spec
from tests.commands import quick_retries
from tests.serving import RUNNING, Served, create, serving

JOB = "name: {}\nparallelism: {{tp: 8, dp: {}}}\ntraffic: {{dp: 10}}\nspares: 0\n"
ALL = ("--context", "east,west,lab")
LOST = ServiceError("UNAVAILABLE", "the answer was lost")


@dataclass
class Sites:
    """Clusters by name, each of eight hosts, and the contexts that name them."""

    folder: Path
    up: dict[str, Served] = field(default_factory=dict)
    opened: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    async def start(self, name: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        self.opened[name] = serving(
            self.folder / name,
            listen=self.addresses.get(name, "127.0.0.1:0"),
            fabric_spec=fabric_spec() | {"name": name},
            clock=time.time_ns,
        )
        self.up[name] = await self.opened[name].__aenter__()
        self.addresses[name] = self.up[name].ready.address
        contexts = {each: {"address": address} for each, address in self.addresses.items()}
        (self.folder / "config.yaml").write_text(json.dumps({"contexts": contexts}))

    async def stop(self, name: str) -> None:
        del self.up[name]
        await self.opened.pop(name).__aexit__(None, None, None)

    async def jobs(self) -> list[tuple[str, str]]:
        """Cluster and name of every job there is."""
        return [
            (name, job.spec.name)
            for name, served in self.up.items()
            for job in (await served.stub.ListJobs(service_pb2.ListJobsRequest())).jobs
        ]

    async def muster(self, *words: str) -> Any:
        """The result of a command, with stdout and stderr apart."""
        return await asyncio.to_thread(CliRunner().invoke, program.app, ["route", *words])

    def file(self, name: str, hosts: int = 2) -> str:
        path = self.folder / f"{name}.yaml"
        path.write_text(JOB.format(name, hosts))
        return str(path)


@asynccontextmanager
async def _sites(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sites]:
    monkeypatch.setenv("MUSTER_CONFIG", str(folder / "config.yaml"))
    quick_retries(monkeypatch)
    sites = Sites(folder)
    for name in ("east", "west", "lab"):
        await sites.start(name)
    yield sites
    for name in list(sites.up):
        await sites.stop(name)


async def test_one_cluster_gets_the_job_and_the_others_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _sites(tmp_path, monkeypatch) as sites:
        await sites.up["east"].stub.CreateJob(create("full", 7))
        await sites.up["east"].until("full", RUNNING)
        file = sites.file("a")
        offers = await sites.muster("submit", file, *ALL, "--dry-run", "-o", "json")
        body = json.loads(offers.stdout)
        assert offers.exit_code == 0
        assert body["cluster"] == "west"
        whys = {each["name"]: each["why"] for each in body["clusters"]}
        assert whys["west"] == "best"
        assert whys["lab"] == "as good, and named later"
        assert "start" in whys["east"]
        assert await sites.jobs() == [("east", "full")]
        made = await sites.muster("submit", file, *ALL, "-o", "json")
        first = json.loads(made.stdout)
        assert (made.exit_code, first["cluster"], first["is_repeat"]) == (0, "west", False)
        again = await sites.muster("submit", file, *ALL, "-o", "json")
        second = json.loads(again.stdout)
        assert (second["cluster"], second["is_repeat"]) == ("west", True)
        assert second["job"]["uid"] == first["job"]["uid"]
        assert await sites.jobs() == [("east", "full"), ("west", "a")]
        listed = await sites.muster("jobs", *ALL, "-o", "json")
        assert [(each["cluster"], each["name"]) for each in json.loads(listed.stdout)["jobs"]] == [
            ("east", "full"),
            ("west", "a"),
        ]
        changed = sites.file("a", 3)
        other = await sites.muster("submit", changed, *ALL)
        assert other.exit_code == 1
        assert "west knows this request from another job file" in other.stderr
        named = await sites.muster("submit", changed, *ALL, "--request-id", "second")
        assert (named.exit_code, "west: a job a is running already" in named.stderr) == (1, True)
        shown = await sites.muster("job", "a", *ALL)
        assert shown.stdout.startswith("cluster    west\n")
        ended = await sites.muster("cancel", "a", *ALL, "-o", "json")
        assert json.loads(ended.stdout)["job"]["state"] == "JOB_STATE_CANCELLED"
        waited = await sites.muster("wait", "a", *ALL)
        assert waited.exit_code == 1
        over = await sites.muster("submit", sites.file("a"), *ALL)
        assert "(cancelled now)" in over.stdout
        third = await sites.muster("submit", file, *ALL, "--request-id", "third", "-o", "name")
        assert (third.exit_code, third.stdout) == (0, "a\n")


async def test_a_cluster_that_is_lost_before_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _sites(tmp_path, monkeypatch) as sites:
        await sites.stop("east")
        made = await sites.muster("submit", sites.file("a"), *ALL)
        assert made.exit_code == 0
        assert made.stdout.startswith("cluster    west\n")
        assert "-    no server answers at" in made.stdout
        await sites.stop("west")
        again = await sites.muster("submit", sites.file("a"), *ALL)
        assert again.exit_code == 6
        assert "an earlier submit has left the job to west" in again.stderr
        assert await sites.jobs() == []
        listed = await sites.muster("jobs", *ALL)
        assert (listed.exit_code, "muster: west: no server answers" in listed.stderr) == (6, True)
        for name in ("east", "west"):
            await sites.start(name)
        found = await sites.muster("submit", sites.file("a"), *ALL, "-o", "json")
        assert json.loads(found.stdout)["is_repeat"]
        assert await sites.jobs() == [("west", "a")]


async def test_of_two_clusters_one_decides_about_a_new_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = ("--context", "east,west")
    async with _sites(tmp_path, monkeypatch) as sites:
        await sites.stop("east")
        few = await sites.muster("submit", sites.file("a"), *two)
        assert few.exit_code == 6
        assert "of 2 clusters, 2 must answer before the job is sent to one" in few.stderr
        assert "--new goes on without the others" in few.stderr
        made = await sites.muster("submit", sites.file("a"), *two, "--new")
        assert (made.exit_code, await sites.jobs()) == (0, [("west", "a")])
        await sites.stop("west")
        lost = await sites.muster("submit", sites.file("a"), *two, "--new")
        assert (lost.exit_code, "the same command without --new" in lost.stderr) == (6, True)


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_cluster_that_is_lost_while_it_is_sent_the_job_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    async with _sites(tmp_path, monkeypatch) as sites:
        loop, real = asyncio.get_running_loop(), Client.create_job

        def lost(client: Client, spec: JobSpec, request_id: str = "") -> job_pb2.Job:
            if "east" in sites.up:
                if is_made:
                    real(client, spec, request_id)
                asyncio.run_coroutine_threadsafe(sites.stop("east"), loop).result(20)
            raise LOST

        monkeypatch.setattr(Client, "create_job", lost)
        unknown = await sites.muster("submit", sites.file("a"), *ALL)
        assert unknown.exit_code == 6
        assert "east was sent the job and does not say whether it has it" in unknown.stderr
        assert "the same command, with the same clusters, finds out" in unknown.stderr
        monkeypatch.setattr(Client, "create_job", real)
        still = await sites.muster("submit", sites.file("a"), *ALL)
        assert still.exit_code == 6
        assert "an earlier submit has left the job to east, which does not answer" in still.stderr
        assert await sites.jobs() == []
        await sites.start("east")
        found = json.loads(
            (await sites.muster("submit", sites.file("a"), *ALL, "-o", "json")).stdout
        )
        assert (found["cluster"], found["is_repeat"]) == ("east", is_made)
        assert await sites.jobs() == [("east", "a")]


async def test_a_submit_that_comes_late_makes_no_second_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _sites(tmp_path, monkeypatch) as sites:
        late: list[tuple[JobSpec, str]] = []
        real = Client.create_job

        def delayed(client: Client, spec: JobSpec, request_id: str = "") -> job_pb2.Job:
            if client.address == sites.addresses["east"]:
                late.append((spec, request_id))
                raise LOST
            return real(client, spec, request_id)

        monkeypatch.setattr(Client, "create_job", delayed)
        made = await sites.muster("submit", sites.file("a"), *ALL, "-o", "json")
        assert json.loads(made.stdout)["cluster"] == "west"
        with Client(sites.addresses["east"]) as client:
            for spec, request_id in late:
                with pytest.raises(ServiceError, match="leave a to nobody"):
                    await asyncio.to_thread(real, client, spec, request_id)
        assert await sites.jobs() == [("west", "a")]


async def test_clusters_that_are_named_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _sites(tmp_path, monkeypatch) as sites:
        sites.addresses["copy"] = sites.addresses["east"].replace("127.0.0.1", "localhost")
        contexts = {each: {"address": address} for each, address in sites.addresses.items()}
        (tmp_path / "config.yaml").write_text(json.dumps({"contexts": contexts}))
        file = sites.file("a")
        for names, words in (
            ("east,nope", "has no context 'nope'; contexts: copy, east, lab, west"),
            ("east,east", "'east' is named twice"),
            ("east,copy", "east and copy are the same cluster, of fabric east"),
            (",", "names no context"),
        ):
            wrong = await sites.muster("submit", file, "--context", names)
            said = f"{wrong.output}{wrong.exception}"
            assert words in " ".join(said.replace("│", " ").split()), said
        assert await sites.jobs() == []
        big = await sites.muster("submit", sites.file("b", 9), *ALL)
        assert big.exit_code == 4
        assert "never fits" in big.stderr


async def test_nothing_is_preempted_for_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue's MultiKueue has 40 copies of a job, which preempt in every cluster (kueue#5141)."""
    from scheduler.core.policies.tenants import Preemption, PriorityClass, Tenant, Tenants

    tenants = Tenants(
        (Tenant("owner", guaranteed_gpus=8 * 8), Tenant("default")),
        classes=(PriorityClass("spot", 0, is_preemptible=True),),
        preemption=Preemption(min_run_s=0),
    )
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config.yaml"))
    job = tmp_path / "a.yaml"
    job.write_text(JOB.format("a", 2) + "tenant: owner\n")
    for name in ("full", "free"):
        (tmp_path / name).mkdir()
    settings = {"tenants": tenants, "clock": time.time_ns}
    async with (
        serving(tmp_path / "full", **settings) as full,
        serving(tmp_path / "free", **settings) as free,
    ):
        contexts = {"full": full.ready.address, "free": free.ready.address}
        (tmp_path / "config.yaml").write_text(
            json.dumps({"contexts": {name: {"address": at} for name, at in contexts.items()}})
        )
        for name in ("s1", "s2"):
            await full.stub.CreateJob(create(name, 4, priority_class="spot"))
            await full.until(name, RUNNING)
        words = ["route", "submit", str(job), "--context", "full,free"]
        made = await asyncio.to_thread(CliRunner().invoke, program.app, words)
        assert made.stdout.startswith("cluster    free\n"), made.output
        assert "1 preempted" in made.stdout
        assert "would stop other jobs" in made.stdout
        await free.until("owner/a", RUNNING)
        states = [
            (job.spec.name, job.state)
            for job in (await full.stub.ListJobs(service_pb2.ListJobsRequest())).jobs
        ]
        assert states == [("s1", RUNNING), ("s2", RUNNING)]


async def test_waiting_goes_on_while_the_cluster_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.cli.jobs.route.POLL_S", 0.1)
    async with _sites(tmp_path, monkeypatch) as sites:
        absent = await sites.muster("wait", "a", *ALL)
        assert (absent.exit_code, "no cluster has a job a" in absent.stderr) == (1, True)
        await sites.muster("submit", sites.file("a"), *ALL)
        await sites.up["east"].until("a", RUNNING)
        begun = await sites.muster("wait", "a", *ALL, "--for", "start")
        assert begun.exit_code == 0
        early = await sites.muster("wait", "a", *ALL, "--timeout", "1s")
        assert early.exit_code == 124
        said, say = list[str](), typer.echo

        def heard(message: str = "", **options: Any) -> None:
            said.append(message)
            say(message, **options)

        monkeypatch.setattr(typer, "echo", heard)
        waiting = asyncio.create_task(sites.muster("wait", "a", *ALL))
        await sites.stop("east")
        while not any("east does not answer" in text for text in said):
            await asyncio.sleep(0.02)
        assert not waiting.done()
        await sites.start("east")
        ended = service_pb2.EndJobRequest(name="a", outcome=job_pb2.JOB_STATE_COMPLETED)
        await sites.up["east"].stub.EndJob(ended)
        done = await asyncio.wait_for(waiting, 20)
        assert done.exit_code == 0
        assert "east does not answer: no server answers at" in done.stderr
        assert "completed" in done.stdout
