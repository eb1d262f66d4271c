"""What every store of the event log does, whatever keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

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


class Store(Protocol):
    """An open log with snapshots. Use what writes from one thread; what reads from any.

    Versions are 1, 2, 3, ... without a gap. Snapshots are what codec writes of a state;
    a store keeps bytes and knows nothing of them.
    """

    @property
    def name(self) -> str:
        """Name of the store in messages."""

    @property
    def mark_path(self) -> Path | None:
        """The file that says how far the log has come, if there is to be one."""

    def append(
        self,
        expected_version: int,
        events: Sequence[Event],
        term: int = 0,
        actors: Sequence[str] = (),
        ended: Sequence[EndedJob] = (),
    ) -> int:
        """Write `events` after `expected_version`, all or none, and return the new last version.

        `actors`: who asked for each; none given: the scheduler did it by itself. `ended`: the jobs
        that these events end, in order. `term`: of the leader that writes; a store that several
        servers share refuses an older one. When this returns the events are durable.

        Raises: VersionMismatch when the log ends elsewhere, NotWritten when certainly nothing was
        written, StoreError when that is unknown.
        """

    def read(self, after_version: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield (version, event) in order, of everything that is durable when this is called.

        Raises: Compacted, StoreError on a record that cannot be read, or a missing one.
        """

    def requests(self, after_version: int = 0) -> Iterator[LoggedRequest]:
        """Yield the events that somebody asked for, in order, as far as they are kept.

        Raises: StoreError on a record that cannot be read, or a missing one.
        """

    def check(self) -> None:
        """Read all that is kept along the chain of digests, and compare its end with the mark.

        Raises: StoreError when an event is not the one that was written, or the end is missing.
        """

    def first_version(self) -> int:
        """Return the oldest version that can be read; 1 as long as nothing is dropped."""

    def last_version(self) -> int:
        """Return the newest durable version; 0 when the log is empty."""

    def version_at(self, time_ns: int) -> int:
        """Return the first kept version that is not before `time_ns`; else one after the last."""

    def save_snapshot(self, version: int, body: bytes) -> None:
        """Keep the state at `version`. Raises: StoreError."""

    def snapshots(self, to_version: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield (version, body) of snapshots, newest first, none after `to_version`. Raises:
        StoreError."""

    def compact(self, to_version: int) -> int:
        """Drop the events up to `to_version`, and the snapshots before that one, and return how
        many events were dropped. The snapshot at `to_version` now stands for them.

        Raises: StoreError, also when there is no such snapshot.
        """

    def ended_jobs(self, query: EndedQuery) -> list[EndedJob]:
        """The ended jobs that are asked for, in the order that is asked for.

        Raises: StoreError, also when one of them is not what was written.
        """

    def ended_log(self) -> Iterator[EndedJob]:
        """All ended jobs that are kept, in the order in which they ended. Raises: StoreError."""

    def ended_counts(self) -> tuple[int, int]:
        """Return how many ended jobs are kept, and how many were dropped."""

    def drop_ended(self, before_ns: int) -> int:
        """Drop the jobs that had ended before this time, and return how many. Raises:
        StoreError."""

    def size_bytes(self) -> int:
        """Return the bytes that the store takes on the disk."""

    def close(self) -> None:
        """Close the store, so that another server may open it."""


@struct(frozen=True, slots=True)
class Leader:
    """Leader, which may append. `term` counts leaders from 1; `address` is where it listens."""

    term: int
    address: str


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that several servers have open; one of them leads, and appends.

    A session with the database stands for the server: who leads loses the lead with it,
    at the latest `lease_s` after it was last heard of. That frees the lead; what keeps an
    old leader from writing is the term, which every append compares.

    Raises, all of them: Unreachable.
    """

    def try_lead(self, address: str, lease_s: float) -> int | None:
        """Take the lead if no server leads, and return the term; from then on no older term can
        append."""

    def keep_lead(self, term: int) -> None:
        """Renew the lead. Raises: Deposed."""

    def resign(self) -> None:
        """Free the lead at once, if it is held. Raises nothing."""

    def leader(self) -> Leader:
        """Return the last leader."""

    def poll(self, after_version: int, wait_s: float) -> list[tuple[int, Event]]:
        """Return the next events, in order, after waiting for one for up to `wait_s`. Fewer than
        POLL_EVENTS mean that these are all that the log had when this call began, or more. Raises:
        Compacted."""

    def cut(self) -> None:
        """Drop every connection, so that calls that hang end with Unreachable. From any thread."""
