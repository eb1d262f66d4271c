"""Hosts that preemptible gangs run on come back to a gang that would stop for want of one.

A gang that lost a host and finds none to swap in takes it from a running gang that it may
send away, by the rights of `victims`: idle capacity is lent to preemptible jobs, and comes
back first. One victim is enough as a rule; of those that are, the least cut over the
outermost tier decides, then the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from placement.hostset import HostSet
from placement.swaps import Swaps, choose_swaps
from scheduler.core.job import Job
from scheduler.core.policy import Limits, Policy
from scheduler.core.preemption.victims import Victim, candidates, freed, is_owed, may_be_sent
from scheduler.core.state import State
from scheduler.core.tenancy.admission import Quotas

TRIED = 16  # gangs that are tried one by one


@dataclass(frozen=True, slots=True)
class Loan:
    """`victims` leave, and the gang swaps in hosts of theirs."""

    victims: tuple[Victim, ...]
    swaps: Swaps


class Lent:
    """Who may still be sent away for a gang that lost hosts. Mutable: told of those who are."""

    def __init__(self, state: State, now_ns: int, limits: Limits, busy: frozenset[str]) -> None:
        self._fabric, self._quotas = state.loaded_fabric, Quotas(state)
        found = candidates(state, now_ns) if limits.policy is Policy.PRODUCTION else ()
        self._ripe = tuple(v for v in found if v.ripe_ns <= now_ns and v.name not in busy)

    def back(
        self, job: Job, blocks: Sequence[int], own: HostSet, free: HostSet, barred: HostSet
    ) -> Loan | None:
        """The gangs that make room for these blocks. `barred`: hosts that `job` may not use."""
        owed = is_owed(job, self._quotas, len(blocks))
        may = [v for v in self._ripe if may_be_sent(job, v, owed, self._quotas)]
        may = [v for v in may if v.hosts & ~barred]
        may.sort(key=lambda v: (v.job.priority, v.cost_ns, v.name))

        def loan(gone: Sequence[Victim]) -> Loan | None:
            room = free | (freed(gone) & ~barred)
            swaps = choose_swaps(self._fabric, job.request, job.hosts, blocks, own, room)
            return None if swaps is None else Loan(tuple(gone), swaps)

        alone = [found for v in may[:TRIED] if (found := loan((v,))) is not None]
        if alone:
            return min(alone, key=_outer)  # the first of equals has the least loss
        return self._several(may, loan)

    def _several(
        self, may: list[Victim], loan: Callable[[Sequence[Victim]], Loan | None]
    ) -> Loan | None:
        """As many as it takes, and then without those that are not needed."""
        gone: list[Victim] = []
        for v in may:
            gone.append(v)
            if loan(gone) is not None:
                break
        for v in reversed(gone[:-1]):
            rest = [other for other in gone if other is not v]
            if loan(rest) is not None:
                gone = rest
        return loan(gone) if gone else None

    def left(self, names: Collection[str]) -> HostSet:
        """These are sent away. The answer is the hosts that they leave."""
        gone = [v for v in self._ripe if v.name in names]
        self._ripe = tuple(v for v in self._ripe if v.name not in names)
        for v in gone:
            self._quotas.left(v.job)
        return freed(gone)


def _outer(found: Loan) -> int:
    return found.swaps.cuts[0].bytes_per_step if found.swaps.cuts else 0
