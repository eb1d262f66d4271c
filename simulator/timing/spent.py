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
        """This and another's time on so many hosts."""
        return AttemptTime(*(getattr(self, name) + getattr(other, name) * hosts for name in PARTS))

    def part(self, gpus: int, of: int) -> AttemptTime:
        """Return the time of so many GPUs of a host, as a share of its own."""
        return AttemptTime(*(getattr(self, name) * gpus // of for name in PARTS))


PARTS = tuple(part.name for part in fields(AttemptTime))


class Timing(Protocol):
    """The questions of the stand-in launcher. Calls come in the order of the log."""

    def expect(self, name: str, run_ns: int, request: Request, hosts: int) -> None:
        """A job of this shape was admitted: so long on so many hosts, undisturbed."""

    def begin(self, run: PlacedGang) -> None:
        """An attempt starts now."""

    def halt(self, name: str, now_ns: int) -> None:
        """Let the job's ranks stand still from now on, whether anybody knows or not."""

    def leave(self, left: AttemptLeft) -> None:
        """An attempt is over."""

    def end_ns(self, name: str, now_ns: int) -> int:
        """When its work will be done if nothing changes."""

    def changed(self) -> Sequence[str]:
        """Running jobs whose `end_ns` is another than when it was last asked for."""

    def forget(self, name: str) -> None:
        """The job is over."""
