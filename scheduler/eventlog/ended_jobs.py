"""Ended jobs that a state keeps no more: written with the event that ends them, and read back.

A row has the whole job as it was in the state, so that it can be shown, listed and filtered like
any other. A field that an old row lacks has its default; what is in `gang` now, old rows have among
the fields of the job, and `state` instead of `outcome`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Container
from typing import Any, Final

import msgspec

from muster.structs import replace
from scheduler.core import Job, JobState, State
from scheduler.core.model.events import Event, JobEnded
from scheduler.core.model.job import Attempt
from scheduler.core.names import short_name
from scheduler.eventlog.store.base import EndedJob, EndedQuery, NotRead, StoreError
from scheduler.eventlog.store.sql_store import Store

PAGE: Final = 500  # jobs read at once

_encode = msgspec.json.Encoder().encode
_DECODER: Final = msgspec.json.Decoder(Job)
_GANG_DECODER: Final = msgspec.json.Decoder(Attempt)


class _OldFields(msgspec.Struct):
    state: JobState


_OLD_DECODER: Final = msgspec.json.Decoder(_OldFields)


def ended_by(before: State, event: Event, after: State) -> EndedJob | None:
    """Return the job that `event` ended, as it is stored. Cost: some 50 us, and more for large
    gangs."""
    if not isinstance(event, JobEnded):
        return None
    job = after.ended[before.jobs[event.name].uid]
    if job.gang:  # by name, for the fabric may be another when somebody reads them
        placed = job.host_names(after.built_fabric)
        job = replace(job, gang=replace(job.gang, placed=placed))
    return EndedJob(
        version=after.version,
        time_ns=event.time_ns,
        uid=job.uid,
        tenant=job.tenant,
        name=short_name(job.name),
        state=job.state.name,
        sequence=job.sequence,
        create_ns=job.submit_ns,
        update_ns=job.changed_ns,
        priority=job.priority,
        attempt=job.attempt,
        body=zlib.compress(_encode(job), level=1),
    )


def job_in(row: EndedJob) -> Job:
    """Read the job of a row. Raises: NotRead when this release cannot read it."""
    try:
        return job_of(row.body)
    except ValueError as error:
        raise NotRead(f"ended job {row.name} (uid {row.uid}) cannot be read: {error}") from None


def job_of(body: bytes) -> Job:
    """Return the job of a row's body. Raises: ValueError when this release cannot read it."""
    try:
        text = zlib.decompress(body)
        job = _DECODER.decode(text)
        if job.outcome is None:
            job = replace(job, outcome=_OLD_DECODER.decode(text).state)
        old = _GANG_DECODER.decode(text) if job.gang is None and job.attempt else None
        return replace(job, gang=old) if old and old.hosts else job
    except (zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


class EndedJobs:
    """The ended jobs of a store. Every method reads the store: call it from a thread that may wait.
    Every method raises NotRead."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, to_version: int, uid: str = "", tenant: str = "", name: str = "") -> Job | None:
        """Return the newest job with this uid, or with this name of its tenant, of the jobs that
        had ended at `to_version`."""
        tenants = frozenset({tenant}) if tenant else None
        newest = (("number", True),)
        query = EndedQuery(to_version, 1, uid, name, tenants=tenants, order=newest)
        rows = self.rows(query)
        return job_in(rows[0]) if rows else None

    def some(self, query: EndedQuery) -> tuple[list[Job], EndedQuery | None]:
        """Return the jobs of a query in the order of their arrival, and the query for the jobs
        behind them; None where there are no more."""
        rows = self.rows(query)
        rest = replace(query, after=(rows[-1].sequence,)) if len(rows) == query.most else None
        return [job_in(row) for row in rows], rest

    def page(
        self,
        query: EndedQuery,
        key: Callable[[Job], tuple[Any, ...]],
        is_wanted: Callable[[Job], bool],
        at_hand: Container[str],
        most_read: int,
    ) -> tuple[list[Job], tuple[Any, ...] | None]:
        """Return at most `query.most` jobs that are wanted, and the place up to which all were
        read; None where that is the end. `key`: the values of a job in the order of the query.
        `at_hand`: uids of jobs that are left out. Reads at most `most_read` jobs."""
        wanted: list[Job] = []
        while most_read > 0:
            rows = self.rows(replace(query, most=min(PAGE, most_read)))
            for job in (job_in(row) for row in rows if row.uid not in at_hand):
                if is_wanted(job):
                    wanted.append(job)
                    if len(wanted) == query.most:
                        return wanted, key(job)
            if len(rows) < min(PAGE, most_read):
                return wanted, None
            most_read -= len(rows)
            query = replace(query, after=key(job_in(rows[-1])))
        return wanted, query.after

    def rows(self, query: EndedQuery) -> list[EndedJob]:
        """Return the jobs of a query as they are stored."""
        try:
            return self._store.ended_jobs(query)
        except StoreError as error:
            raise NotRead(str(error)) from error

    def dropped(self) -> int:
        """Return how many jobs were dropped."""
        try:
            return self._store.ended_counts()[1]
        except StoreError as error:
            raise NotRead(str(error)) from error
