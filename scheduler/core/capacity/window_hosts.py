"""Which hosts a window has, and whether it can be had: the checks of admit.

A window names its hosts when it is set, so that everybody can see what is spoken for. A
count is taken from hosts that will be free at its start before hosts that may not be, in
few domains, busy ones first, so that as much as possible of what is free is used meanwhile.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from operator import or_

from muster.structs import replace
from placement import BadInput
from placement.fabric import hostlist, hostset
from placement.fabric.hostset import HostSet
from placement.fabric.links import checked_share, uplink_of
from placement.fabric.tree import Fabric
from scheduler.core.capacity.outlook import nearest
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import JobState, WindowState
from scheduler.core.model.state import State
from scheduler.core.model.window import Booking, Window, WindowKind
from scheduler.core.tenancy.quota import domain_masks
from scheduler.core.wording import hosts_text


class HostsUnavailable(Exception):
    """The window is well formed, but the cluster cannot give it these hosts."""


def resolved(state: State, window: Window, now_ns: int) -> Window:
    """The window with the names of its hosts.

    Raises: BadInput naming the field, NotToBeHad.
    """
    _check(state, window, now_ns)
    before = state.windows.get(window.name)
    if before is not None and before.state is WindowState.OPEN:
        _check_open(before.window, window)
    fabric = state.loaded_fabric
    if before is not None and _has_same_hosts(before.window, window):
        chosen = before.hosts
    elif window.links and not window.among:
        chosen = 0
    else:
        chosen = _chosen(state, window)
    if window.kind is WindowKind.RESERVATION:
        _not_held_twice(state, window, chosen)
    return replace(window, hosts=fabric.names(hostset.members(chosen)))


def _check(state: State, window: Window, now_ns: int) -> None:
    if window.end_ns <= window.start_ns:
        raise BadInput("end_time", "must be after the start")
    if window.end_ns <= now_ns:
        raise BadInput("end_time", f"{moment(window.end_ns)} is in the past")
    if window.count < 0:
        raise BadInput("host_count", "must not be negative")
    if not window.among and not window.count and not window.links:
        raise BadInput("hosts", "name hosts or domains, say how many hosts, or name links")
    for at, name in enumerate(window.links):
        uplink_of(state.loaded_fabric, name, f"links.{at}")
    checked_share(window.share, "link_share")
    if window.share and not window.links:
        raise BadInput("link_share", "is of links: name them")
    if window.kind is WindowKind.MAINTENANCE:
        for field, value in (("tenant", window.tenant), ("jobs", window.jobs)):
            if value:
                raise BadInput(field, "must be empty for maintenance; make it a reservation")
        if window.count:
            raise BadInput("host_count", "must be 0 for maintenance, which names its hosts")
    elif window.links:
        raise BadInput("links", "must be empty for a reservation; make it maintenance")
    elif not window.tenant and not window.jobs:
        raise BadInput("tenant", "a reservation needs a tenant or jobs")
    if window.tenant and window.tenant not in state.tenants.by_name:
        known = ", ".join(state.tenants.by_name)
        raise BadInput("tenant", f"no tenant {window.tenant!r}; there are {known}")


def _check_open(before: Window, window: Window) -> None:
    """Refuse changes of an open window, but of its end and terms: others rely on its hosts."""
    fixed = ("kind", "start_ns")
    if any(getattr(before, name) != getattr(window, name) for name in fixed):
        raise HostsUnavailable(f"window {window.name} is open: its kind and its start are fixed")
    if not _has_same_hosts(before, window):
        raise HostsUnavailable(f"window {window.name} is open: its hosts and links are fixed")


def _has_same_hosts(before: Window, window: Window) -> bool:
    return _hosts_and_links(before) == _hosts_and_links(window)


def _hosts_and_links(window: Window) -> tuple[object, ...]:
    return window.among, window.count, window.links, window.share


def _not_held_twice(state: State, window: Window, chosen: HostSet) -> None:
    """Maintenance may come over a reservation, another reservation may not."""
    for concurrent in _find_overlapping(state, window):
        twice = concurrent.hosts & chosen
        if twice and concurrent.window.kind is WindowKind.RESERVATION:
            host = state.loaded_fabric.hosts[hostset.members(twice)[0]]
            raise HostsUnavailable(
                f"host {host} is held by window {concurrent.window.name} at that time"
            )


def _find_overlapping(state: State, window: Window) -> list[Booking]:
    """Other windows at that time."""
    return [
        booking
        for name, booking in state.windows.items()
        if name != window.name and booking.overlaps(window.start_ns, window.end_ns)
    ]


def reserved_by_others(state: State, window: Window) -> HostSet:
    """Hosts of other windows at that time."""
    return reduce(or_, (concurrent.hosts for concurrent in _find_overlapping(state, window)), 0)


def _chosen(state: State, window: Window) -> HostSet:
    fabric = state.loaded_fabric
    pool = named(fabric, window.among)
    if not window.count:
        return pool
    pool &= ~(reserved_by_others(state, window) | state.index.unhealthy)
    there = pool.bit_count()
    if there < window.count:
        where = f" in {', '.join(window.among)}" if window.among else ""
        raise HostsUnavailable(
            f"needs {hosts_text(window.count)}{where}; {there:,} are in service and in no"
            " other window then"
        )
    late = find_hosts_busy_at(state, window.start_ns)
    chosen = nearest(
        fabric, pool & ~late, state.free, min(window.count, (pool & ~late).bit_count())
    )
    lacking = window.count - chosen.bit_count()
    return chosen | nearest(fabric, pool & late, state.free, lacking) if lacking else chosen


def named(fabric: Fabric, among: tuple[str, ...]) -> HostSet:
    """Look up hosts, by the names or ranges of hosts and of domains of any tier. Raises:
    BadInput."""
    if not among:
        return hostset.full(fabric.host_count)
    members = 0
    for at, text in enumerate(among):
        try:
            names = hostlist.expand(text)
        except BadInput as error:
            raise BadInput(f"hosts.{at}", error.message) from None
        for name in names:
            hosts = domain(fabric, name)
            if not hosts:
                raise BadInput(f"hosts.{at}", f"no host and no domain {name!r} in this fabric")
            members |= hosts
    return members


def domain(fabric: Fabric, name: str) -> HostSet:
    """The host of this name, or the hosts of this domain; 0 when there is neither."""
    if name in fabric.index_by_name:
        return 1 << fabric.index_by_name[name]
    for tier in fabric.tiers:
        if name in tier.domains:
            return domain_masks(fabric, tier.name)[tier.domains.index(name)]
    return 0


def find_hosts_busy_at(state: State, start_ns: int) -> HostSet:
    """Return hosts of gangs that do not say that they end by then."""
    late = 0
    for job in state.in_state(JobState.RUNNING, JobState.INTERRUPTED):
        if not _ends_by(job, start_ns):
            late |= job.allocation
    return late


def _ends_by(job: Job, time_ns: int) -> bool:
    limit_s = job.spec.time_limit_s
    return limit_s is not None and job.present.start_ns + limit_s * SECOND_NS <= time_ns


def moment(time_ns: int) -> str:
    """Format a time: `2026-11-20 14:05 UTC`."""
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M UTC")


def gangs_on(state: State, booking: Booking) -> list[Job]:
    """Gangs that hold hosts of the window, in order of start."""
    gangs = state.in_state(JobState.RUNNING, JobState.INTERRUPTED)
    return [job for job in gangs if job.allocation & booking.hosts]
