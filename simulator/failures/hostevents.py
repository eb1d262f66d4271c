"""Node events of this very fabric: who went down or came back, and when.

CSV with a header; times in seconds after the trace's first submit:

    time_s,host,state,cause
    3600,z0-r00-h1,down,gpu-lost
    90000,z0-r00-h1,up,
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import read_text
from simulator.failures.fleetlog import FleetLog, OutagePairs
from simulator.failures.outage import Outage
from simulator.traces.formats.columns import Row, read_table
from simulator.traces.record import SECOND_NS, BadRecord, FieldError, seconds_ns

COLUMNS = ["time_s", "host", "state", "cause"]


def read_csv(path: Path, hosts: Sequence[str]) -> FleetLog:
    """Read events of hosts. Raises: InputError with every row that is wrong."""
    index = {host: at for at, host in enumerate(hosts)}
    lines = enumerate(read_text(path).splitlines(), start=1)
    try:
        read = list(read_table(lines, lambda _, row: _outage(row, index), COLUMNS))
    except FieldError as error:
        raise InputError(Problem(error.field, error.detail, str(path), 1)) from None
    if wrong := [each for each in read if isinstance(each, BadRecord)]:
        raise InputError(*(Problem(bad.field, bad.detail, str(path), bad.line) for bad in wrong))
    outages = [each for each in read if isinstance(each, Outage)]
    pairs = OutagePairs()
    for outage in sorted(outages, key=lambda outage: outage.time_ns):
        note = pairs.start if outage.is_down else pairs.end
        note(outage.host, index[outage.host], outage.time_ns / SECOND_NS, outage.cause)
    intervals = pairs.intervals()
    return FleetLog(len(hosts), pairs.last_s, intervals, tuple(hosts), pairs.orphan_ends, path.name)


def _outage(row: Row, hosts: Container[str]) -> Outage:
    time_s, host, state, cause = (row[column] for column in COLUMNS)
    time_ns = seconds_ns(time_s, "time_s")
    if time_ns < 0:
        raise FieldError("time_s", "must not be negative", time_s)
    if host not in hosts:
        raise FieldError("host", "must be a host of this fabric", host)
    if state not in ("down", "up"):
        raise FieldError("state", "must be down or up", state)
    return Outage(time_ns, host, state == "down", cause or "host-down")
