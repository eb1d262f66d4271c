"""Changes over the wire: updates with a mask, etags, request ids and dry runs; reports of Slurm."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from typer.testing import CliRunner, Result

from scheduler.cli import program
from scheduler.client import Client, ServiceError
from scheduler.core.model.events import Defragmented
from scheduler.v1 import host_pb2, job_pb2, service_pb2
from scheduler.wire.durations import duration
from tests.build import exactly
from tests.serving import (
    CANCELLED,
    COMPLETED,
    QUEUED,
    RUNNING,
    Served,
    create,
    logged,
    path,
    refused,
    serving,
)

Code = grpc.StatusCode


def update(name: str, *paths: str, **request: Any) -> service_pb2.UpdateJobRequest:
    spec = job_pb2.JobSpec(priority=7, labels={"team": "nlp"})
    job = job_pb2.Job(name=name, spec=spec, etag=request.pop("etag", ""))
    mask = FieldMask(paths=paths) if paths else None
    return service_pb2.UpdateJobRequest(job=job, update_mask=mask, **request)


async def waiting(served: Served) -> job_pb2.Job:
    await served.start("big", 8)
    return await served.stub.CreateJob(create("a"))


async def test_an_update_changes_what_its_mask_names(served: Served) -> None:
    before = await waiting(served)
    after = await served.stub.UpdateJob(update("a", "spec.labels"))
    both = await served.stub.UpdateJob(update("a"))
    cleared = await served.stub.UpdateJob(
        service_pb2.UpdateJobRequest(job=job_pb2.Job(name="a"), update_mask=FieldMask(paths=["*"]))
    )
    assert (after.priority, dict(after.spec.labels)) == (0, {"team": "nlp"})
    assert after.update_time.ToNanoseconds() > before.update_time.ToNanoseconds()
    assert (both.priority, both.reason != "") == (7, True)
    assert (cleared.priority, dict(cleared.spec.labels)) == (0, {})
    assert len({job.etag for job in (before, after, both, cleared)}) == 4


async def test_a_mask_names_single_labels(served: Served) -> None:
    request, long = create("a"), "v" * 256
    request.spec.labels.update({"team": "nlp", "a/b.c": "ü", "keep": long, "empty": ""})
    made = await served.stub.CreateJob(request)
    job = job_pb2.Job(name="a", spec=job_pb2.JobSpec(labels={"team": "vision", "x": "no"}))
    mask = FieldMask(paths=["spec.labels.team", "spec.labels.`a/b.c`", "spec.labels.gone"])
    change = service_pb2.UpdateJobRequest(job=job, update_mask=mask)
    after = await served.stub.UpdateJob(change)
    bad = await refused(served.stub.UpdateJob(update("a", "spec.labels.`x")))
    assert dict(made.spec.labels) == dict(request.spec.labels)
    assert dict(after.spec.labels) == {"team": "vision", "keep": long, "empty": ""}
    assert bad.fields == ("update_mask.paths[0]",)
    assert "spec.labels.KEY" in bad.message


async def test_bad_updates_name_their_field(served: Served) -> None:
    def with_spec(*paths: str, **spec: Any) -> service_pb2.UpdateJobRequest:
        request = update("a", *paths)
        request.job.spec.MergeFrom(job_pb2.JobSpec(**spec))
        return request

    await waiting(served)
    for field, request in (
        ("update_mask.paths[1]", update("a", "spec.labels", "spec.name")),
        ("update_mask", service_pb2.UpdateJobRequest(job=job_pb2.Job(name="a"))),
        ("job.spec.tenant", with_spec(tenant="x")),
        ("job.spec.labels", with_spec("spec.labels", labels={"no spaces": ""})),
        ("job.spec.labels.long", with_spec("spec.labels", labels={"long": "x" * 300})),
        ("job.spec.time_limit", with_spec("spec.time_limit", time_limit=duration(0))),
        ("job.spec.priority", with_spec("spec.priority", priority=-(2**31))),
    ):
        error = await refused(served.stub.UpdateJob(request))
        assert (error.code, error.fields) == (Code.INVALID_ARGUMENT, (field,))
    nobody = await refused(served.stub.UpdateJob(update("x", "spec.labels")))
    runs = await refused(served.stub.UpdateJob(update("big")))
    assert (nobody.code, runs.code) == (Code.NOT_FOUND, Code.FAILED_PRECONDITION)


async def test_a_change_with_an_old_etag_is_aborted_and_changes_nothing(served: Served) -> None:
    stub, old = served.stub, (await waiting(served)).etag
    new = (await stub.UpdateJob(update("a", etag=old))).etag
    for call in (  # the first one asks for the priority that the job has
        stub.UpdateJob(update("a", "spec.priority", etag="stale")),
        stub.CancelJob(service_pb2.CancelJobRequest(name="a", etag=old)),
        stub.EndJob(service_pb2.EndJobRequest(name="big", outcome=COMPLETED, etag=old)),
        stub.DrainHost(service_pb2.DrainHostRequest(name="z0-r0-h0", etag=old)),
    ):
        error = await refused(call)
        assert (error.code, error.reason) == (Code.ABORTED, "ETAG_MISMATCH")
    gone = await stub.CancelJob(service_pb2.CancelJobRequest(name="a", etag=new))
    listed = (await stub.ListHosts(service_pb2.ListHostsRequest())).hosts[0]
    request = service_pb2.CordonHostRequest(name=listed.name, etag=listed.etag)
    host = await stub.CordonHost(request)
    assert gone.state == CANCELLED
    assert host.state == host_pb2.HOST_STATE_CORDONED
    assert (host.uid, host.etag != listed.etag) == (listed.uid, True)


async def test_validate_only_answers_what_would_be_and_changes_nothing(served: Served) -> None:
    stub, before = served.stub, await waiting(served)
    cancel = service_pb2.CancelJobRequest(name="a", validate_only=True)
    end = service_pb2.EndJobRequest(name="big", outcome=COMPLETED, validate_only=True)
    host = {"name": "z0-r0-h0", "validate_only": True}
    report = service_pb2.ReportHostRequest(signal="nic-down", **host)
    assert (await stub.UpdateJob(update("a", validate_only=True))).priority == 7
    assert (await stub.CancelJob(cancel)).state == CANCELLED
    assert (await stub.EndJob(end)).state == COMPLETED
    draining = await stub.DrainHost(service_pb2.DrainHostRequest(**host))
    assert draining.state == host_pb2.HOST_STATE_DRAINING
    assert (await stub.ReportHost(report)).host.state == host_pb2.HOST_STATE_FAILED
    cancel.name = "x"
    assert (await refused(stub.CancelJob(cancel))).code is Code.NOT_FOUND
    after = await served.get("a")
    assert (await served.get("big")).state == RUNNING
    assert (after.version, after.etag, after.state) == (before.version, before.etag, QUEUED)


# --- moves over the wire -------------------------------------------------------------


async def scattered(served: Served) -> None:
    """a and b in one rack of zone 0, e in one of zone 1: a rack free in each."""
    for name, hosts in (("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 2)):
        await served.start(name, hosts)
    for name in ("c", "d"):
        await served.stub.EndJob(service_pb2.EndJobRequest(name=name, outcome=COMPLETED))


async def test_moves_are_proposed_then_made_and_the_job_starts(served: Served) -> None:
    await scattered(served)
    defragment = served.stub.Defragment
    proposed = await defragment(service_pb2.DefragmentRequest(hosts=4))
    check = service_pb2.DefragmentRequest(hosts=4, apply=True, validate_only=True)
    checked = await defragment(check)
    before = await served.get("e")
    asked = service_pb2.DefragmentRequest(hosts=4, apply=True)
    made = await defragment(asked)
    after = await served.get("e")
    large = await served.start("large", 4)
    assert (proposed.domain, proposed.free_after, proposed.applied) == ("z1", 4, False)
    assert [move.job for move in proposed.moves] == [path("e")]
    assert ([move.job for move in checked.moves], checked.applied) == ([path("e")], False)
    assert (before.attempt, after.attempt, made.applied) == (1, 2, True)
    assert [b.joined for b in made.moves[0].blocks] == list(after.placement.hosts)
    assert made.lost_gpu_hours >= proposed.lost_gpu_hours > 0
    assert {host[:2] for host in large.placement.hosts} == {"z1"}


async def test_moves_are_for_as_many_hosts_as_a_waiting_job_needs(served: Served) -> None:
    never = "no zone has 99,999 hosts, the largest has 4: no moves can ever free them together"
    await scattered(served)
    for name, hosts in (("wide", 5), ("four", 4)):
        await served.stub.CreateJob(create(name, hosts))
    answer = await served.stub.Defragment(service_pb2.DefragmentRequest(job="four"))
    assert (answer.wanted_hosts, answer.applied) == (4, False)
    for request, reason, fields, words in (
        ({"job": "wide"}, "INFEASIBLE", (), ""),
        ({"hosts": 99_999}, "INFEASIBLE", (), never),
        ({"job": "x"}, "NOT_FOUND", (), ""),
        ({}, "INVALID", ("hosts",), ""),
    ):
        error = await refused(served.stub.Defragment(service_pb2.DefragmentRequest(**request)))
        assert (error.reason, error.fields, words in error.message) == (reason, fields, True)


async def test_a_request_that_is_made_again_moves_nobody_twice(tmp_path: Path) -> None:
    ask = service_pb2.DefragmentRequest(hosts=4, apply=True, request_id="r1")
    async with serving(tmp_path) as served:
        await scattered(served)
        both = await asyncio.gather(served.stub.Defragment(ask), served.stub.Defragment(ask))
        again, first = sorted(both, key=lambda answer: len(answer.moves))
    async with serving(tmp_path) as served:
        after = await served.stub.Defragment(ask)
        moved = await served.get("e")
        other = service_pb2.DefragmentRequest(hosts=3, apply=True, request_id="r1")
        error = await refused(served.stub.Defragment(other))
    assert (len(first.moves), first.applied) == (1, True)
    assert [(len(a.moves), a.applied) for a in (again, after)] == [(0, True)] * 2
    assert moved.attempt == 2
    assert error.fields == ("request_id",)
    assert [e for e in logged(tmp_path) if isinstance(e, Defragmented)] == [
        Defragmented(ANY, first.sentence, "4 hosts", ANY)
    ]


async def test_other_moves_than_those_that_were_seen_are_not_made(served: Served) -> None:
    """As long as the moves are the same it does not matter what else happened."""
    await scattered(served)
    seen = await served.stub.Defragment(service_pb2.DefragmentRequest(hosts=4))
    host = next(iter(seen.moves[0].blocks)).joined
    await served.stub.CreateJob(create("waits", 8))
    same = await served.stub.Defragment(service_pb2.DefragmentRequest(hosts=4))
    await served.stub.CordonHost(service_pb2.CordonHostRequest(name=host))
    ask = service_pb2.DefragmentRequest(hosts=4, apply=True, etag=seen.etag)
    error = await refused(served.stub.Defragment(ask))
    stayed = await served.get("e")
    await served.stub.UncordonHost(service_pb2.UncordonHostRequest(name=host))
    made = await served.stub.Defragment(ask)
    assert same.etag == seen.etag != ""
    assert (error.code, error.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
    assert "the proposal has changed since you looked" in error.message
    assert (stayed.attempt, made.applied) == (1, True)


# --- hosts ---------------------------------------------------------------------------


async def test_hosts_name_their_domains_and_who_holds_them(served: Served) -> None:
    placement = (await served.start("a", 2, spares=exactly(1))).placement
    found = await served.hosts()
    held = await served.stub.ListHosts(service_pb2.ListHostsRequest(job="a"))
    assert list(found) == [f"z{z}-r{r}-h{h}" for z in (0, 1) for r in (0, 1) for h in (0, 1)]
    assert list(found["z1-r0-h1"].domains) == ["z1", "z1-r0"]
    assert [found[name].block for name in placement.hosts] == [0, 1]
    assert {h.name for h in held.hosts} == {*placement.hosts, *placement.spares}
    assert not found[placement.spares[0]].HasField("block")


# --- `muster report --import` --------------------------------------------------------

DRAINED = "NodeName={} State=IDLE+DRAIN Reason=disk is full [root@x]\n"
DOWN = "NodeName={} State=DOWN* Reason=no ping [root@x]\n"
IDLE = "NodeName={} State=IDLE\n"


async def imported(served: Served, folder: Path, text: str) -> Result:
    program.load_commands()
    (folder / "nodes").write_text(text)
    words = ["report", "--import", str(folder / "nodes"), "--format", "slurm"]
    env = {"MUSTER_ADDRESS": served.ready.address}
    return await asyncio.to_thread(CliRunner().invoke, program.app, words, env=env)


async def test_what_is_done_for_slurm_is_undone_when_it_has_the_node_back(
    tmp_path: Path, served: Served
) -> None:
    """Of a host in repair nothing is done: it is out of service already."""
    for name in ("z1-r0-h0", "z1-r0-h1"):
        for signal in ("gpu-lost", "ticket"):
            await served.report(name, signal)
    before = await served.hosts()
    text = DRAINED.format("z0-r0-h0") + DOWN.format("z0-r0-h1")
    text += DRAINED.format("z1-r0-h0") + DOWN.format("z1-r0-h1")
    first = await imported(served, tmp_path, text)
    after = await served.hosts()
    again = await imported(served, tmp_path, text)
    await imported(served, tmp_path, IDLE.format("z0-r0-h0") + IDLE.format("z0-r0-h1"))
    back = await served.hosts()
    assert (first.exit_code, first.stdout) == (0, "4 reports read: 1 drain, 1 host-down\n")
    assert after["z0-r0-h0"].cordon_reason == "slurm: disk is full [root@x]"
    assert after["z0-r0-h1"].state == host_pb2.HOST_STATE_FAILED
    assert again.stdout == "4 reports read: nothing to do\n"
    for name in ("z1-r0-h0", "z1-r0-h1"):
        assert before[name].state == host_pb2.HOST_STATE_IN_REPAIR
        assert after[name].update_time == before[name].update_time
        assert after[name].record.failures == before[name].record.failures == 1
        del back[name]
    assert {host.state for host in back.values()} == {host_pb2.HOST_STATE_HEALTHY}


async def test_the_rest_is_done_when_a_drain_is_refused(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has changed the host since it was listed, say."""
    drain = Client.drain_host

    def refusing(self: Client, name: str, reason: str = "") -> host_pb2.Host:
        if name == "z0-r0-h0":
            raise ServiceError("FAILED_PRECONDITION", "host z0-r0-h0 is new", "WRONG_STATE")
        return drain(self, name, reason)

    monkeypatch.setattr(Client, "drain_host", refusing)
    text = DRAINED.format("z0-r0-h0") + DRAINED.format("z0-r0-h1") + DOWN.format("z1-r0-h0")
    done = await imported(served, tmp_path, text)
    after = await served.hosts()
    assert done.exit_code == 2
    assert done.stdout == "3 reports read: 1 drain, 1 host-down\n"
    assert done.stderr == f"muster: {tmp_path}/nodes:1: State: host z0-r0-h0 is new\n"
    assert after["z0-r0-h1"].cordoned
    assert after["z1-r0-h0"].state == host_pb2.HOST_STATE_FAILED
