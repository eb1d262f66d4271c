"""What every replay must leave as it was: hosts, jobs and host time.

A fold over the log that shares no bookkeeping with the scheduler's state or the totals, and
is compared with both: after every event no host has two holders and as many are held as the
state says; at the end every job that came is admitted or refused, and every admitted one is
over or live; the time for which hosts were held is what the accounts of jobs add up to, and
the time model, where there is one, accounts for as much as the scheduler.

It watches launchers as well, the simulator's and the one that has agents (scheduler.launch), by
what they make the log say: attempts of a job are counted up, one at a time; what a launcher
reports is of the attempt that runs, of one of its hosts, and ends it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, assert_never

from scheduler.core.model.events import (
    ChannelOpened,
    CheckpointSaved,
    Event,
    GangHung,
    GangLaunched,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    JobSubmitted,
    LaunchFailed,
    RankFailed,
    RoleRestarted,
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


LaunchEvent = (
    GangLaunched
    | GangHung
    | RoleRestarted
    | ChannelOpened
    | LaunchFailed
    | RankFailed
    | CheckpointSaved
)
MINUTE_NS = 59_000_000_000  # checkpoints are timed by another clock than the log
MOST_LAST = 2  # checkpoints sooner than that: an attempt's last, and one it was asked for


class InvariantViolated(RuntimeError):
    """A replay used hosts that it did not have, or lost some: its results are void."""


@contextmanager
def named(run: str) -> Iterator[None]:
    """Name the replay whose invariants failed, among several."""
    try:
        yield
    except InvariantViolated as error:
        raise InvariantViolated(f"{run}: {error}") from None


@dataclass(slots=True)
class AttemptLog:
    """The present attempt of a job, as the log has it. `saved_ns`: when a checkpoint of the job
    was written down last; `soon`: checkpoints of its attempt within a minute of another."""

    attempt: int = 0
    is_running: bool = False
    is_launched: bool = False
    saved_ns: int = -MINUTE_NS
    saved: tuple[int, int] = (0, -1)  # attempt, step
    soon: int = 0

    def begin(self, attempt: int) -> None:
        self.attempt, self.is_running, self.is_launched = attempt, True, False

    def fault(self, event: LaunchEvent) -> str:
        """Record the event; return why it is impossible for the job now, "" where it is not."""
        if isinstance(event, CheckpointSaved):
            return self._saved(event)
        if event.attempt != self.attempt:
            return f"attempt {self.attempt} is the present one"
        if not self.is_running:
            return "it is over"
        if isinstance(event, GangLaunched):
            if self.is_launched:
                return "it was launched before"
            self.is_launched = True
        return ""

    def _saved(self, event: CheckpointSaved) -> str:
        if not event.where:  # copies in memory, of an attempt that runs
            is_present = self.is_running and event.attempt == self.attempt
            return "" if is_present else f"attempt {self.attempt} is the present one, or is over"
        is_last = event.attempt == self.attempt - 1 and not self.is_launched
        if event.attempt != self.attempt and not is_last:
            return f"attempt {self.attempt} has been launched"
        if (event.attempt, event.step) <= self.saved:
            return f"step {self.saved[1]} of attempt {self.saved[0]} was saved before"
        is_soon = event.time_ns - self.saved_ns < MINUTE_NS
        # What an attempt saves as it leaves comes when the next has begun: each has its own count.
        before = self.soon if event.attempt == self.saved[0] else 0
        self.soon = before + 1 if is_soon else 0
        self.saved, self.saved_ns = (event.attempt, event.step), event.time_ns
        return f"{self.soon} within a minute of another" if self.soon > MOST_LAST else ""


class PartOfHost(NamedTuple):
    """The part of a shared host that a job has: these GPUs, a `share` of it."""

    host: str
    gpus: tuple[int, ...]
    share: Fraction


class InvariantChecker:
    """Checks a log event by event: no host held twice, none lost, all host time accounted for. Feed
    it each event with the state after it; call `check` at the end.

    Cost: O(hosts of the gang) an event. Memory: O(hosts held).
    """

    def __init__(self) -> None:
        self._holder: dict[str, str] = {}
        self._gpus: dict[str, dict[int, str]] = {}  # by shared host: each GPU's job
        self._parts: dict[str, PartOfHost] = {}  # by job
        self._part_hosts = Fraction(0)  # that jobs on parts of hosts hold together
        self._part_host_ns = Fraction(0)
        self._rounded = 0  # shares of hosts in accounts, each less than 1 ns short
        self._hosts: dict[str, dict[str, None]] = {}  # by job, in block order, then spares
        self._blocks: dict[str, list[str]] = {}
        self._held_host_ns = 0
        self._now_ns = 0
        self._submitted = 0
        self._ended = 0
        self._attempts: dict[str, AttemptLog] = {}  # of live jobs that have begun

    def feed(self, event: Event, state: State) -> None:
        """Check one event. Raises: InvariantViolated."""
        elapsed_ns = event.time_ns - self._now_ns
        self._held_host_ns += elapsed_ns * len(self._holder)
        if self._parts:
            self._part_host_ns += elapsed_ns * self._part_hosts
        self._now_ns = event.time_ns
        if isinstance(event, HoldingEvent):
            self._fold(event, state)
        elif isinstance(event, LaunchEvent):
            self._reported(event, state.version)
        held = len(self._holder) + len(self._gpus)
        if held != state.index.held.bit_count():
            text = f"{held} hosts are held, the state has {state.index.held.bit_count()}"
            raise InvariantViolated(f"event {state.version}: {text}")

    def _fold(self, event: HoldingEvent, state: State) -> None:
        match event:
            case JobSubmitted():
                self._submitted += 1
            case JobStarted() if event.gpus:
                self._begins(event)
                self._blocks[event.name] = list(event.hosts)
                host = event.hosts[0]
                of = int(state.built_fabric.by_host.gpus[state.built_fabric.index_by_name[host]])
                self._shares_host(
                    event.name, PartOfHost(host, event.gpus, Fraction(len(event.gpus), of))
                )
            case GangResized() if event.attempt == self._attempts[event.name].attempt:
                self._holds(event.name, list(event.hosts), event.spares)  # one role alone
            case JobStarted() | GangResized():
                self._begins(event)
                self._holds(event.name, list(event.hosts), event.spares)
            case GangSwapped():
                self._begins(event)
                self._swapped(event)
            case SparesChanged():
                self._holds(event.name, self._blocks[event.name], event.spares)
            case JobRequeued() | JobPreempted():
                self._attempts[event.name].is_running = False
                self._check_left(event.name)
            case JobEnded():
                self._ended += 1
                self._attempts.pop(event.name, None)
                self._check_left(event.name)
            case HostMoved():
                if event.move is HostMove.FAIL:
                    self._failed(event.host)
            case _:
                assert_never(event)

    def _shares_host(self, name: str, part: PartOfHost) -> None:
        host, gpus, share = part
        if host in self._holder:
            whose = self._holder[host]
            raise InvariantViolated(f"a part of {host} is given to {name}, and {whose} has it")
        there = self._gpus.setdefault(host, {})
        for gpu in gpus:
            if there.setdefault(gpu, name) != name:
                text = f"GPU {gpu} of {host} is given to {name}, and {there[gpu]} has it"
                raise InvariantViolated(text)
        self._parts[name] = part
        self._part_hosts += share

    def _holds(self, name: str, blocks: list[str], spares: tuple[str, ...]) -> None:
        self._check_left(name)
        for host in (*blocks, *spares):
            if host in self._gpus:
                raise InvariantViolated(f"host {host} is given to {name}, and others share it")
            holder = self._holder.setdefault(host, name)
            if holder != name or host in self._hosts.get(name, {}):
                raise InvariantViolated(f"host {host} is given to {name}, and {holder} has it")
            self._hosts.setdefault(name, {})[host] = None
        self._blocks[name] = blocks

    def _swapped(self, event: GangSwapped) -> None:
        if event.name in self._parts:  # on the host that it had
            self._rounded += 1
            return
        blocks = [*self._blocks[event.name]]
        for swap in event.swaps:
            blocks[swap.block] = swap.joined
        before = self._hosts[event.name]
        blocks_before = {*self._blocks[event.name]}
        spares = tuple(h for h in before if h not in blocks_before and h not in blocks)
        self._holds(event.name, blocks, spares)

    def _check_left(self, name: str) -> None:
        for host in self._hosts.pop(name, ()):
            del self._holder[host]
        if (part := self._parts.pop(name, None)) is not None:
            self._rounded += 1
            self._part_hosts -= part.share
            for gpu in part.gpus:
                del self._gpus[part.host][gpu]
            if not self._gpus[part.host]:
                del self._gpus[part.host]
        self._blocks.pop(name, None)

    def _failed(self, host: str) -> None:
        """A spare that fails is held no more; a gang keeps its failed host until it swaps."""
        for sharer in {*self._gpus.get(host, {}).values()}:
            self._attempts[sharer].is_running = False
        name = self._holder.get(host)
        if name is not None and host not in self._blocks[name]:
            del self._holder[host], self._hosts[name][host]
        elif name is not None:
            self._attempts[name].is_running = False

    def _begins(self, event: JobStarted | GangSwapped | GangResized) -> None:
        """An attempt: the first of its job, or the one after the last."""
        before = self._attempts.setdefault(event.name, AttemptLog())
        if event.attempt != before.attempt + 1:
            text = f"attempt {event.attempt} of {event.name} begins after {before.attempt}"
            raise InvariantViolated(text)
        before.begin(event.attempt)

    def _reported(self, event: LaunchEvent, version: int) -> None:
        """A launcher's report of an attempt."""
        known = self._attempts.get(event.name)
        fault = "the job never began, or is over"
        if known is not None:
            fault = known.fault(event)
            if isinstance(event, LaunchFailed | RankFailed):
                if not fault and event.host not in self._blocks[event.name]:
                    fault = f"{event.host} is not one of its hosts"
                known.is_running = False
        elif isinstance(event, CheckpointSaved):
            fault = ""  # what it saved last, written down after its end
        if fault:
            report = f"{type(event).__name__} of attempt {event.attempt} of {event.name}"
            raise InvariantViolated(f"event {version}: {report}: {fault}")

    def check(self, tally: ArrivalCounts, metrics: Metrics) -> None:
        """Check the sums at the end. Raises: InvariantViolated."""
        refused, live = sum(tally.refused.values()), metrics.unfinished
        held_host_ns, (_, hosts) = metrics.spent().hosts.holding, metrics.accounts()
        self._about("held", self._held_host_ns + self._part_host_ns, held_host_ns)
        ran, known = metrics.ran()
        self._about("of attempts that are over", Fraction(ran), known)
        for quantity, counted, expected in (
            ("jobs offered", tally.offered, self._submitted + refused),
            ("jobs admitted", self._submitted, self._ended + live),
            ("jobs counted", metrics.submitted, self._submitted),
            ("host-ns by use", hosts.holding, held_host_ns),
        ):
            if counted != expected:
                raise InvariantViolated(
                    f"{quantity}: {counted:,} on one side, {expected:,} on the other"
                )

    def _about(self, subject: str, counted_ns: Fraction, expected_ns: int) -> None:
        """Check that host times agree but for what accounts of parts of hosts round down: a few ns
        each time that one is counted. Raises: InvariantViolated."""
        slack = 16 * (self._rounded + len(self._parts))
        if abs(counted_ns - expected_ns) > slack:
            text = f"{float(counted_ns):,.0f} on one side, {expected_ns:,} on the other"
            raise InvariantViolated(f"host-ns {subject}: {text}")
