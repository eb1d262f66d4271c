"""muster's own trace format: one job file a line, as JSON, with two more keys.

    {"submit_s": 0, "run_s": 86400, "name": "pretrain", "parallelism": {"tp": 8, "dp": 16},
     "traffic": {"dp": 1000000}, "priority": 10, "time_limit_s": 90000}

(here on two lines, in the file on one). `submit_s` counts from any zero; `run_s` is
the time that the gang needs undisturbed. Everything else is as in a job file, so that
gangs with pipelines and tensor parallelism can be replayed. A job without a name is
named by its line. Empty lines and lines that start with `#` are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scheduler.core.job import JobSpec
from scheduler.specs import InputError, job_from_mapping
from simulator.traces.record import (
    SECOND_NS,
    BadRecord,
    FieldError,
    Lines,
    TraceJob,
    number,
    usable,
)


def read(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Jobs in the order of the file."""
    for line, text in lines:
        text = text.strip()
        if not text or text.startswith("#"):
            continue
        try:
            yield usable(_job(line, _mapping(text)), "run_s", "parallelism")
        except FieldError as error:
            yield error.at(line)


def _mapping(text: str) -> dict[str, Any]:
    try:
        mapping = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldError("line", f"must be JSON: {error}") from None
    if not isinstance(mapping, dict):
        raise FieldError("line", "must be a JSON object", text[:40])
    return mapping


def _job(line: int, mapping: dict[str, Any]) -> TraceJob:
    submit_ns = _seconds_ns(mapping, "submit_s")
    run_ns = _seconds_ns(mapping, "run_s")
    if submit_ns < 0:
        raise FieldError("submit_s", "must not be negative", str(submit_ns // SECOND_NS))
    spec = _spec({"name": f"line-{line}", **mapping})
    limit_s = spec.time_limit_s
    return TraceJob(
        id=spec.name,
        submit_ns=submit_ns,
        run_ns=run_ns,
        line=line,
        gpus=spec.request.parallelism.world_size,
        time_limit_ns=None if limit_s is None else limit_s * SECOND_NS,
        priority=spec.priority,
        spec=spec,
    )


def _seconds_ns(mapping: dict[str, Any], key: str) -> int:
    """Take a time out of the mapping; what is left is a job file."""
    value = mapping.pop(key, None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(key, "must be a number of seconds", repr(value))
    return round(number(str(value), key) * SECOND_NS)


def _spec(mapping: dict[str, Any]) -> JobSpec:
    try:
        return job_from_mapping(mapping)
    except InputError as error:
        field, message = error.problems[0]
        raise FieldError(field or "job", message) from None
