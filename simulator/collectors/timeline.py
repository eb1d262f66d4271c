"""What hosts did and what waited, over time: a fold over effects of events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from scheduler.core.fold.effects import (
    EventEffect,
    HostReport,
    HostsChange,
    HostTransition,
    JobChange,
    JobChangeKind,
)
from scheduler.core.model.lifecycle import HOLDING, HostMove, JobState
from scheduler.core.model.state import State
from simulator.collectors.bins import TimeBins

STATES = ("running", "stopped", "spare", "down", "idle_wanted", "idle_unwanted")
QUEUE = ("queued_jobs", "queued_hosts")


class Timeline:
    """The state of hosts and the queue over time.

    Each host is in one of these states: `running` ranks; `stopped`, held by a gang that stands
    still; `spare`, held beside a gang; `down`, failed and held by nobody; `idle_wanted`, free while
    jobs wait; `idle_unwanted`, free with an empty queue. Memory: O(hosts + queue).
    """

    def __init__(self, fabric: Fabric, zero_ns: int) -> None:
        self._hosts = fabric.host_count
        self._gpus = fabric.gpus_per_host
        self._bins = TimeBins(len(STATES) + len(QUEUE), zero_ns)
        self._queued: dict[str, int] = {}
        self._queued_hosts = 0
        self._down: HostSet = 0
        self._spares = 0

    def feed(self, now_ns: int, done: Iterable[EventEffect], state: State) -> None:
        """Count the effects of one event. `state`: right after it."""
        for effect in done:
            match effect:
                case JobChange():
                    self._job(effect)
                case HostTransition(move=HostMove.FAIL):
                    self._down |= 1 << state.built_fabric.index_by_name[effect.host]
                case HostTransition(move=HostMove.REPAIR):
                    self._down &= ~(1 << state.built_fabric.index_by_name[effect.host])
                case HostTransition() | HostReport() | HostsChange():
                    pass
                case _:
                    assert_never(effect)
        self._levels(now_ns, state)

    def _job(self, change: JobChange) -> None:
        """The queue and the spares after it."""
        job, before = change.job, change.before
        self._spares += len(job.spares) if job.state in HOLDING else 0
        self._spares -= len(before.spares) if before is not None else 0
        match change.kind:
            case JobChangeKind.SUBMITTED:
                self._enqueue(job.name, job.request.hosts_needed(self._gpus))
            case JobChangeKind.REQUEUED:
                assert before is not None
                self._enqueue(job.name, len(before.hosts))
            case JobChangeKind.STARTED | JobChangeKind.ENDED:
                self._queued_hosts -= self._queued.pop(job.name, 0)
            case JobChangeKind.UPDATED | JobChangeKind.SWAPPED | JobChangeKind.RESIZED:
                pass
            case JobChangeKind.INTERRUPTED | JobChangeKind.SPARE_LOST:
                pass
            case JobChangeKind.LAUNCHED | JobChangeKind.SAVED | JobChangeKind.HUNG:
                pass
            case JobChangeKind.ROLE_RESTARTED:
                pass
            case JobChangeKind.HELD | JobChangeKind.RELEASED | JobChangeKind.ELIGIBLE:
                pass
            case JobChangeKind.SPARES_CHANGED:
                pass
            case _:
                assert_never(change.kind)

    def _enqueue(self, name: str, hosts: int) -> None:
        self._queued[name] = hosts
        self._queued_hosts += hosts

    def _levels(self, now_ns: int, state: State) -> None:
        held, stopped = state.index.held.bit_count(), _stopped_hosts(state)
        down = (self._down & ~state.index.held).bit_count()
        idle = self._hosts - held - down
        is_wanted = bool(self._queued)
        levels = (
            held - stopped - self._spares,
            stopped,
            self._spares,
            down,
            idle if is_wanted else 0,
            0 if is_wanted else idle,
            len(self._queued),
            self._queued_hosts,
        )
        for channel, level in enumerate(levels):
            self._bins.set(channel, level, now_ns)

    def host_ns(self, end_ns: int) -> dict[str, int]:
        """Return the host-time in each state until `end_ns`; the sum is all hosts all the time."""
        return {name: self._bins.integral(i, end_ns) for i, name in enumerate(STATES)}

    def data(self, end_ns: int) -> dict[str, Any]:
        """Return means by bin of time."""
        return {
            "bin_s": self._bins.width_ns / 1e9,
            "at_s": self._bins.starts_s(end_ns),
            "series": {
                name: _rounded(self._bins.means(i, end_ns)) for i, name in enumerate(STATES + QUEUE)
            },
        }


def _stopped_hosts(state: State) -> int:
    """Return how many hosts are held by gangs that stand still, and by no other."""
    stopped = {host for name in state.index.interrupted for host in state.jobs[name].hosts}
    sharing = (map(state.jobs.__getitem__, state.index.shared.get(host, ())) for host in stopped)
    return sum(all(job.state is JobState.INTERRUPTED for job in jobs) for jobs in sharing)


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in values]
