"""Streams of changes of jobs and of hosts."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from placement.fabric.tree import Fabric
from scheduler.core import Job, State
from scheduler.core.fold.effects import HostsChange, JobChange
from scheduler.core.names import short_name
from scheduler.engine.feed import Bookmark
from scheduler.identity import caller, own_jobs
from scheduler.service import pagination
from scheduler.service.backend import Backend, Context
from scheduler.service.errors import ApiError, compacted, invalid, not_caught_up, not_found
from scheduler.service.names import parse_job_reference
from scheduler.v1 import service_pb2
from scheduler.wire.jobs import change_to_proto, host_to_proto, listed_job, timestamp
from scheduler.wire.lists import listing
from scheduler.wire.lists.listing import domains, list_hosts

MOST_HOSTS: Final = 2_000  # of one message: half a megabyte
MOST_CHANGES: Final = 500  # of one message: 350 KB where gangs are small
_LONG_BYTES: Final = 1 << 20  # of a message, to which no more changes are added
# Changes whose messages are kept for those who watch a little later. Those of hosts may be long.
_KEPT: Final = 256
_KEPT_PARTS: Final = 4 * MOST_CHANGES

Made = TypeVar("Made")
WatchRequest = service_pb2.WatchJobsRequest | service_pb2.WatchHostsRequest


class _Shared(Generic[Made]):
    """Messages made once for all who watch, hence not to be changed; the last `most` are kept."""

    def __init__(self, make: Callable[[Any], Made], most: int = _KEPT) -> None:
        self._make = make
        self._most = most
        self._made: OrderedDict[int, tuple[Any, Made]] = OrderedDict()

    def of(self, change: JobChange | HostsChange) -> Made:
        if caller().tenant:  # what such a caller may not see is hidden in its own copy
            return self._make(change)
        known = self._made.get(id(change))  # kept with its change, so that no other has its id
        if known is None:
            known = self._made[id(change)] = change, self._make(change)
            if len(self._made) > self._most:
                self._made.popitem(last=False)
        return known[1]


def _hosts(change: HostsChange) -> list[service_pb2.WatchHostsResponse]:
    """As many messages as it takes; all hosts, whoever asks. Those that are gone stand in the
    first."""
    state = change.state
    held = list_hosts(state, change.indices, own_jobs(state))
    hosts = [host_to_proto(state, each, change.time_ns) for each in held]
    starts = range(0, len(hosts), MOST_HOSTS) or range(bool(change.removed))
    return [
        service_pb2.WatchHostsResponse(
            version=change.version,
            change_time=timestamp(change.time_ns),
            hosts=hosts[at : at + MOST_HOSTS],
            more=at + MOST_HOSTS < len(hosts),
            removed=[] if at else [host for host, *_ in change.removed],
        )
        for at in starts
    ]


def _encode_part(change: service_pb2.WatchJobsResponse) -> bytes:
    """Encode a message that has this one alone among its `changes`."""
    return service_pb2.WatchJobsResponse(changes=[change]).SerializeToString()


def _list_some(
    state: State, jobs: Iterator[Job], in_batches: bool
) -> Sequence[service_pb2.WatchJobsResponse | bytes]:
    """Return messages of the next jobs of a list; none once it is read."""
    listed = [listed_job(state, job) for job in islice(jobs, MOST_CHANGES)]
    return list(_join_parts(map(_encode_part, listed))) if in_batches else listed


def _join_parts(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join encoded messages to fewer ones, which have the `changes` of several."""
    joined, length = list[bytes](), 0
    for part in parts:
        joined.append(part)
        length += len(part)
        if len(joined) == MOST_CHANGES or length > _LONG_BYTES:
            yield b"".join(joined)
            joined, length = [], 0
    if joined:
        yield b"".join(joined)


class WatchServicer:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._job_changes = _Shared(change_to_proto)
        self._parts = _Shared(lambda change: _encode_part(change_to_proto(change)), _KEPT_PARTS)
        self._host_changes = _Shared(_hosts)

    async def WatchJobs(
        self, request: service_pb2.WatchJobsRequest, context: Context
    ) -> AsyncIterator[service_pb2.WatchJobsResponse | bytes]:
        writer, who = self._backend.writer, caller()
        is_of_all = not (request.name or request.filter or who.tenant)
        in_batches = request.in_batches and is_of_all
        matches, pace = listing.job_filter(request.filter), _Pace(request)
        state = writer.state
        is_named = _job_named(state, request.name)
        after = await _begun(state, request, context, is_leading=writer.is_leading)
        if request.initial_list:
            reads = self._backend.reads
            jobs = await reads.make(pagination.all_jobs, state, request.filter)
            named = filter(is_named, jobs)
            while messages := await reads.make(_list_some, state, named, in_batches):
                for message in messages:
                    yield message
            yield _job_bookmark(after)
        most = MOST_CHANGES if in_batches else 1
        watching = writer.watch_batches(JobChange, after, most, pace.interval_s)
        async with aclosing(watching) as batches:
            async for batch in batches:
                if isinstance(batch, Bookmark):
                    pace.note_sent()
                    yield _job_bookmark(batch.version)
                    continue
                if in_batches:
                    pace.note_sent()
                    for message in _join_parts(map(self._parts.of, batch)):
                        yield message
                    continue
                (change,) = batch
                is_wanted = is_named(change.job) and (
                    matches(change.job) or (change.before is not None and matches(change.before))
                )
                if is_wanted and who.sees(writer.state.tenants, change.job.tenant):
                    pace.note_sent()
                    yield self._job_changes.of(change)
                elif pace.is_due():
                    yield _job_bookmark(change.version - 1)

    async def WatchHosts(
        self, request: service_pb2.WatchHostsRequest, context: Context
    ) -> AsyncIterator[service_pb2.WatchHostsResponse]:
        writer = self._backend.writer
        state, pace = writer.state, _Pace(request)
        _named(state, request.name)
        wanted = _HostsNamed(request.name)
        after = await _begun(state, request, context, is_leading=writer.is_leading)
        if request.initial_list:
            indices = wanted.of(state)
            at_hand = HostsChange(after, writer.now_ns(), tuple(sorted(indices)), state)
            for message in await self._backend.reads.make(_hosts, at_hand):
                message.more = True  # the bookmark follows
                message.ClearField("change_time")
                yield message
            yield _hosts_bookmark(after)
        async with aclosing(writer.watch(HostsChange, after, pace.interval_s)) as changes:
            async for change in changes:
                if isinstance(change, Bookmark):
                    pace.note_sent()
                    yield _hosts_bookmark(change.version)
                    continue
                messages = list(self._host_messages(change, wanted))
                for message in messages:
                    pace.note_sent()
                    yield message
                if not messages and pace.is_due():
                    yield _hosts_bookmark(change.version - 1)

    def _host_messages(
        self, change: HostsChange, wanted: _HostsNamed
    ) -> Iterator[service_pb2.WatchHostsResponse]:
        if not wanted.name:
            yield from self._host_changes.of(change)
            return
        names = wanted.of(change.state)
        indices = tuple(index for index in change.indices if index in names)
        removed = tuple(places for places in change.removed if wanted.name in places)
        if indices or removed:
            yield from _hosts(
                HostsChange(change.version, change.time_ns, indices, change.state, removed)
            )


class _HostsNamed:
    """The hosts that a watch is for, in whichever fabric there is: those of a domain, one host, or
    all where it names none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._fabric: Fabric | None = None
        self._indices: frozenset[int] = frozenset()

    def of(self, state: State) -> frozenset[int]:
        """Return indices of the hosts in this state; none where the fabric lacks the name now."""
        if state.built_fabric is not self._fabric:
            self._fabric = state.built_fabric
            try:
                self._indices = _named(state, self.name)
            except ApiError:
                self._indices = frozenset()
        return self._indices


class _Pace:
    """When a watch is due a bookmark: nothing was sent for an interval. Raises: ApiError."""

    def __init__(self, request: WatchRequest) -> None:
        self.interval_s: float | None = None
        self._sent_s = 0.0
        if request.HasField("bookmark_interval"):
            self.interval_s = request.bookmark_interval.ToNanoseconds() / 10**9
            if not 1 <= self.interval_s <= 3_600:
                raise invalid("bookmark_interval", "must be 1 second to 1 hour")
        self.note_sent()

    def note_sent(self) -> None:
        self._sent_s = time.monotonic()

    def is_due(self) -> bool:
        """Return whether a bookmark is due, and count it as sent."""
        if self.interval_s is None or time.monotonic() < self._sent_s + self.interval_s:
            return False
        self.note_sent()
        return True


def _job_bookmark(version: int) -> service_pb2.WatchJobsResponse:
    change = service_pb2.JOB_CHANGE_BOOKMARK
    return service_pb2.WatchJobsResponse(version=version, change=change)


def _hosts_bookmark(version: int) -> service_pb2.WatchHostsResponse:
    return service_pb2.WatchHostsResponse(version=version, bookmark=True)


async def _begun(state: State, request: WatchRequest, context: Context, *, is_leading: bool) -> int:
    """After which version to watch; told at once, so that a caller knows from where on it
    misses nothing. Raises: ApiError."""
    newest = state.version
    if request.initial_list and request.HasField("after_version"):
        raise invalid("after_version", "must be unset with initial_list, which begins now")
    after: int = request.after_version if request.HasField("after_version") else newest
    if after > newest and not is_leading:  # another server has told of it
        raise not_caught_up(f"this server is at version {newest}, not yet at {after}")
    if not 0 <= after <= newest:
        raise invalid("after_version", f"must be 0 to {newest}, the newest version")
    if caller().tenant and after < state.qualified_version:
        raise compacted(
            f"what was before version {state.qualified_version:,} is not shown to callers of one"
            " tenant, for nobody was asked who they are: list again, and watch from there on"
        )
    await context.send_initial_metadata((("muster-version", str(after)),))
    return after


def _job_named(state: State, text: str) -> Callable[[Job], bool]:
    """Whether a job is the one of this name, also one to come. Raises: ApiError."""
    if not text:
        return lambda _: True
    named = parse_job_reference(state, text)
    return lambda job: (job.tenant, short_name(job.name)) == named


def _named(state: State, name: str) -> frozenset[int]:
    """The hosts of a domain, or one host; all without a name. Raises: ApiError."""
    fabric = state.built_fabric
    if not name:
        return frozenset(range(fabric.host_count))
    if name in fabric.index_by_name:
        return frozenset({fabric.index_by_name[name]})
    if not any(name in tier.domains for tier in fabric.tiers):
        raise not_found("host or domain", name)
    return frozenset(i for i in range(fabric.host_count) if name in domains(fabric, i))
