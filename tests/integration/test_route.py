"""`muster route submit` over real servers, in the clear and with TLS and tokens of their own.

`pytest tests/integration/test_route.py --rewrite` writes the transcript of docs/route.md anew.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scheduler.cli import program
from scheduler.client import Client, ServiceError
from scheduler.core import JobSpec
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.files.errors import InputError
from scheduler.v1 import job_pb2, service_pb2
from tests.build import fabric_spec
from tests.commands import quick_retries
from tests.secured import House
from tests.serving import Served, serving

JOB = "name: {}\nparallelism: {{tp: 8, dp: {}}}\ntraffic: {{dp: 10}}\nspares: 0\n"
ALL = ("--context", "east,west,lab")
LOST = ServiceError("UNAVAILABLE", "the answer was lost")
TENANTS = Tenants((Tenant("vision"), Tenant("nlp")), "vision")
BOTH = ("--context", "east,west")


@dataclass
class Sites:
    """Clusters by name, and the contexts that name them, as the file of this user has them."""

    folder: Path
    stack: AsyncExitStack
    up: dict[str, Served] = field(default_factory=dict)
    contexts: dict[str, dict[str, str]] = field(default_factory=dict)

    async def start(self, name: str, keys: dict[str, str] | None = None, **settings: Any) -> None:
        """`keys`: of its context, besides the address. `settings`: as of `serving`."""
        folder, given = self.folder / name, {"fabric_spec": fabric_spec(name=name), **settings}
        folder.mkdir(exist_ok=True)
        served = serving(folder, clock=time.time_ns, **given)
        self.up[name] = await self.stack.enter_async_context(served)
        self.contexts[name] = {"address": self.up[name].ready.address, **(keys or {})}
        self.write()

    async def start_secured(self, name: str, *, mtls: bool = False) -> None:
        """One with a certificate of its own authority, which lets ada submit for vision."""
        folder = self.folder / name
        folder.mkdir()
        house = House(folder)
        (folder / "token").write_text(house.token("ada", "submitter", "vision") + "\n")
        (folder / "token").chmod(0o600)
        house.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        keys = {"ca": f"{name}/ca.pem", "token_file": f"{name}/token"}
        shown = house.client_ca.issue_cert("ada@example.com") if mtls else None
        if shown is not None:
            shown.private_key_pem.write_to_path(str(folder / "ada-key.pem"))
            shown.cert_chain_pems[0].write_to_path(str(folder / "ada.pem"))
            keys |= {"cert": f"{name}/ada.pem", "key": f"{name}/ada-key.pem"}
        await self.start(
            name,
            keys,
            channel=lambda address: house.channel(address, shown),
            access=house.access(mtls=mtls),
            tenants=TENANTS,
        )

    def write(self) -> None:
        (self.folder / "config.yaml").write_text(json.dumps({"contexts": self.contexts}))

    async def stop(self, name: str) -> None:
        served = self.up.pop(name)
        served.stop.set()
        await served.task

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
async def empty_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sites]:
    """No cluster yet."""
    monkeypatch.setenv("MUSTER_CONFIG", str(tmp_path / "config.yaml"))
    quick_retries(monkeypatch)
    async with AsyncExitStack() as stack:
        yield Sites(tmp_path, stack)


@pytest.fixture
async def sites(empty_sites: Sites) -> Sites:
    """Three of eight hosts each."""
    for name in ("east", "west", "lab"):
        await empty_sites.start(name)
    return empty_sites


async def test_one_cluster_gets_the_job_and_the_others_none(sites: Sites) -> None:
    await sites.up["east"].start("full", 7)
    file = sites.file("a")
    offers = await sites.muster("submit", file, *ALL, "--dry-run", "-o", "json")
    body = json.loads(offers.stdout)
    assert offers.exit_code == 0
    assert body["cluster"] == "west"
    whys = {each["name"]: each["why"] for each in body["clusters"]}
    assert whys["west"] == "best"
    assert whys["lab"] == "-"
    assert "needs 2 hosts" in whys["east"]
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


async def test_clusters_that_are_named_wrongly(sites: Sites) -> None:
    sites.contexts["copy"] = sites.contexts["east"]
    sites.write()
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


# --- clusters that ask who calls ---------------------------------------------------------------


async def test_who_is_not_let_in_by_a_cluster_is_told_and_the_job_goes_nowhere_unsure(
    empty_sites: Sites,
) -> None:
    """West has another token, then another authority, then a caller without a certificate."""
    await empty_sites.start_secured("east")
    await empty_sites.start_secured("west", mtls=True)
    file, west = empty_sites.file("a", 3), dict(empty_sites.contexts["west"])
    texts = []
    for changed in (
        west | {"token_file": "east/token"},
        west | {"ca": "east/ca.pem"},
        {key: west[key] for key in ("address", "ca", "token_file")},
    ):
        empty_sites.contexts["west"] = changed
        empty_sites.write()
        asked = await empty_sites.muster("submit", file, *BOTH, "--dry-run")
        refused = await empty_sites.muster("submit", file, *BOTH)
        assert refused.exit_code == 6, refused.output
        assert asked.exit_code == 0, asked.output
        texts.append((asked.stdout, refused.stderr))
    empty_sites.contexts["west"] = west | {"token_file": "nowhere/token"}
    empty_sites.write()
    missing = await empty_sites.muster("submit", file, *BOTH)
    empty_sites.contexts["west"] = west
    empty_sites.write()
    made = await empty_sites.muster("submit", file, *BOTH, "-o", "name")
    again = await empty_sites.muster("submit", file, *BOTH, "-o", "json")
    for asked_text, refused_text in texts:
        assert "east" in asked_text
        assert "west: " in refused_text
        for text in (asked_text, refused_text):
            assert "Traceback" not in text
            assert (empty_sites.folder / "east" / "token").read_text().strip() not in text
    assert isinstance(missing.exception, InputError)
    assert str(missing.exception).endswith("nowhere/token: no such file")
    assert (made.exit_code, made.stdout, made.stderr) == (0, "vision/a\n", ""), made.output
    found = json.loads(again.stdout)
    assert (found["cluster"], found["is_repeat"]) == ("east", True)


# --- the page ----------------------------------------------------------------------------------


PAGE = Path(__file__).parents[2] / "docs" / "route.md"
TRANSCRIPT = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
GONE_FROM = 3  # the block before which the second cluster is lost
SIZES = {"east": (4, 7), "west": (4, 1), "lab": (1, 1)}
STEPPED = """\
name: {}
parallelism: {{tp: 8, pp: 2, dp: 6}}
model: {{layers: 32, hidden: 4096, ffn: 14336, heads: 32, kv_heads: 8, vocab: 128256,
        sequence: 8192}}
batch: {{global_sequences: 48}}
spares: 0
"""


async def test_the_transcript_is_what_is_printed(
    empty_sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = TRANSCRIPT.findall(text)
    monkeypatch.chdir(tmp_path)
    for name in ("train", "second"):
        (tmp_path / f"{name}.yaml").write_text(STEPPED.format(name))
    printed: list[str] = []
    for name, (hosts, oversubscription) in SIZES.items():
        spec = fabric_spec(hosts=hosts, oversubscription=oversubscription, name=name)
        await empty_sites.start(name, fabric_spec=spec)
    for number, block in enumerate(blocks):
        if number == GONE_FROM:
            await empty_sites.stop("west")
        command = block.splitlines()[0]
        result = await empty_sites.muster(*shlex.split(command.removeprefix("$ muster route ")))
        said = re.sub(r"127\.0\.0\.1:\d+", "10.0.2.1:7443", result.output)
        ending = f"$ echo $?\n{result.exit_code}\n" if result.exit_code else ""
        printed.append(f"{command}\n{said}{ending}")
    answers = iter(printed)
    now = TRANSCRIPT.sub(lambda _: next(answers), text)
    assert len(printed) == now.count("$ muster ") == 4
    if pytestconfig.getoption("--rewrite"):
        PAGE.write_text(now, encoding="utf-8")
    else:
        assert now == text
