"""What has happened: a fold over events, each with the state that it found.

Counts begin at zero with the process, as counters of Prometheus do; fed a whole log they
are the totals of that log, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core import Job, JobState, State
from scheduler.core.fold.apply import apply
from scheduler.core.model.events import (
    Event,
    GangResized,
    GangSwapped,
    HostMoved,
    HostSignalled,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    JobSubmitted,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.health_signals import SIGNALS, Effect
from scheduler.observe.counters import Counts, Histograms, zeros
from scheduler.observe.proof import CutProof, gap, proof

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
WAIT_BOUNDS_S = (
    *(1, 10, 30, MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, HOUR_S, 4 * HOUR_S),
    *(12 * HOUR_S, DAY_S, 3 * DAY_S, 7 * DAY_S),
)
GAP_BOUNDS = (0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_NOTED = (Effect.NOTE, Effect.RETIRE, Effect.START_REPAIR, Effect.TEST, Effect.PASS)
SIZES = (8, 64, 512, 2_048, 8_192)  # largest GPUs of each class but the last


class EventTally:
    """Feed it events in order; read it from any thread."""

    def __init__(self) -> None:
        self.events = Counts()  # by type
        self.submitted = Counts()  # by tenant
        self.ended = Counts()  # by tenant and outcome
        self.placements = zeros(CutProof)
        self.resizes = zeros(("grown", "shrunk"))  # by how
        self.restarts = zeros(("swap", "queue", "resize"))  # by how they began
        self.requeues = zeros(("failure", "preempted"))  # by cause
        self.swaps = zeros(("failure", "drain", "move"))  # by cause
        self.swapped_hosts = zeros(("spare", "free"))  # by what they were
        self.failures = zeros(name for name, s in SIGNALS.items() if s.effect is Effect.FAIL)
        self.repairs = Counts({(): 0})
        self.notes = zeros(name for name, s in SIGNALS.items() if s.effect in _NOTED)
        self.waits_s = Histograms(WAIT_BOUNDS_S)  # by class of size
        self.gaps = Histograms(GAP_BOUNDS)

    def feed(self, state: State, event: Event) -> None:
        """Count one event. `state`: before it. Cost: 2 us."""
        self.events[type(event).__name__,] += 1
        match event:
            case JobSubmitted():
                self.submitted[_tenant(state, event),] += 1
            case JobStarted():
                self._started(state, event)
            case GangSwapped():
                self._swapped(state.jobs[event.name], state, event)
            case GangResized():
                before = state.jobs[event.name]
                is_grown = len(event.hosts) > len(before.hosts)
                self.resizes["grown" if is_grown else "shrunk",] += 1
                self.restarts["resize",] += 1
            case JobRequeued():
                self.requeues["failure",] += 1
            case JobPreempted():
                self.requeues["preempted",] += 1
            case JobEnded():
                self.ended[state.jobs[event.name].tenant, event.outcome.value] += 1
            case HostMoved(move=HostMove.FAIL):
                self.failures[_signal(event.reason),] += 1
            case HostMoved(move=HostMove.REPAIR):
                self.repairs[()] += 1
            case HostSignalled():
                self.notes[_signal(event.signal),] += 1
            case _:
                pass

    def _started(self, state: State, event: JobStarted) -> None:
        job = state.jobs[event.name]
        self.placements[proof(event.cuts, event.lower_bound).value,] += 1
        self.gaps[()].add(gap(event.cuts, event.lower_bound))
        if event.attempt > 1:
            self.restarts["queue",] += 1
            return
        gpus = job.gang_hosts * state.loaded_fabric.gpus_per_host
        wait_s = (event.time_ns - job.submit_ns) / SECOND_NS
        self.waits_s[size_class(gpus),].add(wait_s)

    def _swapped(self, job: Job, state: State, event: GangSwapped) -> None:
        index = state.loaded_fabric.index_by_name
        self.restarts["swap",] += 1
        self.swaps[_why_swapped(job, state, event),] += 1
        for swap in event.swaps:
            source = "spare" if index[swap.joined] in job.spares else "free"
            self.swapped_hosts[source,] += 1


def tally(log: Iterable[Event]) -> EventTally:
    """The totals of a whole log, from its first event."""
    state, found = State.empty(), EventTally()
    for event in log:
        found.feed(state, event)
        state = apply(state, event)
    return found


def size_class(gpus: int) -> str:
    """`1-8`, `9-64`, ..., `8193+`."""
    below = 0
    for most in SIZES:
        if gpus <= most:
            return f"{below + 1}-{most}"
        below = most
    return f"{below + 1}+"


def _tenant(state: State, event: JobSubmitted) -> str:
    return event.spec.tenant or state.tenants.default


def _signal(text: str) -> str:
    """The signal at the head of a reason; others together, for anybody may write one."""
    found = text.partition(":")[0]
    return found if found in SIGNALS else "other"


def _why_swapped(job: Job, state: State, event: GangSwapped) -> str:
    """A gang that stood still had failed; one that runs leaves hosts, or is moved."""
    if job.state is JobState.INTERRUPTED:
        return "failure"
    index = state.loaded_fabric.index_by_name
    leaves = any(state.unhealthy >> index[swap.left] & 1 for swap in event.swaps)
    return "drain" if leaves else "move"
