"""Node events of this very fabric: who went down or came back, and when.

CSV with a header; times in seconds after the trace's first submit:

    time_s,host,state,cause
    3600,z0-r00-h1,down,gpu-lost
    90000,z0-r00-h1,up,
"""

from __future__ import annotations

import csv
from collections.abc import Container, Sequence
from pathlib import Path

from scheduler.files.errors import InputError, Problem
from simulator.failures.fleetlog import FleetLog, OutagePairs
from simulator.failures.outage import Outage
from simulator.traces.record import SECOND_NS, FieldError, seconds_ns

COLUMNS = ["time_s", "host", "state", "cause"]


def read_csv(path: Path, hosts: Sequence[str]) -> FleetLog:
    """Read events of hosts. Raises: InputError with every row that is wrong."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(enumerate(csv.reader(file), start=1))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem("", f"cannot be read: {error}", str(path))) from None
    if not rows or rows[0][1] != COLUMNS:
        raise InputError(Problem("header", f"must be {','.join(COLUMNS)}", str(path), 1))
    outages: list[Outage] = []
    wrong: list[Problem] = []
    index = {host: at for at, host in enumerate(hosts)}
    for line, row in rows[1:]:
        try:
            if row:
                outages.append(_outage(row, index))
        except FieldError as error:
            wrong.append(Problem(error.field, error.detail, str(path), line))
    if wrong:
        raise InputError(*wrong)
    pairs = OutagePairs()
    for outage in sorted(outages, key=lambda outage: outage.time_ns):
        note = pairs.start if outage.is_down else pairs.end
        note(outage.host, index[outage.host], outage.time_ns / SECOND_NS, outage.cause)
    intervals = pairs.intervals()
    return FleetLog(len(hosts), pairs.last_s, intervals, tuple(hosts), pairs.orphan_ends, path.name)


def _outage(row: Sequence[str], hosts: Container[str]) -> Outage:
    if len(row) != len(COLUMNS):
        raise FieldError("columns", f"must be {len(COLUMNS)}", str(len(row)))
    time_s, host, state, cause = row
    time_ns = seconds_ns(time_s, "time_s")
    if time_ns < 0:
        raise FieldError("time_s", "must not be negative", time_s)
    if host not in hosts:
        raise FieldError("host", "must be a host of this fabric", host)
    if state not in ("down", "up"):
        raise FieldError("state", "must be down or up", state)
    return Outage(time_ns, host, state == "down", cause or "host-down")
