"""Open a trace by format name: jobs in submit order, bad records reported one by one."""

from __future__ import annotations

import gzip
import re
import zlib
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from typing import IO, cast

from muster.structs import struct
from placement import BadInput
from scheduler.files.errors import InputError, Problem
from simulator.traces.formats import (
    gavel,
    muster,
    pai,
    philly,
    sacct,
    swf,
    table,
)
from simulator.traces.record import BadRecord, FieldError, Read, TraceJob
from simulator.traces.sorting import by_submit, order

WINDOW = 10_000  # records that may be out of place in a file that is sorted on the whole
MOST_BYTES = 2**20  # of a line
PIECE_BYTES = 2**16  # of a file without lines


@struct(frozen=True, slots=True)
class TraceFormat:
    """A format of traces, with its reader. `is_sorted`: files are in submit order, give or take
    WINDOW records; the others are sorted on disk before the first job leaves. `is_lines`: a record
    is a line, which has an end. `note`: what is assumed beyond what the file says."""

    read: Read
    is_sorted: bool = False
    is_lines: bool = True
    note: str = ""


FORMATS: dict[str, TraceFormat] = {
    "swf": TraceFormat(swf.read, is_sorted=True),
    "philly-csv": TraceFormat(table.read_philly),
    "philly-json": TraceFormat(philly.read_json, is_lines=False),
    "helios": TraceFormat(table.read_helios),
    "acme": TraceFormat(table.read_acme),
    "pai": TraceFormat(pai.read, note=pai.NOTE),
    "gavel": TraceFormat(gavel.read, note=gavel.NOTE),
    "alibaba-spot": TraceFormat(table.read_alibaba_spot, note=table.SPOT_NOTE),
    "muri": TraceFormat(table.read_muri),
    "tiresias": TraceFormat(table.read_tiresias),
    "mystous": TraceFormat(table.read_mystous),
    "slurm-sacct": TraceFormat(sacct.read),
    "muster": TraceFormat(muster.read, is_sorted=True),
}
SACCT = "slurm-sacct"
_SACCT_COLUMNS = "the columns of sacct's --format"
TABLE = "csv"  # the format whose columns are given


def find_format(name: str, columns: str | None = None) -> TraceFormat:
    """Return the format of this name. `columns`: the column map of the format csv, which has none
    of its own; of slurm-sacct `gpus_per_node=N`, and the columns of a file without a header.

    Raises: InputError with the formats there are, or what is wrong with the columns.
    """
    if name == TABLE:
        return TraceFormat(table.reader(_column_map(columns or "")), note=table.NOTE)
    check_format(name)
    if columns and name == SACCT:
        if (options := _sacct_options(columns)) is None:
            message = f"with {SACCT} must be gpus_per_node=N or {_SACCT_COLUMNS}, not {columns!r}"
            raise InputError(Problem("--columns", message))
        gpus, names = options
        note = f"a job without GPUs holds {gpus} on each node" if gpus else ""
        return TraceFormat(partial(sacct.read, gpus_per_node=gpus, columns=names), note=note)
    return FORMATS[name]


def check_columns(text: str) -> None:
    """Refuse a text of columns that no format takes. Raises: BadInput."""
    if _sacct_options(text) is None:
        table.parse_columns(text)


def _sacct_options(text: str) -> tuple[int, tuple[str, ...]] | None:
    """Return GPUs a node, 0 where that is not said, and columns; None: it is neither."""
    gpus, names = 0, list[str]()
    for part in text.split(","):
        if match := re.fullmatch(r"gpus_per_node=([1-9][0-9]{0,3})", part, re.ASCII):
            gpus = int(match[1])
        elif re.fullmatch(r"\s*[A-Za-z]+(%-?\d*)?\s*", part):
            names.append(part)
        else:
            return None
    return gpus, sacct.named_columns(names)


def check_format(name: str) -> None:
    """Refuse an unknown format. Raises: InputError with the known formats."""
    if name != TABLE and name not in FORMATS:
        known = ", ".join((*FORMATS, TABLE))
        raise InputError(
            Problem("--trace-format", f"unknown trace format {name!r}; there are {known}")
        )


def _column_map(columns: str) -> table.ColumnMap:
    try:
        return table.parse_columns(columns)
    except BadInput as error:
        raise InputError(Problem("--columns", error.message)) from None


def advice(path: Path, tried: TraceFormat) -> str:
    """Advise on a file in which a format finds no job: the formats that do, else how
    to name its columns; empty where neither helps."""
    others = {name: each for name, each in FORMATS.items() if each is not tried}
    fits = [name for name, each in others.items() if _has_jobs(path, each)]
    if fits:
        return f"; it reads as {' or '.join(fits)}"
    try:
        _, first = next(iter(TraceFile(path, FORMATS["muri"], _ignore).lines()))
    except (StopIteration, InputError, FieldError, OSError, ValueError, EOFError, zlib.error):
        return ""
    guess = table.guessed_columns(first)
    return f"; any table with a header reads as csv, here with --columns {guess}" if guess else ""


def _has_jobs(path: Path, trace_format: TraceFormat) -> bool:
    """Whether, of the first records, more are jobs than are wrong."""
    jobs = faults = 0
    try:
        lines = TraceFile(path, trace_format, _ignore).lines()
        for record in islice(trace_format.read(lines), 100):
            jobs += isinstance(record, TraceJob)
            faults += isinstance(record, BadRecord) and record.is_fault
    except (FieldError, OSError, ValueError, EOFError, zlib.error):
        return False
    return jobs > faults


def _ignore(_: Path, __: BadRecord) -> None:
    """Ignore a record that is left out."""


def check_readable(path: str) -> None:
    """Refuse a file that cannot be opened. Raises: InputError."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise InputError(Problem("", f"{path}: {error.strerror or error}")) from None


@dataclass(slots=True)
class TraceFile:
    """A trace file to iterate over once.

    `on_bad` is called with (path, record) for each record left out; raise there to
    refuse the file. `records` counts all of them so far, good and bad, and `jobs` the good.
    """

    path: Path
    format: TraceFormat
    on_bad: Callable[[Path, BadRecord], None]
    records: int = 0
    jobs: int = 0
    _line: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[TraceJob]:
        """Jobs by submit time; those of equal times in the order of the file.

        Raises: InputError when the file cannot be read.
        """
        try:
            yield from self._in_window() if self.format.is_sorted else by_submit(self._good())
        except FieldError as error:
            hint = "" if self.jobs else advice(self.path, self.format)
            raise self._error(error.line or self._line, error.field, error.detail + hint) from None
        except OSError as error:
            raise self._error(0, "", f"cannot be read: {error.strerror or error}") from None
        except (UnicodeDecodeError, EOFError, zlib.error) as error:
            why = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
            raise self._error(self._line, "", f"cannot be read from here: {why}") from None

    def _error(self, line: int, field: str, message: str) -> InputError:
        return InputError(Problem(field, message, str(self.path), line))

    def _in_window(self) -> Iterator[TraceJob]:
        """Sort through a heap of WINDOW jobs, so that no file has to fit in memory."""
        heap: list[tuple[tuple[int, int], TraceJob]] = []
        newest_ns = -1
        for job in self._good():
            if job.submit_ns < newest_ns:
                late = f"is more than {WINDOW:,} records out of order"
                self.on_bad(self.path, BadRecord(job.line, "submit", late, late))
                continue
            heappush(heap, (order(job), job))
            if len(heap) > WINDOW:
                _, oldest = heappop(heap)
                newest_ns = oldest.submit_ns
                yield oldest
        while heap:
            yield heappop(heap)[1]

    def _good(self) -> Iterator[TraceJob]:
        for record in self.format.read(self.lines()):
            self.records += 1
            if isinstance(record, TraceJob):
                self.jobs += 1
                yield record
            else:
                self.on_bad(self.path, record)

    def lines(self) -> Iterable[tuple[int, str]]:
        """Yield the lines, or pieces of a file without lines, each with the number of its first
        line."""
        decode = getincrementaldecoder("utf-8")().decode
        is_lines = self.format.is_lines
        with _open(self.path) as file:
            self._line = 1
            while raw := file.readline(MOST_BYTES) if is_lines else file.read(PIECE_BYTES):
                count = raw.count(b"\n")
                if is_lines and not count and len(raw) == MOST_BYTES:
                    raise FieldError("line", f"is longer than {MOST_BYTES:,} bytes")
                text = decode(raw)
                yield self._line, text.removeprefix("\ufeff") if self._line == 1 else text
                self._line += count
            decode(b"", final=True)


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_gzip = file.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path, "rb")) if is_gzip else path.open("rb")
