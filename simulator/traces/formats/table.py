"""Tables with a job a row, whatever their columns are called: a column map says which is which.

    submit=submit_time:ms,gpus=gpu_request,workers=worker_num,duration=duration:ms,user=org
    submit=3,gpus=2,start=4,end=5            (a file without a header: columns by number)

Published tables are named here with their maps; docs/traces.md has them, and the units of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from muster.structs import struct
from placement import BadInput
from simulator.traces.formats.columns import split, with_header
from simulator.traces.formats.times import SPAN, instant_ns, is_unknown, span_ns
from simulator.traces.record import (
    SECOND_NS,
    BadRecord,
    FieldError,
    Lines,
    NothingToReplay,
    TraceJob,
    TraceOutcome,
    count,
    number,
    usable,
)

NS_BY_UNIT = {
    "us": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "min": 60 * SECOND_NS,
    "h": 3_600 * SECOND_NS,
    "d": 86_400 * SECOND_NS,
}
TIMES = ("submit", "start", "end", "duration", "limit")
KEYS = (
    *("submit", "gpus", "workers", "duration", "start", "end", "limit"),
    *("id", "user", "queue", "account", "class", "priority", "outcome"),
)
EXAMPLE = "submit=COLUMN,gpus=COLUMN,duration=COLUMN"
SEPARATORS = (",", "\t", ";", "|")
OUTCOMES = {
    TraceOutcome.COMPLETED: "completed complete pass passed success succeeded terminated done",
    TraceOutcome.FAILED: "failed fail error timeout node_fail out_of_memory",
    TraceOutcome.CANCELLED: "cancelled canceled killed stopped",
}
# Words that name a column in tables of jobs, and the unit that their files have it in.
USUAL = {
    "submit": "submit submit_time submitted submitted_time arrival arrival_time timestamp"
    " creation_time time start start_time",
    "gpus": "gpus num_gpu num_gpus gpu_num n_gpus gpu_request gpu_count gpu scale_factor count",
    "duration": "duration duration_s run run_s run_time runtime elapsed",
    "end": "end end_time finish finish_time ended deletion_time",
}
NOTE = "a share of a GPU is rounded up to a whole one for each worker"
SPOT_NOTE = (
    f"{NOTE};"
    " job_type is a priority class: with a tenants file that has preemptible `spot`, jobs of type"
    " Spot make room for others"
)
OUTCOME_BY_WORD = {word: end for end, words in OUTCOMES.items() for word in words.split()}


@struct(frozen=True, slots=True)
class TraceColumn:
    """One column: its name in the header, or its number, which counts from 1."""

    name: str
    unit_ns: int = SECOND_NS

    @property
    def number(self) -> int | None:
        return int(self.name) if self.name.isascii() and self.name.isdigit() else None


@struct(frozen=True, slots=True)
class ColumnMap:
    """The column of each fact. `also`: further columns by which its files are recognised;
    `without`: columns that they never have."""

    by_key: Mapping[str, TraceColumn]
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def has_header(self) -> bool:
        """Whether any column is named in the header."""
        return any(column.number is None for column in self.by_key.values())


def parse_columns(text: str) -> ColumnMap:
    """Parse `KEY=COLUMN[:UNIT],...`. Raises: BadInput."""
    by_key: dict[str, TraceColumn] = {}
    for part in text.split(","):
        key, _, name = (piece.strip() for piece in part.partition("="))
        if key not in KEYS or not name:
            known = ", ".join(KEYS)
            raise BadInput("", f"must be KEY=COLUMN,..., not {part.strip()!r}; keys are {known}")
        if key in by_key:
            raise BadInput("", f"{key} is given twice")
        by_key[key] = _column(key, name)
    for key in ("submit", "gpus"):
        if key not in by_key:
            raise BadInput("", f"must name {key}, as in {EXAMPLE}")
    if ("duration" in by_key) == ("end" in by_key):
        raise BadInput("", "must name either duration or end")
    if "start" in by_key and "end" not in by_key:
        raise BadInput("", "names start, which has an effect only with end")
    return ColumnMap(by_key)


def _column(key: str, name: str) -> TraceColumn:
    before, colon, unit = name.rpartition(":")
    if colon and unit in NS_BY_UNIT:
        if key not in TIMES:
            raise BadInput("", f"{key} has no unit, {unit!r} was given")
        name = before.strip()
    column = TraceColumn(name, NS_BY_UNIT.get(unit, SECOND_NS) if colon else SECOND_NS)
    if column.number == 0:
        raise BadInput("", f"{key}: columns count from 1")
    return column


def reader(columns: ColumnMap) -> Callable[[Lines], Iterator[TraceJob | BadRecord]]:
    """Return a reader of files with these columns."""
    return lambda lines: _read(columns, lines)


def _read(columns: ColumnMap, lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Raises: FieldError when the header lacks a column."""
    places: dict[str, tuple[int, TraceColumn, str]] = {}
    separator, width = ",", 0
    for line, text in lines:
        if not text.strip():
            continue
        if not places:
            separator = max(SEPARATORS, key=text.count)
            names = split(text, separator)
            places, width = _places(columns, names), len(names)
            if columns.has_header:
                continue
        cells = split(text, separator)
        try:
            if len(cells) != width:
                expected = "in the header" if columns.has_header else "in the first line"
                raise FieldError("columns", f"must be as many as {expected}", str(len(cells)))
            yield _job(line, _Cells(cells, places))
        except FieldError as error:
            yield error.at(line)


def _places(columns: ColumnMap, names: Sequence[str]) -> dict[str, tuple[int, TraceColumn, str]]:
    """For each key: where its column is and what messages call it."""
    found = {}
    for key, column in columns.by_key.items():
        at = column.number
        if at is not None and not (columns.has_header and column.name in names):
            if at > len(names):
                raise FieldError(
                    "columns", f"are {len(names)}, and {key} is said to be column {at}"
                )
            found[key] = (at - 1, column, f"column {at} ({key})")
            continue
        found[key] = (_at(names, column.name), column, "")
    for name in columns.also:
        _at(names, name)
    for name in columns.without:
        if name in names:
            raise FieldError("header", f"names {name}, which files of this format do not have")
    return {
        key: (at, column, text or f"column {at + 1} ({names[at]})")
        for key, (at, column, text) in found.items()
    }


def _at(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise FieldError("header", f"must name the column {name}", ",".join(names)[:200])
    return names.index(name)


class _Cells:
    """The cells of a row by key. Errors name the column."""

    def __init__(
        self, cells: list[str], places: Mapping[str, tuple[int, TraceColumn, str]]
    ) -> None:
        self._cells, self._places = cells, places

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def text(self, key: str) -> str:
        """Empty where there is no such column, or the row does not say."""
        if key not in self._places:
            return ""
        cell = self._cells[self._places[key][0]]
        return "" if is_unknown(cell) else cell

    def field(self, key: str) -> str:
        return self._places[key][2]

    def require_text(self, key: str, why: str) -> str:
        if not (cell := self.text(key)):
            raise NothingToReplay(self.field(key), f"is empty: {why}")
        return cell

    def parse_count(self, key: str) -> int:
        return count(self.text(key), self.field(key))

    def instant_ns(self, key: str, why: str) -> int:
        """A date, or so long after a zero that all rows share."""
        cell, (_, column, field) = self.require_text(key, why), self._places[key]
        if "-" in cell[1:] and ":" in cell:
            return instant_ns(cell, field)
        time_ns = _scaled_ns(cell, column, field, "must be a number or YYYY-MM-DD HH:MM:SS")
        if time_ns < 0:
            raise FieldError(field, "must not be negative", cell)
        return time_ns

    def span_ns(self, key: str, why: str) -> int:
        cell, (_, column, field) = self.require_text(key, why), self._places[key]
        if SPAN.fullmatch(cell):
            return span_ns(cell, field)
        return _scaled_ns(cell, column, field, "must be a number or [D-]HH:MM:SS")


def _scaled_ns(cell: str, column: TraceColumn, field: str, message: str) -> int:
    return round(number(cell, field, message) * column.unit_ns)


def _job(line: int, cells: _Cells) -> TraceJob:
    if not cells.text("submit"):
        raise FieldError(cells.field("submit"), "is empty")
    submit_ns = cells.instant_ns("submit", "")
    return usable(
        TraceJob(
            id=cells.text("id") or f"line-{line}",
            submit_ns=submit_ns,
            run_ns=_run_ns(cells, submit_ns),
            line=line,
            gpus=_gpus(cells),
            time_limit_ns=cells.span_ns("limit", "") if cells.text("limit") else None,
            user=cells.text("user"),
            queue=cells.text("queue"),
            priority=cells.parse_count("priority") if cells.text("priority") else 0,
            account=cells.text("account"),
            outcome=OUTCOME_BY_WORD.get(cells.text("outcome").lower(), TraceOutcome.UNKNOWN),
            priority_class=cells.text("class"),
        ),
        cells.field("duration" if "duration" in cells else "end"),
        cells.field("gpus"),
    )


def _gpus(cells: _Cells) -> int:
    each = math.ceil(number(cells.text("gpus"), cells.field("gpus")))
    workers = cells.parse_count("workers") if "workers" in cells else 1
    for key, value in (("gpus", each), ("workers", workers)):
        if value < 0:
            raise FieldError(cells.field(key), "must not be negative", cells.text(key))
    if not each * workers:
        raise NothingToReplay(cells.field("gpus"), "is 0: a job of CPUs")
    return each * workers


def _run_ns(cells: _Cells, submit_ns: int) -> int:
    if "duration" in cells:
        return cells.span_ns("duration", "it had not ended")
    has_start = "start" in cells
    begin_ns = cells.instant_ns("start", "it never ran") if has_start else submit_ns
    end_ns = cells.instant_ns("end", "it had not ended")
    if end_ns < begin_ns:
        earlier = cells.field("start" if has_start else "submit")
        raise FieldError(cells.field("end"), f"is before {earlier}", cells.text("end"))
    return end_ns - begin_ns


def guessed_columns(header: str) -> str:
    """Guess the column map of a table from its first line; empty where its names do not tell."""
    names = split(header, max(SEPARATORS, key=header.count))
    by_word = {name.lower(): name for name in reversed(names)}
    found = {
        key: next((by_word[word] for word in words.split() if word in by_word), None)
        for key, words in USUAL.items()
    }
    keys = ("submit", "gpus", "duration" if found["duration"] else "end")
    if any(found[key] is None for key in keys):
        return ""
    return ",".join(f"{key}={found[key]}" for key in keys)


def _named(
    text: str, also: tuple[str, ...] = (), without: tuple[str, ...] = ()
) -> Callable[[Lines], Iterator[TraceJob | BadRecord]]:
    return reader(ColumnMap(parse_columns(text).by_key, also, without))


read_philly = _named("submit=timestamp,duration=duration,gpus=num_gpus,queue=cluster")
_HELIOS = (
    "id=job_id,user=user,gpus=gpu_num,outcome=state,submit=submit_time,start=start_time,"
    "end=end_time"
)
read_helios = _named(f"{_HELIOS},queue=vc")
read_acme = _named(f"{_HELIOS},queue=type")
read_alibaba_spot = _named(
    "id=job_name,user=organization,class=job_type,gpus=gpu_request,workers=worker_num,"
    "submit=submit_time,duration=duration",
    ("gpu_model", "cpu_request"),
)
read_muri = _named(
    "id=job_id,gpus=num_gpu,submit=submit_time:ms,duration=duration:ms",
    ("iterations", "model_name", "iteration_time", "resource_time_0"),
)
read_tiresias = _named(
    "id=job_id,gpus=num_gpu,submit=submit_time,duration=duration",
    ("iterations", "model_name", "interval"),
    ("iteration_time",),
)
_PODS = ("pod_name", "pod_type", "project", "namespace", "user_team", "start", "finish", "count")
_read_pods = _named(
    "id=pod_name,queue=pod_type,account=project,user=user_team,submit=start,end=finish,gpus=count",
    _PODS,
)


def read_mystous(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Yield the pods of an Alibaba trace in the order of the file, with or without a header."""
    return _read_pods(with_header(lines, _PODS))
