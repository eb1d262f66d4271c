"""What decide proposes, on one version of the state, and why an action no longer holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import assert_never, overload

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.workload.request import Placement, TierCut
from scheduler.core.model.job import JobSpec
from scheduler.core.model.lifecycle import RequeueCause
from scheduler.core.model.restart_option import WeighedOptions
from scheduler.core.model.window import Shares


@struct(frozen=True, slots=True)
class Resize:
    """Run the gang with `dp` replicas on these hosts. `left`: those it lies on until then,
    in block order. `end_ns`: when it is taken to end. `spec`, `request_id`: of its owner's request,
    what its file says from here on."""

    name: str
    dp: int
    left: tuple[int, ...]
    placement: Placement
    reason: str
    end_ns: int = 0
    restart_options: WeighedOptions = ()
    spec: JobSpec | None = None
    request_id: str = ""


@struct(frozen=True, slots=True)
class Start:
    """Start a queued gang on these hosts.

    `victims`: running gangs to evict for it, in this order; `shrinks`: gangs that drop
    replicas for it. `is_counted`: without any of them there were too few hosts, which commit
    counts again. `end_ns`: when it is taken to end. `lenders`: jobs whose idle spares it borrows.
    `gpu_watts`: that each of its GPUs is held to, 0: to none.
    """

    name: str
    placement: Placement
    victims: tuple[str, ...] = ()
    shrinks: tuple[Resize, ...] = ()
    is_counted: bool = False
    end_ns: int = 0
    lenders: tuple[str, ...] = ()
    gpu_watts: int = 0


@struct(frozen=True, slots=True)
class Move:
    """Move block `block` from host `left` to host `joined` (fabric indices)."""

    block: int
    left: int
    joined: int


@struct(frozen=True, slots=True)
class Recall:
    """A gang leaves spares that it borrowed: by `resize` without some replicas, or by waiting
    in the queue, with `reason`."""

    name: str
    reason: str
    resize: Resize | None = None


@struct(frozen=True, slots=True)
class Swap:
    """Replace some hosts of a gang; every other rank stays.

    `is_requested`: an operator wants it, although every host is healthy. `end_ns`: when the
    new attempt is taken to end. `victims`, `shrinks`, `is_counted`: as of a start. `lenders`: jobs
    whose spares join. `restart_options`: what was weighed. `recalls`: who gives spares back first.
    """

    name: str
    moves: tuple[Move, ...]
    cuts: tuple[TierCut, ...]
    is_requested: bool = False
    end_ns: int = 0
    victims: tuple[str, ...] = ()
    shrinks: tuple[Resize, ...] = ()
    is_counted: bool = False
    lenders: tuple[str, ...] = ()
    restart_options: WeighedOptions = ()
    recalls: tuple[Recall, ...] = ()


@struct(frozen=True, slots=True)
class Defragment:
    """Defragment: all of these swaps or none. `sentence` says what is gained, or why there
    are none. `goal`, `request_id`: of an operator's request; empty: by policy."""

    swaps: tuple[Swap, ...]
    sentence: str
    goal: str = ""
    request_id: str = ""


@struct(frozen=True, slots=True)
class Requeue:
    """Give up the hosts of a gang, interrupted or in the way of an open window, and wait
    in the queue."""

    name: str
    reason: str
    cause: RequeueCause
    restart_options: WeighedOptions = ()


@struct(frozen=True, slots=True)
class GiveUp:
    """End a job that failed again and again; it is not started any more."""

    name: str
    reason: str


@struct(frozen=True, slots=True)
class EnforceTimeLimit:
    """Stop a gang that has run as long as its owner stated: it waits again, or has failed."""

    name: str
    is_requeued: bool


@struct(frozen=True, slots=True)
class ReplenishSpares:
    """Hold these spares from here on, `joined` of them free hosts until now."""

    name: str
    spares: tuple[int, ...]
    joined: HostSet
    reason: str
    end_ns: int = 0


@struct(frozen=True, slots=True)
class Reserve:
    """Waiting jobs and when they start at the latest (policy *conservative*). `shares`: on
    how many hosts of which kind, where windows tell hosts apart."""

    starts: tuple[tuple[str, int], ...]
    shares: tuple[tuple[str, Shares], ...] = ()


@struct(frozen=True, slots=True)
class WindowTransition:
    """Open or close a window whose time has come. `edge_ns`: the time of that edge."""

    name: str
    edge_ns: int


@struct(frozen=True, slots=True)
class EndDeferral:
    """The time of a deferred job has come: it is considered, or cancelled when it can never
    start."""

    name: str


@struct(frozen=True, slots=True)
class ReplaceReservedHosts:
    """Replace hosts `left`, which are out, by `joined` in a reservation by count."""

    name: str
    left: HostSet
    joined: HostSet


@struct(frozen=True, slots=True)
class EvaluateHosts:
    """Evaluate all hosts by the health policy, which may move some, as was due at `due_ns`."""

    due_ns: int


Action = (
    Start
    | Swap
    | Defragment
    | Resize
    | Requeue
    | GiveUp
    | EnforceTimeLimit
    | ReplenishSpares
    | Reserve
    | WindowTransition
    | EndDeferral
    | ReplaceReservedHosts
    | EvaluateHosts
)


def taken(action: Action) -> HostSet:
    """Return the hosts that an action needs; a resize needs its own hosts as well."""
    match action:
        case Start() | Resize():
            return action.placement.allocation
        case Swap():
            return hostset.of(move.joined for move in action.moves)
        case ReplenishSpares():
            return action.joined
        case (
            Defragment()
            | Requeue()
            | GiveUp()
            | EnforceTimeLimit()
            | Reserve()
            | WindowTransition()
            | EndDeferral()
            | ReplaceReservedHosts()
            | EvaluateHosts()
        ):
            return 0
    assert_never(action)


@struct(frozen=True, slots=True)
class BackfillReservation:
    """A waiting job starts by `start_ns`, when the gangs before it have ended.

    `hosts`: where, as far as can be foreseen; kept free of longer jobs while others do.
    `extra`: hosts that longer jobs may take all the same. `lendable`: how many of these
    may be borrowed, None for all of them. `kept`: hosts that longer jobs may not take,
    because the job's constraints leave it no other place. `among`: the hosts that `extra`
    counts, None for all: hosts that windows or gangs close to it then count for nothing.
    `draws_on`: tenants whose promises cover it; `own`: hosts that longer jobs of these may take, so
    that these promises or what may be borrowed still cover it. `limits`: of each tenant whose limit
    is for it too, how many hosts any jobs may take now, and longer ones. `repairs`: how many hosts
    that are under repair it counts on.
    """

    name: str
    start_ns: int
    hosts: HostSet = 0
    extra: int = 0
    lendable: int | None = None
    kept: HostSet = 0
    among: HostSet | None = None
    draws_on: tuple[str, ...] = ()
    own: int = 0
    limits: tuple[tuple[str, int, int], ...] = ()
    repairs: int = 0


class LazyReservations(Sequence[BackfillReservation]):
    """Reservations that are computed when somebody reads them, for most plans are carried out
    without them.

    Equal to any sequence of the same ones; a copy for another process is a tuple.
    """

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[], tuple[BackfillReservation, ...]]) -> None:
        self._find = find

    @overload
    def __getitem__(self, at: int) -> BackfillReservation: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[BackfillReservation, ...]: ...

    def __getitem__(self, at: int | slice) -> BackfillReservation | tuple[BackfillReservation, ...]:
        return self._find()[at]

    def __len__(self) -> int:
        return len(self._find())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LazyReservations | tuple) and self._find() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._find())

    def __repr__(self) -> str:
        return repr(self._find())

    def __reduce__(self) -> tuple[type, tuple[tuple[BackfillReservation, ...]]]:
        return tuple, (self._find(),)


@struct(frozen=True, slots=True)
class Plan:
    """Proposal of one decision. Each action stands alone: a gang commits whole or not at all.

    `next_decision_ns`: a decision is due then even if no event comes before.
    `reservations` say for what the starts left room; no action belongs to them. `is_fixpoint`:
    once all actions are done, another decision finds nothing until an event comes.
    """

    version: int
    actions: tuple[Action, ...] = ()
    reservations: Sequence[BackfillReservation] = ()
    next_decision_ns: int | None = None
    is_fixpoint: bool = False

    def leaves_nothing(self, before: int, after: int) -> bool:
        """Return whether nothing is left to decide at version `after`, if the plan was committed at
        version `before` and nothing else has happened since."""
        is_whole = self.version == before and after == before + len(self.actions)
        return after == self.version or (self.is_fixpoint and is_whole)


class StaleReason(StrEnum):
    """Change since the plan was made, for a program that switches on it."""

    JOB = "job"  # the job is in another state, runs elsewhere, or is not there
    HOSTS = "hosts"  # hosts are taken, failed or moved, or the placement does not fit them
    QUOTA = "quota"  # a limit is reached, or the hosts are guaranteed to others
    VICTIM = "victim"  # a gang may not be preempted any more, or need not be
    NEEDLESS = "needless"  # a running gang need not leave its hosts any more
    AFFINITY = "affinity"  # a host is closed by exclusive or avoid
    AVOIDED = "avoided"  # a host stopped this job recently
    WINDOW = "window"  # a window closes a host, or is another one now
    LOAN = "loan"  # spares on loan are not as they were
    FABRIC = "fabric"  # the fabric is another, which numbers hosts differently
    STEP = "step"  # a step is not as long as the placement says
    HEALTH = "health"  # something was reported about the hosts


@struct(frozen=True, slots=True)
class Stale:
    """One action that no longer holds: a value, for a plan is made on an older state.

    `detail`: the sentence about it.
    """

    reason: StaleReason
    detail: str


def stale_job(name: str, reason: StaleReason, detail: str) -> Stale:
    """Return that an action no longer holds, with the detail `job NAME: WHAT`."""
    return Stale(reason, f"job {name}: {detail}")
