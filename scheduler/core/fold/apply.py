"""State changes here and nowhere else: apply(state, event) is the next version.

What an event does to the state, and what that means to readers of the log, are beside each
other: jobs.py, hosts.py, links.py and windows.py; and here for events of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import assert_never

from muster.structs import replace
from placement.fabric.reader import from_spec
from scheduler.core.fold import fabric, hosts, jobs, links, windows
from scheduler.core.fold.effects import EventEffect
from scheduler.core.fold.index import with_request
from scheduler.core.model.events import (
    ClusterEvent,
    Defragmented,
    Event,
    FabricChanged,
    FabricLoaded,
    HostEvent,
    JobEvent,
    LinkEvent,
    NamesQualified,
    RequestAnswered,
    RequestEvent,
    TenantsLoaded,
    WindowEvent,
)
from scheduler.core.model.records import failure_rates
from scheduler.core.model.state import State
from scheduler.core.tenancy.ownership import reloaded
from scheduler.core.tenancy.qualified_names import qualified


def replay(events: Iterable[Event], state: State | None = None) -> State:
    """Fold events into a state, from empty unless one is given."""
    return reduce(apply, events, State.empty() if state is None else state)


def apply(state: State, event: Event) -> State:
    """Return the state after `event`. Cost: about 20 us, and copying the queue's names.

    Raises: KeyError on an event that the log cannot hold: it names what no earlier event made, or
    the lifecycle tables forbid it.
    """
    if isinstance(event, JobEvent):
        after = jobs.applied(state, event)
    elif isinstance(event, HostEvent):
        after = hosts.applied(state, event)
    elif isinstance(event, WindowEvent):
        after = windows.applied(state, event)
    elif isinstance(event, LinkEvent):
        after = links.applied(state, event)
    else:
        after = _applied(state, event)
    seen_ns = max(state.seen_ns, event.time_ns)
    if getattr(event, "request_id", ""):
        assert isinstance(event, RequestEvent)
        after = with_request(after, event, state.jobs)
    return replace(after, version=state.version + 1, seen_ns=seen_ns)


def effects(before: State, event: Event, after: State) -> tuple[EventEffect, ...]:
    """Return the effects of `event`, which led from one state to the other; those on jobs first.

    Cost: 2 us, and some per host that a window covers or a gang leaves where hosts are out.
    """
    if isinstance(event, JobEvent):
        return tuple(jobs.effects(before, event, after))
    if isinstance(event, HostEvent):
        return tuple(hosts.effects(before, event, after))
    if isinstance(event, WindowEvent):
        return tuple(windows.effects(before, event, after))
    if isinstance(event, FabricChanged):
        return tuple(fabric.effects(before, event, after))
    return ()  # of the cluster or of links: no job or host is another


def _applied(state: State, event: ClusterEvent) -> State:
    match event:
        case FabricLoaded():
            return _loaded(state, event)
        case FabricChanged():
            return fabric.changed(state, event)
        case TenantsLoaded():
            return reloaded(state, event)
        case NamesQualified():
            named = qualified(state)
            version, time_ns = state.version + 1, event.time_ns
            return replace(named, qualified_version=version, qualified_ns=time_ns)
        case Defragmented():
            return replace(state, defragmented_ns=event.time_ns)
        case RequestAnswered():
            return state
        case _:
            assert_never(event)


def _loaded(state: State, event: FabricLoaded) -> State:
    """The first event of a log; the fabric of one that has one is changed."""
    if state.fabric is not None:
        raise KeyError("a log begins with one fabric; this is the second")
    loaded = from_spec(event.spec)
    return replace(
        state,
        fabric=loaded,
        fabric_version=state.version + 1,
        fabric_ns=event.time_ns,
        origin=loaded.digest,
        faults=failure_rates.loaded(event.time_ns, loaded.zone_count),
    )
