"""Gangs of which one role resizes: by the scheduler, and as their owner asks."""

from __future__ import annotations

from typing import Any

import pytest

from muster.structs import replace
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.workload.request import AUTO, Placement
from placement.workload.roles import ranks_of_roles
from scheduler.core import Job, JobSpec, Rejected, SchedulingOptions, State, replay
from scheduler.core.admission import launch
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.model.commands import LoadTenants, ResizeJob, SubmitJob
from scheduler.core.model.events import GangResized, JobUpdated
from scheduler.core.model.plan import Plan
from scheduler.core.model.rejected import Code
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.queue.requested_size import carried_out, plan_resize
from scheduler.files.job import job_from_mapping, job_to_mapping
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import HOUR_NS, end, fabric, job, loaded, run, schedule, started, submit

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

    def test_role_shrinks_by_its_last_replicas(self) -> None:
        state = begun(roles(dp=4))
        smaller = grown(state, 1)
        before, after = job(state, "a"), job(smaller, "a")
        assert (after.hosts, after.attempt) == (before.hosts[:4], 1)
        assert smaller.free.bit_count() == state.free.bit_count() + 3

    def test_role_that_is_not_the_last_takes_the_gang_with_it(self) -> None:
        state = begun(roles())
        before, after = job(state, "a"), job(grown(state, 1, "trainer"), "a")
        assert after.attempt == 2
        assert after.hosts == (before.hosts[0], *before.hosts[3:])
        assert [len(ranks) for ranks in ranks_of_roles(after.request)] == [8, 16]

    def test_gang_without_roles_is_resized_as_well(self) -> None:
        state = started(loaded(F), submit("a", 4))
        uid = job(state, "a").uid
        wanted = ResizeJob("a", "", 6, uid=uid)
        planned = plan_resize(state, wanted, HOUR_NS, OPTIONS)
        events = carried_out(planned, wanted, state.version, state, HOUR_NS)
        assert isinstance(events, tuple)
        after = job(replay(events, state), "a")
        assert (after.attempt, len(after.hosts)) == (2, 6)
        assert after.hosts[:4] == job(state, "a").hosts

    def test_spares_that_are_not_required_leave_the_limit_of_the_tenant_to_replicas(self) -> None:
        tenants = Tenants((Tenant("lab", limit_gpus=40), Tenant("shop")))
        state = started(
            run(loaded(F), LoadTenants(tenants)), submit("a", 3, tenant="lab", spares=AUTO)
        )
        before, after = job(state, "a"), job(grown(state, 5, ""), "a")
        assert (len(before.spares), len(after.hosts), after.spares) == (1, 5, ())

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
        assert isinstance(answer, Rejected)
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
        assert isinstance(answer, Rejected)
        assert "do not divide over dp 3" in answer.message

    def test_job_that_waits_is_not_resized(self) -> None:
        state = run(started(loaded(F), submit("x", 12)), SubmitJob(roles(), "uid"))
        answer = resized(state, 3)
        assert isinstance(answer, Rejected)
        assert answer.code is Code.PRECONDITION


class TestByTheScheduler:
    def test_role_starts_with_as_many_replicas_as_there_is_room_for(self) -> None:
        spec = roles(dp={"min": 1, "max": 8})
        state = begun(spec, started(loaded(F), submit("x", 5)))
        assert (job(state, "a").dp, len(job(state, "a").hosts)) == (4, 7)
        assert job(state, "a").sizes == tuple(range(1, 9))

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


def test_elastic_role_is_the_same_through_a_mapping_and_a_message() -> None:
    spec = roles(dp={"min": 2, "max": 6})
    assert spec.min_dp == 2
    assert job_from_mapping(job_to_mapping(spec)) == spec
    assert spec_from_proto(spec_to_proto(spec)) == spec


def test_plan_for_a_gang_that_moved_meanwhile_is_not_committed() -> None:
    state = begun(roles())
    planned = plan_resize(state, ResizeJob("a", "worker", 3), HOUR_NS, OPTIONS)
    assert not isinstance(planned, Rejected)
    answer = commit(state, Plan(state.version, (replace(planned, left=(0, 1)),)), HOUR_NS)
    assert isinstance(answer, Conflict)
    (event,) = commit(state, Plan(state.version, (planned,)), HOUR_NS)
    assert isinstance(event, GangResized)
    assert event.reason == "role worker: dp 2 to 3 by request"
