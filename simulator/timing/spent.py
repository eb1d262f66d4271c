"""What an attempt's time went into, and what tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Protocol

from muster.structs import struct
from placement.workload.request import Request
from scheduler.core.fold.attempts import AttemptLeft, PlacedGang


@struct(frozen=True, slots=True)
class AttemptTime:
    """The time of one attempt, per host; the parts add up to how long it ran. Units: ns.

    As in scheduler.core.model.records.goodput, with two parts that the scheduler cannot know, and
    counts as productive: `checkpoint`, waiting for writes; `network`, steps longer than on a
    network without bottlenecks.
    """

    productive: int = 0
    rework: int = 0
    detection: int = 0
    restart: int = 0
    checkpoint: int = 0
    network: int = 0

    @property
    def ran(self) -> int:
        return sum(getattr(self, name) for name in PARTS)

    def plus(self, other: AttemptTime, hosts: int = 1) -> AttemptTime:
        """Return the sum of this time and another's on so many hosts."""
        return AttemptTime(*(getattr(self, name) + getattr(other, name) * hosts for name in PARTS))

    def part(self, gpus: int, of: int) -> AttemptTime:
        """Return the share of this time that a job has which takes `gpus` of a host's `of` GPUs."""
        return AttemptTime(*(getattr(self, name) * gpus // of for name in PARTS))


PARTS = tuple(part.name for part in fields(AttemptTime))


class Timing(Protocol):
    """How long attempts take, as the simulated launcher asks. Calls come in the order of the
    log."""

    def expect(self, name: str, run_ns: int, request: Request, hosts: int) -> None:
        """Note an admitted job of this shape, which would run so long on so many hosts if
        undisturbed."""

    def begin(self, run: PlacedGang) -> None:
        """Note that an attempt starts now."""

    def halt(self, name: str, now_ns: int) -> None:
        """Let the job's ranks stand still from now on, whether anybody knows or not."""

    def leave(self, left: AttemptLeft) -> None:
        """Note that an attempt is over."""

    def end_ns(self, name: str, now_ns: int) -> int:
        """Return when the work of an attempt will be done if nothing changes."""

    def changed(self) -> Sequence[str]:
        """Return the running jobs whose `end_ns` has changed since it was last asked for."""

    def forget(self, name: str) -> None:
        """Forget a job that is over."""
