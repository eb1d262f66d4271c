"""The gangs that hold hosts while a decision is made, and the hosts that they leave a job.

Everything that a job's constraints say about hosts comes together here: labels and shapes
(placement.constraints) on the hosts that the affinity of other jobs leaves open, and the power and
the reads of storage that gangs leave each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from functools import reduce
from operator import or_
from typing import NamedTuple

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.constraints import (
    ANYWHERE,
    Constraints,
    around,
    room_text,
    tier_of,
    wish_text,
)
from placement.fabric.hostset import HostSet
from placement.fabric.power import PowerCap
from placement.fabric.storage import Storage
from placement.fabric.tree import Fabric, Floats, Ints
from placement.workload.request import Placement, Request
from placement.workload.segments import segments_text, usable_for
from scheduler.core.model.job import Job
from scheduler.core.model.state import State
from scheduler.core.policies.affinity import ANYBODY, Affinity, Occupant, closed_by, matches
from scheduler.core.policies.storage_use import (
    ROUNDING_GB_PER_S,
    dataset_store,
    most_read_gb_per_s,
    within_paths,
)


class ReadReservation(NamedTuple):
    """Reads of the storage that a blocked job waits for. `from_ns`: when it is foreseen to have
    them, 0 = it has them; `left`: GB/s that are left beside it then."""

    from_ns: int
    left: float


def _at_once(_: Job) -> int:
    return 0


class AffinityIndex:
    """The hosts that each job must not use because of other jobs, as gangs start. Mutable: each
    start is entered. Answers are kept until the next start, by what jobs have in common: thousands
    of waiting jobs ask for few different things."""

    def __init__(self, state: State) -> None:
        self._fabric: Fabric = state.loaded_fabric
        self._state = state
        self._wanting = [
            name
            for name in state.index.special
            if (wants := state.jobs[name].spec.affinity) is not ANYBODY and wants != ANYBODY
        ]
        # Made when it is first needed, for most decisions do not need it.
        self._by_name: dict[str, Occupant] | None = None
        self._since: list[Occupant | frozenset[str]] = []
        self._fitting: dict[tuple[Constraints | Request, int, HostSet], HostSet] = {}
        self._closed: dict[tuple[Affinity, tuple[bool, ...]], HostSet] = {}
        self._avoided: tuple[tuple[str, ...], ...] | None = None
        self._powered: dict[tuple[HostSet, int, int], HostSet] = {}
        self._idle: dict[int, float] | None = None  # GPUs, or parts of them, that draw no power
        self.has_reads = any(store.hold_jobs for store in self._fabric.stores)
        self._read_by_gangs = dict[Storage, float]()
        self._read_by_domain = dict[Storage, dict[str, Floats]]()
        self._reserved_reads = dict[tuple[Storage | None, str], ReadReservation]()
        self._expected_end_ns: Callable[[Job], int] = _at_once

    def record_allocation(self, job: Job, hosts: HostSet) -> None:
        """Record that `job` starts on these hosts."""
        wants, name = job.spec.affinity, job.spec.name
        self._charge_reads(job)
        if self._fabric.power is not None:
            self._idle = self._idle_beside(job, hosts)
        self._change(Occupant(name, wants, hosts))
        if wants is not ANYBODY and wants != ANYBODY and name not in self._wanting:
            self._wanting.append(name)
        self._forget()

    def remove_gangs(self, names: Collection[str]) -> None:
        """Remove gangs that ran. The GPUs of those that shared a host still count as in use."""
        self._change(frozenset(names))
        self._wanting = [name for name in self._wanting if name not in names]
        self._forget()

    def without(self, names: Collection[str]) -> AffinityIndex:
        """Return a copy without these gangs."""
        copied = copy(self)
        copied._since = [*self._since]
        copied._by_name = None if self._by_name is None else self._by_name.copy()
        copied._wanting = [*self._wanting]
        copied._reserved_reads = self._reserved_reads.copy()
        copied.remove_gangs(names)
        return copied

    @property
    def _occupants(self) -> dict[str, Occupant]:
        """Who holds which hosts, in order of start."""
        if self._by_name is None:
            jobs = self._state.holding
            self._by_name = {j.name: _occupant_of(j) for j in jobs}
            changes, self._since = self._since, []
            for change in changes:
                self._change(change)
        return self._by_name

    def _change(self, change: Occupant | frozenset[str]) -> None:
        """Somebody takes hosts, or these are gone."""
        if self._by_name is None:
            self._since.append(change)
        elif isinstance(change, Occupant):
            self._by_name[change.name] = change
        else:
            for name in change:
                self._by_name.pop(name, None)

    def _forget(self) -> None:
        self._fitting, self._closed, self._avoided, self._powered = {}, {}, None, {}
        self._read_by_gangs, self._read_by_domain = {}, {}

    @property
    def is_open(self) -> bool:
        """Whether no job that holds hosts restricts who lies beside it."""
        return not self._wanting

    def closed_by(self, name: str, wants: Affinity) -> dict[str, HostSet]:
        """Return the hosts that a job must not use, by the neighbour that closes them."""
        names = self._wanting if wants == ANYBODY else self._occupants
        neighbours = [self._occupants[neighbour] for neighbour in names]
        return closed_by(self._fabric, Occupant(name, wants), neighbours)

    def closed(self, name: str, wants: Affinity) -> HostSet:
        """Return the hosts that a job must not use because of other jobs."""
        if wants == ANYBODY and not self._wanting:
            return 0
        if name in self._occupants:
            return reduce(or_, self.closed_by(name, wants).values(), 0)
        key = (wants, tuple(matches(patterns, name) for patterns in self._patterns()))
        if key not in self._closed:
            self._closed[key] = reduce(or_, self.closed_by(name, wants).values(), 0)
        return self._closed[key]

    def _patterns(self) -> tuple[tuple[str, ...], ...]:
        """All that gangs avoid: jobs that the same of these name are closed out alike."""
        if self._avoided is None:
            everyone = [self._occupants[name].wants.avoid for name in self._wanting]
            self._avoided = tuple(dict.fromkeys(names for avoid in everyone for _, names in avoid))
        return self._avoided

    def room(self, job: Job, hosts: HostSet) -> HostSet:
        """The hosts among `hosts` that `job` may use; fewer than it needs if it cannot start."""
        if not self.may_read(job):
            return 0
        hosts &= ~self.closed(job.name, job.spec.affinity)
        hosts = self.readable(job, hosts)
        return self.fitting(job, self.powered(job, hosts))

    def powered(self, job: Job, hosts: HostSet) -> HostSet:
        """Return those of `hosts` on which `job` may run beside all hosts of gangs under the power
        caps."""
        if (power := self._fabric.power) is None:
            return hosts
        key = (hosts, job.part_gpus, job.gpu_watts)
        if (left := self._powered.get(key)) is None:
            shared = hosts & hostset.of(self._idle_gpus) if job.part_gpus else 0
            fresh = hosts & ~shared
            held = self._drawing_hosts & ~fresh
            left = power.within(fresh, held, self._idle_beside(job, fresh))
            for host in hostset.members(shared):
                idle = self._idle_beside(job, 1 << host)
                is_full = power.exceeded_cap(held | 1 << host, 1 << host, idle)
                left |= 0 if is_full else 1 << host
            self._powered[key] = left
        return left

    def exceeded_cap(self, job: Job, hosts: HostSet) -> PowerCap | None:
        """Return a power cap that `job` would exceed on these hosts, or None."""
        if (power := self._fabric.power) is None:
            return None
        idle = self._idle_beside(job, hosts)
        return power.exceeded_cap(self._drawing_hosts | hosts, hosts, idle)

    @property
    def _drawing_hosts(self) -> HostSet:
        """Hosts of gangs that draw power."""
        held = reduce(or_, (each.hosts for each in self._occupants.values()), 0)
        return held & ~self._state.index.unhealthy

    @property
    def _idle_gpus(self) -> dict[int, float]:
        """GPUs that nobody has of hosts that jobs share, with the parts that limits spare of those
        of gangs; empty without power caps."""
        if self._idle is None:
            self._idle = {}
            if self._fabric.power is not None:
                for host in self._state.index.shared:
                    taken = len(self._state.gpus_taken(host))
                    self._idle[host] = float(self._gpus[host]) - taken
                for gang in self._state.holding:
                    for host in hostset.members(gang.owned) if gang.gpu_watts else ():
                        spared = self._spared_gpus(gang, host)
                        self._idle[host] = self._idle.get(host, 0.0) + spared
        return self._idle

    @property
    def _gpus(self) -> Ints:
        return self._fabric.as_built.by_host.gpus

    def _spared_gpus(self, job: Job, host: int) -> float:
        """Return how many GPUs draw as much as the limit on those that `job` has of a host
        spares."""
        power = self._fabric.power
        part = power.spared_part(host, job.gpu_watts) if power is not None else 0.0
        return (job.part_gpus or int(self._gpus[host])) * part

    def _idle_beside(self, job: Job, hosts: HostSet) -> dict[int, float]:
        """Return how many GPUs of each host draw no power once `job` is on all of `hosts`."""
        idle, gpus = self._idle_gpus, self._gpus
        if not job.part_gpus:
            idle = {host: count for host, count in idle.items() if not hostset.has(hosts, host)}
        left = {}
        for host in hostset.members(hosts) if job.part_gpus or job.gpu_watts else ():
            unused = idle.get(host, float(gpus[host])) - job.part_gpus if job.part_gpus else 0.0
            left[host] = unused + self._spared_gpus(job, host)
        return idle | left

    def holding_store(self, job: Job) -> Storage | None:
        """Return the store that `job` reads where that holds jobs back, else None."""
        if not self.has_reads or job.spec.dataset is None:
            return None
        store = dataset_store(self._fabric, job.spec.dataset)
        return store if store.hold_jobs else None

    def reads(self, job: Job) -> float:
        """Return the GB/s that `job` reads of a store that holds jobs back; 0 of any other."""
        if self.holding_store(job) is None:
            return 0.0
        return most_read_gb_per_s(self._fabric, job.spec.request, job.spec.dataset)

    def _reads_left(self, job: Job, store: Storage) -> float:
        """Return the GB/s of `store`, which `job` reads, that other gangs leave it."""
        if store not in self._read_by_gangs:
            self._read_by_gangs[store] = sum(map(self.reads, self._readers(store)))
        own = self.reads(job) if job.name in self._occupants else 0.0
        return store.dataset_limit[1] - self._read_by_gangs[store] + own

    def _readers(self, store: Storage) -> list[Job]:
        """Return the gangs that read this store."""
        gangs = map(self._state.jobs.__getitem__, self._occupants)
        return [gang for gang in gangs if self.holding_store(gang) == store]

    def readable(self, job: Job, hosts: HostSet) -> HostSet:
        """Return those of `hosts` for which the paths of their domains to the store that `job`
        reads have left what it reads there."""
        store = self.holding_store(job)
        if store is None or not store.paths or not (rate := self.reads(job)):
            return hosts
        if store not in self._read_by_domain:
            self._read_by_domain[store] = self._domain_reads(store)
        each = rate / job.gang_hosts
        return within_paths(self._fabric, store, hosts, each, self._read_by_domain[store])

    def _domain_reads(self, store: Storage) -> dict[str, Floats]:
        """Return the GB/s that gangs read of a store, by tier and domain. Spares count as well,
        for they may be swapped in."""
        used = {}
        for tier in self._fabric.tiers:
            if any(path.tier == tier.name for path in store.paths):
                used[tier.name] = 0.0 * tier.uplink_bytes_per_s
                for gang in self._readers(store):
                    hosts = hostset.indices(self._occupants[gang.name].hosts)
                    used[tier.name] += tier.count(hosts) * (self.reads(gang) / gang.gang_hosts)
        return used

    def missing_reads(self, job: Job) -> float:
        """Return the GB/s by which the reads of `job` exceed what gangs leave, or what it may take
        without delaying earlier jobs that wait for them."""
        if (store := self.holding_store(job)) is None or not (rate := self.reads(job)):
            return 0.0
        missing = rate - self._reads_left(job, store)
        for (reserved_store, name), reserved in self._reserved_reads.items():
            is_other = name != job.name and reserved_store == store
            if is_other and self._expected_end_ns(job) > reserved.from_ns:
                missing = max(missing, rate - reserved.left)
        return missing if missing > ROUNDING_GB_PER_S else 0.0

    def may_read(self, job: Job, hosts: HostSet = 0) -> bool:
        """Whether the storage has left what the dataset of `job` needs on these hosts, where it
        holds jobs back."""
        return not self.missing_reads(job) and self.readable(job, hosts) == hosts

    def reserve_reads(
        self, job: Job, reserved: ReadReservation, end_ns: Callable[[Job], int]
    ) -> None:
        """Reserve reads for a blocked job, so that later ones do not delay it with theirs.
        `end_ns`: when a job ends that starts now."""
        self._reserved_reads[self.holding_store(job), job.name] = reserved
        self._expected_end_ns = end_ns

    def _charge_reads(self, job: Job) -> None:
        """Take the reads of a job that starts from what reservations leave."""
        store = self.holding_store(job)
        self._reserved_reads.pop((store, job.name), None)
        if not self._reserved_reads or not (rate := self.reads(job)):
            return
        for key, reserved in self._reserved_reads.items():
            if key[0] == store and self._expected_end_ns(job) > reserved.from_ns:
                left = reserved.left - rate
                self._reserved_reads[key] = ReadReservation(reserved.from_ns, left)

    def reads_text(self, job: Job) -> str:
        """Describe the reads that storage has left for a job that it holds back; else ""."""
        if (store := self.holding_store(job)) is None or not (rate := self.reads(job)):
            return ""
        left, (limit, most) = max(0.0, self._reads_left(job, store)), store.dataset_limit
        text = f"reads {rate:.3g} GB/s of its dataset"
        free = self._state.free
        if rate <= left and (readable := self.readable(job, free)) != free:
            text += f", {rate / job.gang_hosts:.3g} on each host; gangs leave the paths of"
            text += f" {readable.bit_count():,} free hosts to {store.text} as much"
            is_behind = readable.bit_count() >= job.needed
            return f"{text}, which jobs ahead of it wait for" if is_behind else text
        text += f"; of the {most:.3g} GB/s of {limit} running gangs leave {left:.3g}"
        return text if rate > left else f"{text}, which jobs ahead of it wait for"

    def fitting(self, job: Job, hosts: HostSet) -> HostSet:
        """Return those of `hosts` on which the job's shape and labels can be had."""
        where, needed = job.request.where, job.needed
        is_free = where == ANYWHERE and not self._fabric.barred
        if is_free or hosts.bit_count() < needed:
            return hosts
        key = (job.request.room_key, needed, hosts)
        if key not in self._fitting:
            self._fitting[key] = usable_for(self._fabric, job.request, hosts, needed)
        return self._fitting[key]

    def room_text(self, job: Job, free: HostSet) -> str:
        """Describe in words how many hosts the constraints leave of `free`."""
        where = job.request.where
        closed = free & self.closed(job.name, job.spec.affinity)
        closed_text = (
            f", {closed.bit_count():,} of them closed by exclusive or avoid" if closed else ""
        )
        left = self.powered(job.with_power_limit(job.spec.power_cap_w), free & ~closed)
        if dark := (free & ~closed & ~left).bit_count():
            closed_text += f", {dark:,} of them beyond the power caps"
        parts = (
            room_text(self._fabric, where, left),
            segments_text(self._fabric, job.request, left),
        )
        room = ", ".join(filter(None, parts))
        summary = f"{wish_text(self._fabric, where)}; {free.bit_count():,} are free{closed_text}"
        return f"{summary}, {room}" if room else summary

    def hosts_to_reserve(self, job: Job, place: HostSet) -> HostSet:
        """Return the hosts that other jobs must not use so that `job` can start on `place`; none
        when it can start on any hosts."""
        wants = job.spec.affinity
        if not is_bound(job.request, wants):
            return 0
        return place | self.domains_around(wants, place)

    def domains_around(self, wants: Affinity, hosts: HostSet) -> HostSet:
        """Return the domains around `hosts` that a job with these wishes cares about."""
        names = [wants.exclusive] if wants.exclusive else []
        covered = 0
        for name in (*names, *(tier for tier, _ in wants.avoid)):
            covered |= around(self._fabric, tier_of(self._fabric, name, "constraints"), hosts)
        return covered

    def near_zones(self, wants: Affinity) -> HostSet:
        """The outermost domains of the job that it should be near; 0 if that holds no hosts."""
        occupant = self._occupants.get(wants.near) if wants.near else None
        return around(self._fabric, 0, occupant.hosts) if occupant and self._fabric.tiers else 0

    def note_nearness(self, wants: Affinity, placement: Placement) -> Placement:
        """Return the placement with a note on how the wish to be near a job was met."""
        if not wants.near:
            return placement
        hosts = (1 << host for host in placement.hosts)
        near = self.near_zones(wants)
        if wants.near not in self._occupants:
            note = f"near {wants.near}: it holds no hosts, so its zones are not known"
        elif near and all(host & near for host in hosts):
            note = f"near {wants.near}: all hosts lie in its zones; the bound is over these"
        else:
            note = f"near {wants.near}: its zones have too little room"
        return replace(placement, notes=(*placement.notes, note))


def _occupant_of(job: Job) -> Occupant:
    """Return its hosts with those that it lent: it has to be able to come back."""
    return Occupant(job.name, job.spec.affinity, job.owned)


def is_bound(request: Request, wants: Affinity) -> bool:
    """Return whether the job's constraints rule out some hosts."""
    return request.where != ANYWHERE or bool(wants.exclusive or wants.avoid)
