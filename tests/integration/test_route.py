"""`muster route submit` over real servers."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
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


@pytest.fixture
async def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sites]:
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config.yaml"))
    quick_retries(monkeypatch)
    sites = Sites(tmp_path)
    for name in ("east", "west", "lab"):
        await sites.start(name)
    yield sites
    for name in list(sites.up):
        await sites.stop(name)


async def test_one_cluster_gets_the_job_and_the_others_none(sites: Sites) -> None:
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
    changed = sites.file("a", 3)
    other = await sites.muster("submit", changed, *ALL)
    assert other.exit_code == 1
    assert "west: it knows this request from another job file" in other.stderr
    named = await sites.muster("submit", changed, *ALL, "--request-id", "second")
    assert (named.exit_code, "west: a job a is running already" in named.stderr) == (1, True)
    await sites.up["west"].stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
    over = await sites.muster("submit", sites.file("a"), *ALL)
    assert "(cancelled now)" in over.stdout
    third = await sites.muster("submit", file, *ALL, "--request-id", "third", "-o", "name")
    assert (third.exit_code, third.stdout) == (0, "a\n")


async def test_nothing_is_sent_while_a_cluster_is_silent(sites: Sites) -> None:
    await sites.stop("lab")
    silent = await sites.muster("submit", sites.file("a"), *ALL)
    assert silent.exit_code == 6
    assert "a cluster that does not answer may have the job; lab: no server" in silent.stderr
    assert await sites.jobs() == []
    two = await sites.muster("submit", sites.file("a"), "--context", "east,west")
    assert (two.exit_code, await sites.jobs()) == (0, [("east", "a")])
    again = await sites.muster("submit", sites.file("a"), *ALL, "-o", "json")
    assert json.loads(again.stdout)["is_repeat"]


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_submit_whose_answer_is_lost_makes_one_job(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    real = Client.create_job

    def lost(client: Client, spec: JobSpec, request_id: str = "") -> job_pb2.Job:
        if is_made:
            real(client, spec, request_id)
        raise LOST

    monkeypatch.setattr(Client, "create_job", lost)
    unknown = await sites.muster("submit", sites.file("a"), *ALL)
    assert unknown.exit_code == 6
    assert "east was sent the job and does not say whether it has it" in unknown.stderr
    assert "the same command, with the same clusters, finds out" in unknown.stderr
    monkeypatch.setattr(Client, "create_job", real)
    found = json.loads((await sites.muster("submit", sites.file("a"), *ALL, "-o", "json")).stdout)
    assert (found["cluster"], found["is_repeat"]) == ("east", is_made)
    assert await sites.jobs() == [("east", "a")]


async def test_clusters_that_are_named_wrongly(sites: Sites, tmp_path: Path) -> None:
    contexts = {each: {"address": address} for each, address in sites.addresses.items()}
    contexts["copy"] = contexts["east"]
    (tmp_path / "config.yaml").write_text(json.dumps({"contexts": contexts}))
    file = sites.file("a")
    for names, words in (
        ("east,nope", "has no context 'nope'; contexts: copy, east, lab, west"),
        ("east,east", "'east' is named twice"),
        ("east,copy", "east and copy are the same cluster, 127.0.0.1:"),
        (",", "names no context"),
    ):
        wrong = await sites.muster("submit", file, "--context", names)
        said = f"{wrong.output}{wrong.exception}"
        assert words in " ".join(said.replace("│", " ").split()), said
    assert await sites.jobs() == []
    big = await sites.muster("submit", sites.file("b", 9), *ALL)
    assert big.exit_code == 4
    assert "never fits" in big.stderr
