"""What every trace format is read into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from scheduler.core.job import JobSpec

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace: when it came, how long it ran, how much it held.

    Its size is `gpus`, unless `spec` says more than a number can. `time_limit_ns`:
    what its owner asked for, None where the trace does not know. `line`: where it
    stands in the file.
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


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be replayed, and why.

    `message` is the same for every record with this fault, so that it can be counted;
    `told` adds what stood there.
    """

    line: int
    field: str
    message: str
    told: str

    @property
    def kind(self) -> str:
        return f"{self.field} {self.message}"


Lines = Iterable[tuple[int, str]]
Read = Callable[[Lines], Iterator[TraceJob | BadRecord]]


class FieldError(ValueError):
    """A field is not what the format says; readers turn it into a BadRecord."""

    def __init__(self, field: str, message: str, value: str = "") -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
        self.value = value

    @property
    def told(self) -> str:
        """The message with what stood there."""
        return f"{self.message}, not {self.value!r}" if self.value else self.message

    def at(self, line: int) -> BadRecord:
        return BadRecord(line, self.field, self.message, self.told)


def seconds_ns(text: str, field: str) -> int:
    """Nanoseconds of a number of seconds, which may have decimals.

    Raises: FieldError.
    """
    return round(number(text, field) * SECOND_NS)


def number(text: str, field: str) -> float:
    """Raises: FieldError on anything but a finite number."""
    try:
        value = float(text)
    except ValueError:
        raise FieldError(field, "must be a number", text) from None
    if not abs(value) < 1e15:  # also false for nan
        raise FieldError(field, "must be a finite number below 1e15", text)
    return value


def count(text: str, field: str) -> int:
    """Raises: FieldError on anything but a whole number."""
    try:
        return int(text)
    except ValueError:
        raise FieldError(field, "must be a whole number", text) from None


def usable(job: TraceJob, run: str, size: str) -> TraceJob:
    """The job itself. `run`, `size`: what its format calls the two fields.

    A run of 0 is a job that ended within its first second: it counts. Logs write -1
    for a run that they do not know.

    Raises: FieldError when its run is unknown or it held nothing.
    """
    if job.run_ns < 0:
        raise FieldError(run, "must not be negative", f"{job.run_ns / SECOND_NS:g}")
    if job.gpus <= 0 and job.spec is None:
        raise FieldError(size, "must be more than 0", str(job.gpus))
    return job
