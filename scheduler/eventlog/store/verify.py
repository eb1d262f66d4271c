"""Whether a store can be relied on: every record read, every state made again."""

from __future__ import annotations

from dataclasses import dataclass

from placement import BadInput
from scheduler.core import State, apply
from scheduler.eventlog import snapshots
from scheduler.eventlog.store.base import Store, StoreError


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was read, and all that is wrong with it."""

    first_version: int
    last_version: int
    snapshots: tuple[int, ...]
    last_ns: int
    state: State
    problems: tuple[str, ...]


def verify(store: Store) -> VerifyReport:
    """Read the whole log along its chain of digests, compare its end with the mark, fold it, and
    compare each snapshot with the fold.

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
    try:
        for version, event in store.read(state.version):
            state = apply(state, event)
            if event.time_ns < last_ns:
                problems.append(f"version {version} is earlier than the one before it")
            last_ns = max(last_ns, event.time_ns)
            if version in bodies:
                problems += _differences(version, bodies[version], state, last_ns)
    except StoreError as error:
        problems += [str(error)] if str(error) not in problems else []
    except (KeyError, IndexError, RuntimeError, BadInput) as error:
        reason = f"version {state.version + 1} does not follow from those before it ({error!r})"
        problems.append(reason)
    problems += [
        f"a snapshot of version {v} is newer than the log" for v in bodies if v > state.version
    ]
    return VerifyReport(
        first, state.version, tuple(sorted(bodies)), last_ns, state, tuple(problems)
    )


def _differences(version: int, body: bytes, state: State, last_ns: int) -> list[str]:
    try:
        kept, kept_ns = snapshots.decode(body)
    except snapshots.BadSnapshot as error:
        return [f"the snapshot of version {version} cannot be read: {error}"]
    if snapshots.is_older(body) or (kept == state and kept_ns == last_ns):
        return []  # what an older release did not keep, it cannot have got right
    return [f"the snapshot of version {version} is not what the log leads to"]
