"""What windows promise, after every event of the days of other machines, and any window."""

from collections.abc import Mapping
from random import Random

from placement.fabric import hostset
from scheduler.core import JobState, Plan, SchedulingOptions, State
from scheduler.core.model.commands import Command
from scheduler.core.model.events import Event, GangSwapped, JobStarted
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.plan import Start, Swap
from scheduler.core.model.scheduling_options import time_limit_ns
from scheduler.core.model.window import Leave
from scheduler.core.rules.calendar import next_edge_ns
from tests.property.laws import FABRIC
from tests.windows import remove_window, set_window


def check_joins(state: State, event: Event, ends: Mapping[str, int]) -> None:
    """No gang begins on hosts that a window closes to it before its limit."""
    if not isinstance(event, JobStarted | GangSwapped):
        return
    job = state.jobs[event.name]
    names = (
        event.hosts + event.spares
        if isinstance(event, JobStarted)
        else tuple(swap.joined for swap in event.swaps)
    )
    joined = hostset.of(FABRIC.indices(names))
    end_ns = max(ends[job.name], event.time_ns + 1)
    for booking in state.windows.values():
        window = booking.window
        is_for = job.name in window.jobs
        overlaps = event.time_ns < window.end_ns and window.start_ns < end_ns
        assert is_for or not overlaps or not joined & booking.hosts, (event, window)


def check_ends(state: State, plan: Plan, now_ns: int, options: SchedulingOptions) -> None:
    for action in plan.actions:
        if isinstance(action, Start | Swap):
            job = state.jobs[action.name]
            if isinstance(action, Start):
                job = job.on(len(action.placement.hosts))
            assert action.end_ns == now_ns + time_limit_ns(job, options)


def check_closed(state: State) -> None:
    closed = [b.hosts for b in state.windows.values() if b.is_closing]
    assert state.index.closed == hostset.of(h for hosts in closed for h in hostset.members(hosts))
    assert not state.free & state.index.closed


def check_left(state: State, now_ns: int) -> None:
    """Windows are as the time says, and only those whom they let stay are still there."""
    edge_ns = next_edge_ns(state)
    assert edge_ns is None or edge_ns > now_ns
    for booking in state.windows.values():
        if booking.state is WindowState.OPEN and booking.window.leave is Leave.REQUEUE:
            for job in state.in_state(JobState.RUNNING):
                gang = hostset.of(job.hosts)
                assert job.name in booking.window.jobs or not gang & booking.hosts


def check_counts(state: State) -> None:
    """Who reserved a number has it: no host that is out could be replaced by a free one."""
    for name, booking in state.windows.items():
        window = booking.window
        if not window.count:
            continue
        assert booking.hosts.bit_count() == window.count
        if booking.hosts & state.index.unhealthy:
            others = [b for other, b in state.windows.items() if other != name]
            alike = [b for b in others if b.overlaps(window.start_ns, window.end_ns)]
            spoken_for = hostset.of(index for b in alike for index in b.indices)
            among = [h for h in FABRIC.hosts if not window.among or h.startswith(window.among)]
            spare = state.free & hostset.of(FABRIC.indices(among)) & ~booking.hosts
            assert not spare & ~spoken_for


def any_window(random: Random, now_ns: int) -> Command:
    """A rack, a host or a count, soon, for a while, for everybody or for one name."""
    name = random.choice("uvw")
    if random.random() < 0.25:
        return remove_window(name)
    start_s = now_ns // SECOND_NS + random.choice((-5, 0, 10, 60))
    place = random.choice([("z0-r0",), ("z1",), (random.choice(FABRIC.hosts),), ()])
    jobs = (random.choice("abcd"),) if not place or random.random() < 0.5 else ()
    return set_window(
        name,
        *place,
        start_s=start_s,
        end_s=start_s + random.choice((5, 30, 120)),
        count=random.randint(1, 3) if jobs else 0,
        jobs=jobs,
        leave=random.choice(list(Leave)),
        is_change=random.random() < 0.3,
    )
