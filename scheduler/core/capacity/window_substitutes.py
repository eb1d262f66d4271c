"""Reservations by count keep their number: another host stands in for one that is out.

Who asked for so many hosts was given some by name, so that everybody can see them; when one
of these is not to be begun on any more, another takes its place, by the rule by which the
first were chosen, in the domains of the hosts that are left if it can be had there. A window by
name has the hosts that were named. What is repaired later is no longer part of the window.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.constraints import around
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.outlook import nearest
from scheduler.core.capacity.window_hosts import find_hosts_busy_at, named, reserved_by_others
from scheduler.core.model.events import WindowSet
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.plan import ReplaceReservedHosts, Stale, StaleReason
from scheduler.core.model.state import State
from scheduler.core.model.window import Booking
from scheduler.core.tenancy.guarantees import highest


def substitutes(state: State) -> Iterator[ReplaceReservedHosts]:
    """Return substitutes for hosts that reservations have lost, one action a reservation, in order
    of the windows."""
    taken: HostSet = 0
    for name, booking in state.windows.items():
        lost = _unhealthy_hosts(state, booking)
        pool = _pool(state, booking) & ~taken if lost else 0
        count = min(lost.bit_count(), pool.bit_count())
        if count:
            joined = _nearest(state, pool, booking.hosts & ~lost, count)
            taken |= joined
            yield ReplaceReservedHosts(name, highest(lost, count), joined)


def rehosted(state: State, action: ReplaceReservedHosts, now_ns: int) -> WindowSet | Stale:
    """Return the event of a substitution, if the window still lacks these hosts."""
    booking = state.windows.get(action.name)
    if booking is None or action.left & ~_unhealthy_hosts(state, booking):
        text = f"window {action.name} needs no other hosts any more"
        return Stale(StaleReason.WINDOW, text)
    if action.joined & ~_pool(state, booking):
        text = f"window {action.name}: its new hosts are no longer available"
        return Stale(StaleReason.HOSTS, text)
    hosts = booking.hosts & ~action.left | action.joined
    names = state.loaded_fabric.names(hostset.members(hosts))
    return WindowSet(now_ns, replace(booking.window, hosts=names))


def _unhealthy_hosts(state: State, booking: Booking) -> HostSet:
    return booking.hosts & state.index.unhealthy if booking.window.count else 0


def _pool(state: State, booking: Booking) -> HostSet:
    """Hosts that could stand in: free by the start as far as is known, or free now once the
    window is open."""
    window = booking.window
    pool = named(state.loaded_fabric, window.among) & ~booking.hosts
    pool &= ~(reserved_by_others(state, window) | state.index.unhealthy)
    if booking.state is WindowState.OPEN:
        return pool & state.free
    return pool & ~find_hosts_busy_at(state, window.start_ns)


def _nearest(state: State, pool: HostSet, kept: HostSet, count: int) -> HostSet:
    fabric = state.loaded_fabric
    near = pool & around(fabric, 0, kept) if fabric.tiers else pool
    if near.bit_count() >= count:
        pool = near
    return nearest(fabric, pool, state.free, count)
