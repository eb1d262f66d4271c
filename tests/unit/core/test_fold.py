"""What each event makes of the state, and the tables of states and moves."""

import pytest
from msgspec.structs import replace as with_fields

from muster.structs import replace
from placement.fabric import hostset
from placement.workload.request import StepBound, TierCut
from scheduler.core import State, apply, replay
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.commands import SetWindow
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangSwapped,
    HostMoved,
    HostSwap,
    JobEnded,
    JobRequeued,
    JobsReserved,
    JobStarted,
    JobSubmitted,
    NamesQualified,
)
from scheduler.core.model.lifecycle import (
    HOST_MOVES,
    JOB_MOVES,
    LIVE,
    HostMove,
    HostState,
    JobMove,
    JobState,
    RequeueCause,
)
from scheduler.core.model.records.host import HostRecord
from scheduler.core.model.state import RETAINED
from scheduler.core.model.window import Window, WindowKind
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.tenants import OPEN
from scheduler.core.tenancy.qualified_names import has_bare_names
from tests.build import cancel, end, fabric, fabric_spec, job, loaded, run, spec, started, submit
from tests.cases import case

EMPTY = loaded(fabric(2, 2, 2))
CUTS = (TierCut("zone", 160),)


def submitted(name: str, hosts: int = 2, priority: int = 0, at: int = 0) -> JobSubmitted:
    return JobSubmitted(at, f"uid-{name}", spec(name, hosts, priority=priority))


def begun(name: str, *hosts: int, spares: tuple[int, ...] = (), at: int = 0) -> JobStarted:
    names = EMPTY.loaded_fabric.names
    return JobStarted(at, name, 1, names(hosts), names(spares), CUTS, 100)


def moved(host: int, move: HostMove, at: int = 0) -> HostMoved:
    return HostMoved(at, EMPTY.loaded_fabric.hosts[host], move, "why")


def after(*events: Event) -> State:
    return replay(events, EMPTY)


def test_the_log_begins_with_a_fabric() -> None:
    assert State.empty().version == 0
    with pytest.raises(RuntimeError, match="no fabric"):
        _ = State.empty().free
    state = replay([FabricLoaded(0, fabric_spec())])
    assert state.version == 1
    assert state.loaded_fabric == fabric()
    assert state.free == hostset.full(8)


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_ended(outcome: JobState) -> None:
    state = after(
        submitted("a"), begun("a", 5, 4, spares=(6,)), JobEnded(8, "a", outcome, "because")
    )
    assert "a" not in state.jobs
    assert state.index.held == 0
    a = state.ended["uid-a"]
    assert (a.state, a.state_ns, a.reason) == (outcome, 8, "because")
    assert (a.hosts, a.spares) == ((5, 4), (6,))  # what it ran on stays on record


def test_find_takes_the_live_job_then_the_newest() -> None:
    first = (submitted("a", 1), JobEnded(0, "a", JobState.CANCELLED))
    second = with_fields(submitted("a", 2), uid="uid-2")
    assert job(after(*first), "a").uid == "uid-a"
    assert job(after(*first, second), "a").uid == "uid-2"
    ended_twice = after(*first, second, JobEnded(0, "a", JobState.CANCELLED))
    assert job(ended_twice, "a").uid == "uid-2"


def test_only_the_newest_ended_jobs_are_kept() -> None:
    state = EMPTY
    for i in range(RETAINED + RETAINED // 50 + 1):  # which are dropped some at a time
        name = f"j{i}"
        state = replay([submitted(name, 1), JobEnded(0, name, JobState.CANCELLED)], state)
    assert len(state.ended) == RETAINED
    assert state.find("j20") is None
    assert state.find("j21") is not None


def test_all_hosts_that_failed_since_the_stop_are_named() -> None:
    state = after(submitted("a"), begun("a", 0, 1), moved(1, HostMove.FAIL, at=5))
    state = replay([moved(0, HostMove.FAIL, at=7)], state)
    a = state.jobs["a"]
    assert (a.state, a.state_ns, a.hosts) == (JobState.INTERRUPTED, 7, (0, 1))  # held as yet
    assert state.index.held == hostset.of((0, 1))
    assert a.reason == "hosts z0-r0-h1, z0-r0-h0 failed: why"
    again = (
        JobRequeued(8, "a", "why", RequeueCause.FAILURE),
        begun("a", 2, 3, at=9),
        moved(2, HostMove.FAIL, at=11),
    )
    state = replay(again, state)
    assert state.jobs["a"].reason == "host z0-r1-h0 failed: why"


def test_a_host_that_was_left_is_not_named_again() -> None:
    swap = HostSwap(0, "z0-r0-h0", "z0-r1-h0")
    state = after(
        submitted("a"),
        begun("a", 0, 1),
        moved(0, HostMove.FAIL),
        GangSwapped(0, "a", 2, (swap,), CUTS),
        moved(1, HostMove.FAIL),
    )
    assert state.jobs["a"].reason == "host z0-r0-h1 failed: why"


def test_reasons_of_failures_are_those_of_hosts_still_out() -> None:
    first, second, third = (
        HostMoved(at, EMPTY.loaded_fabric.hosts[at], HostMove.FAIL, reason)
        for at, reason in enumerate(("one", "two", "three"))
    )
    state = after(submitted("a"), begun("a", 0, 1, 2), first, second)
    assert state.jobs["a"].reason == "hosts z0-r0-h0, z0-r0-h1 failed: one, two"
    state = replay([moved(0, HostMove.REPAIR, at=2), third], state)
    assert state.jobs["a"].reason == "hosts z0-r0-h0, z0-r0-h1, z0-r1-h0 failed: two, three"


def swap(*moves: tuple[int, int, int]) -> GangSwapped:
    hosts = EMPTY.loaded_fabric.hosts
    swaps = tuple(HostSwap(block, hosts[left], hosts[joined]) for block, left, joined in moves)
    return GangSwapped(9, "a", 2, swaps, (TierCut("zone", 320),))


STRUCK = (submitted("a"), begun("a", 0, 1, spares=(2,)), moved(0, HostMove.FAIL))


def test_the_bound_outlives_a_swap_among_the_hosts_it_was_proved_for() -> None:
    """Spares were free when the gang was placed; another host may not have been."""
    assert after(*STRUCK, swap((0, 0, 2))).jobs["a"].present.lower_bound == 100
    assert after(*STRUCK, swap((0, 0, 7))).jobs["a"].present.lower_bound == 0


def test_the_bound_on_a_step_outlives_a_swap_as_that_on_the_cut_does() -> None:
    started = with_fields(begun("a", 0, 1, spares=(2,)), step=StepBound(2.0, 1.5))
    struck = (STRUCK[0], started, STRUCK[2])
    assert after(*struck).jobs["a"].present.step == StepBound(2.0, 1.5)
    for joined, step_s, step in (
        (2, 2.5, StepBound(2.5, 1.5)),
        (7, 2.5, StepBound(2.5)),
        (2, 1.2, StepBound(1.2)),  # as little as that was not thought possible
    ):
        swapped = with_fields(swap((0, 0, joined)), step_s=step_s)
        assert after(*struck, swapped).jobs["a"].present.step == step
    assert after(*struck, swap((0, 0, 2))).jobs["a"].present.step is None


def test_a_gang_that_had_just_ended_when_its_host_died_is_completed() -> None:
    state = after(submitted("a"), begun("a", 0, 1), moved(0, HostMove.FAIL))
    assert state.jobs["a"].state is JobState.INTERRUPTED
    ended = apply(state, JobEnded(9, "a", JobState.COMPLETED))
    assert ended.ended["uid-a"].state is JobState.COMPLETED
    assert not ended.index.held


def test_a_draining_host_that_is_still_held_drains_on() -> None:
    state = after(
        submitted("a"),
        begun("a", 0, 1, spares=(2,)),
        moved(0, HostMove.DRAIN),
        moved(1, HostMove.FAIL),
        swap((1, 1, 2)),
    )
    assert state.host(0).state is HostState.DRAINING


@pytest.mark.parametrize(
    "events",
    [
        (FabricLoaded(0, fabric_spec()),),
        (begun("a", 0, 1),),
        (JobEnded(0, "a", JobState.CANCELLED),),
        (submitted("a"), JobRequeued(0, "a", "", RequeueCause.FAILURE)),
        (submitted("a"), swap((0, 0, 1))),
        (submitted("a"), begun("a", 0, 1), begun("a", 2, 3)),
        (submitted("a"), JobEnded(0, "a", JobState.COMPLETED)),
        (submitted("a"), JobEnded(0, "a", JobState.QUEUED)),
        (moved(0, HostMove.REPAIR),),
        (moved(0, HostMove.EMPTY),),
        (moved(0, HostMove.FAIL), moved(0, HostMove.CORDON)),
        (HostMoved(0, "nowhere", HostMove.FAIL),),
        (submitted("a"), with_fields(begun("a", 0, 1), hosts=("nowhere", "z0-r0-h0"))),
    ],
)
def test_what_the_log_cannot_hold_is_a_bug(events: tuple[Event, ...]) -> None:
    """The tables are the law: apply goes nowhere they do not lead."""
    with pytest.raises(KeyError):
        after(*events)


STORED = set(HostState) - {HostState.UNKNOWN}  # that is only shown


def reachable(table: dict, start: object) -> set[object]:  # type: ignore[type-arg]
    seen, new = {start}, [start]
    while new:
        for state in table[new.pop()].values():
            if state not in seen:
                seen.add(state)
                new.append(state)
    return seen


def test_every_state_has_a_row_and_is_reached_and_every_move_is_used() -> None:
    assert set(JOB_MOVES) == set(JobState) == reachable(JOB_MOVES, JobState.QUEUED)
    assert set(HOST_MOVES) == STORED == reachable(HOST_MOVES, HostState.HEALTHY)
    assert {move for row in JOB_MOVES.values() for move in row} == set(JobMove)
    assert {move for row in HOST_MOVES.values() for move in row} == set(HostMove)


def test_ended_jobs_stay_ended() -> None:
    ended = {state for state, row in JOB_MOVES.items() if not row}
    assert ended == {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}
    assert set(JobState) - ended == LIVE


def test_every_host_can_come_back() -> None:
    for state in STORED:
        with case(state=state):
            assert HostState.HEALTHY in reachable(HOST_MOVES, state)


AWAY = Affinity(avoid=(("rack", ("b*", "ads/x")),), near="a")
HELD = Window("w", WindowKind.RESERVATION, 10**12, 2 * 10**12, ("z0",), jobs=("a", "ads/*"))


def test_every_name_of_the_state_is_full() -> None:
    state = started(loaded(), submit("old"), submit("a", 2))
    state = run(state, cancel("old"), submit("b", 1, affinity=AWAY), SetWindow(HELD))
    state = replay([JobsReserved(5, (("b", 10),), (("b", (("z0-r0-h0", 1),)),))], state)
    assert has_bare_names(state)
    after = replay([NamesQualified(7)], state)
    assert not has_bare_names(after)
    assert list(after.jobs) == ["default/a", "default/b"] == [j.name for j in after.jobs.values()]
    assert (list(after.index.queue), after.index.running) == (["default/b"], ("default/a",))
    assert [job.name for job in after.ended.values()] == ["default/old"]
    assert (dict(after.reserved), list(after.shares)) == ({"default/b": 10}, ["default/b"])
    assert after.jobs["default/b"].spec.tenant == OPEN.default
    wants = after.jobs["default/b"].spec.affinity
    assert wants == Affinity(avoid=(("rack", ("default/b*", "ads/x")),), near="default/a")
    assert after.windows["w"].window.jobs == ("default/a", "ads/*")
    assert (after.version, after.index.held) == (state.version + 1, state.index.held)


def test_sentences_of_jobs_say_the_full_name() -> None:
    state = started(loaded(), submit("train", 2))
    job = replace(state.jobs["train"], reason="preempted by train after 5 min (not train-2)")
    after = replay([NamesQualified(7)], replace(state, jobs={"train": job}))
    reason = after.jobs["default/train"].reason
    assert reason == "preempted by default/train after 5 min (not train-2)"


def test_records_of_hosts_say_the_full_name_of_who_excluded_them() -> None:
    state = started(loaded(), submit("job", 2))
    record = HostRecord(seen=(("xid 79", 1), ("job job", 2), ("job gone", 3)))
    after = replay([NamesQualified(7)], replace(state, records=PersistentMap({0: record})))
    assert after.records[0].seen == (("xid 79", 1), ("job default/job", 2), ("job gone", 3))


def test_names_that_are_full_stay() -> None:
    state = run(loaded(), submit("ads/x"))
    assert not has_bare_names(state)
    assert list(replay([NamesQualified(7)], state).jobs) == ["ads/x"]


def test_jobs_that_wait_for_others_wait_for_their_full_names() -> None:
    waits = submit("b")
    terms = (DependencyTerm(DependencyKind.AFTEROK, "a"), DependencyTerm(DependencyKind.SINGLETON))
    waits = replace(waits, spec=replace(waits.spec, dependencies=terms))
    state = run(started(loaded(), submit("a")), waits)
    after = replay([NamesQualified(7)], state)
    job = after.jobs["default/b"]
    assert [each.job for each in job.dependencies] == ["default/a"]
    assert [term.job for term in job.spec.dependencies] == ["default/a", ""]
    assert (list(after.index.deferred), list(after.index.dependants.values())) == (
        ["default/b"],
        [("default/b",)],
    )
    assert run(after, end("default/a")).jobs["default/b"].dependencies[0].is_met
