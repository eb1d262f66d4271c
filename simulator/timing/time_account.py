"""What the time of jobs went to in the simulated world.

The scheduler keeps an account of each job (core/model/records/goodput.py), by a rule, for no gang
reports when it saves or how long it starts. With a time model there is somebody who knows:
what an attempt spent its time on is then the model's word, and who waited, stood still or
stood by is the scheduler's, for that is what it decided. Without one gangs
behave by the rule, and its account is the truth. Pages, tables and totals have this one.
"""

from __future__ import annotations

from dataclasses import fields
from operator import add, attrgetter, sub

from muster.structs import replace, struct
from scheduler.core.model.records.goodput import Parts


@struct(frozen=True, slots=True)
class TimeAccount:
    """Time of a job or an attempt (ns) or of its hosts (host-ns), by what it went to. All of it is
    in one part. `checkpoint`, waiting for writes, and `network`, steps longer than on a network
    without bottlenecks, are nothing where there is no time model. `unsuccessful`: productive time
    of jobs that failed or were cancelled, as in their trace."""

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

    @staticmethod
    def of(account: Parts, known: TimeAccount | None) -> TimeAccount:
        """Return the scheduler's account with the times of ended attempts that are known better.
        What attempts that still run have run counts as productive, as it does there."""
        a, told = account, known or account
        running = a.running - (known.running if known else a.running)
        return TimeAccount(
            told.productive + running,
            told.rework,
            told.detection,
            a.rescheduling,
            told.restart,
            a.queueing,
            known.checkpoint if known else 0,
            known.network if known else 0,
            spare=a.spare,
        )

    def __add__(self, other: TimeAccount) -> TimeAccount:
        return TimeAccount(*map(add, _values(self), _values(other)))

    def __sub__(self, other: TimeAccount) -> TimeAccount:
        return TimeAccount(*map(sub, _values(self), _values(other)))

    def on(self, hosts: int, gpus: int = 0, of: int = 1) -> TimeAccount:
        """Return the time of so many hosts; of `gpus` of a host's `of` GPUs where that is not 0."""
        times = gpus or hosts * of
        return TimeAccount(*(value * times // of for value in _values(self)))

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
