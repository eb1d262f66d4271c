"""Failures by cause, and what the scheduler did about them: a fold over effects of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from scheduler.core.fold.attempts import AttemptBegan, AttemptLeft, AttemptStopped, Change
from scheduler.core.fold.effects import (
    EventEffect,
    HostReport,
    HostsChange,
    HostTransition,
    JobChange,
    JobChangeKind,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove, RequeueCause

MOST_CAUSES = 30  # the rest are counted together
OTHER = "other causes"


@dataclass(slots=True)
class _Cause:
    failures: int = 0
    stopped_gangs: int = 0
    down_ns: int = 0


class FailureCounts:
    """Failures of hosts by cause: how many, how many stopped a gang, time until repair.

    `answers`: how stopped gangs went on, with the time that they stood still.
    """

    def __init__(self) -> None:
        self.spares_used = 0
        self._causes: dict[str, _Cause] = {}
        self._down: dict[str, tuple[str, int]] = {}  # host: cause, since
        self._answers: Counter[str] = Counter()
        self._stood_ns: Counter[str] = Counter()

    def feed(self, now_ns: int, done: Iterable[EventEffect], changes: Sequence[Change]) -> None:
        """Count the effects of one event, after the gangs made these changes of them."""
        for effect in done:
            match effect:
                case HostTransition(move=HostMove.FAIL):
                    self._failed(effect, changes, now_ns)
                case HostTransition(move=HostMove.REPAIR):
                    self._repaired(effect.host, now_ns)
                case JobChange():
                    self._answered(effect, changes)
                case HostTransition() | HostReport() | HostsChange():
                    pass
                case _:
                    assert_never(effect)

    def _failed(self, fail: HostTransition, changes: Sequence[Change], now_ns: int) -> None:
        cause = self._cause(fail.detail or fail.signal or "unknown")
        self._causes[cause].failures += 1
        self._causes[cause].stopped_gangs += any(
            isinstance(each, AttemptStopped) for each in changes
        )
        self._down.setdefault(fail.host, (cause, now_ns))

    def _repaired(self, host: str, now_ns: int) -> None:
        if host in self._down:
            cause, since_ns = self._down.pop(host)
            self._causes[cause].down_ns += now_ns - since_ns

    def _answered(self, change: JobChange, changes: Sequence[Change]) -> None:
        left = next((each for each in changes if isinstance(each, AttemptLeft)), None)
        if left is None:
            return
        answer = _ANSWERS[change.kind]
        if change.kind is JobChangeKind.SWAPPED:
            joined = {
                host
                for each in changes
                if isinstance(each, AttemptBegan)
                for host in each.run.hosts
            }
            used = len(joined.intersection(left.run.spares))
            self.spares_used += used
            answer = "swapped to a spare" if used else "swapped to a free host"
        elif change.cause is RequeueCause.PREEMPTED:
            answer = "preempted"
        if left.run.stop_ns is not None:
            self._answers[answer] += 1
            self._stood_ns[answer] += change.time_ns - left.run.stop_ns

    def _cause(self, cause: str) -> str:
        """The name under which it is counted."""
        if cause not in self._causes and len(self._causes) >= MOST_CAUSES:
            cause = OTHER
        self._causes.setdefault(cause, _Cause())
        return cause

    def data(self, end_ns: int) -> dict[str, Any]:
        """Return the causes by count, then by name. Hosts that are still down count until
        `end_ns`."""
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


# Changes by which a gang leaves its hosts, or some of them.
_ANSWERS = {
    JobChangeKind.SWAPPED: "swapped to a free host",
    JobChangeKind.RESIZED: "continued with fewer replicas",
    JobChangeKind.REQUEUED: "requeued",
    JobChangeKind.ENDED: "ended",
}
