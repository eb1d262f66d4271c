"""Who asked for which change, read out of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from scheduler.core.model.events import Event
from scheduler.eventlog.store.base import LoggedRequest, NotRead, StoreError
from scheduler.eventlog.store.sql_store import Store

_MOST_READ: Final = 20_000  # records that one page looks at


class AuditLog:
    """The records of who asked for which change, in a store. Every call reads the store: call from
    a thread that may wait."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def records(self, after_version: int = 0, since_ns: int = 0) -> Iterator[LoggedRequest]:
        """Yield the records after a version and not before a time, as far as they are kept.

        Raises: StoreError.
        """
        # Events of one append share their time, so the first one of that time is where to begin.
        first = self._store.version_at(since_ns) if since_ns else 0
        after = max(first, self._store.first_version(), after_version + 1) - 1
        yield from (each for each in self._store.requests(after) if each.event.time_ns >= since_ns)

    def page(
        self,
        after_version: int,
        since_ns: int,
        is_wanted: Callable[[LoggedRequest], bool],
        most: int,
    ) -> tuple[list[LoggedRequest], int | None]:
        """Return at most `most` records that are wanted, and the version after which the next page
        begins; None where there is no more. Raises: NotRead."""
        wanted, seen, last = list[LoggedRequest](), 0, after_version
        try:
            for record in islice(self.records(after_version, since_ns), _MOST_READ):
                if len(wanted) == most:
                    return wanted, last
                seen, last = seen + 1, record.version
                if is_wanted(record):
                    wanted.append(record)
        except StoreError as error:
            raise NotRead(str(error)) from error
        return wanted, last if seen == _MOST_READ else None


def subject(event: Event) -> str:
    """Return the job, host, link or window that an event is about, and what was done to it."""
    about = getattr(event, "spec", getattr(event, "window", event))
    keys = ("name", "host", "link")
    named = next((getattr(about, key) for key in keys if hasattr(about, key)), about)
    named = named if isinstance(named, str) else ""
    move = getattr(event, "move", None) or getattr(event, "signal", None)
    return f"{named} {move}" if move else named


def reason(event: Event) -> str:
    """Return the reason or detail that came with an event; "" without one."""
    return next((text for key in ("reason", "detail") if (text := getattr(event, key, ""))), "")
