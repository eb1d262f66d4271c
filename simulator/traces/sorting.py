"""Jobs of a file in no order, in order: sorted in runs that are kept on disk, then merged.

Memory: one run while the file is read, then a job of each run. Runs of fewer jobs than
RUN never leave memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import islice
from operator import attrgetter
from tempfile import TemporaryFile
from typing import IO

from simulator.traces.record import TraceJob

RUN = 50_000  # jobs sorted at a time, some 25 MB
BATCH = 100  # jobs that are written, and read back, as one
values = attrgetter(*TraceJob.__match_args__)  # half the time of pickling the jobs themselves


def order(job: TraceJob) -> tuple[int, int]:
    """Return the key to sort by submit time, then by order in the file."""
    return job.submit_ns, job.line


def by_submit(jobs: Iterable[TraceJob]) -> Iterator[TraceJob]:
    """Yield all of `jobs` in order of submit time. Raises: OSError when they do not fit in memory
    and the disk does not take them."""
    stream = iter(jobs)
    run = sorted(islice(stream, RUN), key=order)
    if len(run) < RUN:
        yield from run
        return
    with ExitStack() as stack:
        runs = []
        while run:
            file = stack.enter_context(TemporaryFile(prefix="muster-"))
            _write(run, file)
            runs.append(_read(file))
            run = sorted(islice(stream, RUN), key=order)
        yield from merge(*runs, key=order)


def _write(run: list[TraceJob], file: IO[bytes]) -> None:
    for first in range(0, len(run), BATCH):
        batch = [values(job) for job in run[first : first + BATCH]]
        pickle.dump(batch, file, pickle.HIGHEST_PROTOCOL)
    file.seek(0)


def _read(file: IO[bytes]) -> Iterator[TraceJob]:
    while True:
        try:
            batch = pickle.load(file)
        except EOFError:
            return
        for kept in batch:
            yield TraceJob(*kept)
