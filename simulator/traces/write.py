"""Jobs as lines of muster's trace format."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

from scheduler.files.atomic_file import written
from simulator.traces.record import SECOND_NS, TraceJob


def line(job: TraceJob, zero_ns: int) -> str:
    """Return a generated job, a size with a run time and an outcome, as a line of a muster trace.
    `zero_ns`: the time from which submits count."""
    record: dict[str, Any] = {
        "submit_s": _seconds(job.submit_ns - zero_ns),
        "run_s": _seconds(job.run_ns),
        "name": job.id,
        "gpus": job.gpus,
    }
    if job.outcome:
        record["outcome"] = str(job.outcome)
    return json.dumps(record, ensure_ascii=False, separators=(", ", ": ")) + "\n"


def _seconds(time_ns: int) -> int | float:
    seconds, odd = divmod(time_ns, SECOND_NS)
    return time_ns / SECOND_NS if odd else seconds


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a text file to write, gzip if its name ends so; the same text gives the same bytes.
    Raises: InputError, OSError."""
    with written(path, "--output") as raw, ExitStack() as stack:
        out: IO[bytes] = raw
        if path.suffix == ".gz":  # without its name and time
            packed = gzip.GzipFile("", "wb", mtime=0, fileobj=raw)
            out = cast(IO[bytes], stack.enter_context(packed))
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        stack.callback(text.detach)  # `raw` is not for it to close
        yield text
        text.flush()
