"""Whether a store can be relied on: every record read, every state made again."""

from __future__ import annotations

from muster.structs import struct
from placement import BadInput
from scheduler.core import State, apply
from scheduler.eventlog import snapshots
from scheduler.eventlog.ended_jobs import ended_by, job_in
from scheduler.eventlog.store.base import EndedJob, StoreError
from scheduler.eventlog.store.sql_store import Store


@struct(frozen=True, slots=True)
class VerifyReport:
    """Counts of a checked log, and all that is wrong with it."""

    first_version: int
    last_version: int
    snapshots: tuple[int, ...]
    last_ns: int
    state: State
    problems: tuple[str, ...]
    ended_jobs: int = 0


def verify(store: Store) -> VerifyReport:
    """Read the whole log along its chain of digests, compare its end with the mark, fold it, and
    compare each snapshot, and each job that ended, with the fold.

    Cost: some 100 us an event.
    """
    problems = []
    try:
        store.check()
    except StoreError as error:
        problems.append(str(error))
    bodies = dict(store.snapshots())
    first = store.first_version()
    state, last_ns = State.empty(), 0
    if first > 1:
        try:
            state, last_ns = snapshots.decode(bodies[first - 1])
        except (KeyError, snapshots.BadSnapshot) as error:
            problems.append(f"no snapshot of version {first - 1} to begin with ({error})")
            return VerifyReport(
                first, store.last_version(), tuple(bodies), 0, state, tuple(problems)
            )
    ended = _EndedJobs(store)
    try:
        for version, event in store.read(state.version):
            before, state = state, apply(state, event)
            problems += ended.differences(ended_by(before, event, state))
            if event.time_ns < last_ns:
                problems.append(f"version {version} is earlier than the one before it")
            last_ns = max(last_ns, event.time_ns)
            if version in bodies:
                problems += _differences(version, bodies[version], state, last_ns)
        problems += ended.rest(state.version)
    except StoreError as error:
        problems += [str(error)] if str(error) not in problems else []
    except (KeyError, IndexError, RuntimeError, BadInput) as error:
        reason = f"version {state.version + 1} does not follow from those before it ({error!r})"
        problems.append(reason)
    problems += [
        f"a snapshot of version {v} is newer than the log" for v in bodies if v > state.version
    ]
    return VerifyReport(
        first,
        state.version,
        tuple(sorted(bodies)),
        last_ns,
        state,
        tuple(problems),
        ended.count,
    )


class _EndedJobs:
    """Compares the ended jobs of a store with those that its log leads to, in one pass over both.
    Raises: StoreError for one that is not what was written."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        self._rows = store.ended_log()
        self._next = next(self._rows, None)
        self._may_lack = 0  # jobs that ended up to this version were let go
        if store.ended_counts()[1]:
            self._may_lack = self._next.version - 1 if self._next else store.last_version()

    def differences(self, made: EndedJob | None) -> list[str]:
        """Compare the next row with `made`, the job that the next event ends, and return faults."""
        if made is None:
            return []
        while self._next is not None and self._next.version < made.version:
            self._advance()
        kept = self._next
        if kept is None or kept.version > made.version:
            is_missing = made.version > self._may_lack
            return [f"the job that ended at version {made.version} is missing"] * is_missing
        self._advance()
        try:
            is_same = kept == made or job_in(kept) == job_in(made)
        except StoreError as error:
            return [str(error)]
        return [] if is_same else [f"the job that ended at version {made.version} is another one"]

    def rest(self, last_version: int) -> list[str]:
        """Return the faults of ended jobs after the end of the log."""
        faults = []
        while self._next is not None:
            if self._next.version > last_version:
                faults.append(f"a job ended at version {self._next.version}, after the log")
            self._advance()
        return faults

    def _advance(self) -> None:
        self.count += 1
        self._next = next(self._rows, None)


def _differences(version: int, body: bytes, state: State, last_ns: int) -> list[str]:
    try:
        kept, kept_ns = snapshots.decode(body)
    except snapshots.BadSnapshot as error:
        return [f"the snapshot of version {version} cannot be read: {error}"]
    if snapshots.is_older(body) or (kept == state and kept_ns == last_ns):
        return []  # what an older release did not keep, it cannot have got right
    return [f"the snapshot of version {version} is not what the log leads to"]
