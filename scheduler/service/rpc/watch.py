"""Streams of changes: of jobs, hosts and windows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

import grpc

from scheduler.core import State
from scheduler.core.fold.effects import HostsChange, JobChange, WindowChange, WindowChangeKind
from scheduler.core.model.lifecycle import WindowState
from scheduler.identity import caller, own_jobs, own_windows
from scheduler.service.backend import Backend
from scheduler.service.errors import error_boundary, invalid, not_found
from scheduler.v1 import service_pb2
from scheduler.wire.jobs import change_to_proto, host_to_proto, timestamp
from scheduler.wire.listing import domains, held_hosts
from scheduler.wire.windows import window_change_to_proto

MOST_HOSTS: Final = 2_000  # of one message: half a megabyte
_KEPT: Final = 256  # changes whose messages are kept for those who watch a little later

Context = grpc.aio.ServicerContext[Any, Any]
Made = TypeVar("Made")


class _Shared(Generic[Made]):
    """Messages made once for all who watch, hence not to be changed."""

    def __init__(self, make: Callable[[Any], Made]) -> None:
        self._make = make
        self._made: OrderedDict[int, tuple[Any, Made]] = OrderedDict()

    def of(self, change: JobChange | HostsChange) -> Made:
        if caller().tenant:  # what such a caller may not see is hidden in its own copy
            return self._make(change)
        known = self._made.get(id(change))  # kept with its change, so that no other has its id
        if known is None:
            known = self._made[id(change)] = change, self._make(change)
            if len(self._made) > _KEPT:
                self._made.popitem(last=False)
        return known[1]


def _hosts(change: HostsChange) -> list[service_pb2.WatchHostsResponse]:
    """As many messages as it takes; all hosts, whoever asks."""
    state = change.state
    held = held_hosts(state, change.indices, own_jobs(state))
    hosts = [host_to_proto(state, h.index, h.holder, h.block, change.time_ns) for h in held]
    return [
        service_pb2.WatchHostsResponse(
            version=change.version,
            change_time=timestamp(change.time_ns),
            hosts=hosts[at : at + MOST_HOSTS],
            more=at + MOST_HOSTS < len(hosts),
        )
        for at in range(0, len(hosts), MOST_HOSTS)
    ]


class WatchServicer:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._job_changes = _Shared(change_to_proto)
        self._host_changes = _Shared(_hosts)

    async def WatchJobs(
        self, request: service_pb2.WatchJobsRequest, context: Context
    ) -> AsyncIterator[service_pb2.WatchJobsResponse]:
        async with error_boundary(context):
            writer, who, name = self._backend.writer, caller(), request.name
            after = await _begun(writer.state, request, context)
            async with aclosing(writer.watch(JobChange, after)) as changes:
                async for change in changes:
                    if name and name != change.job.name:
                        continue
                    if who.sees(writer.state.tenants, change.job.tenant):
                        yield self._job_changes.of(change)

    async def WatchHosts(
        self, request: service_pb2.WatchHostsRequest, context: Context
    ) -> AsyncIterator[service_pb2.WatchHostsResponse]:
        async with error_boundary(context):
            writer = self._backend.writer
            wanted = _named(writer.state, request.name)
            after = await _begun(writer.state, request, context)
            async with aclosing(writer.watch(HostsChange, after)) as changes:
                async for change in changes:
                    for message in self._host_messages(change, wanted):
                        yield message

    async def WatchWindows(
        self, request: service_pb2.WatchWindowsRequest, context: Context
    ) -> AsyncIterator[service_pb2.WatchWindowsResponse]:
        async with error_boundary(context):
            writer = self._backend.writer
            after = await _begun(writer.state, request, context)
            async with aclosing(writer.watch(WindowChange, after)) as changes:
                async for change in changes:
                    told = _as_seen(change, writer.state)
                    if told and request.name in ("", change.booking.window.name):
                        yield window_change_to_proto(told)

    def _host_messages(
        self, change: HostsChange, wanted: frozenset[int] | None
    ) -> Iterator[service_pb2.WatchHostsResponse]:
        """`wanted`: indices of hosts, None for all."""
        if wanted is None:
            yield from self._host_changes.of(change)
        elif indices := tuple(index for index in change.indices if index in wanted):
            yield from _hosts(HostsChange(change.version, change.time_ns, indices, change.state))


def _as_seen(change: WindowChange, state: State) -> WindowChange | None:
    """What the caller may see of it. A window that is held for another tenant from here on is
    gone for those who saw it, and new for the tenant."""
    is_seen = own_windows(state)
    if is_seen(change.booking):
        is_new = change.before is None or not is_seen(change.before)
        return replace(change, kind=WindowChangeKind.CREATED) if is_new else change
    if change.before is None or not is_seen(change.before):
        return None
    was = replace(change.before, state=WindowState.OVER, since_ns=change.time_ns)
    return replace(change, kind=WindowChangeKind.REMOVED, booking=was)


async def _begun(state: State, request: Any, context: Context) -> int:
    """After which version to watch; told at once, so that a caller knows from where on it
    misses nothing. Raises: ApiError."""
    newest = state.version
    after: int = request.after_version if request.HasField("after_version") else newest
    if not 0 <= after <= newest:
        raise invalid("after_version", f"must be 0 to {newest}, the newest version")
    await context.send_initial_metadata((("muster-version", str(after)),))
    return after


def _named(state: State, name: str) -> frozenset[int] | None:
    """The hosts of a domain, or one host; None: all. Raises: ApiError."""
    fabric = state.loaded_fabric
    if not name:
        return None
    if name in fabric.index_by_name:
        return frozenset({fabric.index_by_name[name]})
    if not any(name in tier.domains for tier in fabric.tiers):
        raise not_found("host or domain", name)
    return frozenset(i for i in range(fabric.host_count) if name in domains(fabric, i))
