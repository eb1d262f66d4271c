"""What is left to take while the actions of a plan are re-checked, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.fold.apply import replay
from scheduler.core.model.events import Event, JobStarted
from scheduler.core.model.state import State
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar
from scheduler.core.tenancy.quota_check import Quotas


class Ledger:
    """Free hosts, quotas and affinity of a state to which events are applied. Mutable.

    `free`: hosts that nobody holds; spares on loan may be added. Each view is made when it
    is first read. Cost of `apply`: nothing until the state is read again, for starts; they are
    entered into the views that there are.
    """

    def __init__(self, state: State) -> None:
        self._state, self._pending = state, list[Event]()
        self._quotas: Quotas | None = None
        self._affinity: AffinityIndex | None = None
        self._calendar: Calendar | None = None
        self.free: HostSet = state.free

    @property
    def state(self) -> State:
        """The state after all events so far."""
        if self._pending:
            self._state = replay(self._pending, self._state)
            self._pending.clear()
        return self._state

    @property
    def quotas(self) -> Quotas:
        if self._quotas is None:
            self._quotas = Quotas(self.state)
        return self._quotas

    @property
    def affinity(self) -> AffinityIndex:
        if self._affinity is None:
            self._affinity = AffinityIndex(self.state)
        return self._affinity

    @property
    def calendar(self) -> Calendar:
        if self._calendar is None:
            self._calendar = Calendar(self.state)
        return self._calendar

    def apply(self, events: Sequence[Event]) -> None:
        """Enter what one action does."""
        starts = [event for event in events if isinstance(event, JobStarted)]
        for start in starts if len(starts) == len(events) else ():
            self._enter(start)
        self._pending += events
        if len(starts) < len(events):
            self._quotas = self._affinity = self._calendar = None
            self.free = self.state.free

    def _enter(self, start: JobStarted) -> None:
        job, fabric = self._state.jobs[start.name], self._state.loaded_fabric
        hosts = hostset.of(fabric.indices((*start.hosts, *start.spares)))
        self.free &= ~hosts
        if self._quotas is not None:
            self._quotas.took(job, hosts)
        if self._affinity is not None:
            self._affinity.took(job, hosts)

    def after(self, events: Iterable[Event]) -> Ledger:
        """Another ledger, on which these events have been entered as well. Hosts that were added
        to `free` stay in it."""
        added = self.free & ~self.state.free
        other = Ledger(replay(events, self.state))
        other.free |= added
        return other
