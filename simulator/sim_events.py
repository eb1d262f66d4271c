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
    """This attempt of a job has done its work."""

    name: str
    attempt: int


@struct(frozen=True, slots=True)
class JobGivenUp:
    """A job came no further in an attempt as long as its time limit, and never will."""

    name: str


@struct(frozen=True, slots=True)
class DecideAgain:
    """The last decision asked for another one now."""


@struct(frozen=True, slots=True)
class HostChanged:
    """The next outage of the stream, down or up."""


@struct(frozen=True, slots=True)
class FailureDetected:
    """The scheduler hears of an outage that happened before."""

    outage: Outage


@struct(frozen=True, slots=True)
class JobArrived:
    """The next job of the trace."""


@struct(frozen=True, slots=True)
class TimeLimitReached:
    """The end that was set to the replay."""


@struct(frozen=True, slots=True)
class PlanReady:
    """A decision has taken its time."""

    plan: Plan


@struct(frozen=True, slots=True)
class DecisionDue:
    """The log has grown since the last one."""
