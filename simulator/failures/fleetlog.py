"""Recorded outages: down intervals of servers, laid on the hosts of this fabric.

A log of another cluster: each host gets the whole record of one server, chosen at random by
the seed, so that bad servers stay bad and what failed together fails together. A fabric with
more hosts than the log has servers gets further copies of the fleet, each turned in time by
a random share of the log's span: the same failures, not at the same moments. A log of this
very cluster names its hosts, which keep their own records.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import count, pairwise
from math import inf
from random import Random

from muster.structs import replace, struct
from placement.fabric.tree import Fabric
from scheduler.files.errors import InputError, Problem
from simulator.failures.outage import Outage
from simulator.traces.record import SECOND_NS

LATE = 10  # mean times between failures before the first of as many: the log begins late


@struct(frozen=True, slots=True)
class Interval:
    """Server number `server` was down from `start_s`, for `down_s`; infinite where the log does
    not say how long."""

    server: int
    start_s: float
    down_s: float
    cause: str

    @property
    def end_s(self) -> float:
        return self.start_s + self.down_s


@struct(frozen=True, slots=True)
class FleetLog:
    """Recorded outages of a fleet. `servers`: of the fleet, also servers that never failed.
    `span_s`: what it covers. `hosts`: the servers by name, where they are hosts of this fabric.
    `orphan_ends`: ends of outages that began before the log. `name`: of the file."""

    servers: int
    span_s: float
    intervals: tuple[Interval, ...]
    hosts: tuple[str, ...] = ()
    orphan_ends: int = 0
    name: str = ""

    @property
    def starts_s(self) -> list[float]:
        return sorted(interval.start_s for interval in self.intervals)


@struct(frozen=True, slots=True)
class LogWindow:
    """The part of recorded failures that a replay uses: from so many seconds after the log's
    beginning on. With `is_repeated` it begins again there when the log ends."""

    from_s: float = 0.0
    is_repeated: bool = False

    def cut(self, log: FleetLog) -> FleetLog:
        """Return the log from there on; hosts that are down then begin down.

        Raises: InputError naming the option, when the log ends before or covers no time.
        """
        if self.is_repeated and not log.span_s:
            raise InputError(Problem("--failures-repeat", f"{log.name} covers no time"))
        if not self.from_s:
            return log
        if self.from_s >= log.span_s:
            message = f"{log.name} ends after {log.span_s / 3600:,.2f} h"
            raise InputError(Problem("--failures-from-h", message))
        kept = (each for each in log.intervals if each.end_s > self.from_s)
        intervals = tuple(
            replace(
                each,
                start_s=max(0.0, each.start_s - self.from_s),
                down_s=each.end_s - max(each.start_s, self.from_s),
            )
            for each in kept
        )
        return replace(log, span_s=log.span_s - self.from_s, intervals=intervals)


ALL = LogWindow()


@struct(frozen=True, slots=True)
class LogExtent:
    """The part of a replay that a log covers. Units: seconds after the first submit; `first_s`: of
    the first of `failures`, None without any; `end_s`: infinite for one that begins again."""

    name: str
    first_s: float | None
    failures: int
    mean_gap_s: float
    end_s: float
    orphan_ends: int

    @staticmethod
    def of(log: FleetLog, is_repeated: bool) -> LogExtent:
        """Return the part of a replay that `log`, from where it is used, covers."""
        starts = log.starts_s
        gaps = [later - earlier for earlier, later in pairwise(starts)]
        return LogExtent(
            log.name,
            starts[0] if starts else None,
            len(starts),
            sum(gaps) / len(gaps) if gaps else 0.0,
            inf if is_repeated else log.span_s,
            log.orphan_ends,
        )

    def warnings(self, replay_s: float) -> Iterator[str]:
        """Warn of what the log does not have for a replay of that length."""
        if self.orphan_ends:
            yield (
                f"{self.name}: {self.orphan_ends:,} outages end that did not begin in it; a host"
                " whose record begins so is taken to be down from the log's first event on"
            )
        if self.first_s is None:
            yield f"{self.name} holds no failure"
        elif self.first_s >= replay_s or self._is_late:
            yield (
                f"{self.name}: its first failure is {_days(self.first_s)} after the first submit,"
                f" in a replay of {_days(replay_s)}; --failures-from-h"
                f" {int(self.first_s / 3600)} begins there"
            )
        if self.end_s < replay_s:
            yield (
                f"{self.name} ends {_days(self.end_s)} after the first submit; the last"
                f" {_days(replay_s - self.end_s)} of the replay have no failures of it;"
                " --failures-repeat begins it again"
            )

    @property
    def _is_late(self) -> bool:
        return self.failures > LATE and (self.first_s or 0.0) > LATE * self.mean_gap_s


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:,.1f} d"


class OutagePairs:
    """Pairs starts and ends of outages, fed in the order of time, into intervals.

    `key`: of what an end ends, such as a server and a cause. An end without a start began before
    the log if it is the first event of its key, and is left out otherwise; both are counted.
    """

    def __init__(self) -> None:
        self.orphan_ends = 0
        self._open: dict[Hashable, list[tuple[int, float, str]]] = {}
        self._done: list[Interval] = []
        self._cut: list[tuple[int, float, str]] = []
        self._first_s = inf
        self.last_s = 0.0

    def start(self, key: Hashable, server: int, time_s: float, cause: str) -> None:
        self._see(time_s)
        self._open.setdefault(key, []).append((server, time_s, cause))

    def end(self, key: Hashable, server: int, time_s: float, cause: str) -> None:
        self._see(time_s)
        if opened := self._open.get(key):
            _, start_s, began_as = opened.pop(0)
            self._done.append(Interval(server, start_s, max(0.0, time_s - start_s), began_as))
            return
        self.orphan_ends += 1
        if key not in self._open:
            self._cut.append((server, time_s, cause))
            self._open[key] = []

    def _see(self, time_s: float) -> None:
        self._first_s = min(self._first_s, time_s)
        self.last_s = max(self.last_s, time_s)

    def intervals(self) -> tuple[Interval, ...]:
        """Return all intervals: with an end first, then those whose start or end the log does not
        have."""
        first_s = self._first_s
        cut = [Interval(server, first_s, end_s - first_s, c) for server, end_s, c in self._cut]
        still = [Interval(n, s, inf, c) for opened in self._open.values() for n, s, c in opened]
        return (*self._done, *cut, *still)


def laid_out(
    log: FleetLog, fabric: Fabric, seed: int, is_repeated: bool = False
) -> Iterable[Outage]:
    """Yield the outages in time order: once through the log, or for ever when `is_repeated`."""
    downs = [down for copy in _copies(log, fabric, seed) for down in copy]
    if is_repeated:
        return _repeated(downs, round(log.span_s * SECOND_NS))
    outages = [outage for down in downs for outage in down.outages()]
    return sorted(outages, key=lambda outage: outage.time_ns)


@struct(frozen=True, slots=True)
class _Down:
    """A host is down from `start_ns` to `end_ns`, None for ever."""

    start_ns: int
    end_ns: int | None
    host: str
    cause: str

    def outages(self) -> Iterator[Outage]:
        yield Outage(self.start_ns, self.host, True, self.cause)
        if self.end_ns is not None:
            yield Outage(self.end_ns, self.host, False, self.cause)


def _repeated(downs: Iterable[_Down], span_ns: int) -> Iterator[Outage]:
    """Again and again. What the log leaves down comes back when it begins again."""
    ordered = sorted(downs, key=lambda down: down.start_ns)
    if not ordered:
        return
    ups: list[Outage] = []
    for turn in count():
        for down in ordered:
            begin_ns = turn * span_ns + down.start_ns
            while ups and ups[0].time_ns <= begin_ns:
                yield heappop(ups)
            yield Outage(begin_ns, down.host, True, down.cause)
            end_ns = span_ns if down.end_ns is None else down.end_ns
            heappush(ups, Outage(turn * span_ns + end_ns, down.host, False, down.cause))


def _copies(log: FleetLog, fabric: Fabric, seed: int) -> Iterator[list[_Down]]:
    if log.hosts:
        names = dict(enumerate(log.hosts))
        yield [_placed(interval, names[interval.server], 0.0, log) for interval in log.intervals]
        return
    random = Random(f"{seed}/fleet")
    copies = -(-fabric.host_count // log.servers)
    for copy in range(copies):
        servers = list(range(log.servers))
        random.shuffle(servers)
        turn_s = random.uniform(0, log.span_s) if copy else 0.0
        hosts = fabric.hosts[copy * log.servers : (copy + 1) * log.servers]
        host_by_server = dict(zip(servers, hosts, strict=False))
        yield [
            _placed(interval, host_by_server[interval.server], turn_s, log)
            for interval in log.intervals
            if interval.server in host_by_server
        ]


def _placed(interval: Interval, host: str, turn_s: float, log: FleetLog) -> _Down:
    start_s = interval.start_s + turn_s
    start_s -= log.span_s if turn_s and start_s >= log.span_s else 0
    down_ns = round(start_s * SECOND_NS)
    is_open = interval.down_s == inf
    up_ns = None if is_open else down_ns + round(interval.down_s * SECOND_NS)
    return _Down(down_ns, up_ns, host, interval.cause)
