"""What hosts did and what waited, over time: a fold over effects of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import numpy as np

from placement.fabric.tree import Fabric
from scheduler.core.fold.attempts import (
    AttemptBegan,
    AttemptLeft,
    AttemptStopped,
    Change,
    GangTracker,
    PlacedGang,
)
from scheduler.core.fold.effects import (
    EventEffect,
    HostReport,
    HostsChange,
    HostTransition,
    JobChange,
    JobChangeKind,
    LinkChange,
    WindowChange,
)
from scheduler.core.model.lifecycle import HostMove
from simulator.collectors.bins import TimeBins

MOST_ROWS = 48  # of the map; more domains than that are joined with their neighbours
STATES = ("running", "stopped", "spare", "down", "idle_wanted", "idle_unwanted")
QUEUE = ("queued_jobs", "queued_hosts")


class Timeline:
    """The state of hosts, the queue, and each domain of the fabric over time.

    Each host is in one of these states: `running` ranks; `stopped`, held by a gang that stands
    still; `spare`, held beside a gang; `down`, failed and held by nobody; `idle_wanted`, free while
    jobs wait; `idle_unwanted`, free with an empty queue. Memory: O(hosts + queue).
    """

    def __init__(self, fabric: Fabric, zero_ns: int) -> None:
        self._hosts = fabric.host_count
        self._gpus = fabric.gpus_per_host
        self._index = fabric.index_by_name
        self.tier, self._rows, self._row = rows(fabric)
        self._bins = TimeBins(len(STATES) + len(QUEUE), zero_ns)
        self._running_on = Counter[str]()  # jobs that share a host
        self._map = TimeBins(2 * len(self._rows), zero_ns)  # busy of each row, then out of service
        self._queued: dict[str, int] = {}
        self._queued_hosts = 0
        self._down: set[str] = set()

    def feed(
        self,
        now_ns: int,
        done: Iterable[EventEffect],
        changes: Sequence[Change],
        gangs: GangTracker,
    ) -> None:
        """Count the effects of one event, after `gangs` made these changes of them."""
        for effect in done:
            match effect:
                case JobChange():
                    self._job(effect)
                case HostTransition():
                    self._move_host(effect, now_ns)
                case HostReport() | HostsChange() | WindowChange() | LinkChange():
                    pass
                case _:
                    assert_never(effect)
        for change in changes:
            self._gang(change, now_ns)
        self._levels(now_ns, gangs)

    def _job(self, change: JobChange) -> None:
        """The queue after it."""
        job = change.job
        match change.kind:
            case JobChangeKind.SUBMITTED:
                self._enqueue(job.name, job.request.hosts_needed(self._gpus))
            case JobChangeKind.REQUEUED:
                assert change.before is not None
                self._enqueue(job.name, len(change.before.hosts))
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

    def _gang(self, change: Change, now_ns: int) -> None:
        match change:
            case AttemptBegan(run):
                self._fill(run, 1, now_ns)
            case AttemptStopped(run):
                self._fill(run, -1, now_ns)
            case AttemptLeft(run):
                if run.stop_ns is None:
                    self._fill(run, -1, now_ns)
            case _:
                assert_never(change)

    def _fill(self, run: PlacedGang, sign: int, now_ns: int) -> None:
        hosts = run.hosts
        if run.gpus:
            self._running_on[hosts[0]] += sign
            if self._running_on[hosts[0]] != (1 if sign > 0 else 0):
                return
        rows = self._row[[self._index[host] for host in hosts]]
        for row, count in enumerate(np.bincount(rows).tolist()):
            if count:
                self._map.add(row, sign * count, now_ns)

    def _move_host(self, effect: HostTransition, now_ns: int) -> None:
        is_down = effect.host in self._down
        if effect.move is HostMove.FAIL and not is_down:
            self._down.add(effect.host)
        elif effect.move is HostMove.REPAIR and is_down:
            self._down.discard(effect.host)
        else:
            return
        row = int(self._row[self._index[effect.host]])
        self._map.add(len(self._rows) + row, -1 if is_down else 1, now_ns)

    def _levels(self, now_ns: int, gangs: GangTracker) -> None:
        down = sum(not gangs.holds(host) for host in self._down)
        idle = self._hosts - gangs.held - down
        is_wanted = bool(self._queued)
        levels = (
            gangs.running,
            gangs.held - gangs.running - gangs.spares,
            gangs.spares,
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
        """Return means by bin of time, and the map: a share of its hosts for each row and bin."""
        at_s = self._bins.starts_s(end_ns)
        series = {
            name: _rounded(self._bins.means(i, end_ns)) for i, name in enumerate(STATES + QUEUE)
        }
        sizes = np.bincount(self._row, minlength=len(self._rows)).tolist()
        return {
            "bin_s": self._bins.width_ns / 1e9,
            "at_s": at_s,
            "series": series,
            "map": {
                "tier": self.tier,
                "rows": list(self._rows),
                "at_s": self._map.starts_s(end_ns),
                "busy": self._shares(0, sizes, end_ns),
                "down": self._shares(len(self._rows), sizes, end_ns),
            },
        }

    def _shares(self, first: int, sizes: Sequence[int], end_ns: int) -> list[list[float]]:
        return [
            [round(value / size, 4) for value in self._map.means(first + row, end_ns)]
            for row, size in enumerate(sizes)
        ]


def rows(fabric: Fabric) -> tuple[str, tuple[str, ...], np.ndarray[Any, np.dtype[np.int64]]]:
    """Return the rows of the map: a tier's name, the rows' names, and each host's row. Rows are
    domains of the outermost tier that has more than one, else hosts."""
    tier = next((tier for tier in fabric.tiers if len(tier.domains) > 1), None)
    name, names = ("host", fabric.hosts) if tier is None else (tier.name, tier.domains)
    row = np.arange(fabric.host_count) if tier is None else tier.domain_by_host
    each = -(-len(names) // MOST_ROWS)
    if each == 1:
        return name, tuple(names), row
    joined = [names[i : i + each] for i in range(0, len(names), each)]
    labels = tuple(f"{part[0]}..{part[-1]}" if len(part) > 1 else part[0] for part in joined)
    return f"{each} {name}s", labels, row // each


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 3) for value in values]
