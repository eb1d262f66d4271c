"""Free hosts over time where windows tell hosts apart.

A *ground* is a set of hosts that the same windows cover: to any one job they are all open,
or all closed, at any moment. A number of hosts of each ground can therefore be promised, as
a number of all hosts can where there are no windows; of all hosts together it cannot, for a
short job may take hosts that a longer one will need.
"""

from __future__ import annotations

from collections.abc import Iterable

from placement.fabric.hostset import HostSet
from scheduler.core.capacity.profile import Profile
from scheduler.core.model.job import Job, Release
from scheduler.core.model.window import Shares
from scheduler.core.rules.calendar import Calendar
from scheduler.core.tenancy.guarantees import highest


class HostClasses:
    """Free hosts over time, by class. A class (or ground) is a set of hosts that the same windows
    cover. Mutable: each booking is entered. Cost: O(classes and their steps) for each question."""

    def __init__(
        self,
        now_ns: int,
        free: HostSet,
        moments: Iterable[Release],
        calendar: Calendar,
        everything: HostSet,
    ) -> None:
        self._calendar = calendar
        self._grounds = calendar.host_classes(everything)
        ends: list[list[tuple[int, int]]] = [[] for _ in self._grounds]
        for gang in moments:
            for at, ground in enumerate(self._grounds):
                if count := (gang.hosts & ground).bit_count():
                    ends[at].append((gang.end_ns, count))
        self._profiles = [
            Profile(now_ns, (free & ground).bit_count(), ends[at])
            for at, ground in enumerate(self._grounds)
        ]

    def shares(self, job: Job, start_ns: int, end_ns: int) -> Shares | None:
        """Return how many hosts of each class `job` takes if it runs from start to end; None when
        there are too few. First the hosts that windows close soonest: fewest others want them."""
        lacking, shares = job.needed, []
        for at in self._open(job, start_ns, end_ns):
            count = min(lacking, self._profiles[at].least(start_ns, end_ns))
            if count > 0:
                shares.append((_first(self._grounds[at]), count))
                lacking -= count
            if not lacking:
                return tuple(shares)
        return None

    def renew_shares(self, job: Job, shares: Shares, start_ns: int, end_ns: int) -> Shares | None:
        """Return shares that were promised earlier, by the classes of today; None when they can no
        longer be had."""
        counts = self._counts(shares)
        if sum(counts.values()) != job.needed:
            return None
        if not counts.keys() <= set(self._open(job, start_ns, end_ns)):
            return None
        if any(self._profiles[at].least(start_ns, end_ns) < n for at, n in counts.items()):
            return None
        return self.of_today(shares)

    def of_today(self, shares: Shares) -> Shares:
        """Name the classes of `shares` by the first host of each as classes are today."""
        counts = self._counts(shares)
        return tuple((_first(self._grounds[at]), counts[at]) for at in sorted(counts))

    def _counts(self, shares: Shares) -> dict[int, int]:
        counts: dict[int, int] = {}
        for host, count in shares:
            at = self._at(host)
            counts[at] = counts.get(at, 0) + count
        return counts

    def room(self, job: Job, hosts: HostSet, start_ns: int, end_ns: int) -> HostSet:
        """Return as many of `hosts`, class by class, as nobody has booked from start to end."""
        room = 0
        for at in self._open(job, start_ns, end_ns):
            least = self._profiles[at].least(start_ns, end_ns)
            room |= highest(hosts & self._grounds[at], max(0, least))
        return room

    def book(self, start_ns: int, end_ns: int, shares: Shares, sign: int = 1) -> None:
        """Take these shares out of [start, end); with `sign` -1 give them back."""
        for host, count in shares:
            self._profiles[self._at(host)].book(start_ns, end_ns, sign * count)

    def of(self, hosts: HostSet) -> Shares:
        """Return these hosts as shares of the classes."""
        counts = ((_first(ground), (hosts & ground).bit_count()) for ground in self._grounds)
        return tuple((host, count) for host, count in counts if count)

    def _open(self, job: Job, start_ns: int, end_ns: int) -> list[int]:
        closed = self._calendar.closed(job, start_ns, end_ns)
        return [at for at, ground in enumerate(self._grounds) if not ground & closed]

    def _at(self, host: int) -> int:
        return next(at for at, ground in enumerate(self._grounds) if ground >> host & 1)


def _first(ground: HostSet) -> int:
    return (ground & -ground).bit_length() - 1
