"""What the virtual clock can hold: plain values, each of which says what is due.

Whoever acts on a kind registers with the kernel. Numbers are priorities:
what happens first when several things happen at one instant. Whatever frees hosts or takes
them away, then what asks for them, then one decision for all of it.
"""

from __future__ import annotations

from muster.structs import struct
from scheduler.core import Plan
from simulator.failures import Outage

END, HEALTH, ARRIVAL, COMMIT, DECIDE = range(5)


@struct(frozen=True, slots=True)
class GangFinished:
    """An attempt of a job has done its work."""

    name: str
    attempt: int


@struct(frozen=True, slots=True)
class JobGivenUp:
    """A job made no progress in an attempt as long as its time limit, and never will."""

    name: str


@struct(frozen=True, slots=True)
class DecideAgain:
    """The last decision asked for another one at once."""


@struct(frozen=True, slots=True)
class HostChanged:
    """A host goes down or up, by the next outage of the stream."""


@struct(frozen=True, slots=True)
class FailureDetected:
    """The scheduler learns of an outage that happened before."""

    outage: Outage


@struct(frozen=True, slots=True)
class JobArrived:
    """The next job of the trace arrives."""


@struct(frozen=True, slots=True)
class TimeLimitReached:
    """The end that was set for the replay is reached."""


@struct(frozen=True, slots=True)
class PlanReady:
    """A decision is ready, after the time that it takes."""

    plan: Plan


@struct(frozen=True, slots=True)
class DecisionDue:
    """A decision is due, for the log has grown since the last one."""
