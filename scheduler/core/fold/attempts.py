"""Which gangs hold which hosts: a fold over what the events of a log did.

Launchers follow it, the one that has agents start processes (scheduler.launch) and the
simulator's, and so do the metrics of a replay: what is started, what is charged to a job and
what is counted for it are one and the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol, assert_never

from muster.structs import replace, struct
from placement.fabric.tree import Fabric
from scheduler.core.fold.apply import effects
from scheduler.core.fold.effects import (
    EventEffect,
    HostReport,
    HostsChange,
    HostTransition,
    JobChange,
    JobChangeKind,
)
from scheduler.core.model.events import Event
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.state import State


class EffectReader:
    """Reads the effects of a log event by event, from its first one, or from the one after the
    state `before`. Several may share one: the first who asks for an event has it read."""

    def __init__(self, before: State | None = None) -> None:
        self._state = State.empty() if before is None else before
        self._done: tuple[EventEffect, ...] = ()

    def adopt(self, state: State) -> None:
        """Continue from this state."""
        self._state, self._done = state, ()

    def read(self, event: Event, state: State) -> tuple[EventEffect, ...]:
        """Return the effects of an event. `state`: right after it. Cost: 2 us."""
        if state is not self._state:
            before, self._state = self._state, state
            self._done = effects(before, event, state)
        return self._done


@struct(frozen=True, slots=True)
class PlacedGang:
    """One attempt of a job that holds hosts, with the names of these hosts. `job`: as the newest
    change of this attempt has left it, with its `Attempt`."""

    job: Job
    hosts: tuple[str, ...]
    spares: tuple[str, ...]

    @staticmethod
    def of(job: Job, fabric: Fabric) -> PlacedGang:
        """Return the gang of a job that holds hosts of `fabric`."""
        return PlacedGang(job, fabric.names(job.hosts), fabric.names(job.spares))

    @property
    def name(self) -> str:
        return self.job.spec.name

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def start_ns(self) -> int:
        return self.job.present.start_ns

    @property
    def stop_ns(self) -> int | None:
        """When a failure stopped it; None = none has."""
        return self.job.present.stop_ns

    @property
    def gpus(self) -> tuple[int, ...]:
        """GPUs of its only host that it has, where other jobs may have the rest; else empty."""
        return self.job.present.gpus


@struct(frozen=True, slots=True)
class AttemptBegan:
    run: PlacedGang


@struct(frozen=True, slots=True)
class AttemptStopped:
    """A host failed: the gang stops and keeps its hosts."""

    run: PlacedGang


@struct(frozen=True, slots=True)
class AttemptLeft:
    """The attempt is over, and its gang leaves its hosts. `ran_ns`: how long its ranks ran.
    `next_state`: what its job is now."""

    run: PlacedGang
    ran_ns: int
    next_state: JobState

    @property
    def is_complete(self) -> bool:
        return self.next_state is JobState.COMPLETED


Change = AttemptBegan | AttemptStopped | AttemptLeft


class Launcher(Protocol):
    """Starts and stops ranks as the log says of gangs. How attempts end comes back as commands."""

    def begin(self, run: PlacedGang) -> None:
        """Start all ranks of an attempt."""

    def stop(self, run: PlacedGang) -> None:
        """Stop what still runs of an attempt that a failure stopped; it keeps its hosts."""

    def leave(self, left: AttemptLeft) -> None:
        """End an attempt that is over: its hosts are not its own any more."""


def carry_out(launcher: Launcher, change: Change) -> None:
    match change:
        case AttemptBegan(run):
            launcher.begin(run)
        case AttemptStopped(run):
            launcher.stop(run)
        case AttemptLeft():
            launcher.leave(change)
        case _:
            assert_never(change)


class GangTracker:
    """The attempts that hold hosts now.

    `running`: hosts with ranks that run. `held`: those, stopped gangs' hosts and `spares`. A host
    that jobs share is counted once. The holders of hosts are noted from the first question on, for
    without failures nobody asks.
    """

    def __init__(self) -> None:
        self.running = 0
        self.held = 0
        self.spares = 0
        self._runs: dict[str, PlacedGang] = {}
        self._sharing = Counter[str]()  # attempts that hold a part of a host
        self._running_on = Counter[str]()  # those of them whose ranks run
        self._known: dict[str, tuple[str, ...]] | None = None

    @property
    def _holders(self) -> dict[str, tuple[str, ...]]:
        if self._known is None:
            self._known = {}
            for run in self._runs.values():
                self._write(run.name, run.hosts + run.spares)
        return self._known

    def _write(self, name: str, hosts: tuple[str, ...]) -> None:
        if self._known is not None:
            for host in hosts:
                self._known[host] = (*self._known.get(host, ()), name)

    def _erase(self, name: str, hosts: tuple[str, ...]) -> None:
        for host in hosts if self._known is not None else ():
            assert self._known is not None
            remaining = tuple(known for known in self._known[host] if known != name)
            if remaining:
                self._known[host] = remaining
            else:
                del self._known[host]

    def find(self, name: str) -> PlacedGang | None:
        """Return the attempt of the job of this name, if it holds hosts."""
        return self._runs.get(name)

    def adopt(self, run: PlacedGang) -> None:
        """Take in an attempt that a state knows, where the log is not read from its begin."""
        self._enter(run)
        if run.stop_ns is not None:
            self.running += _hosts(run, self._running_on, -1)

    def holds(self, host: str) -> bool:
        """Whether a gang holds this host, as one of its own or as a spare."""
        return host in self._holders

    def runs_on(self, host: str) -> tuple[PlacedGang, ...]:
        """The attempts with ranks on this host; none for a spare of one."""
        runs = (self._runs[name] for name in self._holders.get(host, ()))
        return tuple(run for run in runs if host not in run.spares)

    def feed(self, done: Iterable[EventEffect]) -> tuple[Change, ...]:
        """Apply one event's effects to attempts; return changes. Cost: O(hosts of the gang)."""
        changes: tuple[Change, ...] = ()
        for effect in done:
            match effect:
                case JobChange():
                    changes += self._changed(effect)
                case HostsChange() | HostTransition() | HostReport():
                    pass
                case _:
                    assert_never(effect)
        return changes

    def _changed(self, change: JobChange) -> tuple[Change, ...]:
        job, now_ns = change.job, change.time_ns
        match change.kind:
            case JobChangeKind.STARTED:
                return self._enter(PlacedGang.of(job, change.fabric))
            case JobChangeKind.SWAPPED | JobChangeKind.RESIZED:
                return self._leave(job, now_ns) + self._enter(PlacedGang.of(job, change.fabric))
            case JobChangeKind.SPARES_CHANGED | JobChangeKind.SPARE_LOST:
                return self._hold(job, change.fabric.names(job.spares))
            case JobChangeKind.REQUEUED | JobChangeKind.ENDED:
                return self._leave(job, now_ns)
            case JobChangeKind.INTERRUPTED:
                return self._stop(job)
            case JobChangeKind.SUBMITTED | JobChangeKind.UPDATED:
                return self._renew(job)
            case JobChangeKind.LAUNCHED | JobChangeKind.SAVED | JobChangeKind.HUNG:
                return self._renew(job)
            case JobChangeKind.ROLE_RESTARTED:
                return self._renew(job)
            case JobChangeKind.HELD | JobChangeKind.RELEASED | JobChangeKind.ELIGIBLE:
                return self._renew(job)
            case _:
                assert_never(change.kind)

    def _renew(self, job: Job) -> tuple[Change, ...]:
        """The job has changed, and not what it holds."""
        run = self._runs.get(job.name)
        if run is not None:
            self._runs[job.name] = replace(run, job=job)
        return ()

    def _enter(self, run: PlacedGang) -> tuple[Change, ...]:
        self._write(run.name, run.hosts + run.spares)
        self._runs[run.name] = run
        self.running += _hosts(run, self._running_on, 1)
        self.held += _hosts(run, self._sharing, 1) + len(run.spares)
        self.spares += len(run.spares)
        return (AttemptBegan(run),)

    def _leave(self, after: Job, now_ns: int) -> tuple[Change, ...]:
        name = after.name
        run = self._runs.pop(name, None)
        if run is None:  # ended while it waited
            return ()
        self._erase(name, run.hosts + run.spares)
        self.held += _hosts(run, self._sharing, -1) - len(run.spares)
        self.spares -= len(run.spares)
        stop_ns = run.stop_ns
        if stop_ns is None:
            stop_ns = now_ns
            self.running += _hosts(run, self._running_on, -1)
        return (AttemptLeft(run, stop_ns - run.start_ns, after.state),)

    def _hold(self, job: Job, spares: tuple[str, ...]) -> tuple[Change, ...]:
        """Other spares from here on; the ranks run on."""
        run = self._runs[job.name]
        self._erase(job.name, run.spares)
        self._write(job.name, spares)
        more = len(spares) - len(run.spares)
        self.held += more
        self.spares += more
        self._runs[job.name] = replace(run, job=job, spares=spares)
        return ()

    def _stop(self, job: Job) -> tuple[Change, ...]:
        """A host failed; of a gang that stands still already, a further one."""
        run = self._runs[job.name]
        self._runs[job.name] = stopped = replace(run, job=job)
        if run.stop_ns is not None:
            return ()
        self.running += _hosts(run, self._running_on, -1)
        return (AttemptStopped(stopped),)


def _hosts(run: PlacedGang, sharing: Counter[str], sign: int) -> int:
    """How many hosts more there are once this attempt joins (1) or leaves (-1) those `sharing`."""
    if not run.gpus:
        return sign * len(run.hosts)
    (host,) = run.hosts
    sharing[host] += sign
    return sign * (sharing[host] == (1 if sign > 0 else 0))
