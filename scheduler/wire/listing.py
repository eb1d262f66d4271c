"""Lists of jobs, hosts, windows and tenants, page by page, read off one state."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, Generic, TypeVar
from uuid import UUID, uuid5

from placement.fabric.tree import Fabric
from scheduler.core import HostState, Job, JobState, State
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.window import Booking, WindowKind
from scheduler.core.tenancy.standing import TenantStanding
from scheduler.identity import HIDDEN
from scheduler.wire import filters

Item = TypeVar("Item")
Key = tuple[Any, ...]  # numbers and texts


# Identifiers of each kind lie below one of these and their log.
_WINDOWS: Final = UUID("7b0f6a52-3c1e-4d0b-8a57-1f2e9c64d0b8")
_TENANTS: Final = UUID("c4a1d9e0-5f3b-4f27-9d6e-80b7a2f51c36")


class BadToken(ValueError):
    """A page token that no such list gave out."""


class BadOrder(ValueError):
    """An order that lists do not have."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """`next_token` is empty on the last page."""

    items: tuple[Item, ...]
    next_token: str


@dataclass(frozen=True, slots=True)
class Query:
    """What a list is asked for; its tokens are good for no other. `states` empty: all."""

    states: frozenset[JobState] | frozenset[HostState] | frozenset[WindowState] = frozenset()
    filter: str = ""
    order_by: str = ""
    job: str = ""

    @property
    def digest(self) -> str:
        text = json.dumps([sorted(self.states), self.filter, self.order_by, self.job])
        return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class HeldHost:
    """A host by index, who holds it, and which block it carries (None: a spare)."""

    index: int
    holder: Job | None
    block: int | None


_JOB_KEYS: Final[dict[str, Callable[[Job], Key]]] = {
    "create_time": lambda job: (job.sequence,),
    "name": lambda job: (job.name, job.sequence),
}

_JOB_FIELDS: Final[dict[str, filters.Field]] = {
    "name": filters.TextField(lambda job: job.name),
    "uid": filters.TextField(lambda job: job.uid),
    "state": filters.ChoiceField(lambda job: job.state.name, tuple(JobState.__members__)),
    "tenant": filters.TextField(lambda job: job.tenant),
    "priority_class": filters.TextField(lambda job: job.spec.priority_class),
    "priority": filters.NumberField(lambda job: job.priority),
    "attempt": filters.NumberField(lambda job: job.attempt),
    "labels": filters.MapField(lambda job: dict(job.spec.labels)),
}


_WINDOW_KEYS: Final[dict[str, Callable[[Booking], Key]]] = {
    "create_time": lambda booking: (booking.sequence, booking.window.name),
    "start_time": lambda booking: (booking.window.start_ns, booking.window.name),
    "name": lambda booking: (booking.window.name,),
}


def everybodys(_: Any) -> bool:
    """Whether the list's reader may see a job or window: any."""
    return True


def jobs(
    state: State, query: Query, size: int, token: str, is_seen: Callable[[Job], bool] = everybodys
) -> Page[Job]:
    """Live jobs and the newest ended ones, of those that `is_seen`.

    Raises: BadToken, BadOrder, BadFilter.
    """
    key, is_reversed = _order(query.order_by, _JOB_KEYS)
    passes = filters.parse(query.filter, _JOB_FIELDS)
    everyone = (*state.jobs.values(), *state.ended.values())
    of_state = (j for j in everyone if not query.states or j.state in query.states)
    wanted = [job for job in of_state if is_seen(job) and passes(job)]
    wanted.sort(key=key, reverse=is_reversed)
    return _page("jobs", query, wanted, key, size, token, is_reversed=is_reversed)


def _order(
    text: str, keys: Mapping[str, Callable[[Item], Key]]
) -> tuple[Callable[[Item], Key], bool]:
    """The key to sort by, the first of `keys` by default, and whether backwards."""
    words = text.split()
    is_reversed = words[1:] == ["desc"]
    name = words[0] if words else next(iter(keys))
    if name not in keys or (words[1:] and not is_reversed):
        raise BadOrder(f"must be {' or '.join(keys)}, with or without desc, not {text!r}")
    return keys[name], is_reversed


def hosts(
    state: State, query: Query, size: int, token: str, is_seen: Callable[[Job], bool] = everybodys
) -> Page[HeldHost]:
    """Hosts in the order of the fabric; of those that `query.job` holds, unless it is empty.

    A holder that is not `is_seen` is one without a name, in filters as well.

    Raises: BadToken, BadFilter.
    """
    passes = filters.parse(query.filter, _host_fields(state))
    everyone = held_hosts(state, range(state.loaded_fabric.host_count), is_seen)
    wanted = (
        host
        for host in everyone
        if (not query.states or state.shown(host.index).state in query.states)
        and (not query.job or (host.holder is not None and host.holder.name == query.job))
        and passes(host)
    )
    return _page("hosts", query, wanted, lambda host: (host.index,), size, token)


def windows(
    state: State,
    query: Query,
    size: int,
    token: str,
    is_seen: Callable[[Booking], bool] = everybodys,
) -> Page[Booking]:
    """Windows that are not over, of those that `is_seen`.

    Raises: BadToken, BadOrder, BadFilter.
    """
    key, is_reversed = _order(query.order_by, _WINDOW_KEYS)
    passes = filters.parse(query.filter, _window_fields(state))
    of_state = (b for b in state.windows.values() if not query.states or b.state in query.states)
    wanted = [booking for booking in of_state if is_seen(booking) and passes(booking)]
    wanted.sort(key=key, reverse=is_reversed)
    return _page("windows", query, wanted, key, size, token, is_reversed=is_reversed)


def _window_fields(state: State) -> dict[str, filters.Field]:
    kinds, states = (kind.name for kind in WindowKind), ("PENDING", "OPEN")
    return {
        "name": filters.TextField(lambda booking: booking.window.name),
        "uid": filters.TextField(lambda booking: window_uid(state, booking)),
        "kind": filters.ChoiceField(lambda booking: booking.window.kind.name, tuple(kinds)),
        "state": filters.ChoiceField(lambda booking: booking.state.name, states),
        "tenant": filters.TextField(lambda booking: booking.window.tenant),
        "reason": filters.TextField(lambda booking: booking.window.reason),
        "start_time": filters.TimeField(lambda booking: booking.window.start_ns),
        "end_time": filters.TimeField(lambda booking: booking.window.end_ns),
        "create_time": filters.TimeField(lambda booking: booking.create_ns),
        "update_time": filters.TimeField(lambda booking: booking.update_ns),
        "hosts": filters.NamesField(lambda booking: booking.window.hosts),
    }


def window_uid(state: State, booking: Booking) -> str:
    """The same in every replay of a log, and another for every window of it."""
    made = f"{state.loaded_fabric.digest}/{booking.create_ns}/{booking.sequence}"
    return str(uuid5(_WINDOWS, f"{made}/{booking.window.name}"))


def tenants(
    state: State,
    found: Sequence[TenantStanding],
    filter: str,
    size: int,
    token: str,
) -> Page[TenantStanding]:
    """Of these tenants, in their order, those that pass.

    Raises: BadToken, BadFilter.
    """
    passes = filters.parse(filter, _tenant_fields(state))
    places = {one.tenant.name: at for at, one in enumerate(found)}
    query = Query(filter=filter, order_by=state.tenants.digest)

    def key(one: TenantStanding) -> Key:
        return (places[one.tenant.name],)

    return _page("tenants", query, [one for one in found if passes(one)], key, size, token)


def _tenant_fields(state: State) -> dict[str, filters.Field]:
    return {
        "name": filters.TextField(lambda one: one.tenant.name),
        "uid": filters.TextField(lambda one: tenant_uid(state, one.tenant.name)),
        "parent": filters.TextField(lambda one: one.tenant.parent),
        "weight": filters.NumberField(lambda one: one.tenant.weight),
        "guaranteed_gpus": filters.NumberField(lambda one: one.guaranteed_gpus),
        "held_gpus": filters.NumberField(lambda one: one.held_gpus),
        "queued_gpus": filters.NumberField(lambda one: one.queued_gpus),
        "create_time": filters.TimeField(lambda one: state.mark(one.tenant.name).create_ns),
        "update_time": filters.TimeField(lambda one: state.mark(one.tenant.name).update_ns),
    }


def tenant_uid(state: State, name: str) -> str:
    """The same in every replay of a log, and another for one that comes back."""
    made = f"{state.loaded_fabric.digest}/{state.mark(name).create_ns}"
    return str(uuid5(_TENANTS, f"{made}/{name}"))


def held_hosts(
    state: State, indices: Iterable[int], is_seen: Callable[[Job], bool] = everybodys
) -> Iterator[HeldHost]:
    """These hosts with who holds them, as far as that `is_seen`. Cost: O(hosts held)."""
    held = holders(state)
    for index in indices:
        yield _shown(held.get(index, HeldHost(index, None, None)), is_seen)


def _shown(host: HeldHost, is_seen: Callable[[Job], bool]) -> HeldHost:
    if host.holder is None or is_seen(host.holder):
        return host
    nameless = replace(host.holder, spec=replace(host.holder.spec, name=HIDDEN))
    return HeldHost(host.index, nameless, None)


def _host_fields(state: State) -> dict[str, filters.Field]:
    fabric = state.loaded_fabric
    return {
        "name": filters.TextField(lambda host: fabric.hosts[host.index]),
        "state": filters.ChoiceField(
            lambda host: state.shown(host.index).state.name, tuple(HostState.__members__)
        ),
        "reason": filters.TextField(lambda host: state.shown(host.index).reason),
        "job": filters.TextField(lambda host: host.holder.name if host.holder else ""),
        "domains": filters.NamesField(lambda host: domains(fabric, host.index)),
    }


def domains(fabric: Fabric, index: int) -> list[str]:
    """Names of the domains that hold a host, outermost tier first."""
    return [fabric.domain(index, tier) for tier in range(len(fabric.tiers))]


def holders(state: State) -> dict[int, HeldHost]:
    """Every held host by index. Cost: O(hosts held)."""
    held: dict[int, HeldHost] = {}
    for job in state.in_state(JobState.RUNNING, JobState.INTERRUPTED):
        held.update((host, HeldHost(host, job, block)) for block, host in enumerate(job.hosts))
        held.update((host, HeldHost(host, job, None)) for host in job.spares)
    return held


def in_order(kind: str, of: str, items: Sequence[Item], size: int, token: str) -> Page[Item]:
    """A page of items that stand where they stand. `of`: names what they are listed from;
    tokens are good for no other. Raises: BadToken."""
    places = range(len(items))
    page = _page(kind, Query(filter=of), places, lambda at: (at,), size, token)
    return Page(tuple(items[at] for at in page.items), page.next_token)


def held(state: State, index: int) -> HeldHost:
    """One host with what it carries."""
    holder = state.holder(index)
    is_block = holder is not None and index in holder.hosts
    return HeldHost(index, holder, holder.hosts.index(index) if holder and is_block else None)


def _page(
    kind: str,
    query: Query,
    ordered: Iterable[Item],
    key: Callable[[Item], Key],
    size: int,
    token: str,
    *,
    is_reversed: bool = False,
) -> Page[Item]:
    """The first `size` items whose key comes after the one that `token` names.

    A token holds the key of the last item, so it stays good when that one is gone.
    """
    last = _read_token(kind, query, token) if token else None

    def is_due(item: Item) -> bool:
        try:
            return last is None or (key(item) < last if is_reversed else key(item) > last)
        except TypeError:  # a token made by hand
            raise BadToken(_NO_TOKEN) from None

    found = tuple(islice(filter(is_due, ordered), size + 1))
    if len(found) <= size:
        return Page(found, "")
    return Page(found[:size], _token(kind, query, key(found[size - 1])))


_NO_TOKEN: Final = "is not the next_page_token of a list with these states, filter and order"


def _token(kind: str, query: Query, last: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([kind, query.digest, *last]).encode()).decode()


def _read_token(kind: str, query: Query, token: str) -> Key:
    try:
        parts = json.loads(base64.urlsafe_b64decode(token.encode()))
        got, digest, *last = parts
    except (binascii.Error, UnicodeError, ValueError, TypeError, RecursionError):
        raise BadToken(_NO_TOKEN) from None
    if [got, digest] != [kind, query.digest] or not last:
        raise BadToken(_NO_TOKEN)
    return tuple(last)
