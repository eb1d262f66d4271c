"""Defragmentation by policy: when it is due, for whom, and what it may cost."""

from dataclasses import replace

import pytest

from placement.fabric.constraints import Constraints
from scheduler.core import Conflict, Plan, SchedulingOptions, State, commit, decide, replay
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.events import Defragmented, GangSwapped
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Defragment
from scheduler.core.policies.tenants import OPEN, Defragmentation
from tests.build import HOUR_NS, committed, end, fabric, loaded, run, running, schedule, submit

EVERY_S = 7_200
POLICY = Defragmentation(EVERY_S, hosts=4)


def scattered(policy: Defragmentation | None) -> State:
    """Two zones of four hosts, each with two free."""
    state = run(loaded(fabric(2, 2, 2)), LoadTenants(replace(OPEN, defragmentation=policy)))
    state = schedule(run(state, *(submit(name, 2) for name in "abcd")))
    return run(state, end("b"), end("d"))


def moved(plan: Plan) -> list[str]:
    return [
        swap.name
        for action in plan.actions
        if isinstance(action, Defragment)
        for swap in action.swaps
    ]


def test_nothing_moves_without_a_policy() -> None:
    assert decide(scattered(None), HOUR_NS, SchedulingOptions()).actions == ()


def test_room_is_made_and_the_log_says_so() -> None:
    state = scattered(POLICY)
    events = committed(state, decide(state, HOUR_NS, SchedulingOptions()), HOUR_NS)
    assert [type(event) for event in events] == [GangSwapped, Defragmented]
    after = replay(events, state)
    assert max((after.free & mask).bit_count() for mask in (0b1111, 0b11110000)) == 4
    assert decide(after, HOUR_NS, SchedulingOptions()).actions == ()


def test_it_is_due_once_a_period() -> None:
    state = replay([Defragmented(HOUR_NS, "")], scattered(POLICY))
    due_ns = HOUR_NS + EVERY_S * SECOND_NS
    plan = decide(state, due_ns - 1, SchedulingOptions())
    assert (plan.actions, plan.next_decision_ns) == ((), due_ns)
    assert moved(decide(state, due_ns, SchedulingOptions()))


@pytest.mark.parametrize(("least", "moves"), [(1, 1), (2, 0)])
def test_the_gain_is_worth_the_price(least: int, moves: int) -> None:
    """Two hosts for the 1.3 GPU-hours of a restart of two hosts."""
    state = scattered(replace(POLICY, hosts_per_gpu_hour=least))
    plan = decide(state, HOUR_NS, SchedulingOptions())
    assert len(moved(plan)) == moves
    (action,) = plan.actions
    assert isinstance(action, Defragment)
    assert action.sentence.startswith("nothing moved, less than 2 hosts") is not bool(moves)


def test_a_job_that_must_lie_in_one_zone_gets_its_room() -> None:
    """Without `hosts` in the policy; and only once it waits."""
    state = scattered(replace(POLICY, hosts=0))
    assert decide(state, HOUR_NS, SchedulingOptions()).actions == ()
    state = run(state, submit("big", 4, where=Constraints(same="zone")))
    assert running(schedule(schedule(state, HOUR_NS), HOUR_NS)) == {"a", "c", "big"}


def test_nobody_who_waits_is_delayed_for_room_in_reserve() -> None:
    state = run(scattered(POLICY), submit("wide", 6))
    plan = decide(state, HOUR_NS, SchedulingOptions())
    assert plan.reservations
    assert plan.actions == ()


def test_all_moves_or_none() -> None:
    state = scattered(POLICY)
    plan = decide(state, HOUR_NS, SchedulingOptions())
    (name,) = moved(plan)
    answer = commit(run(state, end(name)), plan, HOUR_NS)
    assert isinstance(answer, Conflict)
