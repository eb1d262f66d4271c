"""Moves over the wire: proposed, made when asked, all or none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import ANY

import grpc

from scheduler.core.model.events import Defragmented
from scheduler.v1 import service_pb2
from scheduler.wire.durations import duration
from tests.serving import COMPLETED, RUNNING, Served, create, logged, path, refused, serving


async def scattered(served: Served) -> None:
    """a and b in one rack of zone 0, e in one of zone 1: a rack free in each."""
    for name, hosts in (("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 2)):
        await served.stub.CreateJob(create(name, hosts))
        await served.until(name, RUNNING)
    for name in ("c", "d"):
        await served.stub.EndJob(service_pb2.EndJobRequest(name=name, outcome=COMPLETED))


async def test_moves_are_proposed_then_made_and_the_job_starts(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await scattered(served)
        proposed = await served.stub.Defragment(service_pb2.DefragmentRequest(hosts=4))
        before = await served.get("e")
        asked = service_pb2.DefragmentRequest(hosts=4, apply=True, restart_duration=duration(600))
        made = await served.stub.Defragment(asked)
        after = await served.get("e")
        await served.stub.CreateJob(create("large", 4))
        large = await served.until("large", RUNNING)
    assert (proposed.domain, proposed.free_after, proposed.applied) == ("z1", 4, False)
    assert [move.job for move in proposed.moves] == [path("e")]
    assert (before.attempt, after.attempt, made.applied) == (1, 2, True)
    assert [b.joined for b in made.moves[0].blocks] == list(after.placement.hosts)
    assert made.lost_gpu_hours > proposed.lost_gpu_hours > 0
    assert {host[:2] for host in large.placement.hosts} == {"z1"}


async def test_as_many_hosts_as_a_waiting_job_needs(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await scattered(served)
        await served.stub.CreateJob(create("wide", 5))
        wide = await refused(served.stub.Defragment(service_pb2.DefragmentRequest(job="wide")))
        await served.stub.CreateJob(create("four", 4))
        answer = await served.stub.Defragment(service_pb2.DefragmentRequest(job="four"))
        nobody = await refused(served.stub.Defragment(service_pb2.DefragmentRequest(job="x")))
        nothing = await refused(served.stub.Defragment(service_pb2.DefragmentRequest()))
        never = await refused(served.stub.Defragment(service_pb2.DefragmentRequest(hosts=99_999)))
        negative = await refused(
            served.stub.Defragment(
                service_pb2.DefragmentRequest(hosts=1, restart_duration=duration(-1))
            )
        )
    assert wide.reason == "INFEASIBLE"
    assert (answer.wanted_hosts, answer.applied) == (4, False)
    assert (never.reason, never.code) == ("INFEASIBLE", grpc.StatusCode.FAILED_PRECONDITION)
    assert never.message == (
        "no zone has 99,999 hosts, the largest has 4: no moves can ever free them together"
    )
    assert nobody.reason == "NOT_FOUND"
    assert nothing.fields == ("hosts",)
    assert negative.fields == ("restart_duration",)


async def test_a_request_that_is_made_again_moves_nobody_twice(tmp_path: Path) -> None:
    ask = service_pb2.DefragmentRequest(hosts=4, apply=True, request_id="r1")
    async with serving(tmp_path) as served:
        await scattered(served)
        first = await served.stub.Defragment(ask)
        again = await served.stub.Defragment(ask)
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


async def test_the_same_request_twice_at_once_moves_once(tmp_path: Path) -> None:
    ask = service_pb2.DefragmentRequest(hosts=4, apply=True, request_id="r1")
    async with serving(tmp_path) as served:
        await scattered(served)
        both = await asyncio.gather(served.stub.Defragment(ask), served.stub.Defragment(ask))
        moved = await served.get("e")
    assert sorted((len(a.moves), a.applied) for a in both) == [(0, True), (1, True)]
    assert moved.attempt == 2


async def test_only_checked_nobody_moves(tmp_path: Path) -> None:
    ask = service_pb2.DefragmentRequest(hosts=4, apply=True, validate_only=True)
    async with serving(tmp_path) as served:
        await scattered(served)
        checked = await served.stub.Defragment(ask)
        moved = await served.get("e")
    assert ([move.job for move in checked.moves], checked.applied) == ([path("e")], False)
    assert moved.attempt == 1


async def test_other_moves_than_those_that_were_seen_are_not_made(tmp_path: Path) -> None:
    """As long as the moves are the same it does not matter what else happened."""
    async with serving(tmp_path) as served:
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
