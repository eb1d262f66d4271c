"""The life of a job, of a host, of a window and of a link, as tables.

Whatever moves one of them from one state to another is in this file; the
diagrams in docs/lifecycle.md are drawn from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # a host of the gang failed; a decision is due
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class HostState(StrEnum):
    NEW = "new"  # put in, never tested
    BURN_IN = "burn_in"  # its stress tests run
    HEALTHY = "healthy"
    GOLDEN = "golden"  # passed its stress tests, and nothing has happened for long
    SUSPECT = "suspect"  # something counts against it
    RETIRING = "retiring"  # what runs leaves at its next checkpoint, then it goes to repair
    CORDONED = "cordoned"  # what runs goes on, nothing new starts
    DRAINING = "draining"  # cordoned, and what runs is moved to a spare or waited for
    FAILED = "failed"
    IN_REPAIR = "in_repair"
    RMA = "rma"  # goes back to its maker
    UNKNOWN = "unknown"  # shown of one whose agent has not come in yet; the log has it as failed


class WindowState(StrEnum):
    PENDING = "pending"  # before its start; jobs that would reach into it stay off its hosts
    OPEN = "open"
    OVER = "over"  # in the log alone


class LinkUse(StrEnum):
    """Permission to cross the uplink of a domain; its bandwidth is another matter."""

    OPEN = "open"
    CORDONED = "cordoned"  # gangs that cross it go on, no other begins to
    DRAINING = "draining"  # cordoned, and gangs that cross it are moved or waited for


class JobMove(StrEnum):
    START = "start"
    INTERRUPT = "interrupt"
    SWAP = "swap"
    RESIZE = "resize"
    REQUEUE = "requeue"
    PREEMPT = "preempt"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


class Hold(StrEnum):
    """Holder of a job that is not considered, who may also release it."""

    OWNER = "owner"
    OPERATOR = "operator"  # whoever belongs to a tenant cannot release it


class RequeueCause(StrEnum):
    """Cause for which a gang that ran waits again."""

    FAILURE = "failure"  # a failure stopped it, and it has no hosts to go on with
    MAINTENANCE = "maintenance"  # a window opened that it could not stay for
    PREEMPTED = "preempted"
    TIME_LIMIT = "time_limit"  # it ran as long as it might, and goes on from its checkpoint
    REQUESTED = "requested"  # somebody asked for it


class HostMove(StrEnum):
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    EMPTY = "empty"  # the last gang left a draining or retiring host
    FAIL = "fail"
    REPAIR = "repair"
    SUSPECT = "suspect"
    RETIRE = "retire"
    CLEAR = "clear"  # a suspect that was quiet for long
    TEST = "test"
    PASS = "pass"
    START_REPAIR = "start_repair"  # somebody repairs it
    PROMOTE = "promote"
    DEMOTE = "demote"  # something counts against a golden host
    RETURN = "return"
    INSTALL = "install"  # another machine stands there


class Mover(StrEnum):
    """Who or what moved a host: an operator, a report or a policy."""

    OPERATOR = "operator"
    SIGNAL = "signal"
    POLICY = "policy"


class Allows(StrEnum):
    """Gangs that may begin on a host; those that run there are another matter."""

    LARGE_FIRST = "any, large gangs first"
    ANY = "any"
    PREEMPTIBLE = "preemptible only"
    NOTHING = "none"


class WindowMove(StrEnum):
    SET = "set"  # somebody changes it
    OPEN = "open"
    CLOSE = "close"
    REMOVE = "remove"


class LinkMove(StrEnum):
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"


JOB_MOVES: Final[dict[JobState, dict[JobMove, JobState]]] = {
    JobState.QUEUED: {
        JobMove.START: JobState.RUNNING,
        JobMove.CANCEL: JobState.CANCELLED,
    },
    JobState.RUNNING: {
        JobMove.INTERRUPT: JobState.INTERRUPTED,
        JobMove.SWAP: JobState.RUNNING,  # a draining host is left before it fails
        JobMove.PREEMPT: JobState.QUEUED,
        JobMove.REQUEUE: JobState.QUEUED,  # a window opened that it may not outlast
        JobMove.RESIZE: JobState.RUNNING,  # replicas join when there is room
        JobMove.COMPLETE: JobState.COMPLETED,
        JobMove.FAIL: JobState.FAILED,
        JobMove.CANCEL: JobState.CANCELLED,
    },
    JobState.INTERRUPTED: {
        JobMove.INTERRUPT: JobState.INTERRUPTED,  # a second host fails before the decision
        JobMove.SWAP: JobState.RUNNING,
        JobMove.RESIZE: JobState.RUNNING,  # replicas are dropped with the host that failed
        JobMove.REQUEUE: JobState.QUEUED,
        JobMove.COMPLETE: JobState.COMPLETED,  # it had just ended when the host died
        JobMove.FAIL: JobState.FAILED,
        JobMove.CANCEL: JobState.CANCELLED,
    },
    JobState.COMPLETED: {},
    JobState.FAILED: {},
    JobState.CANCELLED: {},
}

_SERVING: Final = {
    HostMove.CORDON: HostState.CORDONED,
    HostMove.DRAIN: HostState.DRAINING,
    HostMove.FAIL: HostState.FAILED,
    HostMove.RETIRE: HostState.RETIRING,
    HostMove.INSTALL: HostState.NEW,
}
_BROKEN: Final = {
    HostMove.REPAIR: HostState.HEALTHY,
    HostMove.TEST: HostState.BURN_IN,
    HostMove.RETURN: HostState.RMA,
    HostMove.INSTALL: HostState.NEW,
}
HOST_MOVES: Final[dict[HostState, dict[HostMove, HostState]]] = {
    HostState.NEW: {
        HostMove.TEST: HostState.BURN_IN,
        HostMove.PASS: HostState.HEALTHY,
        HostMove.UNCORDON: HostState.HEALTHY,
        HostMove.FAIL: HostState.FAILED,
    },
    HostState.BURN_IN: {
        HostMove.PASS: HostState.HEALTHY,
        HostMove.UNCORDON: HostState.HEALTHY,
        HostMove.FAIL: HostState.FAILED,
    },
    HostState.HEALTHY: {
        HostMove.PROMOTE: HostState.GOLDEN,
        HostMove.SUSPECT: HostState.SUSPECT,
        **_SERVING,
    },
    HostState.GOLDEN: {
        HostMove.DEMOTE: HostState.HEALTHY,
        HostMove.SUSPECT: HostState.SUSPECT,
        **_SERVING,
    },
    HostState.SUSPECT: {
        HostMove.CLEAR: HostState.HEALTHY,
        HostMove.PASS: HostState.HEALTHY,
        HostMove.UNCORDON: HostState.HEALTHY,
        **_SERVING,
    },
    HostState.RETIRING: {
        HostMove.EMPTY: HostState.IN_REPAIR,
        HostMove.UNCORDON: HostState.HEALTHY,
        HostMove.CORDON: HostState.CORDONED,
        HostMove.DRAIN: HostState.DRAINING,
        HostMove.FAIL: HostState.FAILED,
    },
    HostState.CORDONED: {
        HostMove.UNCORDON: HostState.HEALTHY,
        HostMove.DRAIN: HostState.DRAINING,
        HostMove.FAIL: HostState.FAILED,
        HostMove.RETIRE: HostState.RETIRING,
        HostMove.START_REPAIR: HostState.IN_REPAIR,
        HostMove.INSTALL: HostState.NEW,
    },
    HostState.DRAINING: {
        HostMove.UNCORDON: HostState.HEALTHY,
        HostMove.CORDON: HostState.CORDONED,
        HostMove.EMPTY: HostState.CORDONED,
        HostMove.FAIL: HostState.FAILED,
    },
    HostState.FAILED: {**_BROKEN, HostMove.START_REPAIR: HostState.IN_REPAIR},
    HostState.IN_REPAIR: {**_BROKEN},
    HostState.RMA: {HostMove.INSTALL: HostState.NEW},
}

MOVERS: Final[dict[HostMove, tuple[Mover, ...]]] = {
    HostMove.CORDON: (Mover.OPERATOR,),
    HostMove.UNCORDON: (Mover.OPERATOR,),
    HostMove.DRAIN: (Mover.OPERATOR,),
    HostMove.EMPTY: (Mover.POLICY,),
    HostMove.FAIL: (Mover.SIGNAL,),
    HostMove.REPAIR: (Mover.SIGNAL,),
    HostMove.SUSPECT: (Mover.SIGNAL,),
    HostMove.RETIRE: (Mover.SIGNAL, Mover.POLICY),
    HostMove.CLEAR: (Mover.POLICY,),
    HostMove.TEST: (Mover.SIGNAL,),
    HostMove.PASS: (Mover.SIGNAL,),
    HostMove.START_REPAIR: (Mover.SIGNAL,),
    HostMove.PROMOTE: (Mover.POLICY,),
    HostMove.DEMOTE: (Mover.SIGNAL,),
    HostMove.RETURN: (Mover.SIGNAL, Mover.POLICY),
    HostMove.INSTALL: (Mover.SIGNAL,),
}

ALLOWS: Final[dict[HostState, Allows]] = {
    **dict.fromkeys(HostState, Allows.NOTHING),
    HostState.HEALTHY: Allows.ANY,
    HostState.GOLDEN: Allows.LARGE_FIRST,
    HostState.SUSPECT: Allows.PREEMPTIBLE,
}
RUNS: Final = frozenset(
    {
        *(HostState.HEALTHY, HostState.GOLDEN, HostState.SUSPECT),
        *(HostState.CORDONED, HostState.DRAINING, HostState.RETIRING),
    }
)
"""What runs on a host in one of these goes on; in any other it is stopped."""
IN_SERVICE: Final = frozenset(s for s, allows in ALLOWS.items() if allows is not Allows.NOTHING)

WINDOW_MOVES: Final[dict[WindowState, dict[WindowMove, WindowState]]] = {
    WindowState.PENDING: {
        WindowMove.SET: WindowState.PENDING,
        WindowMove.OPEN: WindowState.OPEN,
        WindowMove.CLOSE: WindowState.OVER,  # it passed while nobody decided
        WindowMove.REMOVE: WindowState.OVER,
    },
    WindowState.OPEN: {
        WindowMove.SET: WindowState.OPEN,
        WindowMove.CLOSE: WindowState.OVER,
        WindowMove.REMOVE: WindowState.OVER,
    },
    WindowState.OVER: {},
}

LINK_MOVES: Final[dict[LinkUse, dict[LinkMove, LinkUse]]] = {
    LinkUse.OPEN: {
        LinkMove.CORDON: LinkUse.CORDONED,
        LinkMove.DRAIN: LinkUse.DRAINING,
    },
    LinkUse.CORDONED: {
        LinkMove.UNCORDON: LinkUse.OPEN,
        LinkMove.DRAIN: LinkUse.DRAINING,
    },
    LinkUse.DRAINING: {
        LinkMove.UNCORDON: LinkUse.OPEN,
        LinkMove.CORDON: LinkUse.CORDONED,
    },
}

LIVE: Final = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.INTERRUPTED})
HOLDING: Final = frozenset({JobState.RUNNING, JobState.INTERRUPTED})  # hosts are theirs


_State = TypeVar("_State", JobState, HostState, WindowState, LinkUse)
_Move = TypeVar("_Move", JobMove, HostMove, WindowMove, LinkMove)


def after(table: dict[_State, dict[_Move, _State]], state: _State, move: _Move) -> _State:
    """Return the state that `move` leads to.

    Raises: KeyError when the table does not allow it: a bug, for commands are checked in admit and
    plans in commit before they become events.
    """
    return table[state][move]
