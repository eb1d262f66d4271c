"""Down intervals of another cluster's servers, laid on the hosts of this fabric.

Each host gets the whole record of one server, chosen at random by the seed, so that bad
servers stay bad and what failed together fails together. A fabric with more hosts than
the log has servers gets further copies of the fleet, each turned in time by a random
share of the log's span: the same failures, not at the same moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from placement.fabric.tree import Fabric
from simulator.failures.outage import Outage
from simulator.traces.record import SECOND_NS


@dataclass(frozen=True, slots=True)
class Interval:
    """Server number `server` was down from `start_s`, for `down_s`."""

    server: int
    start_s: float
    down_s: float
    cause: str


@dataclass(frozen=True, slots=True)
class FleetLog:
    """`servers`: of the fleet, also those that never failed. `span_s`: what it covers."""

    servers: int
    span_s: float
    intervals: tuple[Interval, ...]


def laid_out(log: FleetLog, fabric: Fabric, seed: int) -> list[Outage]:
    """The outages, in time order. Once through the log: afterwards nothing fails."""
    outages = [o for at in _copies(log, fabric, seed) for o in at]
    return sorted(outages, key=lambda outage: outage.time_ns)


def _copies(log: FleetLog, fabric: Fabric, seed: int) -> Iterator[list[Outage]]:
    random = Random(f"{seed}/fleet")
    copies = -(-fabric.host_count // log.servers)
    for copy in range(copies):
        servers = list(range(log.servers))
        random.shuffle(servers)
        turn_s = random.uniform(0, log.span_s) if copy else 0.0
        hosts = fabric.hosts[copy * log.servers : (copy + 1) * log.servers]
        host_by_server = dict(zip(servers, hosts, strict=False))
        yield [o for i in log.intervals for o in _outages(i, host_by_server, turn_s, log.span_s)]


def _outages(
    interval: Interval, host_by_server: dict[int, str], turn_s: float, span_s: float
) -> list[Outage]:
    host = host_by_server.get(interval.server)
    if host is None:
        return []
    start_s = interval.start_s + turn_s
    start_s -= span_s if start_s >= span_s else 0
    down_ns = round(start_s * SECOND_NS)
    up_ns = down_ns + round(interval.down_s * SECOND_NS)
    return [Outage(down_ns, host, True, interval.cause), Outage(up_ns, host, False, interval.cause)]
