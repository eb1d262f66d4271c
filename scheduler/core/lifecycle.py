"""The life of a job, of a host and of a window, as tables.

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
    HEALTHY = "healthy"
    CORDONED = "cordoned"  # what runs goes on, nothing new starts
    DRAINING = "draining"  # cordoned, and what runs is moved to a spare or waited for
    FAILED = "failed"


class WindowState(StrEnum):
    PENDING = "pending"  # before its start; jobs that would reach into it stay off its hosts
    OPEN = "open"
    OVER = "over"  # in the log alone


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


class HostMove(StrEnum):
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    EMPTY = "empty"  # the last gang left a draining host
    FAIL = "fail"
    REPAIR = "repair"


class WindowMove(StrEnum):
    SET = "set"  # somebody changes it
    OPEN = "open"
    CLOSE = "close"
    REMOVE = "remove"


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

HOST_MOVES: Final[dict[HostState, dict[HostMove, HostState]]] = {
    HostState.HEALTHY: {
        HostMove.CORDON: HostState.CORDONED,
        HostMove.DRAIN: HostState.DRAINING,
        HostMove.FAIL: HostState.FAILED,
    },
    HostState.CORDONED: {
        HostMove.UNCORDON: HostState.HEALTHY,
        HostMove.DRAIN: HostState.DRAINING,
        HostMove.FAIL: HostState.FAILED,
    },
    HostState.DRAINING: {
        HostMove.UNCORDON: HostState.HEALTHY,
        HostMove.CORDON: HostState.CORDONED,
        HostMove.EMPTY: HostState.CORDONED,
        HostMove.FAIL: HostState.FAILED,
    },
    HostState.FAILED: {
        HostMove.REPAIR: HostState.HEALTHY,
    },
}

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

LIVE: Final = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.INTERRUPTED})


class Effect(StrEnum):
    """What a health signal does to a host."""

    FAIL = "fail"
    REPAIR = "repair"
    NOTE = "note"


# Which signals take a host out of service. The rest are written to the log.
SIGNALS: Final[dict[str, Effect]] = {
    "host-down": Effect.FAIL,
    "gpu-lost": Effect.FAIL,  # fallen off the PCIe bus
    "ecc-uncorrectable": Effect.FAIL,
    "row-remap-failure": Effect.FAIL,
    "nvlink-down": Effect.FAIL,
    "nic-down": Effect.FAIL,
    "stress-test-failed": Effect.FAIL,
    "repaired": Effect.REPAIR,
    "ecc-correctable": Effect.NOTE,
    "link-flap": Effect.NOTE,
    "thermal": Effect.NOTE,
    "straggler": Effect.NOTE,
}

_State = TypeVar("_State", JobState, HostState, WindowState)
_Move = TypeVar("_Move", JobMove, HostMove, WindowMove)


def after(table: dict[_State, dict[_Move, _State]], state: _State, move: _Move) -> _State:
    """The state that `move` leads to.

    Raises: KeyError when the table does not allow it: a bug, for commands are
    checked in admit and plans in commit before they become events.
    """
    return table[state][move]
