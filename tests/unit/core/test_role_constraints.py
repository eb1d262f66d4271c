"""Gangs whose roles have constraints: where they start, wait and go on."""

from __future__ import annotations

from typing import Any

import pytest

from placement.workload.segments import parted
from scheduler.core import Job, JobSpec, JobState, Rejected, SchedulingOptions, State, admit, replay
from scheduler.core.commit.commit import Conflict
from scheduler.core.defrag.proposal import propose
from scheduler.core.explain.explain import explain
from scheduler.core.model.commands import ResizeJob, SubmitJob
from scheduler.core.policies.costs import Costs
from scheduler.core.queue.requested_size import carried_out, plan_resize
from scheduler.files.job import job_from_mapping
from tests.build import HOUR_NS, end, fabric, fail, job, loaded, run, schedule, started, submit

F = fabric(zones=2, racks=2, hosts=4)
OPTIONS = SchedulingOptions()
SHAPE: dict[str, Any] = {"parallelism": {"tp": 8, "dp": 3}}
LEARNER = {**SHAPE, "name": "learner", "same": "rack"}
ANYWHERE: dict[str, Any] = {"name": "rollout", "parallelism": {"tp": 8, "pp": 2, "dp": 2}}
ANYWHERE |= {"within": {"pp": "rack"}, "avoid": {"rack": ["learner"]}}
ROLLOUT = {**ANYWHERE, "beside": {"zone": ["learner"]}}


def gang(*roles: dict[str, Any], spares: int = 0, name: str = "a") -> JobSpec:
    return job_from_mapping({"name": name, "spares": spares, "roles": [*roles]})


def racks(running: Job, first: int, end: int) -> set[str]:
    return {F.hosts[host].rpartition("-")[0] for host in running.hosts[first:end]}


def kept(state: State, name: str = "a") -> Job:
    running = job(state, name)
    assert running.state is JobState.RUNNING, running.reason
    assert parted(F, running.request, running.hosts) == []
    return running


def test_roles_start_in_one_rack_each_beside_each_other_and_apart() -> None:
    running = kept(started(loaded(F), SubmitJob(gang(LEARNER, ROLLOUT), "u")))
    learner, rollout = racks(running, 0, 3), racks(running, 3, 7)
    assert len(learner) == 1
    assert not learner & rollout
    assert {rack[:2] for rack in learner | rollout} == {min(learner)[:2]}


def test_gang_waits_for_room_for_a_role_and_says_which() -> None:
    state = loaded(F)
    for n in range(4):  # two hosts of each rack are free
        state = run(state, fail(f"z{n // 2}-r{n % 2}-h0"), fail(f"z{n // 2}-r{n % 2}-h1"))
    state = schedule(run(state, SubmitJob(gang(LEARNER, ANYWHERE), "u")))
    assert job(state, "a").state is JobState.QUEUED
    said = explain(state, "a", HOUR_NS, OPTIONS).sentence
    assert "role learner needs 3 hosts in one rack: at most 2 in one rack" in said


def test_constraint_that_the_empty_fabric_cannot_keep_is_refused_at_submit() -> None:
    state = loaded(F)
    wide = {**LEARNER, "parallelism": {"tp": 8, "dp": 5}}
    refusal = admit(state, SubmitJob(gang(wide, {"name": "x", "parallelism": {"tp": 8}}), "u"), 0)
    assert isinstance(refusal, Rejected)
    assert refusal.message.endswith(
        "16 in all, role learner needs 5 hosts in one rack: at most 4 in one rack"
    )
    near = {**SHAPE, "name": "learner", "avoid": {"rack": ["x"]}, "beside": {"rack": ["x"]}}
    refusal = admit(state, SubmitJob(gang(near, {"name": "x", "parallelism": {"tp": 8}}), "u"), 0)
    assert isinstance(refusal, Rejected)
    assert "not for all of them as their constraints ask" in refusal.message


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [("same", "row", "roles.0.same"), ("beside", {"row": ["x"]}, "roles.0.beside.row"),
     ("within", {"dp": "row"}, "roles.0.within.dp"), ("segment", 2, "roles.0.segment")],
)  # fmt: skip
def test_key_of_a_role_that_the_fabric_cannot_have_is_named(
    key: str, value: Any, field: str
) -> None:
    role = {"name": "a", "parallelism": {"tp": 8, "dp": 3}, key: value}
    spec = gang(role, {"name": "x", "parallelism": {"tp": 8}})
    refusal = admit(loaded(F), SubmitJob(spec, "u"), 0)
    assert isinstance(refusal, Rejected)
    assert [each.field for each in refusal.violations] == [field]


def test_gang_waits_where_no_host_keeps_the_constraint_of_its_role() -> None:
    state = started(
        loaded(fabric(zones=1, racks=2, hosts=4)), SubmitJob(gang(LEARNER, ROLLOUT), "u")
    )
    first = job(state, "a").hosts[0]
    own = [host for host in range(8) if host // 4 == first // 4]
    free = next(host for host in own if host not in job(state, "a").hosts)
    state = run(state, fail(F.hosts[free]), fail(F.hosts[first]))
    waits = job(schedule(state), "a")
    assert waits.state is JobState.QUEUED
    assert "no host to swap in (1 failed, 0 to swap in)" in waits.reason


def test_resized_role_keeps_its_constraint() -> None:
    shape = {"name": "rollout", "parallelism": {"tp": 8, "dp": 2}, "same": "rack"}
    state = started(loaded(F), SubmitJob(gang({**SHAPE, "name": "learner"}, shape), "u"))
    for dp, fits in ((4, True), (5, False)):
        wanted = ResizeJob("a", "rollout", dp)
        plan = plan_resize(state, wanted, HOUR_NS, OPTIONS)
        answer = carried_out(plan, wanted, state.version, state, HOUR_NS)
        assert not isinstance(answer, Conflict)
        assert isinstance(answer, Rejected) != fits
        if not isinstance(answer, Rejected):
            state = replay(answer, state)
    assert len(kept(state).hosts) == 7
    assert len(racks(kept(state), 3, 7)) == 1


def test_elastic_role_starts_with_as_many_replicas_as_its_rack_has_room_for() -> None:
    elastic = {"name": "rollout", "parallelism": {"tp": 8, "dp": {"min": 1, "max": 4}}}
    elastic |= {"same": "rack", "avoid": {"rack": ["learner"]}}
    state = loaded(fabric(zones=1, racks=2, hosts=4))
    state = started(
        run(state, fail("z0-r0-h0"), fail("z0-r1-h0")), SubmitJob(gang(LEARNER, elastic), "u")
    )
    assert job(state, "a").dp == 3


def test_waiting_gang_reserves_hosts_on_which_its_role_has_room() -> None:
    """Two racks have two free hosts each; a long job leaves those of the rack that is free first to
    the learner."""
    state = started(loaded(F), *(submit(f"b{n}", 2, limit_s=3600 * (n + 1)) for n in range(8)))
    first = racks(job(state, "b0"), 0, 2)
    beside = next(n for n in range(1, 8) if racks(job(state, f"b{n}"), 0, 2) == first)
    elsewhere = next(n for n in range(7, 0, -1) if racks(job(state, f"b{n}"), 0, 2) != first)
    state = run(state, end(f"b{beside}"), end(f"b{elsewhere}"))
    long = submit("long", 2, limit_s=40 * 3600)
    state = schedule(run(state, SubmitJob(gang(LEARNER), "u"), long))
    assert job(state, "a").state is JobState.QUEUED
    assert racks(job(state, "long"), 0, 2) != first
    assert racks(kept(schedule(run(state, end("b0")))), 0, 3) == first


@pytest.mark.parametrize(("same", "moved"), [({"same": "rack"}, ["b", "c"]), ({}, ["a"])])
def test_no_move_that_frees_a_zone_parts_a_role(same: dict[str, str], moved: list[str]) -> None:
    """The gang alone is the cheapest to move, onto one host in each rack of the other zone."""
    role = {"name": "x", "parallelism": {"tp": 8, "dp": 2}, **same}
    state = started(loaded(fabric(2, 2, 2)), SubmitJob(gang(role), "u"))
    for name in "tubdcv":  # the other rack of the zone, then zone 1 rack by rack
        state = started(state, submit(name))
    state = run(state, *map(end, "tudv"))
    proposal = propose(state, 4, HOUR_NS, OPTIONS, Costs())
    assert sorted(move.swap.name for move in proposal.moves) == moved
