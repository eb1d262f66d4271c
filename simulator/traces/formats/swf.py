"""Standard Workload Format, version 2.2, of the Parallel Workloads Archive.

Lines that start with `;` are header, `; Key: value`. A record is 18 numbers between
blanks, -1 = unknown; further fields, as MetaCentrum's logs have them, are ignored.

- Submit times count from `UnixStartTime` where the header has one.
- Processors: those requested, or those allocated where nothing was requested.
- A processor is taken for a GPU.
- Lines of status 2, 3 and 4 are the parts of a job that was swapped out, whose line of status 0 or
  1 sums them up; they are left out.

Source: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulator.traces.record import (
    SECOND_NS,
    BadRecord,
    FieldError,
    Lines,
    NothingToReplay,
    TraceJob,
    count,
    number,
    seconds_ns,
    usable,
)

FIELDS = 18
PARTS = ("2", "3", "4")  # as status


def read(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Yield the jobs of a file in the Standard Workload Format in its order."""
    start_ns = 0
    for line, text in lines:
        text = text.strip()
        if not text:
            continue
        try:
            if text.startswith(";"):
                start_ns = _start_ns(text, start_ns)
            else:
                yield usable(_job(line, text.split(), start_ns), "run", "processors")
        except FieldError as error:
            yield error.at(line)


def _start_ns(header: str, start_ns: int) -> int:
    """The time zero that this header line sets, else the one so far."""
    key, _, value = header.lstrip("; ").partition(":")
    if key.strip() != "UnixStartTime":
        return start_ns
    return seconds_ns(value.strip(), "UnixStartTime")


def _job(line: int, fields: Sequence[str], start_ns: int) -> TraceJob:
    if len(fields) < FIELDS:
        raise FieldError("fields", f"must be {FIELDS} numbers", str(len(fields)))
    if fields[10] in PARTS:
        raise NothingToReplay("status", "says that it is a part of a job, whose line precedes")
    return TraceJob(
        id=str(count(fields[0], "job")),
        submit_ns=start_ns + _submit_ns(fields[1]),
        run_ns=seconds_ns(fields[3], "run"),
        line=line,
        gpus=_processors(fields),
        time_limit_ns=_limit_ns(fields[8]),
        user=_value_or_empty(fields[11]),
        queue=_value_or_empty(fields[14]),
    )


def _submit_ns(text: str) -> int:
    submit_ns = seconds_ns(text, "submit")
    if submit_ns < 0:
        raise FieldError("submit", "must not be negative", text)
    return submit_ns


def _processors(fields: Sequence[str]) -> int:
    requested = count(fields[7], "processors requested")
    return requested if requested > 0 else count(fields[4], "processors allocated")


def _limit_ns(text: str) -> int | None:
    limit_s = number(text, "time requested")
    return round(limit_s * SECOND_NS) if limit_s > 0 else None


def _value_or_empty(text: str) -> str:
    return "" if text == "-1" else text
