"""What would happen now if a host of a running gang failed: each way with its cost."""

from __future__ import annotations

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.fold.apply import apply
from scheduler.core.model.events import HostMoved
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import RUNS, HostMove, JobState, Mover
from scheduler.core.model.restart_option import WeighedOptions, taken
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.restart.restart import search_restart
from scheduler.core.restart.search import RestartSearch
from scheduler.core.tenancy.spare_loans import SpareLoans


@struct(frozen=True, slots=True)
class Prospect:
    """The prospect of a gang, if one of its hosts failed now. `host`: the one that is supposed to
    fail, in the zone of the gang in which least stands by. `restart_options`: the ways in which it
    could go on."""

    host: str
    restart_options: WeighedOptions


def prospect(state: State, name: str, now_ns: int, options: SchedulingOptions) -> Prospect | None:
    """Return what would happen if a host of the gang failed now; None for a gang that does not run.
    Cost: as a restart that weighs every way."""
    job = state.jobs.get(name)
    if job is None or job.state is not JobState.RUNNING:
        return None
    sound = [host for host in job.hosts if state.host(host).state in RUNS]
    if not sound:
        return None
    loans = SpareLoans(state)
    stands_by = hostset.of(h for gang in state.holding for h in loans.idle(gang)) | state.free
    zones = SparePools(state).zones
    zone_of = state.loaded_fabric.zone_of
    host = min(sound, key=lambda h: ((stands_by & zones[zone_of(h)]).bit_count(), h))
    restart_options = _failed(state, job, host, now_ns, options).weighed()
    return Prospect(state.loaded_fabric.hosts[host], restart_options)


def cost_s(
    state: State, job: Job, zone: HostSet, now_ns: int, options: SchedulingOptions
) -> int | None:
    """Return the GPU-seconds that the failure of a host of `job` in this zone would cost beyond
    what every way costs, if no spare were held there; None where the gang would have to wait, or
    has no host there."""
    hosts = (h for h in job.hosts if hostset.has(zone, h) and state.host(h).state in RUNS)
    host = next(hosts, None)
    if host is None:
        return None
    spares = hostset.of(h for gang in state.holding for h in gang.all_spares)
    outcome = _failed(state, job, host, now_ns, options, spares & zone)
    step, common_s = taken(outcome.best().restart_options), outcome.prices.common_s
    if step is None or step.gpu_s is None or step.gpu_s - common_s >= outcome.prices.waiting_s:
        return None
    return step.gpu_s - common_s


def _failed(
    state: State,
    job: Job,
    host: int,
    now_ns: int,
    options: SchedulingOptions,
    held_back: HostSet = 0,
) -> RestartSearch:
    name = state.loaded_fabric.hosts[host]
    after = apply(state, HostMoved(now_ns, name, HostMove.FAIL, "supposed", cause=Mover.SIGNAL))
    return search_restart(after, after.jobs[job.name], now_ns, options, held_back)
