"""What is known of a host's past: a fold over the events that name it.

Reports are kept one by one as long as any threshold looks back; what the seven signals of
lemon hosts count is kept by day for `DAYS`, and which XIDs and jobs by when they were last
seen. All of it is bounded: many reports of one kind are merged into the later ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from muster.structs import replace

DAY_NS = 86_400 * 1_000_000_000
DAYS: Final = 28
MOST: Final = 64  # distinct reports of one kind, and of one GPU, that are kept


class DailyCount(StrEnum):
    """An event of a host of which each day's number is kept."""

    OUT = "out"  # taken out of service
    TICKET = "ticket"
    MULTI = "multi"  # gangs of several hosts that it stopped
    SINGLE = "single"  # gangs of this host alone that it stopped
    START = "start"  # gangs of this host alone that began


class HostMark(Struct, frozen=True):
    """One report about a host: `amount` of `kind`, at `time_ns` or on the day that begins then; of
    a `gpu` where the report named one."""

    time_ns: int
    kind: str
    amount: int = 1
    gpu: int | None = None


class HostRecord(Struct, frozen=True):
    """The record of one host. Times are 0 for never. `since_ns`: when the record begins.
    `trouble_ns`: the last report that counts against the host. `mended_ns`: the last time it came
    back. `tested_ns`: the last stress test that it passed. `service_ns`: when it began to serve
    after its burn-in.

    `marks`: reports, oldest first. `days`: counts by day. `seen`: XIDs and jobs that excluded it,
    `xid 79` or `job a`, with when last. `reports`, `failures`: since it was installed. `measures`:
    what its newest burn-in measured, at `measured_ns`, by name; more is better. `findings`: what
    the newest probe by its agent found wrong, "" for nothing. `lemon_ns`: when the log said last
    that it is a lemon.
    """

    since_ns: int = 0
    trouble_ns: int = 0
    mended_ns: int = 0
    tested_ns: int = 0
    service_ns: int = 0
    reports: int = 0
    failures: int = 0
    marks: tuple[HostMark, ...] = ()
    days: tuple[HostMark, ...] = ()
    seen: tuple[tuple[str, int], ...] = ()
    measures: tuple[tuple[str, float], ...] = ()
    measured_ns: int = 0
    findings: str = ""
    lemon_ns: int = 0

    def marked(self, mark: HostMark, keep_ns: int) -> HostRecord:
        """Add a report; no threshold looks back beyond `keep_ns`."""
        source = (mark.kind, mark.gpu)
        same = [m for m in self.marks if (m.kind, m.gpu) == source]
        remaining = tuple(m for m in self.marks if (m.kind, m.gpu) != source)
        kept = [m for m in same if m.time_ns > mark.time_ns - keep_ns]
        if len(kept) >= MOST:
            kept = [replace(kept[1], amount=kept[0].amount + kept[1].amount), *kept[2:]]
        marks = (*remaining, *kept, mark) if keep_ns else remaining
        return replace(self, marks=marks, reports=self.reports + 1)

    def counted(self, tally: DailyCount, time_ns: int) -> HostRecord:
        """Return the record with one more of `tally` on the day of `time_ns`."""
        day_ns = time_ns - time_ns % DAY_NS
        kept, kind = [m for m in self.days if m.time_ns > time_ns - DAYS * DAY_NS], tally.value
        rest = [m for m in kept if m.time_ns != day_ns or m.kind != kind]
        before = total(kept) - total(rest)
        return replace(self, days=(*rest, HostMark(day_ns, kind, before + 1)))

    def record_signal(self, signal: str, time_ns: int) -> HostRecord:
        kept = (s for s in self.seen if s[0] != signal and s[1] > time_ns - DAYS * DAY_NS)
        return replace(self, seen=(*tuple(kept)[-MOST + 1 :], (signal, time_ns)))

    def amount(self, kind: str, from_ns: int, gpu: int | None = None) -> int:
        """Return how much of `kind` was reported after `from_ns`. `gpu`: of this one alone."""
        marks = (m for m in self.marks if m.kind == kind and m.time_ns > from_ns)
        return total(m for m in marks if gpu is None or m.gpu == gpu)

    def of_days(self, tally: DailyCount, from_ns: int) -> int:
        """Return how many were counted on days that end after `from_ns`."""
        days = (m for m in self.days if m.kind == tally.value)
        return total(m for m in days if m.time_ns + DAY_NS > from_ns)

    def distinct(self, prefix: str, from_ns: int) -> int:
        """Return how many different XIDs (`xid `) or jobs (`job `) were seen after `from_ns`."""
        return sum(1 for signal, at in self.seen if signal.startswith(prefix) and at > from_ns)

    @property
    def clean_ns(self) -> int:
        """Return the time since which nothing has counted against the host, as far as is known."""
        return max(self.since_ns, self.trouble_ns, self.service_ns)


def total(marks: Iterable[HostMark]) -> int:
    return sum([mark.amount for mark in marks])


def measures_text(measures: Iterable[tuple[str, float]]) -> str:
    """Return the detail of a report of measures: `memory=9.81 network=1.2`."""
    return " ".join(f"{name}={value:.4g}" for name, value in measures)


def parse_measures(text: str) -> tuple[tuple[str, float], ...]:
    """Parse what `measures_text` writes. Raises: ValueError for anything else."""
    measures = []
    for word in text.split():
        name, _, number = word.partition("=")
        value = float(number)
        if not name or not math.isfinite(value) or value < 0:
            raise ValueError(word)
        measures.append((name, value))
    return tuple(measures)


BLANK: Final = HostRecord()
