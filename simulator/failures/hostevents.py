"""Node events of this very fabric: who went down or came back, and when.

CSV with a header, or JSON with the same keys, as a list or an object a line; times in
seconds after the trace's first submit:

    time_s,host,state,cause
    3600,z0-r00-h1,down,gpu-lost
    90000,z0-r00-h1,up,
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import read_text
from simulator.failures.fleetlog import FleetLog, OutagePairs
from simulator.failures.outage import Outage
from simulator.traces.record import SECOND_NS, FieldError, seconds_ns

COLUMNS = ["time_s", "host", "state", "cause"]
Row = tuple[int, Mapping[str, Any]]


def read_csv(path: Path, hosts: Sequence[str]) -> FleetLog:
    """Read events of hosts from CSV. Raises: InputError with every row that is wrong."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(enumerate(csv.reader(file), start=1))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem("", f"cannot be read: {error}", str(path))) from None
    if not rows or rows[0][1] != COLUMNS:
        raise InputError(Problem("header", f"must be {','.join(COLUMNS)}", str(path), 1))
    return _outages(path, ((line, row) for line, row in rows[1:] if row), _cells, hosts)


def read_json(path: Path, hosts: Sequence[str]) -> FleetLog:
    """Read events of hosts from JSON. Raises: InputError with every record that is wrong."""
    return _outages(path, json_records(path), _keys, hosts)


def json_records(path: Path) -> Iterator[tuple[int, Any]]:
    """Return the items of a list, or the objects of the lines, each with its line."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        _json(path, text, 1)  # sound as a whole: the walk can trust it
        yield from _items(text)
        return
    for line, part in enumerate(text.splitlines(), start=1):
        if part.strip():
            yield line, _json(path, part, line)


def _items(text: str) -> Iterator[tuple[int, Any]]:
    decoder, line, at = json.JSONDecoder(), 1, 0
    begin = text.index("[") + 1
    while True:
        while text[begin] in " \t\r\n,":
            begin += 1
        if text[begin] == "]":
            return
        line += text.count("\n", at, begin)
        at = begin
        item, begin = decoder.raw_decode(text, begin)
        yield line, item


def _json(path: Path, text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        raise InputError(Problem("", f"must be JSON: {error.msg}", str(path), at)) from None
    except RecursionError:
        raise InputError(Problem("", "is nested too deep", str(path), line)) from None


def _outages(
    path: Path,
    rows: Iterable[tuple[int, Any]],
    read: Callable[[Any], tuple[str, str, str, str]],
    hosts: Sequence[str],
) -> FleetLog:
    outages: list[Outage] = []
    wrong: list[Problem] = []
    index = {host: at for at, host in enumerate(hosts)}
    for line, row in rows:
        try:
            outages.append(_outage(read(row), index))
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


def _cells(row: list[str]) -> tuple[str, str, str, str]:
    if len(row) != len(COLUMNS):
        raise FieldError("columns", f"must be {len(COLUMNS)}", str(len(row)))
    time_s, host, state, cause = row
    return time_s, host, state, cause


def _keys(record: Any) -> tuple[str, str, str, str]:
    if not isinstance(record, dict):
        raise FieldError("record", "must be a JSON object", str(record)[:40])
    for key in record:
        if key not in COLUMNS:
            raise FieldError(key, f"is not one of {', '.join(COLUMNS)}")
    for key in COLUMNS[:3]:
        if key not in record:
            raise FieldError(key, "is required")
    if isinstance(record["time_s"], bool):
        raise FieldError("time_s", "must be a number", "true")
    time_s, host, state = (str(record[key]) for key in COLUMNS[:3])
    return time_s, host, state, str(record.get("cause") or "")


def _outage(cells: tuple[str, str, str, str], hosts: Container[str]) -> Outage:
    time_s, host, state, cause = cells
    time_ns = seconds_ns(time_s, "time_s")
    if time_ns < 0:
        raise FieldError("time_s", "must not be negative", time_s)
    if host not in hosts:
        raise FieldError("host", "must be a host of this fabric", host)
    if state not in ("down", "up"):
        raise FieldError("state", "must be down or up", state)
    return Outage(time_ns, host, state == "down", cause or "host-down")
