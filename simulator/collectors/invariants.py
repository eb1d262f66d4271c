"""What every replay must leave as it was: hosts, jobs and host time.

A fold over the log that shares no bookkeeping with the scheduler's state or the totals, and
is compared with both: after every event no host has two holders and as many are held as the
state says; at the end every job that came is admitted or refused, and every admitted one is
over or live; the time for which hosts were held is what the accounts of jobs add up to, and
the time model, where there is one, accounts for as much as the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from scheduler.core.model.events import (
    Event,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    SparesChanged,
)
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.state import State
from simulator.collectors.metrics import Metrics
from simulator.replay import ArrivalCounts

# Events that count jobs or say who holds which host. Another one that did would be noticed:
# the hosts held are compared with the state after every event.
HoldingEvent = (
    JobSubmitted
    | JobStarted
    | GangSwapped
    | GangResized
    | SparesChanged
    | JobRequeued
    | JobPreempted
    | JobEnded
    | HostMoved
)


class InvariantViolated(RuntimeError):
    """A replay gave what it did not have, or lost what it had: its results are void."""


@contextmanager
def named(run: str) -> Iterator[None]:
    """Says which of several replays was void."""
    try:
        yield
    except InvariantViolated as error:
        raise InvariantViolated(f"{run}: {error}") from None


class InvariantChecker:
    """Feed it the log, each event with the state after it; `check` at the end.

    Cost: O(hosts of the gang) an event. Memory: O(hosts held).
    """

    def __init__(self) -> None:
        self._holder: dict[str, str] = {}
        self._hosts: dict[str, dict[str, None]] = {}  # by job, in block order, then spares
        self._blocks: dict[str, list[str]] = {}
        self._held_host_ns = 0
        self._now_ns = 0
        self._submitted = 0
        self._ended = 0

    def feed(self, event: Event, state: State) -> None:
        """Raises: InvariantViolated."""
        self._held_host_ns += (event.time_ns - self._now_ns) * len(self._holder)
        self._now_ns = event.time_ns
        if isinstance(event, HoldingEvent):
            self._fold(event)
        if len(self._holder) != state.held.bit_count():
            text = f"{len(self._holder)} hosts are held, the state has {state.held.bit_count()}"
            raise InvariantViolated(f"event {state.version}: {text}")

    def _fold(self, event: HoldingEvent) -> None:
        match event:
            case JobSubmitted():
                self._submitted += 1
            case JobStarted() | GangResized():
                self._holds(event.name, list(event.hosts), event.spares)
            case GangSwapped():
                self._swapped(event)
            case SparesChanged():
                self._holds(event.name, self._blocks[event.name], event.spares)
            case JobRequeued() | JobPreempted():
                self._left(event.name)
            case JobEnded():
                self._ended += 1
                self._left(event.name)
            case HostMoved():
                if event.move is HostMove.FAIL:
                    self._failed(event.host)
            case _:
                assert_never(event)

    def _holds(self, name: str, blocks: list[str], spares: tuple[str, ...]) -> None:
        self._left(name)
        for host in (*blocks, *spares):
            holder = self._holder.setdefault(host, name)
            if holder != name or host in self._hosts.get(name, {}):
                raise InvariantViolated(f"host {host} is given to {name}, and {holder} has it")
            self._hosts.setdefault(name, {})[host] = None
        self._blocks[name] = blocks

    def _swapped(self, event: GangSwapped) -> None:
        blocks = [*self._blocks[event.name]]
        for swap in event.swaps:
            blocks[swap.block] = swap.joined
        before = self._hosts[event.name]
        blocks_before = {*self._blocks[event.name]}
        spares = tuple(h for h in before if h not in blocks_before and h not in blocks)
        self._holds(event.name, blocks, spares)

    def _left(self, name: str) -> None:
        for host in self._hosts.pop(name, ()):
            del self._holder[host]
        self._blocks.pop(name, None)

    def _failed(self, host: str) -> None:
        """A spare that fails is held no more; a gang keeps its failed host until it swaps."""
        name = self._holder.get(host)
        if name is not None and host not in self._blocks[name]:
            del self._holder[host], self._hosts[name][host]

    def check(self, tally: ArrivalCounts, metrics: Metrics) -> None:
        """Raises: InvariantViolated."""
        refused, live = sum(tally.refused.values()), metrics.unfinished
        held_host_ns, (_, hosts) = metrics.spent().hosts.held, metrics.accounts()
        for quantity, counted, expected in (
            ("jobs offered", tally.offered, self._submitted + refused),
            ("jobs admitted", self._submitted, self._ended + live),
            ("jobs counted", metrics.submitted, self._submitted),
            ("host-ns held", self._held_host_ns, held_host_ns),
            ("host-ns of attempts that are over", *metrics.ran()),
            ("host-ns by use", hosts.held, held_host_ns),
        ):
            if counted != expected:
                raise InvariantViolated(
                    f"{quantity}: {counted:,} on one side, {expected:,} on the other"
                )
