"""The form of a reason: one sentence, and the facts behind it for a program."""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct
from scheduler.core.queue.verdict import WaitReason


class ObstacleKind(StrEnum):
    """Kind of obstacle to a job."""

    RUNNING = "running"  # a job that holds hosts, until `clear_ns`
    AHEAD = "ahead"  # a waiting job that goes first; `clear_ns`: its own start
    LIMIT = "limit"  # a tenant holds `hosts`, and its limit leaves too few
    GUARANTEE = "guarantee"  # of the free hosts, `hosts` are promised to a tenant
    OUT_OF_SERVICE = "out_of_service"  # `hosts` are cordoned, draining or failed
    WINDOW = "window"  # a window closes `hosts` that nobody holds, until `clear_ns`


class Basis(StrEnum):
    """How the end of a running job is known."""

    STATED = "stated"  # by its own time limit
    ASSUMED = "assumed"  # it states none
    OUTRUN = "outrun"  # it has outlasted its limit: a guess


@struct(frozen=True, slots=True)
class Obstacle:
    """One obstacle. `name`: of the job, tenant or window, empty for hosts out of service. `basis`:
    of jobs that run."""

    kind: ObstacleKind
    name: str
    hosts: int
    clear_ns: int | None = None
    basis: Basis | None = None


@struct(frozen=True, slots=True)
class DomainRoom:
    """One outermost domain: hosts that are free in it, and those the job may use."""

    domain: str
    free: int
    usable: int


@struct(frozen=True, slots=True)
class Shrink:
    """The running gang `name` drops replicas and goes on with `dp` of them."""

    name: str
    dp: int


@struct(frozen=True, slots=True)
class Reason:
    """Why `name` waits: one sentence, and the facts behind it.

    `free`: hosts free now; `missing`: how many more than it may use now it needs, for
    want of hosts or of quota. `rooms`: where hosts are free, empty when none is missing.
    `start_ns`: the earliest start from the running jobs' limits, None when unknown.
    `waits_for`: jobs whose ends would make the room, in order, or the one ahead.
    `reserved_in`: outermost domains in which hosts are reserved for it. `obstacles`: all
    that stands in the way. `passes_s`: with a time limit of at most this it would start
    now, ahead of jobs that wait. `preempts`: gangs that it evicts when it starts, with
    the next decision or at `preempt_ns`; `shrinks`: gangs that drop replicas for it.
    """

    name: str
    cause: WaitReason
    sentence: str
    needed: int = 0
    free: int = 0
    start_ns: int | None = None
    waits_for: tuple[str, ...] = ()
    reserved_in: tuple[str, ...] = ()
    missing: int = 0
    rooms: tuple[DomainRoom, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    passes_s: int | None = None
    preempts: tuple[str, ...] = ()
    preempt_ns: int | None = None
    shrinks: tuple[Shrink, ...] = ()
