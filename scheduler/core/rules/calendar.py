"""Which hosts windows close to a job, and when: one rule for starts, swaps and outlooks.
Hosts on probation are closed to all but preemptible jobs.

A gang does not start on hosts of a window that it would reach into, taken to run as long as
its limit; a reservation is open to the jobs that it is held for. What runs already is left
alone until the window opens.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from functools import reduce
from operator import or_

from placement.fabric.hostset import HostSet
from scheduler.core.model.events import WindowClosed, WindowOpened
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.plan import Stale, StaleReason, WindowTransition
from scheduler.core.model.state import State
from scheduler.core.model.window import Booking, Leave, WindowKind
from scheduler.core.policies.affinity import matches
from scheduler.core.rules.network.links import closed_links

_WILD = re.compile(r"[*?[]")


class Calendar:
    """The windows of one state. Cost: O(windows) for each span and kind of job, nothing where
    there are none."""

    # Of windows alone, and of most states there are none.
    _starts: Sequence[int] = ()
    _names: tuple[str, ...] = ()
    _prefixes: tuple[str, ...] = ()
    _clearing: Sequence[Booking] = ()
    _idle: HostSet = 0

    def __init__(self, state: State) -> None:
        self._bookings = tuple(state.windows.values()) if state.windows else ()
        self._tenants, self._probation = state.tenants, state.index.probation
        self._links = tuple(closed_links(state)) if state.links or self._bookings else ()
        self._strange: dict[tuple[str, str], int] = {}
        self._groups: list[tuple[Booking, ...]] = []  # of windows that are closed to the same
        self._closed: dict[tuple[int, int, int], HostSet] = {}
        if not self._bookings:
            return
        self._starts = sorted([b.window.start_ns for b in self._bookings])
        self._names = tuple(dict.fromkeys([n for b in self._bookings for n in b.window.jobs]))
        self._prefixes = tuple([_WILD.split(name, maxsplit=1)[0] for name in self._names])
        self._clearing = [b for b in self._bookings if b.is_clearing]
        self._idle = state.index.closed & ~state.index.held & ~state.index.unhealthy

    def __bool__(self) -> bool:
        return bool(self._bookings) or bool(self._probation)

    def on_probation(self, job: Job) -> HostSet:
        """Return the hosts that are closed to `job` because they are on probation after
        failures."""
        return 0 if job.is_preemptible else self._probation

    def is_for(self, booking: Booking, job: Job) -> bool:
        """Whether `job` may use the hosts while the window lasts."""
        window = booking.window
        if window.kind is WindowKind.MAINTENANCE:
            return False
        if matches(window.jobs, job.name):
            return True
        return bool(window.tenant) and window.tenant in self._tenants.path(job.tenant)

    def closing(self, job: Job, start_ns: int, end_ns: int) -> list[Booking]:
        """Windows that close hosts to a gang of `job` that would run from start to end."""
        group = self._groups[self._group(job)]
        return [b for b in group if b.overlaps(start_ns, end_ns)]

    def kind(self, job: Job, end_ns: int) -> Hashable:
        """Return a key that is equal for jobs of a tenant to which the same windows close if they
        start at one moment: few of thousands differ by name and by length."""
        length, name = bisect_left(self._starts, end_ns), job.spec.name
        return (length, self._name_in_windows(name)) if name.startswith(self._prefixes) else length

    def _name_in_windows(self, name: str) -> str:
        """The name where windows are for jobs of that name."""
        return name if matches(self._names, name) else ""

    def _group(self, job: Job) -> int:
        """Return the number of the set of windows that close to `job`."""
        key = (job.tenant, self._name_in_windows(job.name))
        group = self._strange.get(key)
        if group is None:
            windows = tuple(b for b in self._bookings if not self.is_for(b, job))
            if windows not in self._groups:
                self._groups.append(windows)
            group = self._strange[key] = self._groups.index(windows)
        return group

    def closed(self, job: Job, start_ns: int, end_ns: int) -> HostSet:
        """Return hosts closed to `job` in that time, by windows or as they are on probation."""
        if not self._bookings:
            return self.on_probation(job)
        key = (start_ns, self._group(job), bisect_left(self._starts, end_ns))
        hosts = self._closed.get(key)
        if hosts is None:
            hosts = reduce(or_, (b.hosts for b in self.closing(job, start_ns, end_ns)), 0)
            self._closed[key] = hosts
        return hosts | self.on_probation(job)

    def host_classes(self, everything: HostSet) -> list[HostSet]:
        """Partition the hosts into sets that the same windows cover: first those that a window
        closes first, last the hosts that no window covers."""
        classes = [everything]
        covers = sorted(self._bookings, key=lambda b: (-b.window.start_ns, b.window.name))
        for hosts in [self._probation, *(booking.hosts for booking in covers)]:
            parts = [(ground & hosts, ground & ~hosts) for ground in classes]
            classes = [i for i, _ in parts if i] + [o for _, o in parts if o]
        return classes

    def in_the_way(
        self, job: Job, hosts: HostSet, start_ns: int, end_ns: int
    ) -> tuple[HostSet, str]:
        """Return those of `hosts` that the first obstacle closes to `job`, and that obstacle."""
        if not self:
            return 0, ""
        if closed := self.on_probation(job) & hosts:
            return closed, "is suspect"
        for booking in self.closing(job, start_ns, end_ns):
            if closed := booking.hosts & hosts:
                return closed, f"is in {booking.window.titled(self._tenants.path(job.tenant))}"
        return 0, ""

    def own(self, job: Job, start_ns: int, end_ns: int) -> HostSet:
        """Return the hosts held for `job` at some time between start and end."""
        overlapping = (b for b in self._bookings if b.overlaps(start_ns, end_ns))
        return reduce(or_, (b.hosts for b in overlapping if self.is_for(b, job)), 0)

    def hosts_to_clear(self) -> HostSet:
        """Hosts that some gangs have to leave for windows that are open, or for links."""
        if self._links:
            return -1  # whoever crosses one leaves one side of it, whichever has fewer blocks
        return reduce(or_, (b.hosts for b in self._clearing), 0)

    def leaving(self, job: Job) -> tuple[HostSet, HostSet]:
        """Return the hosts of open windows that a gang of `job` leaves if other hosts take over,
        and the hosts that it leaves in any case."""
        may, must = 0, 0
        for booking in self._clearing:
            if not self.is_for(booking, job):
                may |= booking.hosts
                must |= booking.hosts if booking.window.leave is Leave.REQUEUE else 0
        for link in self._links:
            hosts = link.leaving(job)
            may |= hosts
            must |= hosts if link.must else 0
        return may, must

    def leave_text(self, job: Job) -> str:
        """Name the open windows that make a gang of `job` leave: `window rack-12 opened`."""
        known = self._tenants.path(job.tenant)
        titles = [
            booking.window.titled(known)
            for booking in self._clearing
            if booking.window.leave is Leave.REQUEUE
            and booking.hosts & job.allocation
            and not self.is_for(booking, job)
        ]
        opened = [f"{' and '.join(titles)} opened"] if titles else []
        links = (link.title for link in self._links if link.must and link.leaving(job))
        return " and ".join([*opened, *dict.fromkeys(links)])

    def returns(self, after_ns: int) -> list[tuple[int, HostSet]]:
        """Each moment at which windows end, first one first, with the hosts that become
        free then: under maintenance now, idle and healthy."""
        times, later = [], 0
        for end_ns in sorted({b.window.end_ns for b in self._bookings}, reverse=True):
            ending = (b for b in self._bookings if b.is_closing and b.window.end_ns == end_ns)
            hosts = reduce(or_, (b.hosts for b in ending), 0) & self._idle & ~later
            later |= hosts
            if end_ns > after_ns:
                times.append((end_ns, hosts))
        return times[::-1]


def due_transitions(state: State, now_ns: int) -> tuple[WindowTransition, ...]:
    """Return the openings and closings of windows that are due, in order of time, then name."""
    if not state.windows:
        return ()
    due = ((_edge_ns(booking), name) for name, booking in state.windows.items())
    return tuple(
        WindowTransition(name, edge_ns) for edge_ns, name in sorted(due) if edge_ns <= now_ns
    )


def transition_event(
    state: State, turn: WindowTransition, now_ns: int
) -> WindowOpened | WindowClosed | Stale:
    """Return the event of a window's transition, if the window is still the same."""
    booking = state.windows.get(turn.name)
    if booking is None or _edge_ns(booking) != turn.edge_ns:
        return Stale(StaleReason.WINDOW, f"window {turn.name} has changed meanwhile")
    is_over = booking.state is WindowState.OPEN or booking.window.end_ns <= now_ns
    return (WindowClosed if is_over else WindowOpened)(now_ns, turn.name)


def next_edge_ns(state: State) -> int | None:
    """When the next window opens or closes; None when none will."""
    if not state.windows:
        return None
    return min(map(_edge_ns, state.windows.values()))


def _edge_ns(booking: Booking) -> int:
    is_open = booking.state is WindowState.OPEN
    return booking.window.end_ns if is_open else booking.window.start_ns
