"""LANL's outages (LA-UR-05-7318): 20 systems, 1995 to 2005, with causes and repair times.

CSV, plain or gzip. Systems differ by orders of magnitude and are not pooled: `system=12`
chooses one, by default 8 (164 two-way hosts). Times count from the system's first outage.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from scheduler.files.errors import InputError, Problem
from simulator.failures.fleetlog import FleetLog, Interval
from simulator.traces.record import FieldError, count, number

CAUSES = ("Facilities", "Hardware", "Human Error", "Network", "Undetermined", "Software")
NEEDED = ("System", "nodes", "nodenumz", "Prob Started", "Down Time", *CAUSES)
TIME = "%m/%d/%Y %H:%M"
DEFAULT_SYSTEM = "8"


def read(path: Path, options: Mapping[str, str]) -> FleetLog:
    """Raises: InputError with file, line and field."""
    system = options.get("system", DEFAULT_SYSTEM)
    rows = [(line, row) for line, row in _rows(path) if row["System"] == system]
    if not rows:
        raise InputError(Problem("System", f"no outage of system {system!r}", str(path)))
    wrong: list[Problem] = []
    intervals: list[Interval] = []
    servers = 0
    for line, row in rows:
        try:
            intervals.append(_interval(row))
            servers = max(servers, _servers(row), intervals[-1].server + 1)
        except FieldError as error:
            wrong.append(Problem(error.field, error.detail, str(path), line))
    if wrong:
        raise InputError(*wrong)
    first_s = min(interval.start_s for interval in intervals)
    moved = [Interval(i.server, i.start_s - first_s, i.down_s, i.cause) for i in intervals]
    span_s = max(i.start_s for i in moved) + 1
    return FleetLog(servers, span_s, tuple(moved), name=path.name)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rt", newline="") if is_gzip else path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(Problem("header", f"lacks {missing[0]!r}", str(path), 1))
            for row in reader:
                yield reader.line_num, {key: row.get(key) or "" for key in NEEDED}
    except (OSError, UnicodeDecodeError, csv.Error, EOFError, zlib.error) as error:
        raise InputError(Problem("", f"cannot be read: {error}", str(path))) from None


def _interval(row: Mapping[str, str]) -> Interval:
    server = count(row["nodenumz"], "nodenumz")
    minutes = number(row["Down Time"] or "0", "Down Time")
    if server < 0 or minutes < 0:
        field = "nodenumz" if server < 0 else "Down Time"
        raise FieldError(field, "must not be negative", row[field])
    try:
        began = datetime.strptime(row["Prob Started"], TIME).replace(tzinfo=UTC)
    except ValueError:
        raise FieldError("Prob Started", "must be M/D/YYYY H:MM", row["Prob Started"]) from None
    kind = next((cause for cause in CAUSES if row[cause]), "")
    cause = f"{kind}: {row[kind]}" if kind else "unknown"
    return Interval(server, began.timestamp(), minutes * 60, cause)


def _servers(row: Mapping[str, str]) -> int:
    """Servers of the system; some rows leave it empty."""
    return count(row["nodes"], "nodes") if row["nodes"] else 0
