"""Whom a waiting job evicts: the shape first, then the least loss, and nobody to spare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core import (
    Conflict,
    JobState,
    Plan,
    SchedulingOptions,
    State,
    commit,
    decide,
    explain,
)
from scheduler.core.capacity.victims import cost_ns
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Start, Swap
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.job_terms import Requeueing
from scheduler.core.policies.tenants import OPEN, Preemption, PriorityClass, Tenant, Tenants
from tests.build import (
    HOUR_NS,
    committed,
    end,
    fabric,
    fail,
    hosts_of,
    job,
    loaded,
    run,
    running,
    schedule,
    submit,
)

CLASSES = (
    PriorityClass("spot", -10, is_preemptible=True),
    PriorityClass("cheap", -20, is_preemptible=True),
    PriorityClass("urgent", 10),
)
TERMS = Preemption(min_run_s=0)
ALONE = replace(OPEN, classes=CLASSES, preemption=TERMS)
LENDING = replace(
    ALONE, tenants=(Tenant("lab", guaranteed_gpus=16), Tenant("shop"), Tenant("default"))
)
MINUTE_NS = 60 * SECOND_NS


def cluster(zones: int, racks: int, hosts: int, tenants: Tenants = ALONE) -> State:
    return run(loaded(fabric(zones, racks, hosts)), LoadTenants(tenants))


def spots(state: State, *sizes: int, now_ns: int = 0, level: str = "spot") -> State:
    """Jobs s0, s1, ... of these sizes, started one after the other."""
    for size in sizes:
        name = f"s{sum(n.startswith('s') for n in state.jobs)}"
        state = schedule(run(state, submit(name, size, priority_class=level)), now_ns)
    return state


def sent_away(state: State, now_ns: int = 0) -> dict[str, tuple[str, ...]]:
    plan = decide(state, now_ns, SchedulingOptions())
    return {a.name: a.victims for a in plan.actions if isinstance(a, Start)}


def test_the_lower_priority_goes_first() -> None:
    state = spots(spots(cluster(1, 1, 2), 1), 1, level="cheap")
    state = run(state, submit("u", 1, priority_class="urgent"))
    assert sent_away(state) == {"u": ("s1",)}


def test_the_one_that_has_just_saved_its_state_goes_first() -> None:
    state = spots(spots(cluster(1, 1, 2), 1), 1, now_ns=20 * MINUTE_NS)
    state = run(state, submit("u", 1, priority_class="urgent"))
    assert sent_away(state, 31 * MINUTE_NS) == {"u": ("s0",)}  # 1 min since, against 11
    assert sent_away(state, 29 * MINUTE_NS) == {"u": ("s1",)}  # 29 min since, against 9


@pytest.mark.parametrize("is_by_usage", [False, True])
@pytest.mark.parametrize("weight", [1, 20])
def test_the_tenant_furthest_beyond_its_share_of_past_usage_loses_first(
    is_by_usage: bool, weight: int
) -> None:
    terms = replace(TERMS, is_by_usage=is_by_usage)
    tenants = (Tenant("lab"), Tenant("shop", weight=weight), Tenant("default"))
    state = cluster(1, 1, 2, replace(ALONE, tenants=tenants, preemption=terms))
    state = schedule(run(state, submit("s0", tenant="shop", priority_class="spot")))
    later_ns, now_ns = 70 * MINUTE_NS, 101 * MINUTE_NS
    state = schedule(run(state, submit("s1", tenant="lab", priority_class="spot")), later_ns)
    state = run(state, submit("u", 1, tenant="lab", priority_class="urgent"))
    # s0 saved its state 11 min ago, and s1 a minute ago.
    leaves = "s0" if is_by_usage and weight == 1 else "s1"
    assert sent_away(state, now_ns) == {"u": (leaves,)}


def test_the_loss_is_work_since_the_checkpoint_and_a_restart() -> None:
    state = spots(cluster(1, 1, 2), 2)
    gang = job(state, "s0")
    assert cost_ns(gang, 40 * MINUTE_NS, Costs()) == 2 * (10 + 5) * MINUTE_NS
    again = replace(gang, attempt=2)  # its first 5 minutes were a restart
    assert cost_ns(again, 40 * MINUTE_NS, Costs()) == 2 * (5 + 5) * MINUTE_NS
    assert cost_ns(gang, HOUR_NS, Costs(checkpoint_s=0)) == 2 * 5 * MINUTE_NS


def test_nobody_leaves_so_that_what_is_lent_stands_empty() -> None:
    """The lab's two hosts are lent to the gang that stays, and can be had back from it."""
    state = cluster(2, 2, 2, LENDING)
    for name in ("s0", "s1"):
        state = run(state, submit(name, 4, tenant="shop", priority_class="spot"))
    state = run(schedule(state), submit("u", 4, tenant="shop", priority_class="urgent"))
    (victims,) = sent_away(state).values()
    assert len(victims) == 1
    state = run(schedule(state), submit("l", 2, tenant="lab"))
    assert sent_away(state) == {"l": tuple({"s0", "s1"} - set(victims))}


def test_a_job_borrows_beside_what_is_lent() -> None:
    state = schedule(
        run(cluster(1, 1, 4, LENDING), submit("s0", 2, tenant="shop", priority_class="spot"))
    )
    state = run(state, submit("u", 2, tenant="shop"))
    assert sent_away(state) == {"u": ()}
    off = replace(LENDING, preemption=replace(TERMS, is_on=False))
    assert sent_away(run(state, LoadTenants(off))) == {}
    assert decide(state, 0, SchedulingOptions(policy="easy")).actions == ()


def test_what_a_tenant_lends_to_itself_is_its_own_affair() -> None:
    state = cluster(1, 1, 2, LENDING)
    state = schedule(run(state, submit("s0", 2, tenant="lab", priority_class="spot")))
    assert sent_away(run(state, submit("l", 2, tenant="lab", priority=-50))) == {}


def test_a_victim_says_who_took_its_place_and_keeps_its_own() -> None:
    state = spots(cluster(1, 1, 1), 1)
    state = run(state, submit("u", priority_class="urgent"), submit("t", priority_class="spot"))
    state = schedule(state, 2 * HOUR_NS)
    assert running(state) == {"u"}
    assert state.index.queue == ("s0", "t")
    assert job(state, "s0").reason == "preempted by u after 2 h 00 min (priority 10 to -10)"
    again = schedule(run(state, end("u")), 3 * HOUR_NS)
    assert (job(again, "s0").attempt, running(again)) == (2, {"s0"})


def test_a_victim_that_does_not_want_to_wait_again_has_failed() -> None:
    once = submit("s0", priority_class="spot")
    once = replace(once, spec=replace(once.spec, requeue=Requeueing.NEVER))
    state = schedule(run(cluster(1, 1, 1), once))
    state = schedule(run(state, submit("u", priority_class="urgent")))
    over = job(state, "s0")
    assert (over.state, running(state)) == (JobState.FAILED, {"u"})
    assert over.reason.startswith("preempted by u")
    assert over.reason.endswith("its file says requeue: never")


def test_explain_names_those_who_will_make_room_and_when() -> None:
    guarded = replace(ALONE, preemption=replace(TERMS, min_run_s=600))
    state = spots(spots(cluster(1, 1, 3, guarded), 1), 2, now_ns=2 * MINUTE_NS)
    state = run(state, submit("u", 3, priority_class="urgent"))
    reason = explain(state, "u", 3 * MINUTE_NS, SchedulingOptions())
    assert reason.sentence.endswith("; or by preempting s1, s0 in 9 min")
    assert (reason.preempts, reason.preempt_ns) == (("s1", "s0"), 12 * MINUTE_NS)
    assert sent_away(state, 12 * MINUTE_NS) == {"u": ("s1", "s0")}


def test_a_preemption_commits_with_the_start_or_not_at_all() -> None:
    state = run(spots(cluster(1, 1, 4), 2, 2), submit("u", 2, priority_class="urgent"))
    plan = decide(state, 0, SchedulingOptions())
    assert [type(event).__name__ for event in committed(state, plan)] == [
        "JobPreempted",
        "JobStarted",
    ]
    (start,) = plan.actions
    assert isinstance(start, Start)
    (other,) = {"s0", "s1"} - set(start.victims)
    meanwhile = run(state, end(other))  # now it fits beside the victim
    assert conflicts(meanwhile, plan) == f"job u: {start.victims[0]} need not be preempted any more"


def conflicts(state: State, plan: Plan) -> str:
    answer = commit(state, plan, 0)
    assert isinstance(answer, Conflict)
    return answer.stale[0].detail


def test_a_loan_is_not_called_in_when_hosts_came_free_meanwhile() -> None:
    state = spots(schedule(run(cluster(1, 1, 4), submit("a", 2))), 1, 1)
    state = run(state, fail(hosts_of(state, "a")[0]))
    plan = decide(state, MINUTE_NS, SchedulingOptions())
    (swap,) = plan.actions
    assert isinstance(swap, Swap)
    (other,) = {"s0", "s1"} - set(swap.victims)
    said = conflicts(run(state, end(other)), plan)
    assert said == f"job a: {swap.victims[0]} need not be preempted any more"


def test_who_preempts_leaves_the_first_that_waits_its_room_below_the_limit() -> None:
    """due would be gone before first starts, but first, held back by the limit of both, would
    have lost its reservation until then."""
    groups = Tenants(
        (
            Tenant("lab", limit_gpus=32),
            Tenant("a", "lab"),
            Tenant("b", "lab", guaranteed_gpus=16),
            Tenant("default"),
        ),
        classes=CLASSES,
        preemption=TERMS,
    )
    state = run(loaded(fabric(1, 1, 6)), LoadTenants(groups))
    state = schedule(run(state, submit("short", 4, limit_s=60, priority_class="urgent")))
    state = schedule(run(state, submit("spot", 2, priority_class="spot")))
    first = submit("first", 4, tenant="a", priority_class="urgent")
    alone, brief = run(state, first), submit("due", 2, limit_s=30, tenant="b")
    assert (
        decide(run(alone, brief), 0, SchedulingOptions()).reservations
        == decide(alone, 0, SchedulingOptions()).reservations
    )
    assert sent_away(run(alone, brief)) == {}
    assert sent_away(run(state, brief)) == {"due": ("spot",)}


def test_two_failed_hosts_call_in_two_loans() -> None:
    state = spots(schedule(run(cluster(1, 1, 5), submit("a", 2))), 1, 1, 1)
    state = run(state, *(fail(host) for host in hosts_of(state, "a")))
    after = schedule(state, MINUTE_NS)
    assert len(running(after) - {"a"}) == 1
    assert len(hosts_of(after, "a")) == 2
