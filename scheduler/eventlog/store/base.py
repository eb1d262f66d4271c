"""What a store of the event log keeps and is asked for, and how it fails."""

from __future__ import annotations

from typing import Any, NamedTuple

from muster.structs import struct
from scheduler.core.model.events import Event

POLL_EVENTS = 500  # of one poll at most: a few tens of milliseconds to apply


class StoreError(Exception):
    """The log cannot be used; the message is a sentence for the operator."""


class VersionMismatch(StoreError):
    """Another writer appended meanwhile: what was checked no longer holds."""


class Unreachable(StoreError):
    """The database does not answer, or no longer does, so that it is not known whether the last
    append was made."""


class Deposed(StoreError):
    """Another server leads by now: nothing was written."""


class NotRead(StoreError):
    """The store cannot read what a call needs. Nothing was changed."""


class NotWritten(StoreError):
    """The disk is full or read-only. The append left no trace: a later one may succeed."""


class Compacted(StoreError):
    """The events asked for are dropped as too old. `first_version` is the oldest that is kept."""

    def __init__(self, first_version: int) -> None:
        super().__init__(f"events are kept from version {first_version:,} on, older ones are not")
        self.first_version = first_version


@struct(frozen=True, slots=True)
class LoggedRequest:
    """An event that somebody asked for. `actor`: under which name."""

    version: int
    event: Event
    actor: str


class EndedJob(NamedTuple):
    """A job that has ended, with what lists select and order by. `version`, `time_ns`: of the event
    that ended it. `name`: without its tenant. `body`: the job, as ended_jobs.py writes it."""

    version: int
    time_ns: int
    uid: str
    tenant: str
    name: str
    state: str
    sequence: int
    create_ns: int
    update_ns: int
    priority: int
    attempt: int
    body: bytes


@struct(frozen=True, slots=True)
class EndedQuery:
    """A query of ended jobs: at most `most`, of jobs that had ended at `to_version`.

    `uid`, `name`, `states`: empty for any; `tenants`: None for any. They ended at `from_ns` or
    later and before `until_ns`. `order`: fields of EndedJob, each with whether it descends; no two
    jobs are equal in all. `after`: their values in the job behind which to begin, empty: at the
    first.
    """

    to_version: int
    most: int
    uid: str = ""
    name: str = ""
    states: frozenset[str] = frozenset()
    tenants: frozenset[str] | None = None
    from_ns: int = 0
    until_ns: int = 2**63 - 1
    order: tuple[tuple[str, bool], ...] = (("sequence", False),)
    after: tuple[Any, ...] = ()


@struct(frozen=True, slots=True)
class Leader:
    """Leader, which may append. `term` counts leaders from 1; `address` is where it listens."""

    term: int
    address: str
