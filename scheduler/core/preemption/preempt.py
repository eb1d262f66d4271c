"""Which gangs to send away so that a waiting one starts: few, cheap, and in one place.

A domain is aimed at: the gangs in it are taken, cheapest first, until the waiting one
would find its hosts there. Then whoever is not needed stays, so that of those chosen none
can be left out. Several domains of every tier are tried, and the whole fabric; the sets
that promise most are placed. The least cut over the outermost tier decides, for this is
what a domain is aimed at; then the loss; then the cut on inner tiers.

The loss of a set: whether not all of it is on lent hosts, the highest priority among
them, the host-time to be spent again, hosts. Sources for what users miss: kueue#10815
(victims without regard to topology), #10497 (too few to free a domain), #15036 (evictions
of which nothing comes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from placement.fabric import Fabric
from placement.hostset import HostSet
from placement.request import Placement
from scheduler.core.job import Job
from scheduler.core.preemption.victims import (
    Victim,
    fits,
    freed,
    is_owed,
    is_taken_back,
    may_be_sent,
    without,
)
from scheduler.core.tenancy.admission import Quotas
from scheduler.core.tenancy.quota import domain_masks

PLACED = 3  # sets that are placed, out of those found
AIMED = 3  # domains of each tier that are aimed at

Gone = tuple[Victim, ...]
Loss = tuple[bool, int, int, int]


class Trial(Protocol):
    """What becomes of the job once `gone` are: `free` hosts and `quotas` as they are then."""

    def keeps_promises(self, free: HostSet, quotas: Quotas, gone: Gone) -> bool:
        """Whether its start delays nobody that waits before it, by a count of hosts."""
        ...

    def placed(self, free: HostSet, quotas: Quotas, gone: Gone) -> Placement | None:
        """Where it starts, None when it cannot."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """Send `victims` away, and the job starts at `placement`."""

    victims: Gone
    placement: Placement


class Aim:
    """One waiting job, and the gangs that it may send away.

    `free`, `quotas`: as they are at its turn. `is_anywhere`: any host will do for it, so
    that a count says whether it fits.
    """

    def __init__(
        self,
        fabric: Fabric,
        job: Job,
        running: Gone,
        free: HostSet,
        quotas: Quotas,
        trial: Trial,
        is_anywhere: bool,
    ) -> None:
        self._fabric, self._job, self._free = fabric, job, free
        self._quotas, self._trial, self._is_anywhere = quotas, trial, is_anywhere
        self._is_owed = is_owed(job, quotas)
        self._lent = {v.name: is_taken_back(job, v, quotas) for v in running}
        self.victims = self.of(running)
        after = without(quotas, self.victims)
        self.is_hopeful = bool(self.victims) and fits(job, free | freed(self.victims), after)

    def of(self, running: Iterable[Victim]) -> Gone:
        """Those among `running` that the job may send away."""
        owed, quotas = self._is_owed, self._quotas
        return tuple(v for v in running if may_be_sent(self._job, v, owed, quotas))

    def choice(self) -> Choice | None:
        """The best set of victims, None when none makes the job start."""
        found: dict[frozenset[str], Gone] = {}
        for target in self._targets():
            for gone in self._sets(target):
                found.setdefault(frozenset(v.name for v in gone), gone)
        likely = sorted(found.values(), key=self._promise)[:PLACED]
        choices = [c for gone in likely if (c := self._placed(gone)) is not None]
        return min(choices, key=self._merit, default=None)

    def _targets(self) -> Iterator[HostSet]:
        """Hosts of domains that could hold the job, those that need least emptying first,
        and in the end all hosts."""
        needed, reach = self._job.needed, self._free | freed(self.victims)
        for number, tier in enumerate(self._fabric.tiers):
            masks = domain_masks(self._fabric, tier.name)
            whole = [m for m in masks if (m & reach).bit_count() >= needed]
            whole.sort(key=lambda m: -(m & self._free).bit_count())
            yield from whole[:AIMED]
            if not whole and not number:
                yield self._fewest(masks, reach)
            if not whole:
                break  # inner domains are smaller
        yield (1 << self._fabric.host_count) - 1

    def _fewest(self, masks: tuple[HostSet, ...], reach: HostSet) -> HostSet:
        """The hosts of the fewest outermost domains that hold the job together."""
        hosts = 0
        for mask in sorted(masks, key=lambda m: -(m & reach).bit_count()):
            hosts |= mask
            if (hosts & reach).bit_count() >= self._job.needed:
                break
        return hosts

    def _sets(self, target: HostSet) -> Iterator[Gone]:
        """Sets of victims that free enough of `target`, none of them to spare."""
        useful = [v for v in self.victims if v.hosts & target]
        useful.sort(key=lambda v: self._order(v, target))
        if gone := self._gathered(useful, target):
            yield self._pruned(gone)
        missing = self._job.needed - (self._free & target).bit_count()
        alone = (v for v in useful if (v.hosts & target).bit_count() >= missing)
        single = min(alone, key=lambda v: (self._loss((v,)), v.name), default=None)
        if single is not None and self._starts_without((single,)):
            yield (single,)

    def _order(self, v: Victim, target: HostSet) -> tuple[bool, int, int, int, str]:
        hosts = (v.hosts & target).bit_count()
        return (not self._lent[v.name], v.job.priority, v.cost_ns // hosts, -hosts, v.name)

    def _gathered(self, useful: list[Victim], target: HostSet) -> Gone:
        """Victims in this order until the job would start; () when it never would."""
        gone: list[Victim] = []
        after = self._quotas.copy()
        there = (self._free & target).bit_count()
        for v in useful:
            if not may_be_sent(self._job, v, self._is_owed, after):
                continue
            gone.append(v)
            after.left(v.job)
            there += (v.hosts & target).bit_count()
            if there >= self._job.needed and self._starts_without(gone, after):
                return tuple(gone)
        return ()

    def _pruned(self, gone: Gone) -> Gone:
        """Without those that are not needed, the dearest first."""
        for v in reversed(gone):
            rest = tuple(other for other in gone if other is not v)
            if rest and self._starts_without(rest):
                gone = rest
        return gone

    def _starts_without(self, gone: Iterable[Victim], after: Quotas | None = None) -> bool:
        """Whether the job starts once these gangs are gone.

        Hosts are counted; where the request says on which it may lie they are placed.
        """
        gone = tuple(gone)
        free = self._free | freed(gone)
        if free.bit_count() < self._job.needed:
            return False
        after = after or without(self._quotas, gone)
        if not fits(self._job, free, after):
            return False
        if not self._trial.keeps_promises(free, after, gone):
            return False
        return self._is_anywhere or self._trial.placed(free, after, gone) is not None

    def _promise(self, gone: Gone) -> tuple[int, Loss, tuple[str, ...]]:
        """Sorts sets before they are placed: by the outermost domains that they need."""
        return self._domains(self._free | freed(gone)), self._loss(gone), _names(gone)

    def _domains(self, free: HostSet) -> int:
        if not self._fabric.tiers:
            return 1
        masks = domain_masks(self._fabric, self._fabric.tiers[0].name)
        there = 0
        for count, hosts in enumerate(
            sorted(((m & free).bit_count() for m in masks), reverse=True)
        ):
            there += hosts
            if there >= self._job.needed:
                return count + 1
        return len(masks) + 1

    def _loss(self, gone: Gone) -> Loss:
        return (
            not all(self._lent[v.name] for v in gone),
            max(v.job.priority for v in gone),
            sum(v.cost_ns for v in gone),
            sum(v.held for v in gone),
        )

    def _placed(self, gone: Gone) -> Choice | None:
        free = self._free | freed(gone)
        placement = self._trial.placed(free, without(self._quotas, gone), gone)
        return None if placement is None else Choice(gone, placement)

    def _merit(self, choice: Choice) -> tuple[int, Loss, tuple[int, ...], tuple[str, ...]]:
        outer, *inner = [tier.bytes_per_step for tier in choice.placement.cuts] or [0]
        gone = choice.victims
        return outer, self._loss(gone), tuple(inner), _names(gone)


def _names(gone: Gone) -> tuple[str, ...]:
    return tuple(v.name for v in gone)
