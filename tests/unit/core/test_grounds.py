"""Hosts by the windows that cover them, and how many of each may be promised."""

from placement.fabric import hostset
from scheduler.core import SchedulingOptions, State
from scheduler.core.capacity.host_classes import HostClasses
from scheduler.core.capacity.placer import make_placer
from scheduler.core.model.job import SECOND_NS
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.rules.calendar import Calendar
from tests.build import fabric, job, loaded, run, settled, submit
from tests.windows import set_window

EVERYTHING = hostset.full(4)


def grounds(state: State) -> HostClasses:
    """Of four free hosts, from time 0 on."""
    return HostClasses(0, EVERYTHING, [], Calendar(state), EVERYTHING)


def windowed(*limits_s: int, hosts: int = 1) -> State:
    """z0-r0 closes at 10 s; jobs j0, j1 ... wait."""
    state = run(loaded(fabric(1, 2, 2)), set_window("w", "z0-r0", start_s=10, end_s=20))
    jobs = [submit(f"j{i}", hosts, limit_s=limit_s) for i, limit_s in enumerate(limits_s)]
    return run(state, *jobs)


def test_short_jobs_are_given_what_closes_soon() -> None:
    state = windowed(10, hosts=3)
    found = grounds(state).shares(job(state, "j0"), 0, 10 * SECOND_NS)
    assert found == ((0, 2), (2, 1))


def test_long_ones_have_the_rest_alone() -> None:
    state = windowed(11, hosts=2)
    ground = grounds(state)
    assert ground.shares(job(state, "j0"), 0, 11 * SECOND_NS) == ((2, 2),)
    ground.book(0, 5 * SECOND_NS, ((2, 1),))
    assert ground.shares(job(state, "j0"), 0, 11 * SECOND_NS) is None


def test_what_is_booked_later_is_no_room_now() -> None:
    state = windowed(11)
    ground = grounds(state)
    ground.book(5 * SECOND_NS, 30 * SECOND_NS, ((3, 1),))
    room = ground.room(job(state, "j0"), EVERYTHING, 0, 11 * SECOND_NS)
    assert room.bit_count() == 1
    assert not room & hostset.of([0, 1])


def test_a_promise_is_said_anew_when_windows_are_others() -> None:
    state = windowed(5, hosts=3)
    shares = ((1, 1), (3, 2))
    assert grounds(state).of_today(shares) == ((0, 1), (2, 2))
    bare = run(loaded(fabric(1, 2, 2)), submit("j0", 3, limit_s=5))
    assert grounds(bare).of_today(shares) == ((0, 3),)


def test_a_running_gang_that_may_not_grow_holds_no_later_time() -> None:
    """All that is free is held for b in a while. What a would take before is nothing, and
    after it a has no place in the plan that b would have to go round."""
    limits = SchedulingOptions(policy="conservative")
    state = settled(run(loaded(fabric(1, 1, 5)), submit("a"), submit("b")), 0, limits)
    free = state.loaded_fabric.names(hostset.members(state.free))
    state = run(state, set_window("w", *free, start_s=100, end_s=200, jobs=("b",)))
    a, b, end_ns = job(state, "a"), job(state, "b"), 1_000 * SECOND_NS
    find = make_placer(state, limits)
    cycle = SchedulingCycle(state, 0, limits, state.free, find, find)
    assert cycle.spare_room(a, end_ns) == (0, 0)
    assert cycle.spare_room(b, end_ns) == (state.free, 3)
    cycle.record_growth(b, state.free & -state.free, end_ns)
    assert cycle.spare_room(b, end_ns)[1] == 2
