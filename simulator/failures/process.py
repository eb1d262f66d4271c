"""Outages of one cause, in time order, from random streams of its own.

Exponential causes are a Poisson process over all units; lemons are a second one over the
bad hosts, which adds what they fail more. Others are renewals unit by unit: a repaired
unit is as good as new. Streams are named by seed and cause, failures apart from repairs and from
what announces them, so that adding or changing a cause, its repairs, its lemons or its precursor
shifts nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace, merge
from random import Random

from muster.structs import replace
from placement.fabric.tree import Fabric
from simulator.failures.cause import DAY_S, HOST, FailureCause, Precursor, failure_units
from simulator.failures.outage import Outage
from simulator.traces.record import SECOND_NS

Hosts = tuple[str, ...]
Failure = tuple[int, Hosts]


def outages(cause: FailureCause, fabric: Fabric, seed: int) -> Iterator[Outage]:
    """Yield outages without end; the replay stops reading them when its trace ends. Raises:
    BadInput on an unknown scope."""
    units = failure_units(fabric, cause.scope, cause.group)
    name = f"{seed}/failures/{cause.name}"
    lemons = cause.lemons if cause.scope == HOST else None
    bad = lemons.choose(fabric.hosts, seed) if lemons else ()

    def failures() -> Iterator[Failure]:
        if cause.shape != 1:
            return _renewals(cause, units, frozenset(bad), name)
        streams = [_poisson(units, cause.rate, name)]
        if lemons and bad:
            extra = cause.rate * (lemons.factor - 1)
            streams.append(_poisson([(host,) for host in bad], extra, f"{name}/lemons"))
        return merge(*streams)

    true = _with_repairs(cause, failures(), seed)
    if cause.precursor is None:
        return true
    announced = _announcements(cause, cause.precursor, failures(), seed)
    streams = [true, announced, *_false_alarms(cause, cause.precursor, units, seed)]
    return merge(*streams, key=lambda outage: outage.time_ns)


def _announcements(
    cause: FailureCause, precursor: Precursor, failures: Iterator[Failure], seed: int
) -> Iterator[Outage]:
    """Yield what is reported of hosts before they fail, in time order; what would come before the
    replay begins comes with it."""
    random = Random(f"{seed}/precursors/{cause.name}")
    most_ns = round(2 * precursor.lead_h * 3600 * SECOND_NS)
    waiting: list[Outage] = []
    for down_ns, hosts in failures:
        while waiting and waiting[0].time_ns <= down_ns - most_ns:
            yield heappop(waiting)
        is_announced, lead = random.random() < precursor.recall, random.random()
        at_ns = max(0, down_ns - round(lead * most_ns))
        for host in hosts if is_announced else ():
            heappush(waiting, Outage(at_ns, host, True, cause.name, precursor.signal))


def _false_alarms(
    cause: FailureCause, precursor: Precursor, units: Sequence[Hosts], seed: int
) -> Iterator[Iterator[Outage]]:
    """Yield the stream of reports that no failure follows, and of ends of repairs that were for
    nothing; none if every announcement is true."""
    if rate := cause.rate * precursor.false_share:
        named = replace(cause, name=f"{cause.name}/false")
        alarms = _poisson(units, rate, f"{seed}/precursors/{named.name}")
        found = _with_repairs(named, alarms, seed)
        yield (replace(o, cause=cause.name, signal=precursor.signal) for o in found)


def _poisson(units: Sequence[Hosts], rate: float, name: str) -> Iterator[Failure]:
    random = Random(name)
    per_s = rate * len(units) / 1000 / DAY_S
    time_s = 0.0
    while True:
        time_s += random.expovariate(per_s)
        yield round(time_s * SECOND_NS), random.choice(units)


def _renewals(
    cause: FailureCause, units: Sequence[Hosts], bad: frozenset[str], name: str
) -> Iterator[Failure]:
    """Each unit with a stream of its own, begun `age_days` before the replay.

    Units: ns. Cost: O(log units) a failure.
    """
    mean_s = 1000 * DAY_S / cause.rate
    scale_s = mean_s / math.gamma(1 + 1 / cause.shape)
    heap: list[tuple[float, int]] = []
    draws = []
    for at, hosts in enumerate(units):
        worse = cause.lemons.factor if cause.lemons and not bad.isdisjoint(hosts) else 1.0
        draws.append((Random(f"{name}/{hosts[0]}"), scale_s / worse))
        heap.append((_first_s(*draws[at], cause), at))
    heapify(heap)
    while True:
        time_s, at = heap[0]
        random, scale = draws[at]
        heapreplace(heap, (time_s + random.weibullvariate(scale, cause.shape), at))
        yield round(time_s * SECOND_NS), units[at]


def _first_s(random: Random, scale_s: float, cause: FailureCause) -> float:
    time_s = -cause.age_days * DAY_S
    while True:
        time_s += random.weibullvariate(scale_s, cause.shape)
        if time_s >= 0:
            return time_s


def _with_repairs(cause: FailureCause, failures: Iterator[Failure], seed: int) -> Iterator[Outage]:
    """Each failure's hosts go down together and come back together."""
    repairs = Random(f"{seed}/repairs/{cause.name}")
    ups: list[Outage] = []
    for down_ns, hosts in failures:
        while ups and ups[0].time_ns <= down_ns:
            yield heappop(ups)
        up_ns = down_ns + round(cause.repair.draw_s(repairs) * SECOND_NS)
        for host in hosts:
            yield Outage(down_ns, host, True, cause.name)
            heappush(ups, Outage(up_ns, host, False, cause.name))
