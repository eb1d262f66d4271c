"""Failures by cause, and what the scheduler did about them: a fold over the event log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.core.model.events import (
    Event,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove
from simulator.gangs import AttemptLeft, AttemptStopped, Change

MOST_CAUSES = 30  # the rest are counted together
OTHER = "other causes"


@dataclass(slots=True)
class _Cause:
    failures: int = 0
    stopped_gangs: int = 0
    down_ns: int = 0


class FailureCounts:
    """Failures of hosts by cause: how many, how many stopped a gang, time until repair.

    `answers`: what became of stopped gangs, with the time that they stood still.
    """

    def __init__(self) -> None:
        self.spares_used = 0
        self._causes: dict[str, _Cause] = {}
        self._down: dict[str, tuple[str, int]] = {}  # host: cause, since
        self._answers: Counter[str] = Counter()
        self._stood_ns: Counter[str] = Counter()

    def feed(self, event: Event, changes: Sequence[Change]) -> None:
        """Count one event, after the gangs made these changes of it."""
        match event:
            case HostMoved(move=HostMove.FAIL):
                self._failed(event, changes)
            case HostMoved(move=HostMove.REPAIR):
                self._repaired(event.host, event.time_ns)
            case GangSwapped() | GangResized() | JobRequeued() | JobPreempted() | JobEnded():
                self._answered(event, changes)
            case _:
                pass

    def _failed(self, event: HostMoved, changes: Sequence[Change]) -> None:
        cause = self._cause(event.reason)
        self._causes[cause].failures += 1
        self._causes[cause].stopped_gangs += any(
            isinstance(each, AttemptStopped) for each in changes
        )
        self._down.setdefault(event.host, (cause, event.time_ns))

    def _repaired(self, host: str, now_ns: int) -> None:
        if host in self._down:
            cause, since_ns = self._down.pop(host)
            self._causes[cause].down_ns += now_ns - since_ns

    def _answered(self, event: Event, changes: Sequence[Change]) -> None:
        left = next((each for each in changes if isinstance(each, AttemptLeft)), None)
        if left is None:
            return
        if isinstance(event, GangSwapped):
            joined = {swap.joined for swap in event.swaps}
            used = len(joined & set(left.run.spares))
            self.spares_used += used
            answer = "swapped to a spare" if used else "swapped to a free host"
        else:
            answer = _ANSWERS[type(event)]
        if left.run.stop_ns is not None:
            self._answers[answer] += 1
            self._stood_ns[answer] += event.time_ns - left.run.stop_ns

    def _cause(self, reason: str) -> str:
        """The detail of a report names the cause: `host-down: gpu` is gpu."""
        cause = reason.partition(": ")[2] or reason or "unknown"
        if cause not in self._causes and len(self._causes) >= MOST_CAUSES:
            cause = OTHER
        self._causes.setdefault(cause, _Cause())
        return cause

    def data(self, end_ns: int) -> dict[str, Any]:
        """Causes by count, then by name. Hosts still down count until `end_ns`."""
        still_ns: Counter[str] = Counter()
        for cause, since_ns in self._down.values():
            still_ns[cause] += end_ns - since_ns
        ordered = sorted(self._causes.items(), key=lambda item: (-item[1].failures, item[0]))
        return {
            "causes": [
                {
                    "cause": name,
                    "failures": cause.failures,
                    "stopped_gangs": cause.stopped_gangs,
                    "down_host_s": (cause.down_ns + still_ns[name]) / SECOND_NS,
                }
                for name, cause in ordered
            ],
            "answers": [
                {"answer": name, "gangs": count, "stood_s": self._stood_ns[name] / SECOND_NS}
                for name, count in sorted(self._answers.items())
            ],
            "spares_used": self.spares_used,
        }


_ANSWERS: dict[type, str] = {
    GangResized: "continued with fewer replicas",
    JobRequeued: "requeued",
    JobPreempted: "preempted",
    JobEnded: "ended",
}
