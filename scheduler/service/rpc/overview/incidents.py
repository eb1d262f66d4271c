"""The call for failures, what came of each, and the cluster over time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from scheduler.core import State
from scheduler.core.fold.apply import apply
from scheduler.core.names import stated_tenant
from scheduler.engine.writer import Writer
from scheduler.eventlog.recovery import newest_snapshot
from scheduler.eventlog.store import Compacted, Store
from scheduler.identity import caller
from scheduler.observe.history import MOST_SAMPLES, Failure, FailureHistory
from scheduler.observe.incidents import IncidentKind
from scheduler.service import pagination
from scheduler.service.backend import Backend, Context
from scheduler.v1 import service_pb2
from scheduler.wire.cluster.incidents import failure_to_proto, sample_to_proto, weeks_to_proto
from scheduler.wire.jobs import timestamp
from scheduler.wire.lists import paging

_SPAN_NS = 28 * 24 * 3_600 * 10**9
_MOST_EVENTS = 50_000  # some seconds of work, once
_PAUSE_S = 0.001
_PAGE = 100


class IncidentServicer:
    """Answers calls about incidents. It reads the log at the first call, and later only what is
    new."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = Lock()
        self._history = FailureHistory(1)
        self._state: State | None = None
        self._start_ns = 0

    async def ListIncidents(
        self, request: service_pb2.ListIncidentsRequest, context: Context
    ) -> service_pb2.ListIncidentsResponse:
        return await self._backend.reads.make(self._list, self._backend.writer, request)

    def _list(
        self, writer: Writer, request: service_pb2.ListIncidentsRequest
    ) -> service_pb2.ListIncidentsResponse:
        most = pagination.size(request.page_size, _PAGE, pagination.MOST_JOBS)
        (before,) = paging.place_of(["incidents"], request.page_token) or (2**63,)
        with self._lock:
            state, now_ns = self._catch_up(writer), writer.now_ns()
            failures = self._history.failures(state, now_ns)
            samples = self._history.latest(state, now_ns)
        seen = [each for each in map(_for_caller(state), failures) if each is not None]
        page = [each for each in seen if each.version < before]
        is_more = len(page) > most
        token = paging.token_at(["incidents"], (page[most - 1].version,)) if is_more else ""
        has_goodput = not caller().tenant
        return service_pb2.ListIncidentsResponse(
            incidents=[failure_to_proto(state, each) for each in page[:most]],
            next_page_token=token,
            weeks=weeks_to_proto(seen),
            samples=[sample_to_proto(each, has_goodput=has_goodput) for each in samples],
            start_time=timestamp(self._start_ns),
            version=state.version,
        )

    def _catch_up(self, writer: Writer) -> State:
        """Return the state at the end of the log, with the history fed up to it."""
        if self._state is None:
            self._begin(writer.store, writer.now_ns())
        try:
            return self._read(writer.store)
        except Compacted:
            self._begin(writer.store, writer.now_ns())
            return self._read(writer.store)

    def _begin(self, store: Store, now_ns: int) -> None:
        first = store.first_version() - 1
        version = max(first, store.version_at(now_ns - _SPAN_NS) - 1)
        base = newest_snapshot(store, max(version, store.last_version() - _MOST_EVENTS))
        self._state = base.state
        self._start_ns = now_ns
        for _, event in store.read(base.state.version):
            self._start_ns = min(now_ns, max(event.time_ns, now_ns - _SPAN_NS))
            break
        self._history = FailureHistory((now_ns - self._start_ns) // MOST_SAMPLES)

    def _read(self, store: Store) -> State:
        assert self._state is not None
        state = self._state
        for _, event in store.read(state.version, _PAUSE_S):
            after = apply(state, event)
            if event.time_ns >= self._start_ns:
                self._history.feed(state, event, after)
            self._state = state = after
        return state


def _for_caller(state: State) -> Callable[[Failure], Failure | None]:
    """Return how the caller may hear of a failure: of one that stopped a job of another tenant as
    of one of its host alone, and of a rank of such a job not at all."""
    who = caller()

    def show(failure: Failure) -> Failure | None:
        tenant = stated_tenant(failure.job) or state.tenants.default
        if not failure.job or who.sees(state.tenants, tenant):
            return failure
        if failure.kind is not IncidentKind.HOST_FAILED:
            return None
        return Failure(
            failure.version,
            failure.time_ns,
            failure.kind,
            failure.subject,
            failure.detail,
            hosts=failure.hosts,
        )

    return show
