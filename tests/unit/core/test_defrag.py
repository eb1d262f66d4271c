"""The cheapest moves, their price, what commit checks again, and when a policy makes them."""

from dataclasses import replace

import pytest

from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from scheduler.core import SchedulingOptions, State, Tenants, commit, decide, replay
from scheduler.core.defrag.proposal import (
    DefragProposal,
    MoveCandidate,
    candidates,
    choose_cover,
    propose,
)
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.events import Defragmented
from scheduler.core.model.job import SECOND_NS
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import OPEN, Defragmentation, GuaranteedCell, Tenant
from scheduler.core.tenancy.quota_check import Quotas
from tests.build import HOUR_NS, end, exactly, fabric, loaded, run, schedule, submit

EMPTY = loaded(fabric(2, 2, 2))


def asked(state: State, wanted: int) -> DefragProposal:
    return propose(state, wanted, HOUR_NS, SchedulingOptions(), Costs())


def scattered() -> State:
    """a and b in one rack of zone 0, e in one of zone 1: a rack free in each."""
    state = EMPTY
    for at, name in enumerate("abcd"):
        state = schedule(run(state, submit(name, 1), now_ns=at), at)
    state = schedule(run(state, submit("e", 2)))
    return run(state, end("c"), end("d"))


def test_the_price_is_work_since_the_last_checkpoint_and_a_restart() -> None:
    job = schedule(run(EMPTY, submit("a", 2))).jobs["a"]
    now_ns = 2_400 * SECOND_NS
    state = replace(EMPTY, jobs={"a": job}, index=replace(EMPTY.index, running=("a",)))
    for costs, lost_s in ((Costs(1_000, 100), 400 + 100), (Costs(0, 100), 100)):
        assert [c.lost_gpu_s for c in candidates(state, job.allocation, now_ns, costs)] == [
            lost_s * 16
        ]


def test_the_cover_of_least_price_is_found() -> None:
    job = schedule(run(EMPTY, submit("a", 1))).jobs["a"]
    gangs = [
        MoveCandidate(job, tuple(range(n)), price) for n, price in ((3, 9), (2, 4), (2, 4), (1, 3))
    ]
    assert choose_cover(gangs, 4) == [gangs[1], gangs[2]]
    assert choose_cover(gangs, 3) == [gangs[1], gangs[3]]
    assert choose_cover(gangs, 8) == gangs
    assert choose_cover(gangs, 9) is None


def test_hosts_kept_for_others_are_no_way_out() -> None:
    before = asked(scattered(), 4)
    keeper = Tenant("keeper", cells=(GuaranteedCell("rack", 1),))
    state = run(scattered(), LoadTenants(Tenants((keeper, Tenant(DEFAULT_TENANT)))))
    kept = Quotas(state).withhold_for_cells(state.free)["keeper"]
    assert kept & hostset.of(m.joined for m in before.moves[0].swap.moves)
    now = asked(state, 4)
    assert [move.swap.name for move in now.moves] == ["a", "b"]
    assert not kept & hostset.of(m.joined for move in now.moves for m in move.swap.moves)
    answer = commit(state, before.plan, HOUR_NS)
    assert "guaranteed to others meanwhile" in answer.stale[0].detail


def test_a_gang_is_not_moved_away_from_spares_that_have_to_lie_beside_it() -> None:
    near = submit("near", 1, spares=exactly(1), where=Constraints(same="rack"))
    state = schedule(run(EMPTY, near))
    domain = EMPTY.loaded_fabric.domain(state.jobs["near"].hosts[0], 0)
    assert not asked(state, 4).moves or domain != asked(state, 4).domain
    state = schedule(run(state, submit("other", 1)))
    for move in asked(state, 4).moves:
        assert move.swap.name != "near"


def half_free(hosts_per_gpu_hour: int = 0) -> State:
    """Two zones of four hosts, each with two free, and a policy that wants four in one."""
    policy = Defragmentation(7_200, hosts=4, hosts_per_gpu_hour=hosts_per_gpu_hour)
    state = run(EMPTY, LoadTenants(replace(OPEN, defragmentation=policy)))
    state = schedule(run(state, *(submit(name, 2) for name in "abcd")))
    return run(state, end("b"), end("d"))


def test_it_is_due_once_a_period() -> None:
    state = replay([Defragmented(HOUR_NS, "")], half_free())
    due_ns = 3 * HOUR_NS
    plan = decide(state, due_ns - 1, SchedulingOptions())
    assert (plan.actions, plan.next_decision_ns) == ((), due_ns)
    (action,) = decide(state, due_ns, SchedulingOptions()).actions
    assert action.swaps


@pytest.mark.parametrize(("least", "moves"), [(1, 1), (2, 0)])
def test_the_gain_is_worth_the_price(least: int, moves: int) -> None:
    """Two hosts for the 1.3 GPU-hours of a restart of two hosts."""
    (action,) = decide(half_free(least), HOUR_NS, SchedulingOptions()).actions
    assert len(action.swaps) == moves
    assert action.sentence.startswith("nothing moved, less than 2 hosts") is not bool(moves)


def test_nobody_who_waits_is_delayed_for_room_in_reserve() -> None:
    state = run(half_free(), submit("wide", 6))
    plan = decide(state, HOUR_NS, SchedulingOptions())
    assert plan.reservations
    assert plan.actions == ()
