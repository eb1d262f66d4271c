"""Which gangs hold which hosts: a fold over the event log.

The stand-in launcher and the metrics both ask it, so that what is charged to a job
and what is counted for it are one and the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler.core.model.events import (
    Event,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    SparesChanged,
)
from scheduler.core.model.lifecycle import HostMove, JobState


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a job. `stop_ns`: when a failed host stopped it, if one has."""

    name: str
    attempt: int
    hosts: tuple[str, ...]
    spares: tuple[str, ...]
    start_ns: int
    stop_ns: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptBegan:
    run: Attempt


@dataclass(frozen=True, slots=True)
class AttemptStopped:
    """A host failed: the gang stops and keeps its hosts."""

    run: Attempt


@dataclass(frozen=True, slots=True)
class AttemptLeft:
    """The attempt is over. `ran_ns`: how long its ranks ran."""

    run: Attempt
    ran_ns: int
    is_complete: bool


Change = AttemptBegan | AttemptStopped | AttemptLeft


class GangTracker:
    """The attempts that hold hosts now.

    `running`: hosts whose ranks run. `held`: those, stopped gangs' hosts and `spares`.
    Who holds which host is written down from the first question on: without failures nobody asks.
    """

    def __init__(self) -> None:
        self.running = 0
        self.held = 0
        self.spares = 0
        self._runs: dict[str, Attempt] = {}
        self._known: dict[str, str] | None = None

    @property
    def _holder(self) -> dict[str, str]:
        if self._known is None:
            runs = self._runs.values()
            self._known = {host: run.name for run in runs for host in run.hosts + run.spares}
        return self._known

    def holds(self, host: str) -> bool:
        """Whether a gang holds this host, as one of its own or as a spare."""
        return host in self._holder

    def run_on(self, host: str) -> Attempt | None:
        """The attempt with ranks on this host; none for a spare of one."""
        run = self._runs.get(self._holder.get(host, ""))
        return None if run is None or host in run.spares else run

    def feed(self, event: Event) -> tuple[Change, ...]:
        """What this event does to attempts, in order. Cost: O(hosts of the gang)."""
        match event:
            case JobStarted():
                return self._begin(event)
            case GangSwapped():
                return self._swap(event)
            case GangResized():
                return self._leave(event.name, event.time_ns) + self._begin(event)
            case SparesChanged():
                return self._hold(event)
            case JobRequeued() | JobPreempted():
                return self._leave(event.name, event.time_ns)
            case JobEnded():
                complete = event.outcome is JobState.COMPLETED
                return self._leave(event.name, event.time_ns, complete)
            case HostMoved(move=HostMove.FAIL):
                return self._fail(event)
            case _:
                return ()

    def _begin(self, event: JobStarted | GangResized) -> tuple[Change, ...]:
        return self._enter(
            Attempt(event.name, event.attempt, event.hosts, event.spares, event.time_ns)
        )

    def _enter(self, run: Attempt) -> tuple[Change, ...]:
        if self._known is not None:
            self._known |= dict.fromkeys(run.hosts + run.spares, run.name)
        self._runs[run.name] = run
        self.running += len(run.hosts)
        self.held += len(run.hosts) + len(run.spares)
        self.spares += len(run.spares)
        return (AttemptBegan(run),)

    def _leave(self, name: str, now_ns: int, complete: bool = False) -> tuple[Change, ...]:
        run = self._runs.pop(name, None)
        if run is None:  # ended while it waited
            return ()
        if self._known is not None:
            for host in run.hosts + run.spares:
                del self._known[host]
        self.held -= len(run.hosts) + len(run.spares)
        self.spares -= len(run.spares)
        stop_ns = run.stop_ns
        if stop_ns is None:
            stop_ns = now_ns
            self.running -= len(run.hosts)
        return (AttemptLeft(run, stop_ns - run.start_ns, complete),)

    def _swap(self, event: GangSwapped) -> tuple[Change, ...]:
        run = self._runs[event.name]
        hosts = list(run.hosts)
        for swap in event.swaps:
            hosts[swap.block] = swap.joined
        spares = tuple(s for s in run.spares if s not in hosts)
        left = self._leave(event.name, event.time_ns)
        return left + self._enter(
            Attempt(event.name, event.attempt, tuple(hosts), spares, event.time_ns)
        )

    def _hold(self, event: SparesChanged) -> tuple[Change, ...]:
        """Other spares from here on; the ranks run on."""
        run = self._runs[event.name]
        if self._known is not None:
            for host in run.spares:
                del self._known[host]
            self._known |= dict.fromkeys(event.spares, run.name)
        more = len(event.spares) - len(run.spares)
        self.held += more
        self.spares += more
        self._runs[event.name] = replace(run, spares=event.spares)
        return ()

    def _fail(self, event: HostMoved) -> tuple[Change, ...]:
        name = self._holder.get(event.host)
        if name is None:
            return ()
        run = self._runs[name]
        if event.host in run.spares:
            self._runs[name] = replace(run, spares=tuple(s for s in run.spares if s != event.host))
            del self._holder[event.host]
            self.held -= 1
            self.spares -= 1
            return ()
        if run.stop_ns is not None:
            return ()
        self.running -= len(run.hosts)
        self._runs[name] = stopped = replace(run, stop_ns=event.time_ns)
        return (AttemptStopped(stopped),)
