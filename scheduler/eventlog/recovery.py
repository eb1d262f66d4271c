"""From a log to a state: the first thing a server does."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from muster.structs import struct
from placement import BadInput
from scheduler.core import Rejected, State, Tenants, admit, replay
from scheduler.core.admission.fabric import fabric_change
from scheduler.core.fold.apply import apply
from scheduler.core.model.commands import ChangeFabric, LoadTenants
from scheduler.core.model.events import Event, FabricLoaded, NamesQualified
from scheduler.core.tenancy.qualified_names import has_bare_names
from scheduler.eventlog import snapshots
from scheduler.eventlog.store import Store, StoreError
from scheduler.identity import SERVER

log = logging.getLogger("muster.store")


@struct(frozen=True, slots=True)
class Recovered:
    """The state at the end of a log, the time of its last event, and the version of the snapshot
    from which it was built, 0 for none."""

    state: State
    last_ns: int
    saved: int = 0


def recover(
    store: Store,
    fabric_spec: Mapping[str, Any] | None,
    now_ns: int,
    tenants: Tenants | None = None,
    *,
    has_callers: bool = False,
) -> Recovered:
    """Replay the log; a new one begins with the fabric. `tenants`: from here on, None
    for those of the log. `has_callers`: callers say who they are.

    Raises: StoreError when the log cannot be replayed, is new and no fabric is given, or does not
    go with the tenants.
    """
    recovered = replayed(store)
    return settle(store, recovered, fabric_spec, now_ns, tenants, has_callers=has_callers)


def settle(
    store: Store,
    recovered: Recovered,
    fabric_spec: Mapping[str, Any] | None,
    now_ns: int,
    tenants: Tenants | None,
    term: int = 0,
    *,
    has_callers: bool = False,
) -> Recovered:
    """Write what a server that begins to write in `term` writes first: the fabric of a new
    log, the tenants if they are other ones, and where callers say who they are full names of
    the jobs that came before they did.

    Raises: StoreError, as `recover`.
    """
    recovered = _with_fabric(store, recovered, fabric_spec, now_ns, term)
    now_ns = max(now_ns, recovered.last_ns)
    events: tuple[Event, ...] = ()
    if tenants is not None:
        answer = admit(recovered.state, LoadTenants(tenants), now_ns)
        if isinstance(answer, Rejected):
            raise StoreError(f"{store.name} does not go with these tenants: {answer.message}")
        events = answer
    if has_callers and has_bare_names(recovered.state):
        events = (*events, NamesQualified(now_ns))
    if not events:
        return recovered
    store.append(recovered.state.version, events, term, [SERVER] * len(events))
    return Recovered(replay(events, recovered.state), now_ns, recovered.saved)


def _with_fabric(
    store: Store,
    recovered: Recovered,
    fabric_spec: Mapping[str, Any] | None,
    now_ns: int,
    term: int,
) -> Recovered:
    check_fabric(store, recovered.state, fabric_spec)
    if recovered.state.version or fabric_spec is None:
        return recovered
    loaded = FabricLoaded(now_ns, fabric_spec)
    state = apply(State.empty(), loaded)
    store.append(0, [loaded], term, [SERVER])
    return Recovered(state, now_ns)


def replayed(store: Store) -> Recovered:
    """Return the newest snapshot that can be read, and the events after it.

    Raises: StoreError, also when any event that is kept is not the one that was written.
    """
    store.check()
    base = newest_snapshot(store)
    state, last_ns = base.state, base.last_ns
    if state.version + 1 < (first := store.first_version()):
        raise StoreError(
            f"{store.name} keeps events from version {first} on, and no snapshot can be read"
            " to begin with: restore a backup"
        )
    for version, event in store.read(state.version):
        try:
            state, last_ns = apply(state, event), event.time_ns
        except (KeyError, IndexError, RuntimeError, BadInput) as error:
            reason = f"version {version} does not follow from those before it ({error!r})"
            raise StoreError(f"{store.name} is corrupt: {reason}") from error
    return Recovered(state, last_ns, base.state.version)


def newest_snapshot(store: Store, to_version: int | None = None) -> Recovered:
    """Return the newest readable snapshot, none after `to_version`; else the empty state.

    One of another release serves only where the log begins with it.

    Raises: StoreError.
    """
    first = store.first_version()
    for version, body in store.snapshots(to_version):
        if snapshots.is_older(body) and version != first - 1:  # the log makes up for it
            words = "%s: the snapshot of version %d is of another release: the log is read instead"
            log.warning(words, store.name, version)
            continue
        try:
            state, last_ns = snapshots.decode(body)
            if state.version != version:
                raise snapshots.BadSnapshot(f"is of version {state.version}")
        except snapshots.BadSnapshot as error:
            log.warning(
                "%s: the snapshot of version %d is left out: %s", store.name, version, error
            )
        else:
            return Recovered(state, last_ns, version)
    return Recovered(State.empty(), 0)


def check_fabric(store: Store, state: State, fabric_spec: Mapping[str, Any] | None) -> None:
    """Say what differs where a fabric is given and the log has another, which is used.

    Raises: StoreError when the log is new and no fabric is given.
    """
    if not state.version and fabric_spec is None:
        raise StoreError(f"{store.name} is new: name its fabric with --fabric")
    if not state.version or fabric_spec is None:
        return
    change = fabric_change(state, ChangeFabric(fabric_spec))
    if not change.is_empty:
        words = (
            "the fabric that was given is not the one in %s, which is used: %s. To change it while"
            " the server runs: muster fabric apply FILE (--dry-run shows all)"
        )
        log.warning(words, store.name, change.summary)
