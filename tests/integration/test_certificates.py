"""Certificates of what a server decided: of gangs that run beside others, and of dry runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.certificate import SEALED, digest
from muster.verify import Refused, verify
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.v1 import service_pb2, window_pb2
from tests.build import exactly, job_to_mapping, spec
from tests.integration.test_rank_files import printing
from tests.serving import RUNNING, START_NS, Served, create, serving

TENANTS = Tenants((Tenant("nlp"), Tenant("vision")), "vision")


async def certified(served: Served, folder: Path) -> tuple[Any, str]:
    """The certificate that the command writes of job a, and what another says that verifies it."""
    path, printed = folder / "c.json", printing(served)
    done = await printed("job", "a", "--certificate", str(path))
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    shown = await printed("verify", str(path))
    assert shown.exit_code == 0, shown.output
    return json.loads(path.read_text()), shown.stdout


def taken_hosts(content: Any) -> set[str]:
    is_free = [value for value, count in content["free"] for _ in range(count)]
    names = content["fabric"]["hosts"]
    return {name for name, free in zip(names, is_free, strict=True) if not free}


def check_refused(content: Any, words: str, **claims: Any) -> None:
    """Other claims under digests of their own."""
    changed = {**content, "claims": {**content["claims"], **claims}}
    changed["digests"] = {part: digest(changed[part]) for part in SEALED}
    with pytest.raises(Refused, match=words):
        verify(changed)


async def test_a_gang_that_runs_beside_others_is_confirmed(tmp_path: Path, served: Served) -> None:
    """With its bound, on the hosts that were free when it started, whatever came later."""
    message = create("a", 5, spares=exactly(1))
    message.spec.compute_time.FromMilliseconds(250)
    (taken,) = (await served.start("b")).placement.hosts
    await served.stub.CreateJob(message)
    job = await served.until("a", RUNNING)
    await served.start("later")
    content, shown = await certified(served, tmp_path)
    fabric = await served.stub.GetFabric(service_pb2.GetFabricRequest())
    claims, report = content["claims"], verify(content)
    assert claims["hosts"] == list(job.placement.hosts)
    assert claims["spares"] == list(job.placement.spares)
    assert content["fabric"]["digest"] == fabric.etag
    assert taken_hosts(content) == {taken}
    bound = job.placement.lower_bound_bytes_per_step
    assert bound > 0
    assert (report.is_whole, report.bounds, report.unproved) == (True, {"zone": (bound, bound)}, [])
    assert f"a server decided it at {claims['decision']['time']}" in shown
    assert claims["decision"]["uid"] == job.uid
    assert report.step is not None
    step, confirmed, _ = report.step
    assert step == pytest.approx(job.placement.step_time.ToNanoseconds() / 1e9, rel=1e-6)
    assert step >= confirmed > 0.24
    check_refused(content, f"host {taken} is not free", hosts=[*claims["hosts"][:-1], taken])


async def test_of_a_gang_that_swapped_hosts_and_cut_are_confirmed(
    tmp_path: Path, served: Served
) -> None:
    first = list((await served.start("a", 5)).placement.hosts)
    await served.report(first[1], "host-down")
    second = await served.hosts_of("a", but=first)
    content, shown = await certified(served, tmp_path)
    assert (content["claims"]["hosts"], content["claims"]["bounds"]) == (second, [])
    assert first[1] in taken_hosts(content)
    assert "by a swap: attempt 2" in shown
    assert "  unproved no bound: a swap replaces some hosts" in shown
    assert "checked  zone cut: " in shown
    assert "zone bound" not in shown
    assert not verify(content).is_whole
    bound = {"tier": "zone", "bytes": 0, "engine_bytes": 0, "proof": {"by": "nothing"}}
    check_refused(content, "a bound is claimed for a swap", bounds=[bound])


async def test_of_a_gang_on_reserved_hosts_the_bound_is_that_of_the_hosts_it_could_have(
    tmp_path: Path,
) -> None:
    """A reservation of another tenant takes hosts away from the choice, its own does not."""
    async with serving(tmp_path, tenants=TENANTS) as served:
        for name, tenant, hosts in (("own", "vision", "z0"), ("others", "nlp", "z1-r0")):
            kind = window_pb2.WINDOW_KIND_RESERVATION
            made = window_pb2.Window(name=name, kind=kind, tenant=tenant, hosts=[hosts])
            made.start_time.FromNanoseconds(START_NS + 60 * 10**9)
            made.end_time.FromNanoseconds(START_NS + 10**15)
            await served.stub.CreateWindow(service_pb2.CreateWindowRequest(window=made))
        await served.start("a", 5)
        content, _ = await certified(served, tmp_path)
    assert taken_hosts(content) == {"z1-r0-h0", "z1-r0-h1"}
    assert verify(content).is_whole


async def test_what_closes_uplinks_and_hosts_is_in_the_certificate(
    tmp_path: Path, served: Served
) -> None:
    """A gang keeps to one side of a cordoned uplink, and its bound holds with that."""
    link, host = {"name": "z0"}, {"name": "z1-r0-h0"}
    await served.stub.CordonLink(service_pb2.CordonLinkRequest(**link))
    await served.stub.CordonHost(service_pb2.CordonHostRequest(**host))
    await served.start("a", 4)
    await served.stub.UncordonLink(service_pb2.UncordonLinkRequest(**link))
    await served.stub.UncordonHost(service_pb2.UncordonHostRequest(**host))
    content, _ = await certified(served, tmp_path)
    assert content["fabric"]["barred"] == [{"tier": "zone", "domain": 0}]
    assert taken_hosts(content) == {"z1-r0-h0"}
    assert verify(content).is_whole
    check_refused(content, "closed", hosts=["z1-r0-h1", *content["claims"]["hosts"][1:]])


async def test_jobs_without_whole_hosts_of_their_own_have_none(
    tmp_path: Path, served: Served
) -> None:
    """One clear error, and no file."""
    path, no_hosts = tmp_path / "c.json", "it holds no hosts that were decided on"
    printed = printing(served)
    await served.start("a", 8)
    await served.stub.CreateJob(create("waits", 1))
    waits = await printed("job", "waits", "--certificate", str(path))
    await served.cancel("a")
    ended = await printed("job", "a", "--certificate", str(path))
    await served.start("part", 1, gpus=4)
    part = await printed("job", "part", "--certificate", str(path))
    nobody = await printed("job", "nobody", "--certificate", str(path))
    assert not path.exists()
    assert [each.exit_code for each in (waits, ended, part, nobody)] == [2, 2, 2, 1]
    assert waits.output == f"muster: job waits is queued: {no_hosts}\n"
    assert ended.output == f"muster: job a is cancelled: {no_hosts}\n"
    assert part.output == (
        "muster: job part takes a part of a host: nothing that it sends leaves the host,"
        " and there is nothing to certify\n"
    )


async def test_what_a_dry_run_would_give_is_confirmed(tmp_path: Path, served: Served) -> None:
    path, file = tmp_path / "c.json", tmp_path / "job.yaml"
    printed = printing(served)
    (taken,) = (await served.start("b")).placement.hosts

    def submit(hosts: int, *words: str, gpus: int = 8) -> Any:
        file.write_text(json.dumps(job_to_mapping(spec("a", hosts, gpus=gpus))))
        return printed("submit", str(file), "--certificate", str(path), *words)

    waits = await submit(8, "--dry-run")
    assert (waits.exit_code, path.exists()) == (3, False), waits.output
    assert waits.stderr == "note: nothing is placed, so there is no certificate\n"
    assert "\nstarts " in waits.stdout
    part = await submit(1, "--dry-run", gpus=4)
    assert (part.exit_code, path.exists()) == (2, False)
    assert "would take a part of a host" in part.stderr
    placed = await submit(5, "--dry-run")
    assert (placed.exit_code, placed.stderr) == (0, "")
    shown = await printed("verify", str(path))
    real = await submit(5)
    assert (shown.exit_code, "a server answered it to a dry run at" in shown.stdout) == (0, True)
    assert "checked  zone bound" in shown.stdout
    assert taken_hosts(json.loads(path.read_text())) == {taken}
    assert (real.exit_code, "needs --dry-run" in real.stderr) == (2, True)
