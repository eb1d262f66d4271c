"""A log as a tree of all logs that a search meets: each state is folded once, each plan made once.

All is muster's own: admit, decide, commit and apply. An event is an hour after the one before it,
so a backoff between two attempts has always passed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drills.protocol.search import Broken
from placement.fabric import hostset
from scheduler.core import Conflict, Plan, Rejected, SchedulingOptions, State, apply, decide
from scheduler.core.decide import decide_restarts
from scheduler.core.model.events import Event, FabricLoaded, GangSwapped, JobStarted
from scheduler.core.model.lifecycle import JobState
from scheduler.engine.proposal import Answer
from tests.build import fabric_spec

HOUR_NS = 3_600 * 10**9
OPTIONS = SchedulingOptions()


@dataclass(slots=True, eq=False)
class LogNode:
    """A log up to one event. `version`: how many events it has."""

    number: int
    version: int
    state: State
    event: Event | None
    parent: LogNode | None
    next: dict[Event, LogNode] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)

    @property
    def now_ns(self) -> int:
        """The time of the next event."""
        return (self.version + 1) * HOUR_NS

    def begins(self, other: LogNode) -> bool:
        """Return whether the other log begins with this one."""
        while other.version > self.version and other.parent is not None:
            other = other.parent
        return other is self


class LogTree:
    """All logs that begin with a fabric of so many hosts, as a tree."""

    def __init__(self, hosts: int, gpus: int = 1) -> None:
        loaded = FabricLoaded(0, fabric_spec(1, 1, hosts, gpus=gpus))
        first = apply(State.empty(), loaded)
        self.root = LogNode(0, first.version, first, loaded, None)
        self.nodes = [self.root]

    def after(self, node: LogNode, *events: Event) -> LogNode:
        """Return the log with these events added. Raises: Broken for what no log may hold."""
        for event in events:
            if (known := node.next.get(event)) is None:
                check_event(node.state, event)
                try:
                    state = apply(node.state, event)
                except (KeyError, IndexError, ValueError, StopIteration) as error:
                    fault = f"{type(event).__name__} does not follow from the log: {error!r}"
                    raise Broken(fault) from None
                known = LogNode(len(self.nodes), node.version + 1, state, event, node)
                check_state(state)
                self.nodes.append(known)
                node.next[event] = known
            node = known
        return node

    def plan(self, node: LogNode, kind: str = "cycle") -> Plan:
        """Return the plan at a node, of a `cycle` along the queue or of `restarts` alone."""
        if kind not in node.plans:
            make = decide if kind == "cycle" else decide_restarts
            node.plans[kind] = make(node.state, node.now_ns, OPTIONS)
        return node.plans[kind]


def is_answer(answer: Answer) -> bool:
    """Return whether a value is a sequence of events, perhaps empty."""
    return not isinstance(answer, Rejected | Conflict)


def check_event(before: State, event: Event) -> None:
    """Check that a gang begins on as many hosts as it has blocks, all of them free and in service,
    or its own already. Raises: Broken."""
    if not isinstance(event, JobStarted | GangSwapped):
        return
    names = before.built_fabric.index_by_name
    if isinstance(event, JobStarted):
        job = before.jobs.get(event.name)
        if job is None or job.state is not JobState.QUEUED:
            raise Broken(f"{event.name} starts though it does not wait")
        new, own = [names[host] for host in (*event.hosts, *event.spares)], frozenset[int]()
    else:
        job = before.jobs.get(event.name)
        if job is None or job.state not in (JobState.RUNNING, JobState.INTERRUPTED):
            raise Broken(f"{event.name} swaps hosts though it has none")
        new = [names[swap.joined] for swap in event.swaps]
        own = frozenset((*job.hosts, *job.spares))
    holders = holders_of(before)
    for host in new:
        if host in holders and host not in own:
            raise Broken(f"{event.name} begins on host {host}, which {holders[host]} has")
        if hostset.has(before.index.out_of_service, host):
            raise Broken(f"{event.name} begins on host {host}, which is out of service")


def holders_of(state: State) -> dict[int, str]:
    """Return who has which host, by the jobs alone. Raises: Broken where two have one."""
    holders: dict[int, str] = {}
    for job in state.jobs.values():
        for host in (*job.hosts, *job.spares):
            if host in holders:
                raise Broken(f"host {host} is in two gangs: {holders[host]} and {job.name}")
            holders[host] = job.name
    return holders


def check_state(state: State) -> None:
    """Check that no host is in two gangs, every gang is whole, and the index of hosts is right.
    Raises: Broken."""
    holders = holders_of(state)
    if hostset.of(holders) != state.index.held:
        raise Broken("the state says of other hosts than those of gangs that they are held")
    for job in state.jobs.values():
        has_hosts = job.state in (JobState.RUNNING, JobState.INTERRUPTED)
        blocks = state.built_fabric.gpus_per_host
        need = -(-job.request.parallelism.world_size // blocks) if has_hosts else 0
        if len(job.hosts) != need:
            raise Broken(f"{job.name} is {job.state} with {len(job.hosts)} of {need} hosts")
