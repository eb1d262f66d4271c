"""`muster estimate --table`: the step of every row of a table of training runs, as CSV."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

from placement import BadInput
from scheduler.cli.calls import AnswerFormat, formatted

if TYPE_CHECKING:
    from scheduler.files.step_table import StepRow

COLUMNS = ("id", "seconds", "low", "high", "memory_gib", "note")


def print_table(path: str, output: AnswerFormat) -> None:
    """Write a line for each row, in the file's order; numbers are empty where no job file says
    the row, and `note` says why. Raises: InputError where the file is no such table."""
    from scheduler.files.step_table import read_table

    rows = [_estimated(row) for row in read_table(path)]
    if output is not AnswerFormat.TABLE:
        body = {"rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows]}
        sys.stdout.write(formatted(body, output) + "\n")
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow("" if cell is None else cell for cell in row)


def _estimated(row: StepRow) -> tuple[Any, ...]:
    from placement.objective.step_time import step_time
    from placement.workload.memory import memory

    nothing = (row.name, None, None, None, None)
    if row.request is None or row.fabric is None:
        return (*nothing, row.note)
    try:
        hosts = range(row.request.hosts_needed(row.fabric.gpus_per_host))
        step = step_time(row.fabric, row.request, hosts)
        use = memory(row.request)
    except BadInput as error:
        return (*nothing, str(error))
    low, high = step.likely_s or (None, None)
    seconds = (_rounded(each) for each in (step.seconds, low, high))
    held = None if use is None else round(use.total / 2**30, 1)
    return (row.name, *seconds, held, row.note)


def _rounded(seconds: float | None) -> float | None:
    """To five digits."""
    return None if seconds is None else float(f"{seconds:.5g}")
