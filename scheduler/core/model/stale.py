"""Why an action of a plan no longer holds: a value, for a plan is made on an older state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StaleReason(StrEnum):
    """What changed since the plan was made, for a program that switches on it."""

    JOB = "job"  # the job is in another state, runs elsewhere, or is not there
    HOSTS = "hosts"  # hosts are taken, failed or moved, or the placement does not fit them
    QUOTA = "quota"  # a limit is reached, or the hosts are guaranteed to others
    VICTIM = "victim"  # a gang may not be preempted any more, or need not be
    NEEDLESS = "needless"  # a running gang need not leave its hosts any more
    AFFINITY = "affinity"  # a host is closed by exclusive or avoid
    AVOIDED = "avoided"  # a host stopped this job of late
    WINDOW = "window"  # a window closes a host, or is another one now
    LOAN = "loan"  # spares on loan are not as they were
    HEALTH = "health"  # something was reported about the hosts


@dataclass(frozen=True, slots=True)
class Stale:
    """One action that no longer holds. `detail`: the sentence about it."""

    reason: StaleReason
    detail: str


def stale_job(name: str, reason: StaleReason, what: str) -> Stale:
    """`job NAME: WHAT`."""
    return Stale(reason, f"job {name}: {what}")
