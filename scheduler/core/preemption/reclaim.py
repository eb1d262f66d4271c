"""Hosts that preemptible gangs run on come back to a gang that would stop for want of one.

A gang that lost a host and finds none to swap in takes it from a running gang that it may
evict, by the rights of `victims`: idle capacity is lent to preemptible jobs, and comes
back first. One victim is enough as a rule; of several that are, the least cut over the
outermost tier decides, then the loss. An elastic victim gives up the replicas of these hosts
and goes on with the others, where it may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.structs import replace, struct
from placement import Swaps, choose_swaps, measure
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.eviction import shrunk
from scheduler.core.capacity.shrink_options import ShrinkOptions, Surplus, Victims
from scheduler.core.capacity.victims import (
    Victim,
    candidates,
    freed,
    is_owed,
    may_be_evicted,
    may_be_shrunk,
)
from scheduler.core.model.job import Job
from scheduler.core.model.plan import Swap
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.rules.calendar import Calendar
from scheduler.core.tenancy.quota_check import Quotas

TRIED = 16  # gangs that are tried one by one


@struct(frozen=True, slots=True)
class ReclaimedHosts:
    """Victims that leave or become smaller, and the swap by which a gang takes hosts of theirs."""

    victims: Victims
    swaps: Swaps


class Reclaimer:
    """Evicts gangs to find hosts for a gang that lost some. Mutable."""

    def __init__(
        self,
        state: State,
        now_ns: int,
        options: SchedulingOptions,
        busy: frozenset[str],
        may_preempt: bool,
    ) -> None:
        self._fabric, self._quotas = state.loaded_fabric, Quotas(state)
        victims = candidates(state, now_ns) if may_preempt else ()
        self._ripe = tuple(v for v in victims if v.ripe_ns <= now_ns and v.name not in busy)
        self._shrink_options = ShrinkOptions(state, now_ns, options, Calendar(state))

    def back(
        self, job: Job, blocks: Sequence[int], own: HostSet, free: HostSet, barred: HostSet
    ) -> ReclaimedHosts | None:
        """Return the gangs that make room for these blocks. `barred`: hosts that `job` may not
        use."""
        owed = is_owed(job, self._quotas, len(blocks))
        forms = (self._form(job, v, owed, ~barred) for v in self._ripe)
        may = [form for form in forms if form is not None and form.hosts & ~barred]
        may.sort(key=lambda v: (v.job.priority, v.cost_ns, v.name))

        def loan(victims: Sequence[Victim]) -> ReclaimedHosts | None:
            room = free | (freed(victims) & ~barred)
            swaps = choose_swaps(self._fabric, job.request, job.hosts, blocks, own, room)
            return None if swaps is None else ReclaimedHosts(tuple(victims), swaps)

        alone = [possible for v in may[:TRIED] if (possible := loan((v,))) is not None]
        # the first of equals has the least loss
        possible = (
            min(alone, key=lambda f: self._value(job, f)) if alone else self._several(may, loan)
        )
        return None if possible is None else self._eased(possible)

    def _value(self, job: Job, reclaimed: ReclaimedHosts) -> float | int:
        """Return the value of the gang's objective with these hosts; less is better."""
        hosts = list(job.hosts)
        for block, host in reclaimed.swaps.joined:
            hosts[block] = host
        return measure(self._fabric, job.request, hosts, reclaimed.swaps.cuts)

    def _form(self, job: Job, v: Victim, owed: bool, within: HostSet) -> Victim | None:
        """Return how `job` may evict or shrink `v`, None: it may not. One that stands still waits
        for no checkpoint."""
        if may_be_evicted(job, v, owed, self._quotas):
            return v
        everywhere = hostset.full(self._fabric.host_count)
        return self._shrink_options.loan(v, everywhere & within) if may_be_shrunk(job, v) else None

    def _eased(self, reclaimed: ReclaimedHosts) -> ReclaimedHosts:
        """The victims keep what of theirs the gang does not swap in."""
        joined = hostset.of(host for _, host in reclaimed.swaps.joined)
        returned = joined & freed(reclaimed.victims)

        def is_enough(victims: Victims) -> bool:
            return not returned & ~freed(victims)

        return replace(
            reclaimed,
            victims=self._shrink_options.shrink_less(
                reclaimed.victims, returned, is_enough, Surplus(returned, 0)
            ),
        )

    def _several(
        self, may: list[Victim], loan: Callable[[Sequence[Victim]], ReclaimedHosts | None]
    ) -> ReclaimedHosts | None:
        """As many as it takes, and then without those that are not needed."""
        victims: list[Victim] = []
        for v in may:
            victims.append(v)
            if loan(victims) is not None:
                break
        for v in reversed(victims[:-1]):
            rest = [victim for victim in victims if victim is not v]
            if loan(rest) is not None:
                victims = rest
        return loan(victims) if victims else None

    def evict_for_swap(self, action: Swap) -> HostSet:
        """Evict gangs for this swap, and return the hosts that they leave."""
        shrinks = {shrink.name: shrink for shrink in action.shrinks}
        ripe = [v for v in self._ripe if v.name in (*action.victims, *shrinks)]
        self._ripe = tuple(v for v in self._ripe if v not in ripe)
        victims = [shrunk(v, shrinks[v.name]) if v.name in shrinks else v for v in ripe]
        for v in victims:
            self._quotas.release_hosts(v.job, v.freed)
        return freed(victims)
