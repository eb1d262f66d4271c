"""Spares that are lent: whose they are in the books, and whom a loan must not delay."""

from dataclasses import replace

import pytest

from scheduler.core import Conflict, SchedulingOptions, State, commit, decide, replay
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.events import GangResized
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import Preemption, PriorityClass, Tenant, Tenants
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.tenancy.spare_loans import SpareLoans
from tests.build import (
    HOUR_NS,
    committed,
    end,
    exactly,
    fabric,
    fail,
    hosts_of,
    loaded,
    run,
    running,
    settled,
    spares_of,
    submit,
)

CLASSES = (
    PriorityClass("spot", -5, is_preemptible=True),
    PriorityClass("urgent", 5),
)


def cluster(hosts: int, *tenants: Tenant, keep_idle: int = 0) -> State:
    """One zone of `hosts` hosts, spares of which are lent."""
    terms = Tenants(
        (*tenants, Tenant("default")),
        classes=CLASSES,
        preemption=Preemption(min_run_s=0, costs=Costs(0, 1)),
        spares=replace(SparePolicy(), keep_idle=keep_idle),
    )
    return run(loaded(fabric(1, 1, hosts)), LoadTenants(terms))


def beside_short(state: State, *, spares: int, hosts: int) -> State:
    """A gang whose spares are lent, and a job on other hosts that ends within a minute."""
    short = submit("short", hosts, limit_s=60, priority_class="urgent")
    return settled(run(state, submit("gang", 1, spares=exactly(spares)), short))


def test_what_a_tenant_borrowed_is_not_what_it_is_guaranteed() -> None:
    """b's only job is on a spare of a: the host that b is guaranteed is still to be had."""
    state = cluster(4, Tenant("a"), Tenant("b", guaranteed_gpus=8))
    for job in (
        submit("gang", 1, tenant="a", spares=exactly(1)),
        submit("filler", 2, priority_class="spot"),
        submit("loan", 1, tenant="b", priority_class="spot"),
    ):
        state = settled(run(state, job))
    assert len(state.jobs["gang"].present.lent) == 1
    state = settled(run(state, end("filler"), submit("greedy", 2), submit("modest", 1)))
    assert running(state) == {"gang", "loan", "modest"}
    state = settled(run(state, submit("due", 1, tenant="b")))
    assert "due" in running(state)


def test_what_a_tenant_lent_is_what_it_is_guaranteed() -> None:
    """a is guaranteed two hosts, and has them: one it runs on, one it has lent."""
    state = cluster(3, Tenant("a", guaranteed_gpus=16))
    state = settled(run(state, submit("gang", 1, tenant="a", spares=exactly(1))))
    state = settled(run(state, submit("filler", 1), submit("loan", 1, priority_class="spot")))
    assert len(state.jobs["gang"].present.lent) == 1
    state = settled(run(state, end("filler"), submit("other", 1)))
    assert "other" in running(state)


@pytest.mark.parametrize(("hosts", "min_dp"), [(2, 0), (3, 2)])
def test_who_borrows_takes_no_free_host_from_the_first_that_waits(hosts: int, min_dp: int) -> None:
    """When short ends, three hosts are free, for first; loan would hold one of them longer."""
    state = beside_short(cluster(5), spares=1, hosts=2)
    loan = submit("loan", hosts, min_dp=min_dp, priority_class="spot")
    state = run(state, submit("first", 3, limit_s=60), loan)
    plan = decide(state, 0, SchedulingOptions())
    assert not plan.actions
    assert [(r.name, r.start_ns) for r in plan.reservations] == [("first", 60 * SECOND_NS)]


def test_who_borrows_may_take_a_free_host_until_the_first_starts() -> None:
    state = beside_short(cluster(5), spares=1, hosts=2)
    brief = submit("loan", 2, priority_class="spot", limit_s=60)
    state = settled(run(state, submit("first", 3, limit_s=60), brief))
    assert running(state) == {"gang", "short", "loan"}


@pytest.mark.parametrize("limit_s", [60, 600])
def test_who_borrows_leaves_the_first_that_waits_its_room_below_the_limit(limit_s: int) -> None:
    """Limits count borrowed hosts too, and a job that its limit holds back has no reservation."""
    state = beside_short(cluster(8, Tenant("a", limit_gpus=3 * 8)), spares=2, hosts=3)
    loan = submit("loan", 2, limit_s=limit_s, tenant="a", priority_class="spot")
    state = run(state, submit("first", 3, limit_s=60, tenant="a"), loan)
    plan = decide(state, 0, SchedulingOptions())
    assert not plan.actions
    assert [(r.name, r.start_ns) for r in plan.reservations] == [("first", 60 * SECOND_NS)]


def test_who_borrows_does_not_hold_back_whom_a_limit_holds_back_already() -> None:
    """a may have three hosts, which are first's when old ends; loan would hold one for longer."""
    state = cluster(4, Tenant("a", limit_gpus=3 * 8))
    state = settled(
        run(
            state,
            submit("gang", 1, spares=exactly(1)),
            submit("old", 2, limit_s=60, tenant="a"),
        )
    )
    loan = submit("loan", 1, limit_s=600, tenant="a", priority_class="spot")
    state = run(state, submit("first", 3, tenant="a"), loan)
    assert not decide(state, 0, SchedulingOptions()).actions


def test_a_spare_stands_idle_though_the_one_that_did_is_taken() -> None:
    """Of two spares one is lendable, the other kept idle. Its gang is evicted, so the first
    is kept instead, and what is decided on a state commits on it."""
    state = cluster(5, keep_idle=1)
    state = settled(
        run(
            state,
            submit("dear", 1, spares=exactly(1), priority_class="spot"),
            submit("low", 1, spares=exactly(1), priority_class="spot"),
            submit("rest", 1, priority_class="spot"),
        )
    )
    (lender,) = {job.name for job in SpareLoans(state).lendable().values()}
    (kept,) = {"dear", "low"} - {lender}
    gone = SpareLoans(state).lendable(evicted=(kept,))
    assert gone == {}


def test_an_elastic_borrower_says_for_whom_it_drops_replicas() -> None:
    state = cluster(5)
    state = settled(run(state, submit("gang", 2, spares=exactly(1), priority_class="urgent")))
    state = settled(run(state, submit("other", 2)))
    state = settled(run(state, submit("loan", 3, min_dp=1, priority_class="spot")))
    state = settled(run(state, end("other"), now_ns=HOUR_NS), HOUR_NS)
    assert (len(state.jobs["gang"].present.lent), state.jobs["loan"].dp) == (1, 3)
    state = run(state, fail(hosts_of(state, "gang")[0]), now_ns=HOUR_NS)
    events = committed(state, decide(state, HOUR_NS, SchedulingOptions()), HOUR_NS)
    resized = [event for event in events if isinstance(event, GangResized)]
    assert [(event.name, event.dp, event.preempted_by) for event in resized] == [
        ("loan", 2, "gang")
    ]


def test_a_spare_lent_in_this_decision_is_promised_to_nobody() -> None:
    """gang ends first, but loan stays on its spare: last counts on it only then."""
    state = cluster(3)
    gang = submit("gang", 1, spares=exactly(1), limit_s=60, priority_class="urgent")
    state = settled(run(state, gang, submit("filler", 1, priority_class="urgent")))
    loan = submit("loan", 1, limit_s=600, priority_class="spot")
    state = run(state, loan, submit("last", 2, limit_s=60, priority=-6))
    plan = decide(state, 0, SchedulingOptions())
    assert [action.name for action in plan.actions] == ["loan"]  # type: ignore[union-attr]
    after = replay(committed(state, plan), state)
    (first,) = plan.reservations
    assert (first.name, first.start_ns) == ("last", 600 * SECOND_NS)
    assert decide(after, 0, SchedulingOptions()).reservations[0].start_ns == first.start_ns


def test_nobody_shuts_a_spare_that_is_lent_out_of_its_gang() -> None:
    """While its borrower is gone, and before it is held again, a job that wants its rack for
    itself may not lie there."""
    state = cluster(3)
    state = settled(run(state, submit("gang", 1, spares=exactly(1))))
    state = settled(run(state, submit("filler", 1), submit("loan", 1, priority_class="spot")))
    assert state.jobs["gang"].present.lent
    alone = submit("alone", 1, affinity=Affinity(exclusive="rack"))
    state = run(state, end("loan"), end("filler"), alone)
    assert (
        AffinityIndex(state).closed("alone", state.jobs["alone"].spec.affinity) & state.index.lent
    )


def test_a_start_on_spares_that_went_meanwhile_falls() -> None:
    state = settled(run(cluster(3), submit("gang", 1, spares=exactly(1)), submit("filler", 1)))
    state = run(state, submit("loan", 1, priority_class="spot"))
    plan = decide(state, 0, SchedulingOptions())
    (spare,) = spares_of(state, "gang")
    answer = commit(run(state, fail(spare)), plan, 0)
    assert isinstance(answer, Conflict)
    assert "no longer available" in answer.stale[0].detail
