"""Philly, Microsoft's own log: `cluster_job_log`, one JSON array of jobs.

    {"status": "Pass", "vc": "11cb48", "jobid": "application_1_2", "user": "ab",
     "submitted_time": "2017-10-09 07:01:55", "attempts": [{"start_time": "...",
     "end_time": "...", "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}]}]}

A gang is as large as the largest attempt, and runs for the GPU-seconds of all attempts over that
many GPUs. A time may be missing, null or the text `None`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from simulator.traces.formats.jsonarray import elements, object_of
from simulator.traces.formats.times import EPOCH, instant_ns, is_unknown
from simulator.traces.record import (
    SECOND_NS,
    BadRecord,
    FieldError,
    Lines,
    NothingToReplay,
    TraceJob,
    TraceOutcome,
    read_records,
)

HOUR_NS = 3600 * SECOND_NS
OUTCOMES = {
    "Pass": TraceOutcome.COMPLETED,
    "Killed": TraceOutcome.CANCELLED,
    "Failed": TraceOutcome.FAILED,
}


def read_json(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Yield the jobs of a Philly trace in the order of the file.

    Raises: FieldError when the file is no JSON array.
    """
    return read_records(elements(lines), _job)


def _job(line: int, value: Any) -> TraceJob:
    job = object_of(value, "record")
    submit_ns = _instant_ns(job, "submitted_time", "submitted_time")
    if submit_ns is None:
        raise FieldError("submitted_time", "is missing")
    gpus, run_ns = _service(job)
    return TraceJob(
        id=_text(job, "jobid"),
        submit_ns=submit_ns,
        run_ns=run_ns,
        line=line,
        gpus=gpus,
        user=_text(job, "user", must=False),
        queue=_text(job, "vc", must=False),
        outcome=OUTCOMES.get(_text(job, "status", must=False), TraceOutcome.UNKNOWN),
    )


def _service(job: Mapping[str, Any]) -> tuple[int, int]:
    """(GPUs of the largest attempt, run time on them)."""
    attempts = [
        _attempt(object_of(attempt, f"attempts.{i}"), f"attempts.{i}")
        for i, attempt in enumerate(_list(job, "attempts", "attempts"))
    ]
    ran = [attempt for attempt in attempts if attempt is not None]
    if not ran:
        raise NothingToReplay("attempts", "none started")
    if ran[-1][1] is None:
        raise NothingToReplay("attempts", "the last had not ended")
    gpus = max(size for size, _ in ran)
    if not gpus:
        raise NothingToReplay("attempts", "none held a GPU")
    return gpus, sum(size * (run_ns or 0) for size, run_ns in ran) // gpus


def _attempt(attempt: Mapping[str, Any], path: str) -> tuple[int, int | None] | None:
    """(GPUs, run time unless it has no end), None when it has no start."""
    start_ns = _instant_ns(attempt, "start_time", f"{path}.start_time")
    if start_ns is None:
        return None
    end_ns = _instant_ns(attempt, "end_time", f"{path}.end_time")
    gpus = 0
    for i, host in enumerate(_list(attempt, "detail", f"{path}.detail")):
        place = f"{path}.detail.{i}"
        gpus += len(_list(object_of(host, place), "gpus", f"{place}.gpus"))
    if end_ns is None:
        return gpus, None
    if end_ns < start_ns:
        raise FieldError("attempts", "an end is before its start", str(attempt["end_time"])[:40])
    return gpus, end_ns - start_ns


def _instant_ns(values: Mapping[str, Any], key: str, path: str) -> int | None:
    text = values.get(key)
    if text is None or (isinstance(text, str) and is_unknown(text)):
        return None
    if not isinstance(text, str):
        raise FieldError(path, "must be YYYY-MM-DD HH:MM:SS", str(text)[:40])
    return pacific_ns(instant_ns(text, path))


def pacific_ns(clock_ns: int) -> int:
    """Convert what a clock on the US Pacific coast shows to nanoseconds since 1970."""
    return clock_ns + _behind(clock_ns // HOUR_NS) * HOUR_NS


@lru_cache(maxsize=2**14)
def _behind(hour: int) -> int:
    """Hours that such a clock is behind UTC, when it shows so many since 1970.

    Summer time is from the second Sunday of March to the first of November, at 2 in
    the morning (since 2007); the hour that comes twice is taken as its first.
    """
    clock = EPOCH + timedelta(hours=hour)
    march, november = (clock.replace(month=month, day=1, hour=2) for month in (3, 11))
    begin = march + timedelta(days=(6 - march.weekday()) % 7 + 7)
    end = november + timedelta(days=(6 - november.weekday()) % 7)
    return 7 if begin <= clock < end else 8


def _list(values: Mapping[str, Any], key: str, path: str) -> list[Any]:
    value = values.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError(path, "must be a JSON array", str(value)[:40])
    return value


def _text(values: Mapping[str, Any], key: str, must: bool = True) -> str:
    value = values.get(key)
    if value is None and not must:
        return ""
    if not isinstance(value, str) or not (value or not must):
        raise FieldError(key, "must be a text", str(value)[:40])
    return value
