"""Lists of jobs and hosts, page by page, read off one state."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from scheduler.core import HostState, Job, JobState, State

Item = TypeVar("Item")


class BadToken(ValueError):
    """A page token that no list gave out."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """`next_token` is empty on the last page."""

    items: tuple[Item, ...]
    next_token: str


@dataclass(frozen=True, slots=True)
class HeldHost:
    """A host by index, who holds it, and which block it carries (None: a spare)."""

    index: int
    holder: Job | None
    block: int | None


def jobs(state: State, states: Collection[JobState], size: int, token: str) -> Page[Job]:
    """Live jobs and the newest ended ones, in the order of their arrival."""
    everyone = (*state.jobs.values(), *state.ended.values())
    wanted = (job for job in everyone if not states or job.state in states)
    ordered = sorted(wanted, key=lambda job: job.sequence)
    return _page("jobs", ordered, lambda job: job.sequence, size, token)


def hosts(
    state: State, states: Collection[HostState], job: str, size: int, token: str
) -> Page[HeldHost]:
    """Hosts in the order of the fabric; `job`: only what it holds, empty for all."""
    held = holders(state)
    everyone = (
        held.get(index, HeldHost(index, None, None))
        for index in range(state.loaded_fabric.host_count)
    )
    wanted = (
        host
        for host in everyone
        if (not states or state.host(host.index).state in states)
        and (not job or (host.holder is not None and host.holder.name == job))
    )
    return _page("hosts", wanted, lambda host: host.index, size, token)


def holders(state: State) -> dict[int, HeldHost]:
    """Every held host by index. Cost: O(hosts held)."""
    held: dict[int, HeldHost] = {}
    for job in state.in_state(JobState.RUNNING, JobState.INTERRUPTED):
        held.update((host, HeldHost(host, job, block)) for block, host in enumerate(job.hosts))
        held.update((host, HeldHost(host, job, None)) for host in job.spares)
    return held


def _page(
    kind: str, ordered: Iterable[Item], key: Callable[[Item], int], size: int, token: str
) -> Page[Item]:
    """The first `size` items whose key comes after the one that `token` names."""
    after = _read_token(kind, token) if token else -1
    found = tuple(islice((item for item in ordered if key(item) > after), size + 1))
    if len(found) <= size:
        return Page(found, "")
    return Page(found[:size], _token(kind, key(found[size - 1])))


def _token(kind: str, last: int) -> str:
    return base64.urlsafe_b64encode(f"{kind}:{last}".encode()).decode()


def _read_token(kind: str, token: str) -> int:
    try:
        got, _, last = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
    except (binascii.Error, UnicodeError):
        got, last = "", ""
    if got != kind or not last.isdecimal():
        raise BadToken(f"{token!r} is not the next_page_token of such a list")
    return int(last)
