"""Uplinks of domains as gangs meet them: what they carry, who may cross them, who has to leave.

A gang that starts takes uplinks as they will be while it runs, with the windows that it would
run into; one that runs crosses what it crosses until it is made to leave.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.links import uplink_of, with_links
from placement.fabric.tree import Fabric, masks
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import LinkUse
from scheduler.core.model.state import State
from scheduler.core.model.window import Leave


def fabric_between(state: State, start_ns: int, end_ns: int) -> Fabric:
    """Return the fabric with the links that a gang would have that runs from start to end."""
    bookings = [b for b in state.windows.values() if b.window.links]
    if all(b.is_closing or not b.overlaps(start_ns, end_ns) for b in bookings):
        return state.loaded_fabric
    ahead = (b for b in bookings if b.is_closing or b.overlaps(start_ns, end_ns))
    return with_links(state.loaded_fabric, *state.links_with(ahead))


@struct(frozen=True, slots=True)
class ClosedLink:
    """An uplink that gangs must leave: they move to one side of it, or, if `must`, wait in the
    queue where there is no room. `hosts`: of the domain; `free`: all that are."""

    name: str
    hosts: HostSet
    free: HostSet
    must: bool
    title: str

    def leaving(self, job: Job) -> HostSet:
        """The hosts on one side of a gang that crosses it: the side with fewer blocks, unless
        there is room for the other one alone."""
        gang = hostset.of(job.hosts)
        inside, outside = gang & self.hosts, gang & ~self.hosts
        if not inside or not outside:
            return 0
        could = self.free | hostset.of(job.spares)
        sides = (
            (inside.bit_count() > (could & ~self.hosts).bit_count(), inside.bit_count(), inside),
            (outside.bit_count() > (could & self.hosts).bit_count(), outside.bit_count(), outside),
        )
        return min(sides)[-1]


def closed_links(state: State) -> Iterator[ClosedLink]:
    """Return the uplinks that are draining, and those of open windows whose gangs leave."""
    for name, record in state.links.items():
        if record.use is LinkUse.DRAINING:
            title = f"the uplink of {name} drains"
            yield ClosedLink(name, _hosts(state, name), state.free, False, title)
    for booking in state.windows.values():
        window = booking.window
        if booking.is_closing and booking.is_clearing and not window.share:
            for name in window.links:
                must = window.leave is Leave.REQUEUE
                title = f"{window.title} opened"
                yield ClosedLink(name, _hosts(state, name), state.free, must, title)


def _hosts(state: State, name: str) -> HostSet:
    fabric = state.loaded_fabric
    depth, number = uplink_of(fabric, name, "link")
    return masks(fabric, depth)[number]
