"""Gangs of roles: where they start, wait and go on, and how one role resizes."""

from __future__ import annotations

from typing import Any

import pytest

from muster.structs import replace
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.workload.request import Placement
from placement.workload.roles import ranks_of_roles
from placement.workload.segments import parted
from scheduler.core import Job, JobSpec, JobState, Rejected, SchedulingOptions, State, admit, replay
from scheduler.core.admission import launch
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.defrag.proposal import propose
from scheduler.core.explain.explain import explain
from scheduler.core.model.commands import ResizeJob, SubmitJob
from scheduler.core.model.events import JobUpdated
from scheduler.core.model.plan import Plan
from scheduler.core.model.rejected import Code
from scheduler.core.policies.costs import Costs
from scheduler.core.queue.requested_size import carried_out, plan_resize
from scheduler.files.job import job_from_mapping
from tests.build import (
    HOUR_NS,
    end,
    fabric,
    fail,
    job,
    job_to_mapping,
    loaded,
    run,
    schedule,
    started,
    submit,
)

F = fabric(zones=2, racks=2, hosts=3)
OPTIONS = SchedulingOptions()


def roles(dp: Any = 2, *, restart: str = "role", **more: Any) -> JobSpec:
    """A trainer on 3 hosts, then workers, a host for each replica."""
    trainer = {"name": "trainer", "parallelism": {"tp": 8, "dp": 3}, "sends": {"worker": 10**9}}
    worker = {"name": "worker", "parallelism": {"tp": 8, "dp": dp}, "restart": restart}
    run_ = {"command": ["x"]}
    return job_from_mapping(
        {"name": "a", "spares": 0, "roles": [trainer, worker], "run": run_, **more}
    )


def begun(spec: JobSpec, state: State | None = None) -> State:
    """The gang runs, and all its ranks have started."""
    state = started(state or loaded(F), SubmitJob(spec, "uid"))
    events = launch.launched(state, "a", "uid", 1, 1)
    assert isinstance(events, tuple)
    return replay(events, state)


def resized(
    state: State, dp: int, role: str = "worker", now_ns: int = HOUR_NS
) -> State | Rejected | Conflict:
    wanted = ResizeJob("a", role, dp)
    planned = plan_resize(state, wanted, now_ns, OPTIONS)
    answer = carried_out(planned, wanted, state.version, state, now_ns)
    return replay(answer, state) if isinstance(answer, tuple) else answer


def grown(state: State, dp: int, role: str = "worker") -> State:
    answer = resized(state, dp, role)
    assert isinstance(answer, State), answer
    return answer


class TestByRequest:
    def test_role_grows_and_the_others_stay_in_the_same_attempt(self) -> None:
        state = begun(roles())
        before, after = job(state, "a"), job(grown(state, 5), "a")
        assert after.hosts[:5] == before.hosts
        assert (len(after.hosts), after.attempt, after.dp) == (8, 1, 5)
        assert after.present.launched_ns is not None
        assert [len(ranks) for ranks in ranks_of_roles(after.request)] == [24, 40]
        assert after.present.cuts == cut(F, after.request, after.hosts)

    def test_others_stay_also_where_nothing_would_be_cut_if_they_moved(self) -> None:
        """The trainer sends nothing: in the other zone it would make room for both workers."""
        shape = {"parallelism": {"tp": 8}}
        each = [{"name": "trainer", **shape}, {"name": "keeper", **shape}]
        each += [{"name": "worker", **shape, "sends": {"keeper": 10**9}, "restart": "role"}]
        mapping = {"name": "a", "spares": 0, "roles": each, "run": {"command": ["x"]}}
        state = begun(job_from_mapping(mapping), loaded(fabric(zones=2, racks=1, hosts=3)))
        before, after = job(state, "a"), job(grown(state, 2), "a")
        assert (after.hosts[:3], after.attempt) == (before.hosts, 1)
        assert after.present.cuts[0].bytes_per_step > 0

    def test_role_that_is_not_the_last_takes_the_gang_with_it(self) -> None:
        state = begun(roles())
        before, after = job(state, "a"), job(grown(state, 1, "trainer"), "a")
        assert after.attempt == 2
        assert after.hosts == (before.hosts[0], *before.hosts[3:])
        assert [len(ranks) for ranks in ranks_of_roles(after.request)] == [8, 16]

    def test_file_says_the_new_size_from_then_on(self) -> None:
        state = grown(begun(roles(dp={"min": 1, "max": 2})), 4)
        assert job(state, "a").sizes == (1, 2, 3, 4)
        shown = job_to_mapping(job(state, "a").spec)["roles"][1]["parallelism"]["dp"]
        assert shown == {"min": 1, "max": 4}
        fewer = grown(state, 2)
        assert job(fewer, "a").sizes == (1, 2)
        assert job(schedule(fewer, 9 * HOUR_NS), "a").dp == 2  # and it is not grown again

    def test_size_that_it_has_changes_the_file_alone(self) -> None:
        state = begun(roles(dp={"min": 1, "max": 3}))
        wanted = ResizeJob("a", "worker", 3)
        planned = plan_resize(state, wanted, HOUR_NS, OPTIONS)
        assert carried_out(planned, wanted, state.version, state, HOUR_NS) == ()
        smaller = begun(roles(dp={"min": 1, "max": 3}), started(loaded(F), submit("x", 7)))
        assert job(smaller, "a").dp == 2
        wanted = ResizeJob("a", "worker", 2)
        planned = plan_resize(smaller, wanted, HOUR_NS, OPTIONS)
        (event,) = carried_out(planned, wanted, smaller.version, smaller, HOUR_NS) or ((),)
        assert isinstance(event, JobUpdated)
        assert job(replay([event], smaller), "a").sizes == (1, 2)

    @pytest.mark.parametrize(
        ("role", "dp", "code", "text"),
        [
            ("worker", 20, Code.INFEASIBLE, "has 12"),
            ("worker", 2**31 - 1, Code.INFEASIBLE, "has 12"),
            ("worker", 10, Code.INFEASIBLE, "has 12"),
            ("worker", 0, Code.INVALID, "at least 1"),
            ("wrker", 3, Code.INVALID, "names a role: trainer, worker"),
            ("", 3, Code.INVALID, "names a role"),
        ],
    )
    def test_impossible_size_is_refused(self, role: str, dp: int, code: Code, text: str) -> None:
        answer = resized(begun(roles()), dp, role)
        assert (answer.code, text in answer.message) == (code, True), answer.message

    def test_batch_has_to_divide_over_the_replicas(self) -> None:
        spec = roles(dp=2)
        model = {
            "layers": 8,
            "hidden": 1024,
            "ffn": 4096,
            "heads": 8,
            "kv_heads": 8,
            "vocab": 32000,
            "sequence": 64,
        }
        mapping = job_to_mapping(spec)
        mapping["roles"][1] |= {"model": model, "batch": {"global_sequences": 8}}
        answer = resized(begun(job_from_mapping(mapping)), 3)
        assert "do not divide over dp 3" in answer.message

    def test_job_that_waits_is_not_resized(self) -> None:
        state = run(started(loaded(F), submit("x", 12)), SubmitJob(roles(), "uid"))
        answer = resized(state, 3)
        assert answer.code is Code.PRECONDITION


class TestByTheScheduler:
    def test_role_grows_onto_hosts_that_nobody_waits_for_and_the_others_run_on(self) -> None:
        spec = roles(dp={"min": 1, "max": 8}, time_limit_s=90_000)
        state = begun(spec, started(loaded(F), submit("x", 5)))
        before = job(state, "a")
        state = run(state, end("x"), now_ns=2)
        for hours in range(1, 5):
            state = schedule(state, hours * HOUR_NS)
        after = job(state, "a")
        assert (after.dp, after.attempt) == (8, 1)
        assert after.hosts[:7] == before.hosts
        assert not violations(F, (1 << 12) - 1, after.request, _placement(after))


def _placement(after: Job) -> Placement:
    return Placement(after.hosts, after.spares, after.present.cuts, after.present.lower_bound)


def test_plan_for_a_gang_that_moved_meanwhile_is_not_committed() -> None:
    state = begun(roles())
    planned = plan_resize(state, ResizeJob("a", "worker", 3), HOUR_NS, OPTIONS)
    assert not isinstance(planned, Rejected)
    answer = commit(state, Plan(state.version, (replace(planned, left=(0, 1)),)), HOUR_NS)
    assert isinstance(answer, Conflict)
    (event,) = commit(state, Plan(state.version, (planned,)), HOUR_NS)
    assert event.reason == "role worker: dp 2 to 3 by request"


# --- roles with constraints ------------------------------------------------------


EIGHT_A_ZONE = fabric(zones=2, racks=2, hosts=4)
SHAPE: dict[str, Any] = {"parallelism": {"tp": 8, "dp": 3}}
LEARNER = {**SHAPE, "name": "learner", "same": "rack"}
ANYWHERE: dict[str, Any] = {"name": "rollout", "parallelism": {"tp": 8, "pp": 2, "dp": 2}}
ANYWHERE |= {"within": {"pp": "rack"}, "avoid": {"rack": ["learner"]}}
ROLLOUT = {**ANYWHERE, "beside": {"zone": ["learner"]}}


def gang(*roles: dict[str, Any], spares: int = 0, name: str = "a") -> JobSpec:
    return job_from_mapping({"name": name, "spares": spares, "roles": [*roles]})


def racks(running: Job, first: int, end: int) -> set[str]:
    return {EIGHT_A_ZONE.hosts[host].rpartition("-")[0] for host in running.hosts[first:end]}


def kept(state: State, name: str = "a") -> Job:
    running = job(state, name)
    assert running.state is JobState.RUNNING, running.reason
    assert parted(EIGHT_A_ZONE, running.request, running.hosts) == []
    return running


def test_roles_start_in_one_rack_each_beside_each_other_and_apart() -> None:
    running = kept(started(loaded(EIGHT_A_ZONE), SubmitJob(gang(LEARNER, ROLLOUT), "u")))
    learner, rollout = racks(running, 0, 3), racks(running, 3, 7)
    assert len(learner) == 1
    assert not learner & rollout
    assert {rack[:2] for rack in learner | rollout} == {min(learner)[:2]}


def test_gang_waits_for_room_for_a_role_and_says_which() -> None:
    state = loaded(EIGHT_A_ZONE)
    for n in range(4):  # two hosts of each rack are free
        state = run(state, fail(f"z{n // 2}-r{n % 2}-h0"), fail(f"z{n // 2}-r{n % 2}-h1"))
    state = schedule(run(state, SubmitJob(gang(LEARNER, ANYWHERE), "u")))
    assert job(state, "a").state is JobState.QUEUED
    said = explain(state, "a", HOUR_NS, OPTIONS).sentence
    assert "role learner needs 3 hosts in one rack: at most 2 in one rack" in said


def test_constraint_that_the_empty_fabric_cannot_keep_is_refused_at_submit() -> None:
    state = loaded(EIGHT_A_ZONE)
    wide = {**LEARNER, "parallelism": {"tp": 8, "dp": 5}}
    refusal = admit(state, SubmitJob(gang(wide, {"name": "x", "parallelism": {"tp": 8}}), "u"), 0)
    assert refusal.message.endswith(
        "16 in all, role learner needs 5 hosts in one rack: at most 4 in one rack"
    )
    near = {**SHAPE, "name": "learner", "avoid": {"rack": ["x"]}, "beside": {"rack": ["x"]}}
    refusal = admit(state, SubmitJob(gang(near, {"name": "x", "parallelism": {"tp": 8}}), "u"), 0)
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
    refusal = admit(loaded(EIGHT_A_ZONE), SubmitJob(spec, "u"), 0)
    assert [each.field for each in refusal.violations] == [field]


def test_gang_waits_where_no_host_keeps_the_constraint_of_its_role() -> None:
    state = started(
        loaded(fabric(zones=1, racks=2, hosts=4)), SubmitJob(gang(LEARNER, ROLLOUT), "u")
    )
    first = job(state, "a").hosts[0]
    own = [host for host in range(8) if host // 4 == first // 4]
    free = next(host for host in own if host not in job(state, "a").hosts)
    state = run(state, fail(EIGHT_A_ZONE.hosts[free]), fail(EIGHT_A_ZONE.hosts[first]))
    waits = job(schedule(state), "a")
    assert waits.state is JobState.QUEUED
    assert "no host to swap in (1 failed, 0 to swap in)" in waits.reason


def test_resized_role_keeps_its_constraint() -> None:
    shape = {"name": "rollout", "parallelism": {"tp": 8, "dp": 2}, "same": "rack"}
    state = started(loaded(EIGHT_A_ZONE), SubmitJob(gang({**SHAPE, "name": "learner"}, shape), "u"))
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


def test_waiting_gang_reserves_hosts_on_which_its_role_has_room() -> None:
    """Two racks have two free hosts each; a long job leaves those of the rack that is free first to
    the learner."""
    state = started(
        loaded(EIGHT_A_ZONE), *(submit(f"b{n}", 2, limit_s=3600 * (n + 1)) for n in range(8))
    )
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
