"""What elastic gangs may drop instead of leaving: the smaller forms of victims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from muster.structs import replace, struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.grow import due_ns
from scheduler.core.capacity.shrink import ShrunkGang, at_size, to_free
from scheduler.core.capacity.victims import Victim
from scheduler.core.model.scheduling_options import (
    SchedulingOptions,
    expected_end_ns,
    time_limit_ns,
)
from scheduler.core.model.state import State
from scheduler.core.rules.calendar import Calendar
from scheduler.core.tenancy.spare_loans import SpareLoans

Victims = tuple[Victim, ...]
IsEnough = Callable[[Victims], bool]


@struct(frozen=True, slots=True)
class Surplus:
    """More than a start needs: victims leave `useful` hosts, `count` more than the job takes."""

    useful: HostSet
    count: int

    def count_missing(self, gang: Victim, hosts: HostSet) -> int:
        """Return how many useful hosts fewer the gang leaves if it leaves only `hosts`."""
        return (gang.hosts & self.useful).bit_count() - (hosts & self.useful).bit_count()

    def less(self, count: int) -> Surplus:
        return replace(self, count=self.count - count)


class ShrinkOptions:
    """The smaller forms of gangs, on one state at one moment.

    A gang that would run longer with fewer replicas, and so reach into a window that it
    does not reach into now, has none.
    """

    def __init__(
        self, state: State, now_ns: int, options: SchedulingOptions, calendar: Calendar
    ) -> None:
        self._fabric, self._out = state.loaded_fabric, state.index.out_of_service
        self._lent = SpareLoans(state).hosts
        self._now_ns, self._options, self._calendar = now_ns, options, calendar
        self._costs = state.tenants.preemption.costs

    def loan(self, gang: Victim, within: HostSet) -> Victim | None:
        """Shrink a gang by what it has grown, from the moment on at which it may grow again; None
        where it cannot be made so small."""
        at_ns = due_ns(gang.job, self._now_ns, self._options, self._costs)
        ripe_ns = max(gang.ripe_ns, at_ns)
        return self.least(
            replace(gang, least_dp=gang.job.present.start_dp, ripe_ns=ripe_ns), within
        )

    def least(self, gang: Victim, within: HostSet) -> Victim | None:
        """Return the gang as small as it may be, without the replicas with most hosts `within`."""
        job, dp = gang.job, self._least_dp(gang)
        if dp >= job.dp:
            return None
        shrunk = at_size(self._fabric, job, dp, within, job.allocation & ~self._out)
        form = None if shrunk is None else self._form(gang, shrunk)
        return None if form is None or self._is_late(form) else form

    def shrink_less(
        self, victims: Victims, within: HostSet, is_enough: IsEnough, surplus: Surplus
    ) -> Victims:
        """Let elastic gangs among `victims` drop only as many replicas as it takes, those that cost
        most first. `is_enough`: whether these make the room. Cost: see `to_free`, for those only
        that `surplus` does not hold to what they are."""
        for gang in reversed(victims):
            if not self._may_keep_more(gang, surplus):
                continue
            if form := self._largest(gang, victims, within, is_enough, surplus):
                victims, surplus = (
                    instead(victims, form),
                    surplus.less(surplus.count_missing(gang, form.hosts)),
                )
        return victims

    def _may_keep_more(self, gang: Victim, surplus: Surplus) -> bool:
        """Whether by a count of hosts it might keep a replica more."""
        least = max(gang.dp + 1, self._least_dp(gang))
        larger = next((dp for dp in gang.job.sizes if least <= dp < gang.job.dp), 0)
        wanted = (gang.hosts & surplus.useful & hostset.of(gang.job.hosts)).bit_count()
        at_will = len(gang.job.hosts) - wanted + surplus.count
        return bool(larger) and gang.job.at(larger).gang_hosts <= at_will

    def _largest(
        self, gang: Victim, victims: Victims, within: HostSet, is_enough: IsEnough, surplus: Surplus
    ) -> Victim | None:
        def is_met(shrunk: ShrunkGang) -> bool:
            if surplus.count_missing(gang, shrunk.freed & ~self._lent) > surplus.count:
                return False
            return is_enough(instead(victims, self._form(gang, shrunk)))

        fit, least_dp = gang.job.allocation & ~self._out, self._least_dp(gang)
        shrunk = to_free(self._fabric, gang.job, within, fit, is_met, least_dp)
        form = None if shrunk is None else self._form(gang, shrunk)
        return None if form is None or self._is_late(form) else form

    def _least_dp(self, gang: Victim) -> int:
        return gang.least_dp or next(iter(gang.job.sizes), gang.job.dp)

    def _form(self, gang: Victim, shrunk: ShrunkGang) -> Victim:
        held = len(gang.job.hosts) + len(gang.job.spares) - shrunk.hosts.bit_count()
        end_ns = self._now_ns + time_limit_ns(shrunk.job, self._options)
        hosts = shrunk.freed & ~self._lent
        return replace(gang, hosts=hosts, held=held, smaller=shrunk, end_ns=end_ns)

    def _is_late(self, form: Victim) -> bool:
        """Whether it would reach into a window that it does not reach into now."""
        if not self._calendar or form.smaller is None:
            return False
        ends_ns = expected_end_ns(form.job, self._now_ns, self._options)
        now_closed, then_closed = (
            self._calendar.closed(form.job, self._now_ns, at_ns) for at_ns in (ends_ns, form.end_ns)
        )
        return bool(form.smaller.hosts & then_closed & ~now_closed)


def instead(victims: Sequence[Victim], form: Victim) -> Victims:
    """Return `victims` with this form of one of them in the place of its earlier form."""
    return tuple(form if gang.name == form.name else gang for gang in victims)


def shrink_elastic(
    gangs: Sequence[Victim], forms: ShrinkOptions, within: HostSet
) -> Iterator[Victim]:
    """Return the elastic gangs among `gangs`, each as small as it may be made."""
    for gang in gangs:
        form = forms.least(gang, within) if gang.job.sizes else None
        if form is not None and form.hosts & within:
            yield form
