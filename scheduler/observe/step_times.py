"""Times that ranks took in steps: what agents heard of them, or a CSV file with a header.

step,rank,seconds              step,ranks,seconds,kind
1,0,0.412                      1,0-7,0.031,allreduce
1,1,0.415                      1,0 8 16 24,0.112,dp
"""

from __future__ import annotations

import csv
import io
import math
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from scheduler.files import yaml12
from scheduler.files.errors import InputError, Problem, short
from scheduler.observe.stragglers import Measurement

if TYPE_CHECKING:
    from placement.workload.parallelism import Parallelism

MOST_BYTES = 1 << 30
_PART = re.compile(r"(\d{1,8})(?:-(\d{1,8}))?", re.ASCII)
_COLUMNS = ("step", "rank", "ranks", "seconds", "kind")


def load_times(path: str) -> list[Measurement]:
    """Read step times of ranks from a file; `-` is stdin. Raises: InputError naming line and
    column."""
    text = sys.stdin.read() if path == "-" else yaml12.read_text(path, MOST_BYTES)
    source = "stdin" if path == "-" else path
    rows = csv.reader(io.StringIO(text))
    head = [cell.strip() for cell in next(rows, [])]
    of_ranks = "ranks" if "ranks" in head else "rank"
    for name in ("step", of_ranks, "seconds"):
        if name not in head:
            reason = f"is not a column of the header; columns are {', '.join(_COLUMNS)}"
            raise InputError(Problem(name, reason, source, 1))
    places = [head.index(name) if name in head else -1 for name in ("step", of_ranks, "seconds")]
    kind = head.index("kind") if "kind" in head else -1
    made = []
    for number, row in enumerate(rows, 2):
        if not any(cell.strip() for cell in row):
            continue
        step, ranks, seconds, operation = (
            row[at].strip() if 0 <= at < len(row) else "" for at in (*places, kind)
        )
        try:
            made.append(Measurement(_step(step), _ranks(ranks), _seconds(seconds), operation))
        except _Wrong as error:
            column = error.column if error.column != "rank" else of_ranks
            raise InputError(Problem(column, str(error), source, number)) from None
    if not made:
        raise InputError(Problem("", "holds no time", source))
    return made


def of_stages(
    worlds: Iterable[tuple[str, Parallelism]], steps: Iterable[tuple[int, Sequence[float]]]
) -> list[Measurement]:
    """Return the compute time of each rank in some steps, leaving out ranks that report none.
    Pipeline stages, and roles, are kinds of their own, for their work may differ. `worlds`: each
    role by its name in the order of its ranks; "" of a gang that names none."""
    kinds = [kind for role, axes in worlds for kind in _kinds(role, axes)]
    return [
        Measurement(step, (rank,), seconds, kind)
        for step, of_ranks in steps
        for rank, (seconds, kind) in enumerate(zip(of_ranks, kinds, strict=False))
        if seconds > 0
    ]


def _kinds(role: str, axes: Parallelism) -> list[str]:
    """Return the kind of the work of each rank."""
    stride, compute = axes.stride("pp"), f"{role}.compute" if role else "compute"
    of_stage = [f"{compute}-{stage}" if axes.pp > 1 else compute for stage in range(axes.pp)]
    return [of_stage[rank // stride % axes.pp] for rank in range(axes.world_size)]


class _Wrong(ValueError):
    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def _step(text: str) -> int:
    if not re.fullmatch(r"\d{1,15}", text, re.ASCII):
        raise _Wrong("step", f"must be a whole number, not {short(text)}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise _Wrong("seconds", f"must be seconds above 0, not {short(text)}")
    return value


def _ranks(text: str) -> tuple[int, ...]:
    ranks: set[int] = set()
    for part in text.replace(",", " ").split() or [""]:
        match = _PART.fullmatch(part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise _Wrong("rank", f"must be ranks, as 3, 0-7 or 0 8 16, not {short(text)}")
        ranks.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(ranks))
