"""What is where at one version: hosts and GPUs by domain, jobs by tenant, cuts by tier."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core import HostState, Job, JobState, State
from scheduler.core.model.lifecycle import IN_SERVICE
from scheduler.files.health.found import KUBERNETES, REFUSED, SLURM, is_word_of
from scheduler.observe.proof import CutProof, proof

MOST_DOMAINS = 256  # outermost domains that are told apart
EVERYTHING = "all"
CORDONED = "cordoned"
SHARED = "shared"  # a use of GPUs, not of hosts

Key = TypeVar("Key")


class Use(StrEnum):
    """The use of a host; every host has one use."""

    RUNNING = "running"  # ranks of a gang run on it
    STOPPED = "stopped"  # of a gang that a failure stopped
    SPARE = "spare"  # healthy, held as a spare
    FREE = "free"  # healthy, held by nobody
    OUT = "out"  # not in service, and no gang's


@struct(frozen=True, slots=True)
class Domain:
    """Hosts of one outermost domain, by health and by use. `shared_free_gpus`: GPUs that are free
    of hosts that jobs share."""

    name: str
    by_state: Mapping[HostState, int]
    by_use: Mapping[Use, int]
    shared_free_gpus: int = 0

    def gpus(self, per_host: int) -> dict[str, int]:
        """GPUs by use; those beside jobs that share a host are `shared`, free for more of these."""
        counts = {use.value: hosts * per_host for use, hosts in self.by_use.items()}
        counts[Use.RUNNING] -= self.shared_free_gpus
        return {**counts, SHARED: self.shared_free_gpus}


@dataclass(slots=True)
class Queue:
    """Live jobs of one tenant. `oldest`: the queued job that was submitted first."""

    jobs: Counter[JobState] = field(default_factory=Counter)
    queued_gpus: int = 0
    held_gpus: int = 0
    oldest: Job | None = None


@struct(frozen=True, slots=True)
class Cuts:
    """Cuts of the running gangs: bytes per step by tier, outermost first, the lower bounds of
    the outermost tier together, and gangs by what is proved of them."""

    by_tier: Mapping[str, int]
    lower_bound: int
    by_proof: Mapping[CutProof, int]


def domains(state: State) -> tuple[Domain, ...]:
    """Return the outermost domains in the order of the fabric; one domain of all hosts when they
    are too many."""
    uses = _by_use(state)
    states = _by_state(state, uses[Use.RUNNING] | uses[Use.STOPPED])
    free_beside = _free_beside(state, uses[Use.RUNNING])
    return tuple(
        Domain(
            name,
            _inside(hosts, states),
            _inside(hosts, uses),
            sum(free for host, free in free_beside.items() if hostset.has(hosts, host)),
        )
        for name, hosts in _outermost(state.loaded_fabric)
    )


def queues(state: State) -> dict[str, Queue]:
    """Return queues by tenant that may have jobs or has any, in the order of names."""
    parents = {tenant.parent for tenant in state.tenants.tenants}
    leaves = (t.name for t in state.tenants.tenants if t.name not in parents)
    gpus = state.loaded_fabric.gpus_per_host
    by_tenant = defaultdict(Queue, {name: Queue() for name in {state.tenants.default, *leaves}})
    for job in state.holding:
        queue = by_tenant[job.tenant]
        queue.jobs[job.state] += 1
        queue.held_gpus += len(job.present.gpus) or (len(job.hosts) + len(job.spares)) * gpus
    by_arrival = dict[str, list[Job]]()  # many may wait, so that little is done for each
    for job in state.jobs.values():
        if job.gang is None:
            by_arrival.setdefault(job.tenant, []).append(job)
    for tenant, waiting in by_arrival.items():
        queue = by_tenant[tenant]
        queue.jobs[JobState.QUEUED] = len(waiting)
        queue.queued_gpus = sum([job.part_gpus or job.needed * gpus for job in waiting])
        queue.oldest = min(waiting, key=attrgetter("submit_ns"))
    return dict(sorted(by_tenant.items()))


def cuts(state: State) -> Cuts:
    """Sum the cuts of running gangs by tier and their bounds; count how they are proved."""
    by_tier = {tier.name: 0 for tier in state.loaded_fabric.tiers}
    by_proof = dict.fromkeys(CutProof, 0)
    bound = 0
    for job in state.in_state(JobState.RUNNING):
        for cut in job.present.cuts:
            by_tier[cut.tier] += cut.bytes_per_step
        bound += job.present.lower_bound
        by_proof[proof(job.present.cuts, job.present.lower_bound)] += 1
    return Cuts(by_tier, bound, by_proof)


def withheld(state: State) -> Counter[tuple[str, str]]:
    """Return how many hosts another scheduler keeps from gangs, by it and why."""
    counts = Counter({(SLURM, cause): 0 for cause in (REFUSED, CORDONED)})
    for host in state.hosts.values():
        for source in (SLURM, KUBERNETES):
            if host.cordon is not None and is_word_of(source, host.cordon):
                is_refused = host.cordon.startswith(f"{source}: {REFUSED}")
                counts[source, REFUSED if is_refused else CORDONED] += 1
    return counts


def gangs(state: State) -> list[Job]:
    """Return the jobs that hold hosts, the largest first, then by name."""
    held = state.in_state(JobState.RUNNING, JobState.INTERRUPTED)
    return sorted(held, key=lambda job: (-len(job.hosts), job.name))


def _by_use(state: State) -> dict[Use, HostSet]:
    running = _hosts(state.in_state(JobState.RUNNING))
    stopped = _hosts(state.in_state(JobState.INTERRUPTED))
    gang = running | stopped
    return {
        Use.RUNNING: running,
        Use.STOPPED: stopped,
        Use.SPARE: state.index.held & ~gang & ~state.index.out_of_service,
        Use.FREE: state.free,
        Use.OUT: state.index.out_of_service & ~gang,
    }


def _free_beside(state: State, running: HostSet) -> dict[int, int]:
    """GPUs that are free of each shared host on which a job runs."""
    gpus = state.built_fabric.by_host.gpus
    return {
        host: int(gpus[host]) - len(state.gpus_taken(host))
        for host in state.index.shared
        if hostset.has(running, host)
    }


def _hosts(jobs: Iterable[Job]) -> HostSet:
    return hostset.of(chain.from_iterable(job.hosts for job in jobs))


def _by_state(state: State, gang: HostSet) -> dict[HostState, HostSet]:
    """As State.shown: healthy hosts under maintenance are drained. `gang`: hosts of gangs."""
    counts = dict.fromkeys(HostState, 0)
    for index, host in state.hosts.items():
        counts[host.shown_state] |= 1 << index
    closed = state.index.closed & ~state.index.unhealthy
    for host_state in IN_SERVICE:
        counts[host_state] &= ~closed
    counts[HostState.DRAINING] |= closed & gang
    counts[HostState.CORDONED] |= closed & ~gang
    everything = hostset.full(state.loaded_fabric.host_count)
    counts[HostState.HEALTHY] = everything & ~(hostset.of(state.hosts) | state.index.closed)
    return counts


def _inside(hosts: HostSet, sets: Mapping[Key, HostSet]) -> dict[Key, int]:
    return {key: (hosts & some).bit_count() for key, some in sets.items()}


@lru_cache(maxsize=4)
def _outermost(fabric: Fabric) -> tuple[tuple[str, HostSet], ...]:
    """Hosts of each outermost domain; of all together where telling them apart says little."""
    tier = fabric.tiers[0] if fabric.tiers else None
    if tier is None or len(tier.domains) > MOST_DOMAINS:
        return ((EVERYTHING, hostset.full(fabric.host_count)),)
    return tuple(
        (name, hostset.from_mask(tier.domain_by_host == at)) for at, name in enumerate(tier.domains)
    )
