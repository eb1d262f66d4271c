"""What a collective costs: the bytes of its messages over boundaries, and its rounds' time.

A schedule is counted, never looked up: the bytes over a boundary are the bytes of the
messages whose ends lie on two sides of it, and the time is that of its rounds. The
closed forms of the literature are tests of it.

    rank      0 .. n-1, the position in the group
    zone      of each rank; shape (n,)
    payload   S, bytes: the whole vector, so that a rank's own block is S/n
    unit      S / parts, the grain in which a schedule counts
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from placement.collectives.schedules import Schedule
from placement.fabric.tree import Ints


def leaving(schedule: Schedule, zones: Ints, zone_count: int) -> Ints:
    """Units that leave each zone. Shape: (zone_count,)."""
    total = np.zeros(zone_count, dtype=np.int64)
    for messages in schedule.rounds:
        tail, head = zones[messages.src], zones[messages.dst]
        np.add.at(total, tail[tail != head], messages.units[tail != head])
    return total


def kappa(schedule: Schedule, zones: Ints) -> Fraction:
    """Payloads that cross zone boundaries, both directions (papers: bytes / S)."""
    return Fraction(int(leaving(schedule, zones, int(zones.max()) + 1).sum()), schedule.parts)


def busiest_share(schedule: Schedule) -> Fraction:
    """What the busiest rank sends, as a share of the payload."""
    return Fraction(
        int(leaving(schedule, np.arange(schedule.size), schedule.size).max()), schedule.parts
    )


@dataclass(frozen=True, slots=True)
class Link:
    """One hop: seconds per message and bytes per second of each rank."""

    alpha_s: float
    bytes_per_s: float


def schedule_seconds(
    schedule: Schedule,
    payload_bytes: float,
    link: Link,
    outside: Link | None = None,
    hosts: Ints | None = None,
) -> float:
    """Alpha-beta time: rounds in turn, each as long as its busiest rank.

    With `outside` and `hosts`, messages between hosts take that link instead; the ranks
    of a host share theirs, as the channels of a collective do.
    Source: Thakur, Rabenseifner and Gropp 2005, without the cost of the reduction.
    """
    unit_bytes = payload_bytes / schedule.parts
    home = np.zeros(schedule.size, dtype=np.int64) if outside is None or hosts is None else hosts
    ranks = np.bincount(home)
    far = outside or link
    total = 0.0
    for messages in schedule.rounds:
        leaves = home[messages.src] != home[messages.dst]
        inside = np.bincount(messages.src, messages.units * ~leaves, schedule.size)
        left = np.bincount(home[messages.src], messages.units * leaves, len(ranks))
        busy_s = max(
            float(inside.max()) * unit_bytes / link.bytes_per_s,
            float((left / np.maximum(ranks, 1)).max()) * unit_bytes / far.bytes_per_s,
        )
        alpha_s = far.alpha_s if leaves.any() else link.alpha_s
        total += messages.steps * alpha_s * bool(len(messages.src)) + busy_s
    return total
