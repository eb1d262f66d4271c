"""The dry run is the scheduler: what it says, decisions say."""

from dataclasses import replace

import pytest

from placement.workload.request import AUTO, Insufficient, Limits, Placement, Undecided
from scheduler.core import DryRun, Rejected, SchedulingOptions, State, decide, dry_run
from scheduler.core.admission.admit import Code
from scheduler.core.model.commands import LoadTenants, SubmitJob
from scheduler.core.model.plan import Start
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import OPEN, PriorityClass, Tenant, Tenants
from scheduler.core.queue.verdict import WaitReason
from tests.build import HOUR_NS, fabric, fail, loaded, run, settled, started, submit

HOUR = 3_600
TEN = loaded(fabric(1, 1, 10))
EMPTY = loaded(fabric(zones=2, racks=2, hosts=2))
RACKS_OF_8 = fabric(zones=2, racks=4, hosts=8)


def tried(state: State, command: SubmitJob, options: SchedulingOptions | None = None) -> DryRun:
    outcome = dry_run(state, command, options or SchedulingOptions(), 0)
    assert isinstance(outcome, DryRun), outcome
    return outcome


def decided(state: State, command: SubmitJob) -> Start:
    """What the next decision proposes once the job is submitted."""
    plan = decide(run(state, command), 0, SchedulingOptions())
    (start,) = (a for a in plan.actions if isinstance(a, Start) and a.name == command.spec.name)
    return start


@pytest.mark.parametrize(("racks", "spares"), [(0, 3), (1, 11)])
def test_spares_follow_the_rule_of_the_tenants_file(racks: int, spares: int) -> None:
    rule = SparePolicy(0.06, racks=racks)
    state = run(loaded(RACKS_OF_8), LoadTenants(replace(OPEN, spares=rule)))
    command = submit("a", 12, dp=12, spares=AUTO)
    answer = tried(state, command).answer
    assert isinstance(answer, Placement)
    assert len(answer.spares) == spares
    assert decided(state, command).placement == answer


LIMITED = Tenants((Tenant("small", limit_gpus=32), Tenant(DEFAULT_TENANT)))


def test_a_job_beyond_its_tenants_limit_is_infeasible() -> None:
    state = run(TEN, LoadTenants(LIMITED))
    outcome = dry_run(state, submit("a", 5, tenant="small"), SchedulingOptions(), 0)
    assert isinstance(outcome, Rejected)
    assert outcome.code is Code.INFEASIBLE


def test_a_job_that_its_tenants_limit_holds_back_waits() -> None:
    state = started(run(TEN, LoadTenants(LIMITED)), submit("a", 2, tenant="small", limit_s=HOUR))
    command = submit("b", 3, tenant="small")
    outcome = tried(state, command)
    assert not isinstance(outcome.outcome, Start)
    assert outcome.outcome.cause is WaitReason.LIMIT
    assert outcome.outcome.start_ns == HOUR_NS
    assert isinstance(outcome.answer, Insufficient)
    assert (outcome.answer.needed, outcome.answer.free) == (3, 8)
    assert outcome.answer.free_by_domain == (("z0", 8),)
    after = settled(run(state, command))
    assert after.index.running == ("a",)


def test_a_job_waits_behind_those_before_it() -> None:
    state = run(started(TEN, submit("a", 6, limit_s=HOUR)), submit("b", 10))
    outcome = tried(state, submit("c", 4))
    assert not isinstance(outcome.outcome, Start)
    assert outcome.outcome.cause is WaitReason.BEHIND
    assert outcome.outcome.waits_for == ("b",)
    assert isinstance(tried(state, submit("c", 4, limit_s=HOUR)).outcome, Start)


def test_a_start_names_the_jobs_that_make_room() -> None:
    spot = PriorityClass("spot", -100, is_preemptible=True)
    state = run(TEN, LoadTenants(Tenants((Tenant(DEFAULT_TENANT),), classes=(spot,))))
    state = started(state, submit("spot", 10, priority_class="spot"), now_ns=-2 * HOUR_NS)
    outcome = tried(state, submit("urgent", 10))
    assert isinstance(outcome.outcome, Start)
    assert outcome.outcome.victims == ("spot",)
    assert isinstance(outcome.answer, Placement)
    assert outcome.answer.notes == ("preempted spot",)


def test_a_search_without_budget_is_undecided() -> None:
    limits = SchedulingOptions(place=Limits(rounds=0, trees=0))
    outcome = tried(TEN, submit("x", 6, pp=3), limits)
    assert not isinstance(outcome.outcome, Start)
    assert outcome.outcome.cause is WaitReason.SEARCH
    assert isinstance(outcome.answer, Undecided)


def test_a_request_id_that_was_used_says_nothing_about_the_dry_run() -> None:
    state = started(TEN, submit("x", 6, request_id="r"))
    outcome = tried(state, submit("y", 4, request_id="r"))
    assert isinstance(outcome.outcome, Start)


def test_an_elastic_job_starts_at_the_largest_size_that_fits() -> None:
    state = started(EMPTY, submit("x", 3))
    outcome = tried(state, submit("a", 8, min_dp=2))
    assert outcome.job.dp == 5
    assert isinstance(outcome.answer, Placement)
    assert len(outcome.answer.hosts) == 5
    assert outcome.answer.notes == (
        "dp 5 of 8: the largest legal size that fits (2 to 8 in steps of 1)",
    )


def test_a_job_waits_for_hosts_that_a_gang_which_failed_takes_first() -> None:
    """The gang is mended before the queue is looked at: the dry run knows that."""
    state = started(TEN, submit("a", 8))
    state = run(state, fail(state.loaded_fabric.hosts[state.jobs["a"].hosts[0]]))
    outcome = tried(state, submit("b", 2))
    assert isinstance(outcome.answer, Insufficient)
    assert outcome.answer.free == 1
