"""Moves over the wire: proposed, made when asked, all or none."""

from __future__ import annotations

from pathlib import Path

from scheduler.v1 import service_pb2
from tests.serving import COMPLETED, RUNNING, Served, create, refused, serving


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
        asked = service_pb2.DefragmentRequest(hosts=4, apply=True, restart_s=600)
        made = await served.stub.Defragment(asked)
        after = await served.get("e")
        await served.stub.CreateJob(create("large", 4))
        large = await served.until("large", RUNNING)
    assert (proposed.domain, proposed.free_after, proposed.applied) == ("z1", 4, False)
    assert [move.job for move in proposed.moves] == ["e"]
    assert (before.attempt, after.attempt, made.applied) == (1, 2, True)
    assert [b.joined for b in made.moves[0].blocks] == list(after.placement.hosts)
    assert made.lost_gpu_hours > proposed.lost_gpu_hours > 0
    assert {host[:2] for host in large.placement.hosts} == {"z1"}


async def test_as_many_hosts_as_a_waiting_job_needs(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await scattered(served)
        await served.stub.CreateJob(create("wide", 5))
        answer = await served.stub.Defragment(service_pb2.DefragmentRequest(job="wide", apply=True))
        nobody = await refused(served.stub.Defragment(service_pb2.DefragmentRequest(job="x")))
        nothing = await refused(served.stub.Defragment(service_pb2.DefragmentRequest()))
        negative = await refused(
            served.stub.Defragment(service_pb2.DefragmentRequest(hosts=1, restart_s=-1))
        )
    assert (answer.wanted_hosts, answer.applied) == (5, False)
    assert answer.sentence == "no zone has 5 hosts in service"
    assert nobody.reason == "NOT_FOUND"
    assert nothing.fields == ("hosts",)
    assert negative.fields == ("restart_s",)
