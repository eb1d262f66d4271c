"""Lists of jobs, hosts, windows and tenants, page by page, read off one state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import UUID, uuid5

from muster.structs import replace, struct
from placement.fabric.tree import Fabric
from scheduler.core import HostState, Job, JobState, State
from scheduler.core.model.lifecycle import HOLDING, LIVE, WindowState
from scheduler.core.model.window import Booking
from scheduler.core.names import HIDDEN, short_name
from scheduler.eventlog.ended_jobs import EndedJobs
from scheduler.eventlog.store import EndedQuery
from scheduler.identity import redact_for_caller, user
from scheduler.wire.lists import filters, paging
from scheduler.wire.lists.paging import Order, Page

Item = TypeVar("Item")


# Identifiers of each kind lie below one of these and their log.
_WINDOWS: Final = UUID("7b0f6a52-3c1e-4d0b-8a57-1f2e9c64d0b8")
_TENANTS: Final = UUID("c4a1d9e0-5f3b-4f27-9d6e-80b7a2f51c36")


@struct(frozen=True, slots=True)
class Query:
    """Query of a list by a caller; its page tokens are good for no other list. `states` empty:
    all."""

    states: frozenset[JobState] | frozenset[HostState] | frozenset[WindowState] = frozenset()
    filter: str = ""
    order_by: str = ""
    job: str = ""

    def scope(self, kind: str) -> list[Any]:
        """Return the scope of the list's tokens."""
        return [kind, sorted(self.states), self.filter, self.order_by, self.job]


@struct(frozen=True, slots=True)
class HeldHost:
    """A host in a list. A host by index, who holds it, and which block it carries (None: a spare).
    `sharers`: of a host that jobs share all of them, the holder first."""

    index: int
    holder: Job | None
    block: int | None
    sharers: tuple[Job, ...] = ()

    @property
    def holders(self) -> tuple[Job, ...]:
        """All jobs that hold the host."""
        return self.sharers or ((self.holder,) if self.holder else ())


_JOB_ORDERS: Final[dict[str, Callable[[Job], Any]]] = {
    "create_time": lambda job: job.submit_ns,
    "update_time": lambda job: job.changed_ns,
    "name": lambda job: short_name(job.name),
    "tenant": lambda job: job.tenant,
    "priority": lambda job: job.priority,
    "attempt": lambda job: job.attempt,
}

# The same of ended jobs in the store.
_ENDED_ORDERS: Final = {"create_time": "create_ns", "update_time": "update_ns"}
_NEVER_NS: Final = 2**63
_MOST_READ: Final = 5_000  # ended jobs out of the store for one page: some 0.2 s

ME: Final = "@me"  # in filters: the caller
_JOB_FIELDS: Final[dict[str, filters.Field]] = {
    "name": filters.TextField(lambda job: short_name(job.name)),
    "uid": filters.TextField(lambda job: job.uid),
    "state": filters.ChoiceField(
        lambda job: job.state.name, tuple(JobState.__members__), "JOB_STATE_"
    ),
    "tenant": filters.TextField(lambda job: job.tenant),
    "user": filters.TextField(lambda job: job.user, {ME: user}),
    "array": filters.TextField(
        lambda job: short_name(job.spec.array.name) if job.spec.array else ""
    ),
    "priority_class": filters.TextField(lambda job: job.spec.priority_class),
    "priority": filters.NumberField(lambda job: job.priority),
    "attempt": filters.NumberField(lambda job: job.attempt),
    "labels": filters.MapField(lambda job: dict(job.spec.labels)),
    "create_time": filters.TimeField(lambda job: job.submit_ns),
    "update_time": filters.TimeField(lambda job: job.changed_ns),
}


WINDOW_ORDERS: Final[dict[str, Callable[[Booking], Any]]] = {
    "create_time": lambda booking: booking.create_ns,
    "update_time": lambda booking: booking.update_ns,
    "start_time": lambda booking: booking.window.start_ns,
    "end_time": lambda booking: booking.window.end_ns,
    "name": lambda booking: booking.window.name,
}


def everybodys(_: Any) -> bool:
    """Accept any job or window, for readers who may see all."""
    return True


def job_filter(text: str) -> Callable[[Job], bool]:
    """Return a test of jobs. Raises: BadFilter."""
    return filters.parse(text, _JOB_FIELDS)


def jobs(
    state: State,
    query: Query,
    size: int,
    token: str,
    is_seen: Callable[[Job], bool] = everybodys,
    stored: EndedJobs | None = None,
    tenants: frozenset[str] | None = None,
) -> Page[Job]:
    """Return a page of live jobs and ended ones that `is_seen`.

    `stored`: where those are that ended so long ago that the state does not have them; None: they
    are left out. `tenants`: whose jobs can be seen at all, None: not known. A page may have fewer
    jobs than `size` and yet a next one, where few of many pass the filter.

    Raises: BadToken, BadOrder, BadFilter, StoreError.
    """
    order = paging.parse_order(query.order_by, _JOB_ORDERS, lambda job: job.sequence)
    passes = filters.parse(query.filter, _JOB_FIELDS)

    def is_wanted(job: Job) -> bool:
        is_of_state = not query.states or job.state in query.states
        return is_of_state and is_seen(job) and passes(job)

    scope = query.scope("jobs")
    place = paging.place_of(scope, token)
    are_live = bool(query.states) and query.states <= LIVE
    wanted = _live_jobs(state, query, order, place, size + 1, is_wanted)
    if not are_live:
        wanted += filter(is_wanted, state.ended.values())
    known_to = None
    if stored is not None and not are_live:
        ended = EndedQuery(
            state.version,
            size + 1,
            states=frozenset(each.name for each in query.states),
            tenants=tenants,
            order=_stored_order(order),
            after=place or (),
        )
        more, known_to = stored.page(ended, order.key, is_wanted, state.ended, _MOST_READ)
        wanted += more
    order.sort(wanted)
    return paging.page(scope, wanted, order, size, token, known_to)


def _live_jobs(
    state: State,
    query: Query,
    order: Order[Job],
    place: paging.Key | None,
    most: int,
    is_wanted: Callable[[Job], bool],
) -> list[Job]:
    """Return the live jobs that are wanted, of those in order of arrival only the first `most`
    behind `place`, so that a page costs as much however many wait."""
    if query.states and query.states <= HOLDING:
        return list(filter(is_wanted, state.holding))
    if order.names != ("create_time",):
        return list(filter(is_wanted, state.jobs.values()))
    if place is not None and [type(value) for value in place] != [int, int]:
        raise paging.BadToken(paging.NO_TOKEN)
    arrivals, descends = state.arrivals, order.fields[0][1]
    submit_ns, sequence = place or (_NEVER_NS if descends else 0, 0)
    behind = (
        arrivals.before((submit_ns, sequence, ""))
        if descends
        else arrivals.since((submit_ns, sequence + 1, ""))
    )
    return list(islice(filter(is_wanted, (state.jobs[name] for _, _, name in behind)), most))


def every_job(state: State, text: str, is_seen: Callable[[Job], bool]) -> Iterator[Job]:
    """Yield live jobs and ended ones at hand that pass a filter, in order of arrival; each is
    looked for when it is read. Raises: BadFilter."""
    passes = filters.parse(text, _JOB_FIELDS)
    live = (state.jobs[name] for _, _, name in state.arrivals)
    both = merge(live, sorted(state.ended.values(), key=_arrival), key=_arrival)
    return (job for job in both if is_seen(job) and passes(job))


def _arrival(job: Job) -> tuple[int, int]:
    return job.submit_ns, job.sequence


def _stored_order(order: Order[Job]) -> tuple[tuple[str, bool], ...]:
    names = (*(_ENDED_ORDERS.get(name, name) for name in order.names), "sequence")
    return tuple(zip(names, (descends for _, descends in order.fields), strict=True))


def hosts(
    state: State, query: Query, size: int, token: str, is_seen: Callable[[Job], bool] = everybodys
) -> Page[HeldHost]:
    """Return a page of hosts in the order of the fabric; only hosts of `query.job`, unless it is
    empty.

    Holders that the caller may not see have no name, also in filters.

    Raises: BadToken, BadFilter.
    """
    passes = filters.parse(query.filter, _host_fields(state))
    everyone = list_hosts(state, range(state.loaded_fabric.host_count), is_seen)
    wanted = (
        host
        for host in everyone
        if (not query.states or state.shown(host.index).state in query.states)
        and (not query.job or any(job.name == query.job for job in host.holders))
        and passes(host)
    )
    order: Order[HeldHost] = Order(((lambda host: host.index, False),))
    return paging.page(query.scope("hosts"), wanted, order, size, token)


def window_uid(state: State, booking: Booking) -> str:
    """Return a uid that replays of a log repeat and no other window of it has."""
    made = f"{state.origin}/{booking.create_ns}/{booking.sequence}"
    return str(uuid5(_WINDOWS, f"{made}/{booking.window.name}"))


def tenant_uid(state: State, name: str) -> str:
    """Return a uid that replays of a log repeat; a tenant that comes back gets another."""
    made = f"{state.origin}/{state.mark(name).create_ns}"
    return str(uuid5(_TENANTS, f"{made}/{name}"))


def list_hosts(
    state: State, indices: Iterable[int], is_seen: Callable[[Job], bool] = everybodys
) -> Iterator[HeldHost]:
    """Yield hosts with their holders, as far as those `is_seen`. Cost: O(hosts held)."""
    held = holders(state)
    for index in indices:
        yield _shown(held.get(index, HeldHost(index, None, None)), is_seen)


def _shown(host: HeldHost, is_seen: Callable[[Job], bool]) -> HeldHost:
    if host.holder is None or all(map(is_seen, host.holders)):
        return host
    known = tuple(job if is_seen(job) else _nameless(job) for job in host.holders)
    block = host.block if is_seen(host.holder) else None
    return HeldHost(host.index, known[0], block, known if host.sharers else ())


def _nameless(job: Job) -> Job:
    return replace(job, spec=replace(job.spec, name=HIDDEN))


def _host_fields(state: State) -> dict[str, filters.Field]:
    fabric, shown = state.loaded_fabric, redact_for_caller(state)

    def reason(held: HeldHost) -> str:
        host = state.shown(held.index)
        return shown(host.reason, host.said_ns)

    return {
        "name": filters.TextField(lambda host: fabric.hosts[host.index]),
        "state": filters.ChoiceField(
            lambda host: state.shown(host.index).state.name,
            tuple(HostState.__members__),
            "HOST_STATE_",
        ),
        "reason": filters.TextField(reason),
        "job": filters.TextField(lambda host: short_name(host.holder.name) if host.holder else ""),
        "update_time": filters.TimeField(lambda host: state.shown(host.index).since_ns or None),
        "domains": filters.NamesField(lambda host: domains(fabric, host.index)),
    }


def domains(fabric: Fabric, index: int) -> list[str]:
    """Return the names of the domains that hold a host, outermost tier first."""
    return [fabric.domain(index, tier) for tier in range(len(fabric.tiers))]


def holders(state: State) -> dict[int, HeldHost]:
    """Return who holds each held host, by index. Cost: O(hosts held)."""
    held: dict[int, HeldHost] = {}
    for job in state.in_state(JobState.RUNNING, JobState.INTERRUPTED):
        held.update((host, HeldHost(host, job, block)) for block, host in enumerate(job.hosts))
        held.update((host, HeldHost(host, job, None)) for host in job.spares)
    for host, names in state.index.shared.items():
        sharers = tuple(map(state.jobs.__getitem__, names))
        held[host] = HeldHost(host, sharers[0], 0, sharers)
    return held


def describe_host(
    state: State, index: int, is_seen: Callable[[Job], bool] = everybodys
) -> HeldHost:
    """Return one host with what it carries, as far as `is_seen` lets the caller see that."""
    holders = state.holders(index)
    if not holders:
        return HeldHost(index, None, None)
    is_block = index in holders[0].hosts
    block = holders[0].hosts.index(index) if is_block else None
    host = HeldHost(index, holders[0], block, holders if index in state.index.shared else ())
    return _shown(host, is_seen)
