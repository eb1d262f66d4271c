"""InfiniteHBD's fault log (SIGCOMM 2025): 400 servers of an LLM cluster, 174 days.

A JSON list of events, `event_time` in days; a start pairs with the next end of the same
server and type. Servers that never fail are not named: they fill the fleet up to 400. A log
that was cut by date may end outages that began before it, and end before outages that it begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import read_text
from simulator.failures.cause import DAY_S
from simulator.failures.fleetlog import FleetLog, OutagePairs
from simulator.traces.formats.jsonarray import elements, object_of
from simulator.traces.record import FieldError, number

FLEET = 400
SPAN_S = 174 * DAY_S
STATES = ("fault_start", "fault_end")


def read(path: Path) -> FleetLog:
    """Read the failures that the InfiniteHBD study published. Raises: InputError with file, line
    and field."""
    pairs, number_by_id = OutagePairs(), dict[str, int]()
    try:
        for node, kind, time_s, cause in _events(path):
            server = number_by_id.setdefault(node, len(number_by_id))
            note = pairs.start if kind == "fault_start" else pairs.end
            note((node, cause), server, time_s, cause)
    except FieldError as error:
        raise InputError(Problem(error.field, error.detail, str(path), error.line)) from None
    intervals = pairs.intervals()
    last_s = max((interval.start_s for interval in intervals), default=0.0)
    span_s = max(min(SPAN_S, pairs.last_s), last_s + 1)  # the log may have been cut by date
    servers = max(FLEET, len(number_by_id))
    return FleetLog(servers, span_s, intervals, orphan_ends=pairs.orphan_ends, name=path.name)


def _events(path: Path) -> Iterator[tuple[str, str, float, str]]:
    """Yield server, kind, time in seconds and cause. Raises: FieldError with the line."""
    for line, value in elements([(1, read_text(str(path)))]):
        try:
            yield _event(value)
        except FieldError as error:
            error.line = line
            raise


def _event(value: Any) -> tuple[str, str, float, str]:
    record = object_of(value, "event")
    for key in ("node_id", "event_time", "event_type", "fault_type"):
        if key not in record:
            raise FieldError(key, "is required")
    days = record["event_time"]
    if isinstance(days, bool) or not isinstance(days, int | float):
        raise FieldError("event_time", "must be a number of days", str(days))
    if number(str(days), "event_time") < 0:
        raise FieldError("event_time", "must not be negative", str(days))
    if record["event_type"] not in STATES:
        raise FieldError("event_type", f"must be {' or '.join(STATES)}", str(record["event_type"]))
    fault = record["fault_type"]
    if not isinstance(fault, dict) or not isinstance(fault.get("Class"), str):
        raise FieldError("fault_type.Class", "must be a text")
    detail = ": ".join(str(fault[key]) for key in ("Class", "Desc") if fault.get(key))
    return str(record["node_id"]), record["event_type"], days * DAY_S, detail or "unknown"
