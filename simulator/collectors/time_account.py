"""What the time of jobs went to in the simulated world.

The scheduler keeps an account of each job (core/model/records/goodput.py), by a rule, for no gang
reports when it saves or how long it starts. With a time model there is somebody who knows:
what an attempt spent its time on is then the model's word, and who waited, stood still or
stood by is the scheduler's, for that is what it decided. Without one gangs
behave by the rule, and its account is the truth. Pages, tables and totals have this one.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Protocol

from muster.structs import replace, struct
from scheduler.core.model.records.goodput import Parts
from simulator.timing import AttemptTime


@struct(frozen=True, slots=True)
class TimeAccount:
    """Time of a job (ns) or of its hosts (host-ns), by what it went to. All of it is in one
    part; `checkpoint` and `network` are nothing where there is no time model. `unsuccessful`:
    productive time of jobs that failed or were cancelled, as in their trace."""

    productive: int = 0
    rework: int = 0
    detection: int = 0
    rescheduling: int = 0
    restart: int = 0
    queueing: int = 0
    checkpoint: int = 0
    network: int = 0
    unsuccessful: int = 0
    spare: int = 0

    def __add__(self, other: TimeAccount) -> TimeAccount:
        return TimeAccount(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))

    def __sub__(self, other: TimeAccount) -> TimeAccount:
        return TimeAccount(*(a - b for a, b in zip(_values(self), _values(other), strict=True)))

    @property
    def running(self) -> int:
        """Time in which ranks ran."""
        ran = self.productive + self.rework + self.detection + self.restart
        return ran + self.checkpoint + self.network + self.unsuccessful

    def in_vain(self, productive: int) -> TimeAccount:
        """Return the account when so much of the productive time was in vain."""
        return replace(
            self,
            productive=self.productive - productive,
            unsuccessful=self.unsuccessful + productive,
        )

    @property
    def holding(self) -> int:
        return self.running + self.rescheduling + self.spare

    @property
    def total(self) -> int:
        return self.holding + self.queueing

    @property
    def share(self) -> float:
        """The productive share of the time held; 0 before any time."""
        return self.productive / self.holding if self.holding else 0.0


PARTS = tuple(field.name for field in fields(TimeAccount))
_values = attrgetter(*PARTS)
EMPTY = TimeAccount()


class AttemptTimes(Protocol):
    """Source of the times that ended attempts spent."""

    def spent(self, name: str) -> tuple[AttemptTime, AttemptTime]: ...

    def spent_in_all(self) -> tuple[AttemptTime, AttemptTime]: ...


def settled(account: Parts, spent: AttemptTime | None) -> TimeAccount:
    """Return the scheduler's `account` with the times that are known better. What attempts that
    still run have run counts as productive, as it does there."""
    if spent is None:
        return TimeAccount(
            account.productive,
            account.rework,
            account.detection,
            account.rescheduling,
            account.restart,
            account.queueing,
            spare=account.spare,
        )
    return TimeAccount(
        spent.productive + account.running - spent.ran,
        spent.rework,
        spent.detection,
        account.rescheduling,
        spent.restart,
        account.queueing,
        spent.checkpoint,
        spent.network,
        spare=account.spare,
    )
