"""What another fabric makes of the state, and what readers of the log see of it.

Hosts stand by number in a state, and another fabric numbers them differently: here everything that
has numbers gets the new ones. Admission has seen to it (admission.fabric) that no gang or spare
is on a host that goes, moves or gets another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TypeVar

from muster.structs import replace, struct
from placement.fabric import hostlist, hostset
from placement.fabric.hostset import HostSet
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.fold.effects import EventEffect, HostsChange
from scheduler.core.fold.hosts import next_reviews
from scheduler.core.model.events import FabricChanged
from scheduler.core.model.index import Index
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records import failure_rates
from scheduler.core.model.records.host import HostRecord
from scheduler.core.model.state import State
from scheduler.core.model.window import Booking, Shares
from scheduler.core.rules.job_size import sized_for_fabric

Entry = TypeVar("Entry")


@struct(frozen=True, slots=True)
class Renumbering:
    """Maps the host numbers of one fabric to those of another.

    `numbers[i]`: the new number of what was host i; None: it is gone. `joined`: new numbers of
    hosts that were not there.
    """

    numbers: tuple[int | None, ...]
    joined: HostSet

    @staticmethod
    def between(before: Fabric, after: Fabric, renames: Mapping[str, str]) -> Renumbering:
        """Match hosts of two fabrics. `renames`: new names by old ones."""
        index = after.index_by_name
        numbers = tuple(index.get(renames.get(name, name)) for name in before.hosts)
        kept = hostset.of(number for number in numbers if number is not None)
        return Renumbering(numbers, hostset.full(after.host_count) & ~kept)

    def of(self, host: int) -> int | None:
        return self.numbers[host]

    def hosts(self, hosts: Iterable[int]) -> tuple[int, ...]:
        """Renumber hosts in order, without removed ones."""
        renumbered = (self.numbers[host] for host in hosts)
        return tuple(number for number in renumbered if number is not None)

    def set(self, hosts: HostSet) -> HostSet:
        return hostset.of(self.hosts(hostset.members(hosts))) if hosts else 0

    def keys(self, entries: Mapping[int, Entry]) -> dict[int, Entry]:
        """Entries by host, in the order of the new numbers."""
        renumbered = ((self.numbers[host], entry) for host, entry in entries.items())
        kept = {number: entry for number, entry in renumbered if number is not None}
        return dict(sorted(kept.items()))


def changed(state: State, event: FabricChanged) -> State:
    """Return the state on another fabric. Cost: building that, and O(hosts + jobs)."""
    before, after, renames = state.built_fabric, from_spec(event.spec), dict(event.renames)
    numbers = Renumbering.between(before, after, renames)
    jobs = {name: _on(job, after, numbers) for name, job in state.jobs.items()}
    ended = {uid: _named(job, before) for uid, job in state.ended.items()}
    windows = {n: _booked(b, numbers, after, renames) for n, b in state.windows.items()}
    hosts = numbers.keys(state.hosts)
    joined = {host: HostRecord(since_ns=event.time_ns) for host in hostset.members(numbers.joined)}
    records = {**numbers.keys(state.records), **joined}
    shares = {name: _shared(kinds, numbers) for name, kinds in state.shares.items()}
    lapsed = {name for name, kinds in shares.items() if kinds is None}
    down = [0] * after.zone_count
    for host, known in hosts.items():
        down[after.zone_of(host)] += known.is_down
    faults = failure_rates.regrouped(
        state.faults, tuple(down), after.host_count - before.host_count, event.time_ns
    )
    following = replace(
        state,
        fabric=after,
        fabric_version=state.version + 1,
        fabric_ns=event.time_ns,
        links_ns=event.time_ns,
        jobs=PersistentMap(jobs),
        ended=PersistentMap(ended),
        hosts=PersistentMap(hosts),
        early=numbers.set(state.early),
        slow=numbers.set(state.slow),
        records=PersistentMap(dict(sorted(records.items()))),
        reserved=_without(state.reserved, lapsed),
        slips=_without(state.slips, lapsed),
        shares=PersistentMap({name: kinds for name, kinds in shares.items() if kinds is not None}),
        windows=PersistentMap(windows),
        links=PersistentMap(
            {
                renames.get(name, name): record
                for name, record in state.links.items()
                if _is_domain(after, renames.get(name, name))
            }
        ),
        faults=faults,
        index=_renumbered(state.index, numbers, windows),
    )
    return next_reviews(following, event.time_ns)


def _renumbered(index: Index, numbers: Renumbering, windows: Mapping[str, Booking]) -> Index:
    """The index on the other fabric. `windows`: there."""
    shared = ((numbers.of(host), names) for host, names in index.shared.items())
    return replace(
        index,
        held=numbers.set(index.held),
        lent=numbers.set(index.lent),
        shared=PersistentMap({host: names for host, names in shared if host is not None}),
        unhealthy=numbers.set(index.unhealthy),
        probation=numbers.set(index.probation),
        golden=numbers.set(index.golden),
        closed=reduce(or_, (b.hosts for b in windows.values() if b.is_closing), 0),
    )


def effects(before: State, event: FabricChanged, after: State) -> Iterator[EventEffect]:
    """Return the hosts that are new, or in other domains, and the names of removed hosts."""
    renames = dict(event.renames)
    was = {renames.get(name, name): _place(before, host) for host, name in _hosts(before)}
    touched = tuple(host for host, name in _hosts(after) if was.get(name) != _place(after, host))
    names = after.built_fabric.index_by_name
    removed = tuple(_place(before, host) for host, name in _hosts(before) if name not in names)
    yield HostsChange(after.version, event.time_ns, touched, after, removed)


def _hosts(state: State) -> Iterator[tuple[int, str]]:
    return enumerate(state.built_fabric.hosts)


def _place(state: State, host: int) -> tuple[str, ...]:
    """The host and its domains by name."""
    fabric = state.built_fabric
    domains = (fabric.domain(host, tier) for tier in range(len(fabric.tiers)))
    return (fabric.hosts[host], *domains)


def _on(job: Job, fabric: Fabric, numbers: Renumbering) -> Job:
    """A live job with its hosts by their new numbers; one that waits at the size that it would
    have if it came now."""
    strikes = ((strike, numbers.of(strike.host)) for strike in job.strikes)
    gang = job.gang and replace(
        job.gang,
        hosts=numbers.hosts(job.gang.hosts),
        spares=numbers.hosts(job.gang.spares),
        lent=numbers.hosts(job.gang.lent),
    )
    job = replace(
        job,
        gang=gang,
        strikes=tuple(replace(each, host=host) for each, host in strikes if host is not None),
    )
    return sized_for_fabric(job, fabric) if job.state is JobState.QUEUED else job


def _named(job: Job, fabric: Fabric) -> Job:
    """An ended job with the names that its hosts had."""
    if job.gang is None:
        return job
    return replace(job, gang=replace(job.gang, placed=job.host_names(fabric)))


def _shared(kinds: Shares, numbers: Renumbering) -> Shares | None:
    """None where a host that stands for its kind is removed: the promise has to be made anew."""
    renumbered = [(numbers.of(host), count) for host, count in kinds]
    kept = tuple((host, count) for host, count in renumbered if host is not None)
    return kept if len(kept) == len(kinds) else None


def _without(entries: Mapping[str, int], lapsed: set[str]) -> Mapping[str, int]:
    if lapsed.isdisjoint(entries):
        return entries
    return PersistentMap({name: value for name, value in entries.items() if name not in lapsed})


def _booked(
    booking: Booking, numbers: Renumbering, after: Fabric, renames: Mapping[str, str]
) -> Booking:
    """A window on the hosts of it that are left, under the names that they have now."""
    indices = tuple(sorted(numbers.hosts(booking.indices)))
    window = replace(
        booking.window,
        hosts=after.names(indices),
        among=_renamed(booking.window.among, after, renames),
        links=tuple(
            renames.get(name, name)
            for name in booking.window.links
            if _is_domain(after, renames.get(name, name))
        ),
    )
    return replace(booking, window=window, indices=indices)


def _renamed(among: tuple[str, ...], after: Fabric, renames: Mapping[str, str]) -> tuple[str, ...]:
    """Hosts and domains as they are called now, without those that are removed; ranges stay whole
    where nothing in them is another. Empty would mean all hosts: then the old names stay, which
    nothing has."""
    kept: list[str] = []
    for text in among:
        names = hostlist.expand(text)
        now = [renames.get(name, name) for name in names]
        now = [name for name in now if _is_known(after, name)]
        kept += [text] if now == names else now
    return tuple(kept) or among


def _is_known(fabric: Fabric, name: str) -> bool:
    return name in fabric.index_by_name or _is_domain(fabric, name)


def _is_domain(fabric: Fabric, name: str) -> bool:
    return any(name in tier.domains for tier in fabric.tiers)
