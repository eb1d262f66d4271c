"""Job arrays: one submission that makes many jobs, its tasks, of which so many run at a time.

A task is an ordinary job, `sweep-3` of the array `sweep`. Those beyond the most that may run wait
outside the queue until another one ends (`State.arrays`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct

from placement import BadInput
from scheduler.core.names import short_name

MOST_TASKS: Final = 1_000  # of one array
MOST_BYTES: Final = 8_000_000  # of its submission in the log, which others wait for: half a second
_TASKS: Final = UUID("5f0c8a1e-9d3b-4e57-8f0a-2b6c7d1e4a93")  # uids of tasks
_LARGEST: Final = 999_999  # number of a task
_PART: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_SHAPE: Final = "numbers of tasks, as 0-15, 1,3,7 or 0-15:4, and %4 for at most four at a time"


class JobArray(Struct, frozen=True):
    """An array of jobs, or the place of a task in it. `tasks`: their numbers, as Slurm writes them.
    `most_running`: at a time, 0 = all. Of a task: `name` and `uid` of the array, and its own number
    `task`; None: of a specification that is submitted."""

    tasks: str
    most_running: int = 0
    name: str = ""
    uid: str = ""
    task: int | None = None

    @property
    def text(self) -> str:
        """Text of the array in a job file."""
        return f"{self.tasks}%{self.most_running}" if self.most_running else self.tasks

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of all tasks, ascending."""
        return tuple(sorted(_numbers(self.tasks)))

    def task_uid(self, task: int) -> str:
        """Return the uid of a task."""
        return str(uuid5(_TASKS, f"{self.uid}/{task}"))

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment of ranks of a task; scripts for sbatch read the same."""
        if self.task is None:
            return {}
        numbers = self.numbers
        return {
            "MUSTER_ARRAY": short_name(self.name),
            "MUSTER_ARRAY_TASK": str(self.task),
            "SLURM_ARRAY_JOB_ID": short_name(self.name),
            "SLURM_ARRAY_TASK_ID": str(self.task),
            "SLURM_ARRAY_TASK_COUNT": str(len(numbers)),
            "SLURM_ARRAY_TASK_MIN": str(numbers[0]),
            "SLURM_ARRAY_TASK_MAX": str(numbers[-1]),
        }


class ArrayTurns(Struct, frozen=True):
    """How far the live tasks of an array are, where only some may run at a time. `let_in`: how many
    may run, or do. `waiting`: names of those whose turn has not come, in order."""

    let_in: int = 0
    waiting: tuple[str, ...] = ()


def parse_array(text: str) -> JobArray:
    """Parse the text of an array: `0-15%4`. Raises: BadInput without a field."""
    tasks, mark, most = "".join(text.split()).partition("%")
    if mark and (not most.isascii() or not most.isdigit() or not int(most)):
        raise BadInput("", f"must be {_SHAPE}, not {text!r}")
    numbers = list(_numbers(tasks))
    if len(set(numbers)) != len(numbers):
        raise BadInput("", f"names a task twice: {text!r}")
    return JobArray(tasks, int(most or 0))


def parse_most_running(text: str) -> int:
    """Return the tasks that may run at a time, of `%4`; 0 for `%0`, all of them. Raises: BadInput
    without a field."""
    most = text.removeprefix("%")
    if not text.startswith("%") or not most.isascii() or not most.isdigit() or int(most) > _LARGEST:
        raise BadInput("", f"must be %4 for at most four tasks at a time, or %0, not {text!r}")
    return int(most)


def _numbers(tasks: str) -> Iterator[int]:
    """Raises: BadInput without a field."""
    count = 0
    for part in tasks.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise BadInput("", f"must be {_SHAPE}, not {tasks!r}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or not step:
            raise BadInput("", f"must be {_SHAPE}, not {tasks!r}")
        if last > _LARGEST:
            raise BadInput("", f"must have numbers up to {_LARGEST:,}, has {last:,}")
        part_numbers = range(first, last + 1, step)
        count += len(part_numbers)
        if count > MOST_TASKS:
            raise BadInput("", f"must have at most {MOST_TASKS:,} tasks")
        yield from part_numbers
