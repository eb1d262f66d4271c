"""A chain over the events of a log: each row has the digest of itself and of the one before.

So a bit that flipped, a row that was changed by hand and two rows that changed places are found
by whoever reads on from any earlier row. It guards against accidents: who may write to the store
could make the chain anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from scheduler.core.model.events import Event
from scheduler.eventlog.codec import UndecodableEvent, decode, encode
from scheduler.eventlog.store.base import StoreError

_BYTES = 16


class LogRow(NamedTuple):
    """A row of the log as it is stored. `actor`: who asked for it."""

    version: int
    time_ns: int
    type_name: str
    body: str
    actor: str
    digest: bytes

    def event(self, store: str) -> Event:
        """Decode the event of the row. Raises: StoreError when it is none of this version of
        muster."""
        try:
            return decode(self.type_name, self.body)
        except UndecodableEvent as error:
            raise StoreError(f"{store} is corrupt: version {self.version}: {error}") from None


def origin(store_id: str) -> bytes:
    """Return the digest before the first event: each log has its own."""
    return sha256(store_id.encode()).digest()[:_BYTES]


def link(before: bytes, version: int, time_ns: int, type_name: str, body: str, actor: str) -> bytes:
    """Return the digest of a row after a row with the digest `before`. Cost: some 1.5 us."""
    head = f"{version} {time_ns} {len(type_name)} {len(actor)} {type_name}{actor}{body}"
    return sha256(before + head.encode("utf-8", "surrogatepass")).digest()[:_BYTES]


def linked(
    before: bytes, after_version: int, events: Sequence[Event], actors: Sequence[str]
) -> list[LogRow]:
    """Return the rows that `events` become. `actors`: who asked for each; empty where nobody
    did."""
    rows = []
    for version, event in enumerate(events, after_version + 1):
        type_name, body = encode(event)
        actor = actors[version - after_version - 1] if actors else ""
        before = link(before, version, event.time_ns, type_name, body, actor)
        rows.append(LogRow(version, event.time_ns, type_name, body, actor, before))
    return rows


def checked(
    store: str,
    rows: Iterable[Sequence[Any]],
    after_version: int,
    before: bytes | None,
    missing: Callable[[int], StoreError],
) -> Iterator[LogRow]:
    """Yield `rows` as long as each follows from the one before it. `before`: the digest that stands
    at `after_version`, None: there is nothing.

    Raises: StoreError, that of `missing` for a version that is not there.
    """
    expected = after_version
    for row in map(LogRow._make, rows):
        expected += 1
        if row.version != expected or before is None:
            raise missing(expected if before is not None else after_version)
        version, time_ns, type_name, body, actor, digest = row
        if link(before, version, time_ns, type_name, body, actor) != digest:
            row.event(store)  # says more where it is not even an event
            raise StoreError(
                f"{store} is corrupt: version {version} is not what was written, or does not"
                f" follow from version {version - 1}: its digest does not fit"
            )
        before = digest
        yield row
