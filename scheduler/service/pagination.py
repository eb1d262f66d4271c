"""Lists as the service answers them: a request's states, filter and page, checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from placement import BadInput
from scheduler.core import Job, State
from scheduler.core.admission.etag import digest
from scheduler.core.tenancy.standing import standings
from scheduler.eventlog.audit import AuditLog
from scheduler.eventlog.ended_jobs import EndedJobs
from scheduler.identity import caller, own_jobs, own_windows
from scheduler.service.errors import invalid
from scheduler.service.names import full_name_of
from scheduler.v1 import service_pb2
from scheduler.wire.cluster import links, tenants, windows
from scheduler.wire.cluster.tenants import audit_filter, audit_record_to_proto
from scheduler.wire.durations import nanoseconds
from scheduler.wire.jobs import HOST_STATE_BY_NUMBER, JOB_STATE_BY_NUMBER, host_to_proto
from scheduler.wire.lists import filters, listing, paging

JOBS_PAGE, MOST_JOBS = 100, 1_000
HOSTS_PAGE, MOST_HOSTS = 1_000, 10_000
WHOLE_PAGE = 1_000  # of tenants, of domains
AUDIT_PAGE = 100
WINDOWS_PAGE, MOST_WINDOWS = 100, 1_000

Member = TypeVar("Member")
Item = TypeVar("Item")


def jobs_page(
    state: State, request: service_pb2.ListJobsRequest, ended: EndedJobs
) -> paging.Page[Job]:
    """Return a page of jobs. Reads the store, unless the caller wants recent jobs alone. Raises:
    ApiError, StoreError."""
    states = _states(request.states, JOB_STATE_BY_NUMBER)
    query = listing.Query(states, request.filter, request.order_by)
    most = size(request.page_size, JOBS_PAGE, MOST_JOBS)
    stored = None if request.recent_only else ended
    known = caller().own_tenants(state.tenants)
    token = request.page_token
    return listing.jobs(state, query, most, token, own_jobs(state), stored, known)


def all_jobs(state: State, filter: str) -> Iterator[Job]:
    """Yield the jobs of a list, in the order of their arrival. Raises: ApiError."""
    return listing.every_job(state, filter, own_jobs(state))


def hosts_page(
    state: State, request: service_pb2.ListHostsRequest, now_ns: int
) -> service_pb2.ListHostsResponse:
    """Return a page of hosts. Raises: ApiError."""
    states = _states(request.states, HOST_STATE_BY_NUMBER)
    job = full_name_of(state, request.job, field="job") if request.job else ""
    query = listing.Query(states, request.filter, job=job)
    most = size(request.page_size, HOSTS_PAGE, MOST_HOSTS)
    page = listing.hosts(state, query, most, request.page_token, own_jobs(state))
    return service_pb2.ListHostsResponse(
        hosts=[host_to_proto(state, held, now_ns) for held in page.items],
        next_page_token=page.next_token,
        version=state.version,
    )


def audit_page(
    state: State, log: AuditLog, request: service_pb2.ListAuditRecordsRequest
) -> service_pb2.ListAuditRecordsResponse:
    """Return a page of the audit log. Reads the store. Raises: ApiError, StoreError."""
    since_ns = 0
    if request.HasField("start_time"):
        try:
            since_ns = nanoseconds("start_time", request.start_time)
        except BadInput as error:
            raise invalid(error.field, error.message) from None
        if not 0 <= since_ns < 2**63:
            raise invalid("start_time", "must be between 1970 and 2262")
    scope = ["audit", since_ns, request.filter]
    most = size(request.page_size, AUDIT_PAGE, MOST_JOBS)
    (after,) = paging.place_of(scope, request.page_token) or (0,)
    is_wanted = audit_filter(request.filter)
    records, last = log.page(after, since_ns, is_wanted, most)
    return service_pb2.ListAuditRecordsResponse(
        audit_records=map(audit_record_to_proto, records),
        next_page_token="" if last is None else paging.token_at(scope, (last,)),
        version=state.version,
    )


def windows_page(
    state: State, request: service_pb2.ListWindowsRequest
) -> service_pb2.ListWindowsResponse:
    """Return a page of the windows that are not over. Raises: ApiError."""
    states = _states(request.states, windows.STATE_BY_NUMBER)
    scope = listing.Query(states, request.filter, request.order_by).scope("windows")
    order = paging.parse_order(
        request.order_by, listing.WINDOW_ORDERS, lambda b: b.sequence, lambda b: b.window.name
    )
    is_seen, passes = own_windows(state), filters.parse(request.filter, windows.FILTERED)
    wanted = [b for b in state.windows.values() if (not states or b.state in states) and is_seen(b)]
    if request.filter:
        wanted = [b for b in wanted if passes(windows.window_to_proto(state, b))]
    order.sort(wanted)
    most = size(request.page_size, WINDOWS_PAGE, MOST_WINDOWS)
    page = paging.page(scope, wanted, order, most, request.page_token)
    return service_pb2.ListWindowsResponse(
        windows=[windows.window_to_proto(state, booking) for booking in page.items],
        next_page_token=page.next_token,
        version=state.version,
    )


def tenants_page(
    state: State, request: service_pb2.ListTenantsRequest, now_ns: int
) -> service_pb2.ListTenantsResponse:
    """Return a page of the tenants that concern the caller. Raises: ApiError."""
    who, passes = caller(), filters.parse(request.filter, tenants.FILTERED)
    shown = [
        tenants.tenant_to_proto(state, standing)
        for standing in standings(state, now_ns)
        if who.knows(state.tenants, standing.tenant.name)
    ]
    page = make_page("tenants", f"{state.tenants.digest} {request.filter}", shown, request, passes)
    return service_pb2.ListTenantsResponse(
        tenants=page.items,
        next_page_token=page.next_token,
        default_tenant=who.tenant or state.tenants.default,
        digest=state.tenants.digest,
        version=state.version,
    )


def links_page(
    state: State, request: service_pb2.ListLinksRequest
) -> service_pb2.ListLinksResponse:
    """Return a page of uplinks. Raises: ApiError."""
    names, busy = links.link_names(state, every=request.show_all), links.link_loads(state)
    if request.filter:
        passes = filters.parse(request.filter, links.FILTERED)
        names = [name for name in names if passes(links.link_to_proto(state, name, None))]
    # A token is good for the same links: those that are up come and go with reports.
    of = f"{state.loaded_fabric.digest} {digest(*names)}"
    page, is_own = make_page("links", of, names, request), own_jobs(state)
    return service_pb2.ListLinksResponse(
        links=[links.link_to_proto(state, name, is_own, busy) for name in page.items],
        next_page_token=page.next_token,
        version=state.version,
    )


def make_page(
    kind: str,
    of: str,
    items: Sequence[Item],
    request: Any,
    passes: Callable[[Item], bool] = lambda _: True,
) -> paging.Page[Item]:
    """Return a page of those of a list that pass, in its own order. `of`: identifies it, whichever
    pass when. Raises: ApiError."""
    most = size(request.page_size, WHOLE_PAGE, MOST_HOSTS)
    order: paging.Order[int] = paging.Order(((int, False),))
    places = (at for at, item in enumerate(items) if passes(item))
    page = paging.page([kind, of], places, order, most, request.page_token)
    return paging.Page(tuple(items[at] for at in page.items), page.next_token)


def _states(numbers: Collection[int], known: Mapping[int, Member]) -> frozenset[Member]:
    for place, number in enumerate(numbers):
        if number not in known:
            raise invalid(f"states[{place}]", f"{number} is not a state")
    return frozenset(known[number] for number in numbers)


def size(wanted: int, default: int, most: int, field: str = "page_size") -> int:
    """Return how many items a caller gets on a page. Raises: ApiError."""
    if wanted < 0:
        raise invalid(field, "must not be negative")
    return min(wanted or default, most)
