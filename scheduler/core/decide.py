"""Who runs next, and where: the slow half of scheduling, a proposal on one version.

First the gangs that a failure stopped, for they hold hosts that do nothing. Then
the queue in order. The first job that does not fit gets a promise, the earliest
time at which the running jobs' limits leave it room, and later jobs start only if
they do not break it (EASY backfill: Lifka 1995).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from placement import hostset
from placement.hostset import HostSet
from placement.place import place
from placement.request import Limits as PlaceLimits
from placement.request import Placement
from placement.swaps import choose_swaps
from scheduler.core.job import SECOND_NS, Job
from scheduler.core.lifecycle import HostState, JobState
from scheduler.core.plan import Action, Move, Plan, Requeue, Start, Swap
from scheduler.core.state import State


class Policy(StrEnum):
    """How the queue is ordered and whether later jobs may overtake.

    PRODUCTION: priority, then arrival, with backfill. EASY: arrival with backfill.
    FIFO: arrival, and nobody overtakes.
    """

    PRODUCTION = "production"
    EASY = "easy"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True)
class Limits:
    """`assumed_limit_s` stands in for the time limit of jobs that state none."""

    policy: Policy = Policy.PRODUCTION
    place: PlaceLimits = field(default_factory=PlaceLimits)
    assumed_limit_s: int = 24 * 3600


@dataclass(frozen=True, slots=True)
class Promise:
    """The first waiting job starts by `start_ns`; `extra` hosts stay idle even then."""

    name: str
    start_ns: int
    extra: int


def decide(state: State, now_ns: int, limits: Limits) -> Plan:
    """What to do now. The same arguments give the same plan.

    A requeued gang may be first in the queue, so nothing starts before it is there.
    """
    restarts = _restarts(state)
    if any(isinstance(action, Requeue) for action in restarts):
        return Plan(state.version, restarts)
    free = state.free
    for action in restarts:
        if isinstance(action, Swap):
            free &= ~hostset.of(move.joined for move in action.moves)
    return Plan(state.version, (*restarts, *_starts(state, now_ns, limits, free)))


def _restarts(state: State) -> tuple[Action, ...]:
    """Swaps for gangs that stopped or sit on draining hosts, most important first."""
    hit = state.unhealthy & state.held
    if not hit and not state.stopped:
        return ()
    moved = [
        job
        for job in state.in_state(JobState.INTERRUPTED, JobState.RUNNING)
        if job.state is JobState.INTERRUPTED or (hit and job.held & hit)
    ]
    actions: list[Action] = []
    free = state.free
    for job in sorted(moved, key=lambda j: j.order):
        action = _restart(state, job, free)
        if action is not None:
            actions.append(action)
        if isinstance(action, Swap):
            free &= ~hostset.of(move.joined for move in action.moves)
    return tuple(actions)


def _restart(state: State, job: Job, free: HostSet) -> Action | None:
    """Replace what cannot run; a gang that stopped and finds no host is requeued.

    One whose hosts were all repaired before this decision starts again in place.
    """
    failed = _blocks_on(state, job, HostState.FAILED)
    draining = _blocks_on(state, job, HostState.DRAINING)
    own = hostset.of(job.spares) & ~state.unhealthy
    for blocks in (sorted(failed + draining), failed):
        if not blocks and job.state is JobState.RUNNING:
            return None  # not draining, or nowhere to go yet: it runs on
        chosen = choose_swaps(state.loaded_fabric, job.spec.request, job.hosts, blocks, own, free)
        if chosen is not None:
            moves = tuple(Move(b, job.hosts[b], joined) for b, joined in chosen.joined)
            return Swap(job.name, moves, chosen.cuts)
    short = f"{len(failed)} failed, {(own | free).bit_count()} to swap in"
    return Requeue(job.name, f"{job.reason}; no host to swap in ({short})")


def _blocks_on(state: State, job: Job, host_state: HostState) -> list[int]:
    """Blocks of the gang whose host is in this state, which is not HEALTHY."""
    return [b for b, host in enumerate(job.hosts) if state.host(host).state is host_state]


def _starts(state: State, now_ns: int, limits: Limits, free: HostSet) -> list[Action]:
    """Gangs of the queue that can start now without breaking the first one's promise."""
    actions: list[Action] = []
    started: list[tuple[int, int]] = []  # (estimated end, hosts) of what this plan starts
    promise: Promise | None = None
    if not free:
        return actions
    for name in queue_order(state, limits.policy):
        job = state.jobs[name]
        room = free.bit_count()
        if not room:
            break
        placement = None
        end_ns = now_ns + time_limit_ns(job, limits)
        if promise is None:
            if job.needed <= room:
                placement = _placed(state, job, free, limits, room)
            if placement is None:
                if limits.policy is Policy.FIFO:
                    break
                promise = _promise(state, job, room, started, now_ns, limits)
        elif job.needed <= room:
            is_short = end_ns <= promise.start_ns
            spare_room = room if is_short else min(room, promise.extra)
            if job.needed <= spare_room:
                placement = _placed(state, job, free, limits, spare_room)
            if placement is not None and not is_short:
                used = len(placement.hosts) + len(placement.spares)
                promise = Promise(promise.name, promise.start_ns, promise.extra - used)
        if placement is not None:
            actions.append(Start(name, placement))
            taken = placement.hosts + placement.spares
            free &= ~hostset.of(taken)
            started.append((end_ns, len(taken)))
    return actions


def queue_order(state: State, policy: Policy) -> tuple[str, ...]:
    """Names of the queued jobs, next one first."""
    if policy is Policy.PRODUCTION or not state.queue:
        return state.queue
    first, last = state.jobs[state.queue[0]], state.jobs[state.queue[-1]]
    if first.spec.priority == last.spec.priority:  # hence of all: the queue is sorted by it
        return state.queue
    return tuple(sorted(state.queue, key=lambda name: state.jobs[name].sequence))


def time_limit_ns(job: Job, limits: Limits) -> int:
    """The job's own limit, or the assumed one."""
    stated = job.spec.time_limit_s
    return (limits.assumed_limit_s if stated is None else stated) * SECOND_NS


def _placed(
    state: State, job: Job, free: HostSet, limits: Limits, most_hosts: int
) -> Placement | None:
    """A placement on at most `most_hosts` hosts, spares included."""
    answer = place(
        state.loaded_fabric,
        free,
        job.spec.request,
        limits.place,
        most_spares=most_hosts - job.gang_hosts,
    )
    return answer if isinstance(answer, Placement) else None


def _promise(
    state: State,
    job: Job,
    room: int,
    started: list[tuple[int, int]],
    now_ns: int,
    limits: Limits,
) -> Promise:
    """When the running jobs' limits leave `job` enough hosts, and how many more."""
    start_ns, room = earliest_start(state, job.needed, room, started, now_ns, limits)
    return Promise(job.name, start_ns, max(0, room - job.needed))


NEVER_NS = 1 << 62


def earliest_start(
    state: State,
    needed: int,
    room: int,
    started: list[tuple[int, int]],
    now_ns: int,
    limits: Limits,
) -> tuple[int, int]:
    """(time, free hosts then). NEVER_NS when even all running jobs' ends do not do:
    hosts are out of service. Jobs past their limit are taken to end the next moment.
    """
    ends = list(started)
    for job in state.in_state(JobState.RUNNING, JobState.INTERRUPTED):
        healthy = job.held & ~state.unhealthy
        ends.append(
            (max(job.start_ns + time_limit_ns(job, limits), now_ns + 1), healthy.bit_count())
        )
    ends.sort()
    for i, (end_ns, hosts) in enumerate(ends):
        room += hosts
        more_at_once = i + 1 < len(ends) and ends[i + 1][0] == end_ns
        if room >= needed and not more_at_once:
            return end_ns, room
    return NEVER_NS, room
