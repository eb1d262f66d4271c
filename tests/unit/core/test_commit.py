"""A plan on the newest state: what still holds commits, gang by gang."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest

from placement.objective.cut import cut
from placement.workload.request import Placement, StepBound
from scheduler.core import Conflict, Plan, SchedulingOptions, State, commit, decide, replay
from scheduler.core.commit import ledger as ledger_module
from scheduler.core.commit.ledger import Ledger
from scheduler.core.model.commands import Command, LoadTenants, ReportLink, SetWindow
from scheduler.core.model.events import Event, JobRequeued
from scheduler.core.model.lifecycle import RequeueCause
from scheduler.core.model.plan import Action, Move, Requeue, StaleReason, Start, Swap, taken
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.tenants import Tenant, Tenants
from tests.build import (
    cancel,
    committed,
    cordon,
    exactly,
    fabric,
    fail,
    loaded,
    on,
    run,
    spec,
    submit,
)
from tests.unit.core.test_links import trained
from tests.windows import window

FABRIC = fabric(2, 2, 2)
EMPTY = loaded(FABRIC)


def start(name: str, *hosts: int, spares: tuple[int, ...] = ()) -> Start:
    return Start(name, on(FABRIC, spec(name, len(hosts)).request, *hosts, spares=spares))


def planned(state: State, *actions: Action) -> Plan:
    return Plan(state.version, actions)


def placed(state: State, *actions: Action) -> State:
    return replay(committed(state, planned(state, *actions)), state)


def conflict(state: State, *actions: Action) -> str:
    """The reason why this one action no longer holds."""
    answer = commit(state, planned(state, *actions), 0)
    assert isinstance(answer, Conflict), answer
    (stale,) = answer.stale
    return stale.detail


TWO = run(EMPTY, submit("a", 2), submit("b", 2, spares=exactly(1)))


@pytest.mark.parametrize(
    "wrong",
    [
        Placement((0,)),
        Placement((0, 0)),
        Placement((0, 99)),
        Placement((0, 1)),  # no cuts counted
        replace(on(FABRIC, spec("a", 2).request, 0, 4), cuts=()),
        replace(on(FABRIC, spec("a", 2).request, 0, 1), lower_bound=9),
    ],
)
def test_no_solver_is_trusted(wrong: Placement) -> None:
    assert conflict(TWO, Start("a", wrong)).startswith("job a: ")


def test_required_spares_must_be_there() -> None:
    assert "1 spares are required" in conflict(TWO, start("b", 5, 4))


RUNS = placed(run(EMPTY, submit("a", 4, spares=exactly(1))), start("a", 0, 1, 4, 5, spares=(2,)))
STOPPED = run(RUNS, fail("z0-r0-h1"))


def swap(*moves: tuple[int, int, int]) -> Swap:
    hosts = [0, 1, 4, 5]
    for block, _, joined in moves:
        hosts[block] = joined
    cuts = cut(FABRIC, spec("a", 4).request, hosts)
    return Swap("a", tuple(Move(*m) for m in moves), cuts)


@pytest.mark.parametrize(
    ("meanwhile", "action", "reason"),
    [
        (fail("z0-r0-h0"), swap((1, 1, 2)), "another host failed meanwhile"),
        (fail("z0-r1-h0"), swap((1, 1, 2)), "host z0-r1-h0 is no longer free"),
        (cordon("z0-r1-h0"), swap((1, 1, 2)), "host z0-r1-h0 is no longer free"),
        (cordon("z0-r1-h1"), swap((1, 1, 3)), "host z0-r1-h1 is no longer free"),
        (cancel("a"), swap((1, 1, 2)), "job a is no longer running"),
        (None, swap((0, 1, 2)), "block 0 moved meanwhile"),
        (None, Swap("a", (Move(9, 1, 2),), ()), "block 9 moved"),
        (None, swap((1, 1, 0)), "host z0-r0-h0 is no longer free"),
        (None, replace(swap((1, 1, 2)), cuts=()), "other blocks moved meanwhile"),
        (None, swap(), "another host failed meanwhile"),
    ],
)
def test_a_stale_swap_falls(meanwhile: Command | None, action: Swap, reason: str) -> None:
    state = STOPPED if meanwhile is None else run(STOPPED, meanwhile)
    assert reason in conflict(state, action)


def test_one_host_cannot_join_twice() -> None:
    state = run(STOPPED, fail("z0-r0-h0"))
    assert "host z0-r1-h0 is no longer free" in conflict(state, swap((0, 0, 2), (1, 1, 2)))


@pytest.mark.parametrize("state", [RUNS, run(STOPPED, cancel("a")), TWO])
def test_only_an_interrupted_job_is_requeued(state: State) -> None:
    assert (
        conflict(state, Requeue("a", "why", RequeueCause.FAILURE))
        == "job a is no longer interrupted"
    )


# --- the ledger ----------------------------------------------------------------


def test_a_ledger_after_starts_is_that_of_the_state_after_them() -> None:
    limited = Tenants((Tenant("small", limit_gpus=24), Tenant(DEFAULT_TENANT)))
    state = run(EMPTY, LoadTenants(limited), submit("a", 2, tenant="small"), submit("b", 1))
    state = run(state, submit("c", 1, tenant="small"))
    ledger, alone = Ledger(state), Affinity(exclusive="rack")
    assert ledger.quotas.allowance(state.jobs["c"], ledger.free).limit == 3
    assert ledger.affinity.closed("x", alone) == 0
    starts = (start("a", 0, 1), start("b", 5))
    events = committed(state, planned(state, *starts))
    for event, action in zip(events, starts, strict=True):
        ledger.apply((event,), taken(action))
    fresh = Ledger(replay(events, state))
    assert (ledger.free, ledger.state) == (fresh.free, fresh.state)
    assert ledger.affinity.closed("x", alone) == fresh.affinity.closed("x", alone) == 0b110011
    for at in (ledger, fresh):
        assert at.quotas.allowance(state.jobs["c"], at.free).limit == 1


def test_starts_are_checked_without_a_state_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    state = run(EMPTY, submit("a", 2), submit("b", 1))
    plan = planned(state, start("a", 0, 1), start("b", 5), start("a", 2, 3))
    replayed: list[State] = []

    def counted(events: Iterable[Event], before: State) -> State:
        replayed.append(before)
        return replay(events, before)

    monkeypatch.setattr(ledger_module, "replay", counted)
    assert len(committed(state, replace(plan, actions=plan.actions[:2]))) == 2
    assert not replayed
    # The second start of a job needs the state after the first, and falls.
    assert len(committed(state, plan)) == 2
    assert len(replayed) == 1


def test_every_action_that_falls_says_what_kind_of_change_made_it_fall() -> None:
    state = run(TWO, fail("z0-r0-h0"), cordon("z0-r0-h1"), cancel("b"))
    answer = commit(state, planned(TWO, start("a", 0, 1), start("b", 5, 4, spares=(6,))), 0)
    assert [each.reason for each in answer.stale] == [StaleReason.HOSTS, StaleReason.JOB]
    said = "job a: 2 hosts are not free: z0-r0-h0, z0-r0-h1; job b is no longer queued"
    assert str(answer) == said


def test_hosts_that_were_added_to_a_ledger_stay_in_the_next_one() -> None:
    """A start on spares on loan that also evicts has both."""
    jobs = run(EMPTY, submit("a", 2), submit("b", 1))
    ledger = Ledger(placed(jobs, start("a", 0, 1), start("b", 5)))
    assert not ledger.free & 0b100001
    ledger.free |= 0b1
    after = ledger.after([JobRequeued(0, "b", "makes room", RequeueCause.PREEMPTED)])
    assert after.free & 0b100011 == 0b100001


# --- the step that a plan claims -----------------------------------------------

WIDE = loaded(fabric(zones=3, racks=3, hosts=2))


@cache
def decided() -> tuple[State, Start]:
    """A state in which a gang waits, and the start that is decided for it."""
    state = run(WIDE, trained("a", 8))
    [start] = decide(state, 0, SchedulingOptions()).actions
    assert isinstance(start, Start)
    return state, start


@pytest.mark.parametrize(
    ("share", "least", "wrong"),
    [
        (0.9, 0.5, "job a: a step is "),
        (1.1, 0.5, "job a: a step is "),
        (1.0, 1.5, "job a: lower bound "),
    ],
)
def test_a_false_claim_of_the_step_is_refused(share: float, least: float, wrong: str) -> None:
    state, start = decided()
    step = start.placement.step
    step = StepBound(share * step.seconds, least * step.least_seconds)
    false = replace(start, placement=replace(start.placement, step=step))
    answer = commit(state, planned(state, false), 0)
    [stale] = answer.stale
    assert stale.reason is StaleReason.STEP
    assert stale.detail.startswith(wrong)


def test_a_link_that_changed_since_makes_the_claim_false_and_the_next_one_true() -> None:
    state, start = decided()
    assert committed(state, planned(state, start))
    zone = WIDE.loaded_fabric.hosts[start.placement.hosts[0]][:2]
    slower = run(state, ReportLink(zone, 0.1))
    assert isinstance(commit(slower, planned(slower, start), 0), Conflict)
    assert committed(slower, decide(slower, 0, SchedulingOptions()))


def test_a_step_with_a_window_ahead_holds() -> None:
    state, start = decided()
    ahead = replace(window("w", start_s=60, end_s=3_600), links=("z0", "z1", "z2"), share=0.2)
    state = run(state, SetWindow(ahead))
    [event] = committed(state, decide(state, 0, SchedulingOptions()))
    assert event.step.seconds > start.placement.step.seconds
