"""How much one caller may ask for, so that none can crowd the others out, and how many jobs of one
tenant may wait: limits of this server, not of the cluster."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from scheduler.access.options import CallLimits
from scheduler.core import Code, Rejected, State, admit
from scheduler.core.model.commands import Command, RequeueJob, SubmitJob
from scheduler.core.model.events import Event, JobSubmitted
from scheduler.core.tenancy.ownership import tenant_of
from scheduler.engine.writer import Admit
from scheduler.service.errors import exhausted, invalid

MOST_BUCKETS = 10_000  # callers whose rate is remembered


class Streams:
    """Open streams, by caller and in all. Runs on the event loop's thread."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, name: str) -> Iterator[None]:
        """Count an open stream of `name`. Raises: ApiError when there are too many."""
        if self._open.total() >= self._limits.streams:
            raise exhausted(f"{self._limits.streams} streams are open; try again later")
        if self._open[name] >= self._limits.streams_per_caller:
            most = self._limits.streams_per_caller
            raise exhausted(f"{name} has {most} streams open; close one, or try again later")
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            self._open += Counter()  # forgets who has none


class Rate:
    """Calls per second and caller, as a bucket that fills evenly and holds a second's worth."""

    def __init__(self, limits: CallLimits, clock: Callable[[], float]) -> None:
        self._per_s = limits.calls_per_s
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # level, as of

    def take(self, name: str) -> None:
        """Count one call of `name`. Raises: ApiError when it calls too often."""
        if not self._per_s:
            return
        now = self._clock()
        level, then = self._buckets.get(name, (float(self._per_s), now))
        level = min(self._per_s, level + (now - then) * self._per_s)
        if level < 1:
            raise exhausted(f"{name} makes more than {self._per_s} calls per second")
        self._buckets[name] = (level - 1, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)


def check_sizes(limits: CallLimits, request: Message) -> None:
    """Refuse a text or a list of a request that is too long. Raises: ApiError, invalid. Cost: 1 us
    for a request so small that nothing in it can be, as nearly all are; else some 10 us."""
    if request.ByteSize() > limits.harmless_bytes:
        _check(limits, request, "")


def _check(limits: CallLimits, request: Message, path: str) -> None:
    for field, value in request.ListFields():
        here = f"{path}.{field.name}" if path else field.name
        if not field.is_repeated:
            _check_one(limits, field, value, here)
        elif field.message_type and field.message_type.GetOptions().map_entry:
            _check_map(limits, value, here)
        else:
            if len(value) > limits.list_entries:
                raise invalid(here, f"has more than {limits.list_entries:,} entries")
            for at, item in enumerate(value):
                _check_one(limits, field, item, f"{here}[{at}]")


def _check_one(limits: CallLimits, field: FieldDescriptor, value: Any, path: str) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _check(limits, value, path)
    elif field.type == FieldDescriptor.TYPE_STRING and _bytes(value) > limits.text_bytes:
        raise invalid(path, f"is longer than {limits.text_bytes:,} bytes")


def _check_map(limits: CallLimits, entries: Mapping[Any, Any], path: str) -> None:
    if len(entries) > limits.label_count:
        raise invalid(path, f"has more than {limits.label_count:,} entries")
    for key, value in entries.items():
        if any(_bytes(text) > limits.label_bytes for text in (key, value) if isinstance(text, str)):
            raise invalid(f"{path}.{str(key)[:40]}", f"is longer than {limits.label_bytes:,} bytes")


def _bytes(text: str) -> int:
    return len(text.encode())


def at_most(waiting_jobs: int) -> Admit:
    """Return `admit` with the rule that a tenant with so many waiting jobs gets no more.

    Cost: counts the queue only when that many wait in all.
    """

    def check(state: State, command: Command, now_ns: int) -> tuple[Event, ...] | Rejected:
        answer = admit(state, command, now_ns)
        if not isinstance(command, SubmitJob | RequeueJob) or isinstance(answer, Rejected):
            return answer
        new = [event for event in answer if isinstance(event, JobSubmitted)]
        if new and _all(state) + len(new) > waiting_jobs:
            tenant = tenant_of(new[0].spec, state.tenants)
            waiting = _waiting(state, tenant)
            if waiting + len(new) > waiting_jobs:
                more = f", and {len(new):,} more are too many" if waiting < waiting_jobs else ""
                message = f"{min(waiting, waiting_jobs):,} jobs of tenant {tenant} wait already"
                return Rejected(Code.EXHAUSTED, f"{message}{more}")
        return answer

    return check


def _waiting(state: State, tenant: str) -> int:
    names = chain(state.index.queue, state.index.deferred)
    return sum(state.jobs[name].tenant == tenant for name in names)


def _all(state: State) -> int:
    return len(state.index.queue) + len(state.index.deferred)
