"""Certificates of what a server decided: of gangs that run beside others, and of dry runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.certificate import SEALED, digest
from muster.verify import Refused, verify
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.files.job import job_to_mapping
from scheduler.v1 import service_pb2, window_pb2
from tests.build import exactly, spec
from tests.integration.test_rank_files import printing
from tests.serving import RUNNING, START_NS, create, serving

TENANTS = Tenants((Tenant("nlp"), Tenant("vision")), "vision")


def certified(path: Path) -> Any:
    return json.loads(path.read_text())


def sealed(content: Any) -> Any:
    content["digests"] = {part: digest(content[part]) for part in SEALED}
    return content


def free_hosts(content: Any) -> set[str]:
    is_free = [value for value, count in content["free"] for _ in range(count)]
    names = content["fabric"]["hosts"]
    return {name for name, free in zip(names, is_free, strict=True) if free}


async def test_a_gang_that_runs_beside_others_is_confirmed(tmp_path: Path) -> None:
    """With its bound, on the hosts that were free when it started, whatever came later."""
    path = tmp_path / "c.json"
    async with serving(tmp_path) as served:
        printed = printing(served)
        await served.stub.CreateJob(create("b", 1))
        (taken,) = (await served.until("b", RUNNING)).placement.hosts
        await served.stub.CreateJob(create("a", 5, spares=exactly(1)))
        job = await served.until("a", RUNNING)
        await served.stub.CreateJob(create("later", 1))
        await served.until("later", RUNNING)
        done = await printed("job", "a", "--certificate", str(path))
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        fabric = await served.stub.GetFabric(service_pb2.GetFabricRequest())
        shown = await printed("verify", str(path))
        answer = json.loads((await printed("verify", str(path), "-o", "json")).stdout)
    content = certified(path)
    assert content["claims"]["hosts"] == list(job.placement.hosts)
    assert content["claims"]["spares"] == list(job.placement.spares)
    assert content["fabric"]["digest"] == fabric.etag
    assert free_hosts(content) == set(content["fabric"]["hosts"]) - {taken}
    bound = job.placement.lower_bound_bytes_per_step
    assert bound > 0
    told = {"confirmed_bytes_per_step": bound, "claimed_bytes_per_step": bound}
    assert (answer["is_whole"], answer["bounds"], answer["unproved"]) == (True, {"zone": told}, [])
    assert shown.exit_code == 0
    assert f"a server decided it at {content['claims']['decision']['time']}" in shown.stdout
    assert content["claims"]["decision"]["uid"] == job.uid
    other = [*content["claims"]["hosts"][:-1], taken]
    for claims, words in (
        ({"hosts": other}, f"host {taken} is not free"),
        ({"bounds": [{**content["claims"]["bounds"][0], "bytes": bound + 1}]}, "bounds of zone"),
    ):
        changed = {**content, "claims": {**content["claims"], **claims}}
        with pytest.raises(Refused, match="claims does not have the digest"):
            verify(changed)
        with pytest.raises(Refused, match=words):
            verify(sealed(changed))


async def test_of_a_gang_that_swapped_hosts_and_cut_are_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    async with serving(tmp_path) as served:
        printed = printing(served)
        await served.stub.CreateJob(create("a", 5))
        first = await served.hosts_of("a")
        report = service_pb2.ReportHostRequest(name=first[1], signal="host-down")
        await served.stub.ReportHost(report)
        second = await served.hosts_of("a", but=first)
        done = await printed("job", "a", "--certificate", str(path))
        assert done.exit_code == 0, done.output
        shown = await printed("verify", str(path))
        answer = json.loads((await printed("verify", str(path), "-o", "json")).stdout)
    content = certified(path)
    assert (content["claims"]["hosts"], content["claims"]["bounds"]) == (second, [])
    assert first[1] not in free_hosts(content)
    assert shown.exit_code == 0, shown.output
    assert "by a swap: attempt 2" in shown.stdout
    assert "  unproved no bound: a swap replaces some hosts" in shown.stdout
    assert "checked  zone cut: " in shown.stdout
    assert "zone bound" not in shown.stdout
    assert not answer["is_whole"]
    content["claims"]["bounds"] = [
        {"tier": "zone", "bytes": 0, "engine_bytes": 0, "proof": {"by": "nothing"}}
    ]
    with pytest.raises(Refused, match="a bound is claimed for a swap"):
        verify(sealed(content))


async def test_of_a_gang_on_reserved_hosts_the_bound_is_that_of_the_hosts_it_could_have(
    tmp_path: Path,
) -> None:
    """A reservation of another tenant takes hosts away from the choice, its own does not."""
    path = tmp_path / "c.json"
    async with serving(tmp_path, tenants=TENANTS) as served:
        printed = printing(served)
        for name, tenant, hosts in (("own", "vision", "z0"), ("others", "nlp", "z1-r0")):
            kind = window_pb2.WINDOW_KIND_RESERVATION
            made = window_pb2.Window(name=name, kind=kind, tenant=tenant, hosts=[hosts])
            made.start_time.FromNanoseconds(START_NS + 60 * 10**9)
            made.end_time.FromNanoseconds(START_NS + 10**15)
            await served.stub.CreateWindow(service_pb2.CreateWindowRequest(window=made))
        await served.stub.CreateJob(create("a", 5))
        await served.until("a", RUNNING)
        done = await printed("job", "a", "--certificate", str(path))
        assert done.exit_code == 0, done.output
        shown = await printed("verify", str(path))
    content = certified(path)
    reserved = {name for name in content["fabric"]["hosts"] if name.startswith("z1-r0")}
    assert set(content["fabric"]["hosts"]) - free_hosts(content) == reserved
    assert shown.exit_code == 0, shown.output
    assert verify(content).is_whole
    content["claims"]["hosts"][-1] = min(reserved)
    with pytest.raises(Refused, match="is not free"):
        verify(sealed(content))


async def test_the_step_of_a_gang_that_runs_is_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    async with serving(tmp_path) as served:
        printed = printing(served)
        message = create("a", 5)
        message.spec.compute_time.FromMilliseconds(250)
        await served.stub.CreateJob(message)
        job = await served.until("a", RUNNING)
        done = await printed("job", "a", "--certificate", str(path))
        assert done.exit_code == 0, done.output
        answer = json.loads((await printed("verify", str(path), "-o", "json")).stdout)
    step = job.placement.step_time.ToNanoseconds() / 1e9
    assert step >= 0.25
    assert answer["step"]["seconds"] == pytest.approx(step, rel=1e-6)
    assert answer["step"]["confirmed_lower_bound_seconds"] > 0.24


async def test_what_closes_uplinks_and_hosts_is_in_the_certificate(tmp_path: Path) -> None:
    """A gang keeps to one side of a cordoned uplink, and its bound holds with that."""
    path = tmp_path / "c.json"
    async with serving(tmp_path) as served:
        printed = printing(served)
        await served.stub.CordonLink(service_pb2.CordonLinkRequest(name="z0"))
        await served.stub.CordonHost(service_pb2.CordonHostRequest(name="z1-r0-h0"))
        await served.stub.CreateJob(create("a", 4))
        await served.until("a", RUNNING)
        await served.stub.UncordonLink(service_pb2.UncordonLinkRequest(name="z0"))
        await served.stub.UncordonHost(service_pb2.UncordonHostRequest(name="z1-r0-h0"))
        done = await printed("job", "a", "--certificate", str(path))
        assert done.exit_code == 0, done.output
    content = certified(path)
    assert content["fabric"]["barred"] == [{"tier": "zone", "domain": 0}]
    assert set(content["fabric"]["hosts"]) - free_hosts(content) == {"z1-r0-h0"}
    assert verify(content).is_whole
    content["claims"]["hosts"][0] = "z1-r0-h1"
    with pytest.raises(Refused, match="closed"):
        verify(sealed(content))


async def test_jobs_without_whole_hosts_of_their_own_have_none(tmp_path: Path) -> None:
    """One clear error, and no file."""
    path = tmp_path / "c.json"
    async with serving(tmp_path) as served:
        printed = printing(served)
        await served.stub.CreateJob(create("a", 8))
        await served.until("a", RUNNING)
        await served.stub.CreateJob(create("waits", 1))
        waits = await printed("job", "waits", "--certificate", str(path))
        await served.stub.CancelJob(service_pb2.CancelJobRequest(name="a"))
        ended = await printed("job", "a", "--certificate", str(path))
        await served.until("waits", RUNNING)
        await served.stub.CreateJob(create("part", 1, gpus=4))
        await served.until("part", RUNNING)
        part = await printed("job", "part", "--certificate", str(path))
        nobody = await printed("job", "nobody", "--certificate", str(path))
    assert not path.exists()
    answers = [(each.exit_code, each.stdout, each.stderr) for each in (waits, ended, part)]
    assert answers == [
        (2, "", "muster: job waits is queued: it holds no hosts that were decided on\n"),
        (2, "", "muster: job a is cancelled: it holds no hosts that were decided on\n"),
        (
            2,
            "",
            "muster: job part takes a part of a host: nothing that it sends leaves the host,"
            " and there is nothing to certify\n",
        ),
    ]
    assert (nobody.exit_code, nobody.stdout) == (1, "")


async def test_what_a_dry_run_would_give_is_confirmed(tmp_path: Path) -> None:
    path, file = tmp_path / "c.json", tmp_path / "job.yaml"
    async with serving(tmp_path) as served:
        printed = printing(served)
        await served.stub.CreateJob(create("b", 1))
        (taken,) = (await served.until("b", RUNNING)).placement.hosts

        def submit(hosts: int, gpus: int = 8) -> Any:
            file.write_text(json.dumps(job_to_mapping(spec("a", hosts, gpus=gpus))))
            words = ("submit", str(file), "--dry-run", "--certificate", str(path))
            return printed(*words)

        waits = await submit(8)
        assert (waits.exit_code, path.exists()) == (3, False), waits.output
        assert waits.stderr == "note: nothing is placed, so there is no certificate\n"
        part = await submit(1, gpus=4)
        assert (part.exit_code, path.exists()) == (2, False)
        assert "would take a part of a host" in part.stderr
        placed = await submit(5)
        assert (placed.exit_code, placed.stderr) == (0, "")
        shown = await printed("verify", str(path))
        real = await printed("submit", str(file), "--certificate", str(path))
    assert (shown.exit_code, "a server answered it to a dry run at" in shown.stdout) == (0, True)
    assert "checked  zone bound" in shown.stdout
    assert free_hosts(certified(path)) == set(certified(path)["fabric"]["hosts"]) - {taken}
    assert (real.exit_code, "needs --dry-run" in real.stderr) == (2, True)
