"""How long the ranks of an attempt computed in its last steps, as muster.progress wrote it down.

A rank keeps of each level n the last eight steps that 2^n divides. The agent reads the level whose
steps are some seconds apart, so that no word is long, and agents that read different levels still
have steps in common.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import NamedTuple

from scheduler.agent.ranks.ranklog import read_rank_file

LOOK_S = 10.0  # between two looks
APART_S = 2.0  # of the steps that are sent, at least
_TIME = struct.Struct("=qd")
_LEVELS, _SLOTS = 16, 8
_MOST_S = 1e6


class ComputedStep(NamedTuple):
    """How long the ranks of a host computed in one step. `seconds`: of each rank of the host, 0 for
    a rank that does not report it."""

    step: int
    seconds: tuple[float, ...]


class TimesOfRanks:
    """Reads the step times that ranks write into files. The files stand in the order of the
    ranks."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._newest: int | None = None
        self._looked_s = 0.0
        self._sent = -1

    def look(self, now_s: float) -> list[ComputedStep]:
        """Return the steps that all reporting ranks have finished since the last look; none where
        it is not yet time for one."""
        since_s = now_s - self._looked_s
        if since_s < LOOK_S:
            return []
        self._looked_s = now_s
        by_rank = [_read(path) for path in self._files]
        if not any(by_rank):
            return []
        common = min(max(times[0]) for times in by_rank if times)
        before, self._newest = self._newest, common
        if before is None or common <= before:
            return []
        level = min(
            _LEVELS - 1, max(0, math.ceil(math.log2((common - before) / since_s * APART_S)))
        )
        at_level = [times[level] if times else {} for times in by_rank]
        steps = sorted({s for times in at_level for s in times if self._sent < s <= common})
        self._sent = max(steps, default=self._sent)
        return [ComputedStep(s, tuple(times.get(s, 0.0) for times in at_level)) for s in steps]


def newest_steps(files: list[Path]) -> list[int]:
    """Return the newest step that each of these ranks has computed; 0 for a rank that does not
    report it."""
    levels = map(_read, files)
    return [max(times[0]) if times else 0 for times in levels]


def _read(path: Path) -> list[dict[int, float]]:
    """By level, the seconds of steps; empty where the rank says nothing."""
    data = read_rank_file(path, _LEVELS * _SLOTS * _TIME.size) or b""
    entries = list(_TIME.iter_unpack(data[: len(data) // _TIME.size * _TIME.size]))
    levels = [
        {
            step: seconds
            for step, seconds in entries[level * _SLOTS : (level + 1) * _SLOTS]
            if 0 <= step < 2**62 and 0 < seconds < _MOST_S
        }
        for level in range(_LEVELS)
    ]
    return levels if levels[0] else []
