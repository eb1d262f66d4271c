"""The table of ended jobs: a row for each, written with the event that ends it.

Events go when the log is compacted, and a state has the newest ended jobs of each tenant alone.
Rows stay until the operator lets them go. Each has a number, 1, 2, 3, ... without a gap, and the
digest of itself and of the one before (as chain.py has it for events), so that a bit that flipped
and a row that is missing are found by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from scheduler.eventlog.store.base import EndedJob, EndedQuery, StoreError
from scheduler.eventlog.store.schema import columns

BASE: Final = "ended_base"  # in meta: number and digest of the last row that was let go

_BYTES: Final = 16
_NAMES: Final = columns("ended_job")
_PAGE: Final = 2_000
# Of each row the digest of the one before it as well.
_BEFORE: Final = "(SELECT b.digest FROM ended_job AS b WHERE b.number = ended_job.number - 1)"
_SELECT: Final = f"SELECT {_NAMES}, {_BEFORE} FROM ended_job"
_ROWS: Final = f"{_SELECT} WHERE number > ? ORDER BY number LIMIT {_PAGE}"
_LAST: Final = "SELECT number, digest FROM ended_job ORDER BY number DESC LIMIT 1"
_LAST_BEFORE: Final = (
    "SELECT number, digest FROM ended_job WHERE time_ns < ? ORDER BY number DESC LIMIT 1"
)
_BASE_VALUE: Final = f"SELECT value FROM meta WHERE key = '{BASE}'"
_PUT_BASE: Final = (
    f"INSERT INTO meta VALUES ('{BASE}', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)


class EndedRow(NamedTuple):
    """A row of the table of ended jobs."""

    number: int
    job: EndedJob
    digest: bytes

    @classmethod
    def of(cls, values: Sequence[Any]) -> EndedRow:
        *job, body, digest = values[1:]
        return cls(values[0], EndedJob._make((*job, bytes(body))), bytes(digest))

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.number, *self.job, self.digest)


class ChainEnd(NamedTuple):
    """Number of the last row of a chain, and its digest."""

    number: int
    digest: bytes

    @classmethod
    def read(cls, text: str | None, store_id: str) -> ChainEnd:
        """Read the end of a chain. `text`: what the table meta has under BASE, None where no row
        was dropped yet."""
        if text is None:
            return cls(0, sha256(f"ended {store_id}".encode()).digest()[:_BYTES])
        number, _, digest = text.partition(" ")
        return cls(int(number), bytes.fromhex(digest))

    @property
    def text(self) -> str:
        return f"{self.number} {self.digest.hex()}"


class StatementResult(Protocol):
    """A cursor of either database after its statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class EndedTable(NamedTuple):
    """The table of ended jobs, over one connection. `store` and `store_id`: the store's name in
    messages, and its id. `run`: runs a statement with the values of its `?`.

    A method that reads several rows needs one moment of the table: a transaction of its caller.
    """

    store: str
    store_id: str
    run: Callable[..., StatementResult]

    def base(self) -> ChainEnd:
        """Return the last row that was deleted."""
        row = self.run(_BASE_VALUE).fetchone()
        return ChainEnd.read(str(row[0]) if row else None, self.store_id)

    def end(self) -> ChainEnd:
        """Return the row behind which the next ended job goes."""
        row = self.run(_LAST).fetchone()
        return ChainEnd(row[0], bytes(row[1])) if row else self.base()

    def jobs(self, query: EndedQuery) -> list[EndedJob]:
        """Return the ended jobs of a query. Raises: StoreError where a row is not what was
        written."""
        statement, values = select(query)
        rows = self.run(statement, *values).fetchall()
        return [row.job for row in self._checked(rows)]

    def log(self) -> Iterator[EndedJob]:
        """Yield all ended jobs in the order of their ends, page by page.

        Raises: StoreError where a row is missing or not what was written.
        """
        last = self.base().number
        while rows := self.run(_ROWS, last).fetchall():
            for row in self._checked(rows):
                if row.number != last + 1:
                    raise _missing(self.store, last + 1)
                last = row.number
                yield row.job

    def counts(self) -> tuple[int, int]:
        """Return how many are kept, and how many were dropped."""
        (kept,) = self.run("SELECT COUNT(*) FROM ended_job").fetchone()
        return int(kept), self.base().number

    def drop(self, before_ns: int) -> int:
        """Drop the jobs that ended before then, and return how many."""
        row = self.run(_LAST_BEFORE, before_ns).fetchone()
        if row is None:
            return 0
        base = ChainEnd(row[0], bytes(row[1]))
        self.run(_PUT_BASE, base.text)
        return self.run("DELETE FROM ended_job WHERE number <= ?", base.number).rowcount

    def _checked(self, rows: Sequence[Sequence[Any]]) -> Iterator[EndedRow]:
        """Yield the rows as long as each is what was written, after the one before it. Raises:
        StoreError."""
        base = self.base()
        for *values, digest in rows:
            row, before = EndedRow.of(values), digest and bytes(digest)
            if before is None:
                if row.number - 1 != base.number:
                    raise _missing(self.store, row.number - 1)
                before = base.digest
            if _digest(before, row.number, row.job) != row.digest:
                raise StoreError(
                    f"{self.store} is corrupt: ended job {row.number} ({row.job.name}) is not what"
                    " was written, or does not follow from the one before it: its digest does not"
                    " fit"
                )
            yield row


def _missing(store: str, number: int) -> StoreError:
    return StoreError(f"{store} is corrupt: ended job {number} is missing")


def linked(end: ChainEnd, jobs: Iterable[EndedJob]) -> list[EndedRow]:
    """Return the rows of `jobs`, with digests that continue the chain from its last row `end`."""
    rows = []
    for job in jobs:
        number = end.number + 1
        end = ChainEnd(number, _digest(end.digest, number, job))
        rows.append(EndedRow(number, job, end.digest))
    return rows


def select(query: EndedQuery) -> tuple[str, list[Any]]:
    """Return the statement for `query` with its values."""
    terms = ["version <= ?", "time_ns >= ?", "time_ns < ?"]
    values = list[Any]([query.to_version, query.from_ns, query.until_ns])
    wanted = {
        "uid": {query.uid} if query.uid else None,
        "name": {query.name} if query.name else None,
        "state": query.states or None,
        "tenant": query.tenants,
    }
    for column, choice in wanted.items():
        if choice is not None:
            terms.append(f"{column} IN ({', '.join('?' * len(choice)) or 'NULL'})")
            values += sorted(choice)
    if query.after:
        term, behind = _behind(query)
        terms.append(term)
        values += behind
    order = ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name, down in query.order)
    numbers = f"SELECT number FROM ended_job WHERE {' AND '.join(terms)} ORDER BY {order} LIMIT ?"
    return (
        f"{_SELECT} WHERE number IN ({numbers}) ORDER BY {order}",
        [*values, query.most],
    )


def _behind(query: EndedQuery) -> tuple[str, list[Any]]:
    """Whether a row stands behind `query.after` in its order."""
    term, values = "", list[Any]()
    for (name, down), value in reversed(tuple(zip(query.order, query.after, strict=True))):
        ahead = f"{name} {'<' if down else '>'} ?"
        term = f"({ahead} OR ({name} = ? AND {term}))" if term else ahead
        values = [value, value, *values] if values else [value]
    return term, values


def _digest(before: bytes, number: int, job: EndedJob) -> bytes:
    head = "\x1f".join(map(str, (number, *job[:-1]))).encode("utf-8", "surrogatepass")
    return sha256(before + len(head).to_bytes(4) + head + job.body).digest()[:_BYTES]
