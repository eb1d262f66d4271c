"""When a replay is written down, and what."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from scheduler.eventlog import snapshots
from simulator.folds import Folds
from simulator.report import Place
from simulator.run import Replay
from simulator.snapshot.file import write
from simulator.snapshot.resume import SECOND_NS, Record, plain

USUAL_S = 300.0  # between two snapshots


class Stopped(Exception):
    """The replay is written down and goes no further. `signum`: which signal asked for that,
    None: the time has come. `after_s`: the first submit."""

    def __init__(self, after_s: float, signum: int | None) -> None:
        super().__init__(after_s, signum)
        self.after_s = after_s
        self.signum = signum


@dataclass(frozen=True, slots=True)
class When:
    """`every_s`: of real time. `at_h`: hours after the first submit; the replay stops there,
    with all that was due until then done."""

    every_s: float = USUAL_S
    at_h: float | None = None


class Saver:
    """Writes a replay to `path` between two of its steps. `place`: of the files that it grows.

    Cost: 23 us for each live job and each ended one at hand, 0.3 s for each 100 MB of log, and
    30 ms for the pictures' numbers where there is a report; the first one 0.15 s more.
    """

    def __init__(
        self,
        path: Path,
        record: Record,
        place: Place,
        marks: dict[str, str],
        when: When | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._record = record
        self.place = place
        self._marks = marks  # of the code and its fields
        self._when = when or When()
        self._clock = clock
        self._last_s = clock()
        self._signum: int | None = None

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop the replay at its next step; a second one at once."""
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

        def heed(signum: int, _: FrameType | None) -> None:
            self._signum = signum
            for each, handler in before.items():
                signal.signal(each, handler)

        for each in before:
            signal.signal(each, heed)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def look(self, replay: Replay, folds: Folds, seconds: float) -> None:
        """After a step. `seconds`: that the replay has taken. Raises: Stopped, as `save`."""
        if replay.is_over:
            return
        is_stopped = self._signum is not None or self._is_there(replay)
        if is_stopped or self._clock() - self._last_s >= self._when.every_s:
            self.save(replay, folds, seconds)
            self._last_s = self._clock()
        if is_stopped:
            raise Stopped((replay.now_ns - replay.zero_ns) / SECOND_NS, self._signum)

    def _is_there(self, replay: Replay) -> bool:
        if self._when.at_h is None:
            return False
        at_ns = replay.zero_ns + round(self._when.at_h * 3600 * SECOND_NS)
        return replay.next_ns is None or replay.next_ns > at_ns

    def save(self, replay: Replay, folds: Folds, seconds: float) -> None:
        """Raises: InputError or OSError when it cannot be written."""
        kept = {**replay.kept(), **folds.kept()}
        header = {
            **self._marks,
            "after_s": (replay.now_ns - replay.zero_ns) / SECOND_NS,
            "events": folds.metrics.events,
            "seconds": seconds,
            "record": plain(self._record),
        }
        parts = {
            "state": snapshots.encode(replay.state, replay.now_ns),
            "replay": json.dumps(kept).encode(),
            **folds.telling.grown(),
        }
        write(self._path, header, parts)
