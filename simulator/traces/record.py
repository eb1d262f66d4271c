"""What every trace format is read into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TypeVar

from muster.structs import struct
from scheduler.core.model.job import JobSpec

SECOND_NS = 1_000_000_000


class TraceOutcome(StrEnum):
    """How a job of a trace ended, as far as the trace knows."""

    UNKNOWN = ""
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@struct(frozen=True, slots=True)
class TraceJob:
    """One job of a trace: when it came, how long it ran, how much it held.

    Its size is `gpus`, unless `spec` says more than a number can. `time_limit_ns`:
    what its owner asked for, None where the trace does not know. `line`: where it
    stands in the file. `outcome`: how it ended, and ends in a replay. `priority_class`: its
    class, where the tenants file of a replay has one of that name.
    """

    id: str
    submit_ns: int
    run_ns: int
    line: int
    gpus: int = 0
    time_limit_ns: int | None = None
    user: str = ""
    queue: str = ""
    priority: int = 0
    spec: JobSpec | None = None
    account: str = ""
    outcome: TraceOutcome = TraceOutcome.UNKNOWN
    priority_class: str = ""


@struct(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be replayed, and why.

    `message` is the same for every record with this fault, so that it can be counted; `detail` adds
    what stood there. `is_fault`: the file is wrong here; else the record is as it should be and
    only holds nothing to replay (a job without GPUs, one that never ran): counted, and no reason to
    refuse the file.
    """

    line: int
    field: str
    message: str
    detail: str
    is_fault: bool = True

    @property
    def kind(self) -> str:
        return f"{self.field} {self.message}"


Record = TypeVar("Record")
Made = TypeVar("Made")
Lines = Iterable[tuple[int, str]]
Read = Callable[[Lines], Iterator[TraceJob | BadRecord]]


class FieldError(ValueError):
    """A field is not what the format says; readers turn it into a BadRecord. `line`: 0 where the
    reader knows it."""

    is_fault = True

    def __init__(self, field: str, message: str, value: str = "", line: int = 0) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
        self.value = value
        self.line = line

    @property
    def detail(self) -> str:
        """The message with the text of the field."""
        if not self.value:
            return self.message
        joint = ", not" if self.message.startswith("must be ") else ":"
        return f"{self.message}{joint} {self.value!r}"

    def at(self, line: int) -> BadRecord:
        return BadRecord(line, self.field, self.message, self.detail, self.is_fault)


class NothingToReplay(FieldError):
    """The record is right but has nothing to replay."""

    is_fault = False


def read_records(
    records: Iterable[tuple[int, Record]], make: Callable[[int, Record], Made]
) -> Iterator[Made | BadRecord]:
    """Yield what `make` makes of each (line, record), in their order."""
    for line, record in records:
        try:
            yield make(line, record)
        except FieldError as error:
            yield error.at(line)


def seconds_ns(text: str, field: str) -> int:
    """Convert a number of seconds, which may have decimals, to nanoseconds. Raises: FieldError."""
    return round(number(text, field) * SECOND_NS)


def number(text: str, field: str, message: str = "must be a number") -> float:
    """Parse a finite number. Raises: FieldError on anything else."""
    try:
        value = float(text)
    except ValueError:
        raise FieldError(field, message, text) from None
    if not abs(value) < 1e15:  # also false for nan
        raise FieldError(field, "must be a finite number below 1e15", text)
    return value


def count(text: str, field: str) -> int:
    """Parse a whole number below 1e15; `8.0` counts as one, as tools write it that know only
    decimals.

    Raises: FieldError on anything else.
    """
    try:
        value: int | float = int(text)
    except ValueError:
        value = number(text, field, "must be a whole number")
    if not abs(value) < 1e15:
        raise FieldError(field, "must be below 1e15", text[:40])
    if value % 1:
        raise FieldError(field, "must be a whole number", text)
    return int(value)


def usable(job: TraceJob, run: str, size: str) -> TraceJob:
    """Return the job if it can be replayed. `run`, `size`: what its format calls the two fields.

    A run of 0 is a job that ended within its first second: it counts. Logs write -1 for a run that
    they do not know.

    Raises: FieldError when its run is unknown or it held nothing.
    """
    if job.run_ns < 0:
        raise FieldError(run, "must not be negative", f"{job.run_ns / SECOND_NS:g}")
    if job.gpus <= 0 and job.spec is None:
        raise FieldError(size, "must be more than 0", str(job.gpus))
    return job
