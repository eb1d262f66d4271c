"""Hosts going down and coming back, and several streams of that as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import merge

from muster.structs import struct


@struct(frozen=True, slots=True, order=True)
class Outage:
    """One change of a host: it goes down or comes back. `time_ns` counts from the first submit."""

    time_ns: int
    host: str
    is_down: bool
    cause: str


def merged(streams: Iterable[Iterable[Outage]]) -> Iterator[Outage]:
    """Merge outages into one stream of true changes: a host that is down twice comes back once.

    The cause of an outage is the one that began it.
    """
    down: Counter[str] = Counter()
    for outage in merge(*streams, key=lambda outage: outage.time_ns):
        before = down[outage.host]
        down[outage.host] = max(0, before + (1 if outage.is_down else -1))
        if before + down[outage.host] == 1:
            yield outage
