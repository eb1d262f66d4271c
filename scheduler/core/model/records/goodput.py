"""What the time of a job went to: a fold over events, kept with each job.

`apply` calls `counted` for every event that changes a job, so the service, its snapshots
and replays have one and the same account. All of a job's time is in one part:

    queueing       it waits for hosts, at first or again
    restart        a later attempt begins: processes, communicators, loading, warm-up
    productive     steps that no later attempt repeats
    rework         steps that were lost, for they came after the last checkpoint
    detection      a host has failed and nobody knows
    rescheduling   that is known, and the gang stands still until it is decided what to do
    spare          of host time only: hosts held beside the gang

When checkpoints are written and for how long a gang starts is not reported: costs.py
has the rule. Integers throughout, so that parts add up exactly.
"""

from __future__ import annotations

from operator import add, attrgetter, sub

from msgspec import Struct


class Parts(Struct, frozen=True):
    """Time by what it went to, of a job (ns) or of its hosts (host-ns)."""

    productive: int = 0
    rework: int = 0
    detection: int = 0
    rescheduling: int = 0
    restart: int = 0
    queueing: int = 0
    spare: int = 0

    def __add__(self, other: Parts) -> Parts:
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        return Parts(*map(add, _values(self), _values(other)))

    def __sub__(self, other: Parts) -> Parts:
        return Parts(*map(sub, _values(self), _values(other)))

    def times(self, hosts: int) -> Parts:
        if self is NOTHING:
            return self
        return Parts(*[value * hosts for value in _values(self)])

    @property
    def total(self) -> int:
        return self.holding + self.queueing

    @property
    def holding(self) -> int:
        """Return the time while hosts were held, also by spares and stopped gangs."""
        return self.running + self.rescheduling + self.spare

    @property
    def running(self) -> int:
        """Time while ranks ran."""
        return self.productive + self.rework + self.detection + self.restart


PARTS = Parts.__struct_fields__
_values = attrgetter(*PARTS)
NOTHING = Parts()


class Goodput(Struct, frozen=True):
    """A job's account up to `counted_ns`. `ran_ns`: of the present attempt, which is shared
    out when it ends: only then is it known what of it was lost."""

    counted_ns: int = 0
    ran_ns: int = 0
    time: Parts = NOTHING
    hosts: Parts = NOTHING

    @property
    def ettr(self) -> float:
        """Effective training time ratio: productive time / (held + queued time). Source:
        Kokolis et al., HPCA 2025. 0 before any time has passed."""
        return self.time.productive / self.time.total if self.time.total else 0.0

    @property
    def share(self) -> float:
        """Productive host time / held host time; 0 before hosts were held."""
        return self.hosts.productive / self.hosts.holding if self.hosts.holding else 0.0


UNCOUNTED = Goodput()
