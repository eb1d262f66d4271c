"""Which gangs to evict so that a waiting one starts: few, cheap, and in one place.

A domain is aimed at: the gangs in it are taken, cheapest first, until the waiting one
would find its hosts there. Then whoever is not needed stays, so that of those chosen none
can be left out. Several domains of every tier are tried, and the whole fabric; the sets
that promise most are placed. The least cut over the outermost tier decides, for this is
what a domain is aimed at; then the loss; then the cut on inner tiers.

An elastic gang is not evicted where it is enough that it drops replicas, those in the domain
that is aimed at first, and no more than it takes for the job to start.

The loss of a set: whether not all of it is on lent hosts, the highest priority among
them, with `preemption.by_usage` how far the tenants are beyond their shares of past usage, whether
a gang is evicted entirely, the host-time to be spent again, hosts. Sources for
what users miss: kueue#10815
(victims without regard to topology), #10497 (too few to free a domain), #15036 (evictions
of which nothing comes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import repeat
from typing import Protocol

from muster.structs import struct
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.request import Placement
from scheduler.core.capacity.shrink_options import ShrinkOptions, Surplus, Victims, shrink_elastic
from scheduler.core.capacity.victims import (
    Victim,
    fits,
    freed,
    is_owed,
    is_taken_back,
    may_be_evicted,
    may_be_shrunk,
    without_victims,
)
from scheduler.core.model.job import Job
from scheduler.core.tenancy.fair_share import Excess
from scheduler.core.tenancy.quota import domain_masks
from scheduler.core.tenancy.quota_check import Quotas

PLACED = 3  # sets that are placed, out of those found
AIMED = 3  # domains of each tier that are aimed at

Loss = tuple[bool, int, Excess, bool, int, int]
Key = tuple[tuple[str, int], ...]


class StartCheck(Protocol):
    """Check a job's start once `victims` are evicted, with the hosts and quotas of then."""

    def keeps_promises(self, free: HostSet, quotas: Quotas, victims: Victims) -> bool:
        """Return whether the start delays no job that waits before it, by a count of hosts."""
        ...

    def placed(self, free: HostSet, quotas: Quotas, victims: Victims) -> Placement | None:
        """Return where the job starts, None when it cannot."""
        ...


@struct(frozen=True, slots=True)
class VictimChoice:
    """The victims of a job, evicted or made smaller, and its placement once they are."""

    victims: Victims
    placement: Placement


@struct(frozen=True, slots=True)
class SearchState:
    """Inputs of the search for one job. `running`: gangs that may be evicted, whose minimum run
    time is over by `until_ns`. `barred`: hosts that the job may not use, some of them `free`.
    `excess`: how far tenants are beyond their shares of past usage; empty where that does not
    count."""

    running: Victims
    free: HostSet
    barred: HostSet
    quotas: Quotas
    forms: ShrinkOptions
    until_ns: int
    excess: Mapping[str, Excess] = field(default_factory=dict)


class VictimSearch:
    """One waiting job, and the gangs that it may evict or make smaller.

    `is_anywhere`: whether any open host will do for it, so that a count of hosts says whether it
    fits. `unripe`: gangs that it may evict once their minimum run time is over.
    """

    def __init__(
        self, fabric: Fabric, job: Job, board: SearchState, trial: StartCheck, is_anywhere: bool
    ) -> None:
        self._fabric, self._job, self._free, self._barred = fabric, job, board.free, board.barred
        self._quotas, self._trial, self._is_anywhere = board.quotas, trial, is_anywhere
        self._excess = board.excess
        self._is_owed, self._shrink_options = is_owed(job, board.quotas), board.forms
        self._lent = {v.name: self._is_lent(v) for v in board.running}
        victims = tuple(self._of(board.running))
        self.victims = tuple(v for v in victims if v.ripe_ns <= board.until_ns)
        self.unripe = tuple(v for v in victims if v.ripe_ns > board.until_ns)
        self.is_hopeful = bool(self.victims) and self._fits(self.victims)

    def _fits(self, victims: Victims) -> bool:
        return fits(
            self._job, self._with(victims), without_victims(self._quotas, victims), self._barred
        )

    def _with(self, victims: Iterable[Victim]) -> HostSet:
        """Return the hosts that are free once these victims are evicted."""
        return self._free | freed(tuple(victims))

    def _is_lent(self, v: Victim) -> bool:
        return v.job.is_preemptible and is_taken_back(self._job, v, self._quotas)

    def _of(self, running: Iterable[Victim]) -> Iterator[Victim]:
        """The gangs among `running` that the job may evict, and the hosts that others give back."""
        for v in running:
            if may_be_evicted(self._job, v, self._is_owed, self._quotas):
                yield v
            elif may_be_shrunk(self._job, v) and (
                form := self._shrink_options.loan(v, self._everywhere)
            ):
                yield form

    @property
    def _everywhere(self) -> HostSet:
        return (1 << self._fabric.host_count) - 1

    def choice(self) -> VictimChoice | None:
        """The best set of victims, None when none makes the job start."""
        by_set: dict[frozenset[tuple[str, int]], Victims] = {}
        for target in self._targets():
            for victims in self._sets(target & ~self._barred):
                by_set.setdefault(frozenset(_key(victims)), victims)
        likely = sorted(by_set.values(), key=self._promise)[:PLACED]
        choices = [c for victims in likely if (c := self._placed(victims)) is not None]
        return min(choices, key=self._merit, default=None)

    def _targets(self) -> Iterator[HostSet]:
        """Hosts of domains that could hold the job, those that need least emptying first,
        and in the end all hosts."""
        needed, reach = self._job.needed, self._with(self.victims) & ~self._barred
        for number, tier in enumerate(self._fabric.tiers):
            masks = domain_masks(self._fabric, tier.name)
            roomy = [m for m in masks if (m & reach).bit_count() >= needed]
            roomy.sort(key=lambda m: -(m & self._free & ~self._barred).bit_count())
            yield from roomy[:AIMED]
            if not roomy and not number:
                yield self._fewest(masks, reach)
            if not roomy:
                break  # inner domains are smaller
        yield self._everywhere

    def _fewest(self, masks: tuple[HostSet, ...], reach: HostSet) -> HostSet:
        """The hosts of the fewest outermost domains that hold the job together."""
        hosts = 0
        for mask in sorted(masks, key=lambda m: -(m & reach).bit_count()):
            hosts |= mask
            if (hosts & reach).bit_count() >= self._job.needed:
                break
        return hosts

    def _sets(self, target: HostSet) -> Iterator[Victims]:
        """Sets of victims that free enough of `target`, none of them to spare."""
        useful = [v for v in map(self._aimed, self.victims, repeat(target)) if v.hosts & target]
        useful.sort(key=lambda v: self._order(v, target))
        for gangs in (shrink_elastic(useful, self._shrink_options, target), useful):
            if victims := self._gathered(gangs, target):
                yield self._eased(self._pruned(victims), target)
        missing = self._job.needed - (self._free & target).bit_count()
        alone = (v for v in useful if (v.hosts & target).bit_count() >= missing)
        single = min(alone, key=lambda v: (self._loss((v,)), v.name), default=None)
        if single is not None and self._starts_without((single,)):
            yield self._eased((single,), target)

    def _aimed(self, v: Victim, target: HostSet) -> Victim:
        """The hosts that it gives back, as many as may be in `target`."""
        return (v.smaller and self._shrink_options.least(v, target)) or v

    def _eased(self, victims: Victims, target: HostSet) -> Victims:
        """`victims` with elastic gangs as large as they may stay; what they drop lies in
        `target` where it can."""
        return self._shrink_options.shrink_less(
            victims, target, self._starts_without, self._surplus(victims)
        )

    def _surplus(self, victims: Iterable[Victim]) -> Surplus:
        """How many hosts are left over once these are gone."""
        there = (self._with(victims) & ~self._barred).bit_count()
        return Surplus(~self._barred, there - self._job.needed)

    def _order(self, v: Victim, target: HostSet) -> tuple[bool, int, Excess, int, int, str]:
        hosts = (v.hosts & target).bit_count()
        below = self._below_share(v)
        return (not self._lent[v.name], v.job.priority, below, v.cost_ns // hosts, -hosts, v.name)

    def _below_share(self, v: Victim) -> Excess:
        """Return how far the victim's tenant is below its share; () where usage does not count."""
        return tuple(-more for more in self._excess.get(v.job.tenant, ()))

    def _gathered(self, useful: Iterable[Victim], target: HostSet) -> Victims:
        """Victims in this order until the job would start; () when it never would."""
        victims: list[Victim] = []
        after = self._quotas.copy()
        there = (self._free & target).bit_count()
        for v in useful:
            if not v.least_dp and not may_be_evicted(self._job, v, self._is_owed, after):
                continue
            victims.append(v)
            after.release_hosts(v.job, v.freed)
            there += (v.hosts & target).bit_count()
            if there >= self._job.needed and self._starts_without(victims, after):
                return tuple(victims)
        return ()

    def _pruned(self, victims: Victims) -> Victims:
        """Without those that are not needed, the dearest first."""
        surplus = self._surplus(victims)
        for v in reversed(victims):
            if surplus.count_missing(v, 0) > surplus.count:
                continue
            rest = tuple(victim for victim in victims if victim is not v)
            if rest and self._starts_without(rest):
                victims, surplus = rest, surplus.less(surplus.count_missing(v, 0))
        return victims

    def _starts_without(self, victims: Iterable[Victim], after: Quotas | None = None) -> bool:
        """Whether the job starts once these gangs are gone.

        Hosts are counted; where the request says on which it may lie they are placed.
        """
        victims = tuple(victims)
        free = self._with(victims)
        if free.bit_count() < self._job.needed:
            return False
        after = after or without_victims(self._quotas, victims)
        if not fits(self._job, free, after, self._barred):
            return False
        if not self._trial.keeps_promises(free, after, victims):
            return False
        return self._is_anywhere or self._trial.placed(free, after, victims) is not None

    def _promise(self, victims: Victims) -> tuple[int, Loss, Key]:
        """Sorts sets before they are placed: by the outermost domains that they need."""
        return (
            self._domains(self._with(victims) & ~self._barred),
            self._loss(victims),
            _key(victims),
        )

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

    def _loss(self, victims: Victims) -> Loss:
        return (
            not all(self._lent[v.name] for v in victims),
            max(v.job.priority for v in victims),
            max(map(self._below_share, victims)),
            any(v.smaller is None for v in victims),
            sum(v.cost_ns for v in victims),
            sum(v.held for v in victims),
        )

    def _placed(self, victims: Victims) -> VictimChoice | None:
        free = self._with(victims)
        placement = self._trial.placed(free, without_victims(self._quotas, victims), victims)
        return None if placement is None else VictimChoice(victims, placement)

    def _merit(self, choice: VictimChoice) -> tuple[int, Loss, tuple[int, ...], Key]:
        outer, *inner = [tier.bytes_per_step for tier in choice.placement.cuts] or [0]
        victims = choice.victims
        return outer, self._loss(victims), tuple(inner), _key(victims)


def _key(victims: Victims) -> Key:
    return tuple((v.name, v.dp) for v in victims)
