"""What has happened: counts of events and of their effects.

Counts begin at zero with the process, as counters of Prometheus do; fed a whole log they
are the totals of that log, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from placement.fabric import hostset
from placement.fabric.constraints import gpus_wanted
from scheduler.core import Job, JobState, State
from scheduler.core.fold.apply import apply, effects
from scheduler.core.fold.effects import (
    EventEffect,
    HostReport,
    HostsChange,
    HostTransition,
    JobChange,
    JobChangeKind,
)
from scheduler.core.model.events import Event
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove, RequeueCause
from scheduler.core.policies.health_signals import AGENT_AWAITED, SIGNALS, Effect
from scheduler.observe.counters import Counts, Histograms, zeros
from scheduler.observe.proof import CutProof, gap_of, proof

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
WAIT_BOUNDS_S = (
    *(1, 10, 30, MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, HOUR_S, 4 * HOUR_S),
    *(12 * HOUR_S, DAY_S, 3 * DAY_S, 7 * DAY_S),
)
GAP_BOUNDS = (0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_NOTED = (Effect.NOTE, Effect.RETIRE, Effect.START_REPAIR, Effect.TEST, Effect.PASS)
SIZES = (8, 64, 512, 2_048, 8_192)  # largest GPUs of each class but the last


class EventTally:
    """Counts of events, which are fed in order. Read it from any thread."""

    def __init__(self) -> None:
        self.events = Counts()  # by type
        self.submitted = Counts()  # by tenant
        self.ended = Counts()  # by tenant and outcome
        self.placements = zeros(CutProof)
        self.resizes = zeros(("grown", "shrunk"))  # by how
        self.restarts = zeros(("swap", "queue", "resize"))  # by how they began
        self.requeues = zeros(RequeueCause)  # by cause
        self.swaps = zeros(("failure", "drain", "move"))  # by cause
        self.swapped_hosts = zeros(("spare", "free"))  # by what they were
        self.failures = zeros(name for name, s in SIGNALS.items() if s.effect is Effect.FAIL)
        self.repairs = Counts({(): 0})
        self.notes = zeros(name for name, s in SIGNALS.items() if s.effect in _NOTED)
        self.waits_s = Histograms(WAIT_BOUNDS_S)  # by class of size
        self.gaps = Histograms(GAP_BOUNDS)

    def feed(self, state: State, event: Event, effects: Iterable[EventEffect]) -> None:
        """Count one event. `state`: before it. Cost: 2 us."""
        self.events[type(event).__name__,] += 1
        for effect in effects:
            match effect:
                case JobChange():
                    self._changed(effect, state)
                case HostTransition(move=HostMove.FAIL, signal=signal) if signal != AGENT_AWAITED:
                    self.failures[_signal(signal),] += 1
                case HostTransition(move=HostMove.REPAIR) if not _awaited_agent(state, effect.host):
                    self.repairs[()] += 1
                case HostReport():
                    self.notes[_signal(effect.signal),] += 1
                case HostTransition() | HostsChange():
                    pass
                case _:
                    assert_never(effect)

    def _changed(self, change: JobChange, state: State) -> None:
        job, before = change.job, change.before
        match change.kind:
            case JobChangeKind.SUBMITTED:
                self.submitted[job.tenant,] += 1
            case JobChangeKind.STARTED:
                self._started(job, change)
            case JobChangeKind.SWAPPED:
                assert before is not None
                self._swapped(before, job, state)
            case JobChangeKind.RESIZED:
                assert before is not None
                is_grown = len(job.hosts) > len(before.hosts)
                self.resizes["grown" if is_grown else "shrunk",] += 1
                self.restarts["resize",] += 1
            case JobChangeKind.REQUEUED:
                assert change.cause is not None
                self.requeues[change.cause.value,] += 1
            case JobChangeKind.ENDED:
                self.ended[job.tenant, job.state.value] += 1
            case JobChangeKind.UPDATED | JobChangeKind.SPARES_CHANGED:
                pass
            case JobChangeKind.LAUNCHED | JobChangeKind.SAVED | JobChangeKind.HUNG:
                pass
            case JobChangeKind.HELD | JobChangeKind.RELEASED | JobChangeKind.ELIGIBLE:
                pass
            case JobChangeKind.INTERRUPTED | JobChangeKind.SPARE_LOST:
                pass  # counted with the host that failed
            case JobChangeKind.ROLE_RESTARTED:
                pass
            case _:
                assert_never(change.kind)

    def _started(self, job: Job, change: JobChange) -> None:
        self.placements[proof(job.present.cuts, job.present.lower_bound).value,] += 1
        if (gap := gap_of(job)) is not None:
            self.gaps[()].add(gap)
        if job.attempt > 1:
            self.restarts["queue",] += 1
            return
        gpus = job.gang_hosts * gpus_wanted(change.fabric, job.request.where)
        self.waits_s[size_class(gpus),].add((change.time_ns - job.submit_ns) / SECOND_NS)

    def _swapped(self, before: Job, job: Job, state: State) -> None:
        pairs = [pair for pair in zip(before.hosts, job.hosts, strict=True) if pair[0] != pair[1]]
        self.restarts["swap",] += 1
        self.swaps[_why_swapped(before, state, [left for left, _ in pairs]),] += 1
        for _, joined in pairs:
            self.swapped_hosts["spare" if joined in before.spares else "free",] += 1


def tally(log: Iterable[Event]) -> EventTally:
    """Count the events of a whole log, from its first one."""
    state, totals = State.empty(), EventTally()
    for event in log:
        after = apply(state, event)
        totals.feed(state, event, effects(state, event, after))
        state = after
    return totals


def size_class(gpus: int) -> str:
    """Return the class of a gang's size: `1-8`, `9-64`, ..., `8193+`."""
    below = 0
    for most in SIZES:
        if gpus <= most:
            return f"{below + 1}-{most}"
        below = most
    return f"{below + 1}+"


def _awaited_agent(state: State, host: str) -> bool:
    return state.host(state.loaded_fabric.index_by_name[host]).awaits_agent


def _signal(name: str) -> str:
    """A label for the signal; unknown ones share one."""
    return name if name in SIGNALS else "other"


def _why_swapped(job: Job, state: State, left: Iterable[int]) -> str:
    """A gang that stood still had failed; one that runs leaves hosts, or is moved."""
    if job.state is JobState.INTERRUPTED:
        return "failure"
    return "drain" if any(hostset.has(state.index.unhealthy, index) for index in left) else "move"
