"""Full names for jobs that came when nobody was asked who they are.

Such a job is known by NAME alone, of the default tenant. Once the server knows its callers, the
name of a job must say whose it is, for answers to others are cleared of it by that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TypeVar

from muster.structs import replace
from scheduler.core.collections.name_list import NameList
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.job import Job
from scheduler.core.model.job_array import ArrayTurns, JobArray
from scheduler.core.model.records.host import HostRecord
from scheduler.core.model.state import State
from scheduler.core.model.window import Booking
from scheduler.core.names import full_name, stated_tenant
from scheduler.core.policies.affinity import Affinity

_Value = TypeVar("_Value")
_WORD = re.compile(r"(?<![\w./-])[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?![\w/-])")


def has_bare_names(state: State) -> bool:
    """Whether a job, live or at hand, or a window that names jobs does not say of which tenant."""
    named = (job.name for job in chain(state.jobs.values(), state.ended.values()))
    expected = (name for booking in state.windows.values() for name in booking.window.jobs)
    return any(not stated_tenant(name) for name in chain(named, expected))


def qualified(state: State) -> State:
    """Return the state in which every job is named by its full name. Words in sentences of jobs
    that are names of such jobs are taken for them."""
    naming = _Naming(state)
    return replace(
        state,
        jobs=PersistentMap({naming.full(n): naming.job(job) for n, job in state.jobs.items()}),
        ended=PersistentMap({uid: naming.job(job) for uid, job in state.ended.items()}),
        index=replace(
            state.index,
            queue=NameList(map(naming.full, state.index.queue)),
            deferred=naming.keys(state.index.deferred),
            dependants=PersistentMap(
                {uid: naming.names(names) for uid, names in state.index.dependants.items()}
            ),
            running=NameList(map(naming.full, state.index.running)),
            interrupted=naming.names(state.index.interrupted),
            special=naming.names(state.index.special),
        ),
        arrays=PersistentMap({u: naming.turns(each) for u, each in state.arrays.items()}),
        reserved=naming.keys(state.reserved),
        shares=naming.keys(state.shares),
        slips=naming.keys(state.slips),
        windows=PersistentMap({n: naming.booking(b) for n, b in state.windows.items()}),
        records=PersistentMap({host: naming.record(r) for host, r in state.records.items()}),
    )


class _Naming:
    def __init__(self, state: State) -> None:
        self._default = state.tenants.default
        known = chain(state.jobs.values(), state.ended.values())
        self._full = {
            job.name: full_name(job.tenant, job.name)
            for job in known
            if not stated_tenant(job.name)
        }

    def full(self, name: str) -> str:
        """The full name of a job, or of a pattern of names."""
        if stated_tenant(name):
            return name
        return self._full.get(name) or full_name(self._default, name)

    def names(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(self.full, names))

    def keys(self, values: Mapping[str, _Value]) -> PersistentMap[str, _Value]:
        return PersistentMap({self.full(name): value for name, value in values.items()})

    def text(self, text: str) -> str:
        return _WORD.sub(lambda word: self._full.get(word[0], word[0]), text)

    def turns(self, turns: ArrayTurns) -> ArrayTurns:
        return replace(turns, waiting=self.names(turns.waiting))

    def array(self, array: JobArray | None) -> JobArray | None:
        return array and replace(array, name=self.full(array.name))

    def booking(self, booking: Booking) -> Booking:
        window = replace(booking.window, jobs=self.names(booking.window.jobs))
        return replace(booking, window=window)

    def record(self, record: HostRecord) -> HostRecord:
        """`job NAME` is a job that excluded the host."""
        if not record.seen:
            return record
        return replace(record, seen=tuple((self._signal(s), at) for s, at in record.seen))

    def _signal(self, signal: str) -> str:
        kind, _, name = signal.partition(" ")
        return f"job {self._full.get(name, name)}" if kind == "job" else signal

    def job(self, job: Job) -> Job:
        spec = job.spec
        wants = Affinity(
            spec.affinity.exclusive,
            tuple((tier, self.names(names)) for tier, names in spec.affinity.avoid),
            self.full(spec.affinity.near) if spec.affinity.near else "",
        )
        return replace(
            job,
            spec=replace(
                spec,
                name=self.full(spec.name),
                tenant=job.tenant,
                affinity=wants,
                array=self.array(spec.array),
                dependencies=tuple(
                    replace(term, job=self.full(term.job)) if term.job else term
                    for term in spec.dependencies
                ),
            ),
            dependencies=tuple(replace(each, job=self.full(each.job)) for each in job.dependencies),
            reason=self.text(job.reason),
            gang=job.gang and replace(job.gang, notes=tuple(map(self.text, job.gang.notes))),
            restart_options=tuple(
                replace(option, note=self.text(option.note)) for option in job.restart_options
            ),
        )
