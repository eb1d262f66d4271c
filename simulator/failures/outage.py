"""Hosts going down and coming back, and what announces that: several streams as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import merge

from muster.structs import struct


@struct(frozen=True, slots=True, order=True)
class Outage:
    """One change of a host: it goes down or comes back. `time_ns` counts from the first submit.
    `signal`: "" for these. Else it goes down only so far as that signal is reported of it, or it
    comes back if it was taken out for such a report, which no failure followed."""

    time_ns: int
    host: str
    is_down: bool
    cause: str
    signal: str = ""


def merged(streams: Iterable[Iterable[Outage]]) -> Iterator[Outage]:
    """Merge outages into one stream of true changes: a host that is down twice comes back once.

    The cause of an outage is the one that began it. Nothing is reported of hosts that are down.
    """
    down: Counter[str] = Counter()
    for outage in merge(*streams, key=lambda outage: outage.time_ns):
        if outage.signal:
            if not down[outage.host]:
                yield outage
            continue
        before = down[outage.host]
        down[outage.host] = max(0, before + (1 if outage.is_down else -1))
        if before + down[outage.host] == 1:
            yield outage
