"""muster's own trace format: one job file a line, as JSON, with a few more keys.

    {"submit_s": 0, "run_s": 86400, "name": "pretrain", "parallelism": {"tp": 8, "dp": 16}}
    {"submit_s": 0, "run_s": 86400, "name": "a", "gpus": 24, "user": "ann"}

`run_s` is the time that the gang needs undisturbed. A job of which only the size is known has
`gpus`, and besides no more than `name`, `priority`, `priority_class` and `time_limit_s`. Empty
lines and lines that start with `#` are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scheduler.core.model.job import JobSpec
from scheduler.files.inputs import InputError, job_from_mapping
from simulator.traces.record import (
    SECOND_NS,
    BadRecord,
    FieldError,
    Lines,
    TraceJob,
    TraceOutcome,
    number,
    read_records,
    usable,
)

SIZE_KEYS = {"name", "priority", "priority_class", "time_limit_s"}


def read(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Yield the jobs of a muster trace in the order of the file."""
    records = ((line, text.strip()) for line, text in lines)
    return read_records(((n, text) for n, text in records if text and text[0] != "#"), _job)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """As in a job file, where the last of two equal keys does not win either."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FieldError(twice, "is given twice")
    return mapping


_DECODER = json.JSONDecoder(object_pairs_hook=_once)


def _mapping(text: str) -> dict[str, Any]:
    try:
        mapping = _DECODER.decode(text)
    except FieldError:
        raise
    except (ValueError, RecursionError) as error:
        raise FieldError("line", f"must be JSON: {error}") from None
    if not isinstance(mapping, dict):
        raise FieldError("line", "must be a JSON object", text[:40])
    return mapping


def _job(line: int, text: str) -> TraceJob:
    mapping = _mapping(text)
    submit_ns = _seconds_ns(mapping, "submit_s")
    run_ns = _seconds_ns(mapping, "run_s")
    if submit_ns < 0:
        raise FieldError("submit_s", "must not be negative", str(submit_ns // SECOND_NS))
    known = {key: _text(mapping, key) for key in ("user", "queue", "account")}
    outcome = _outcome(mapping)
    mapping = {"name": f"line-{line}", **mapping}
    gpus = _gpus(mapping)
    # What a job file says of name, priority and limit is checked by its own reader.
    spec = _spec(mapping if gpus is None else {**mapping, "parallelism": {"dp": 1}})
    limit_s = spec.time_limit_s
    job = TraceJob(
        id=spec.name,
        submit_ns=submit_ns,
        run_ns=run_ns,
        line=line,
        gpus=spec.request.parallelism.world_size if gpus is None else gpus,
        time_limit_ns=None if limit_s is None else limit_s * SECOND_NS,
        priority=spec.priority,
        spec=spec if gpus is None else None,
        outcome=outcome,
        priority_class=spec.priority_class,
        **known,
    )
    return usable(job, "run_s", "parallelism")


def _gpus(mapping: dict[str, Any]) -> int | None:
    """The size of a job of which nothing more is known."""
    if "gpus" not in mapping:
        return None
    gpus = mapping.pop("gpus")
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 < gpus < 10**9:
        raise FieldError("gpus", "must be a whole number from 1", str(gpus)[:40])
    if odd := sorted(mapping.keys() - SIZE_KEYS):
        raise FieldError(odd[0], "does not go with gpus: a job with a shape has parallelism")
    return gpus


def _text(mapping: dict[str, Any], key: str) -> str:
    value = mapping.pop(key, "")
    if not isinstance(value, str):
        raise FieldError(key, "must be a text", str(value)[:40])
    return value


def _outcome(mapping: dict[str, Any]) -> TraceOutcome:
    value = mapping.pop("outcome", "")
    if value not in list(TraceOutcome):
        raise FieldError("outcome", "must be completed, cancelled or failed", str(value)[:40])
    return TraceOutcome(value)


def _seconds_ns(mapping: dict[str, Any], key: str) -> int:
    """Take a time out of the mapping; what is left is a job file."""
    value = mapping.pop(key, None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(key, "must be a number of seconds", str(value)[:40])
    return round(number(str(value), key) * SECOND_NS)


def _spec(mapping: dict[str, Any]) -> JobSpec:
    try:
        return job_from_mapping(mapping)
    except InputError as error:
        field, message = error.problems[0]
        raise FieldError(field or "job", message) from None
