"""What becomes of a queued job in a decision, and what keeps it from starting."""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct
from placement.workload.request import Placement
from scheduler.core.capacity.shrink_options import Victims
from scheduler.core.model.job import Job
from scheduler.core.model.plan import BackfillReservation
from scheduler.core.tenancy.quota_check import Allowance


class WaitReason(StrEnum):
    """The cause that keeps a job from running, in verdicts, explanations and on the wire."""

    NOT_WAITING = "not_waiting"
    DUE = "due"  # nothing does: it starts with the next decision
    LIMIT = "limit"  # its tenant, or one above it, may hold no more
    PROMISES = "promises"  # enough hosts are free, and guaranteed to others
    HOSTS = "hosts"  # too few are free
    WINDOW = "window"  # enough are free, and too few that no window closes to it
    AVOIDS = "avoids"  # enough are free, and too few that did not stop the job recently
    CONSTRAINTS = "constraints"  # enough are free, and too few where the job may lie
    BEHIND = "behind"  # starting would delay an earlier job
    HELD = "held"  # its owner or an operator holds it
    BEGIN = "begin"  # its begin time has not come
    DEPENDENCY = "dependency"  # a job that it depends on has not ended, or ended otherwise
    ARRAY = "array"  # as many tasks of its array run as may
    SEARCH = "search"  # the limits of the search were spent before a placement was found


@struct(frozen=True, slots=True)
class QueueVerdict:
    """Verdict on one queued job. `placement` None: it waits, because of `reason`.

    `behind`: the reservation that it would delay. `free`: hosts that were free when it was
    considered. `passes_ns`: the time by which it would have to end to delay nobody. `evicted`:
    gangs that make room.
    """

    job: Job
    placement: Placement | None
    reason: WaitReason | None
    allowed: Allowance
    free: int
    behind: BackfillReservation | None = None
    passes_ns: int | None = None
    evicted: Victims = ()
