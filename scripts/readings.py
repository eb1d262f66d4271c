"""What the public trace files hold, as published, and what the readers make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scheduler.files.errors import InputError
from simulator.traces.load import TraceFile, find_format
from simulator.traces.record import BadRecord


@dataclass(frozen=True, slots=True)
class Reading:
    """A file and what it is known to hold: records, and how many are not jobs, by reason.

    `largest`: GPUs (SWF: processors) of its largest job.
    """

    file: str
    trace_format: str
    records: int
    largest: int
    left_out: dict[str, int] = field(default_factory=dict)


NO_RUN = "run must not be negative"
PHYSICAL = {
    "artifact_evaluation": (15, 2),
    "debug": (14, 2),
    "debug_v2": (14, 2),
    "highmem_test": (8, 2),
    "max_min_fairness": (96, 4),
    "medium_test": (20, 1),
    "minimize_makespan": (100, 4),
    "small_test": (20, 2),
}
READINGS = (
    Reading("philly/philly.csv.gz", "philly-csv", 78_156, 32),
    Reading("swf/NASA-iPSC-1993-3.1-cln.swf.gz", "swf", 18_239, 128),
    Reading("swf/hpc2n-alea-subset.swf.gz", "swf", 3_170, 128, {NO_RUN: 25}),
    Reading("swf/metacentrum-wagap-2013.swf.gz", "swf", 17_900, 256, {NO_RUN: 2}),
    Reading("swf/lublin_256-synthetic.swf.gz", "swf", 10_000, 256),
    Reading("gavel/msr__seed=0__11cb48.trace.gz", "gavel", 2_000, 64),
    Reading("gavel/msr__seed=0__b436b2.trace.gz", "gavel", 2_000, 24),
    Reading("gavel/msr__seed=0__e13805.trace.gz", "gavel", 607, 24),
    *(
        Reading(f"gavel/physical_cluster__{name}.trace.gz", "gavel", records, largest)
        for name, (records, largest) in PHYSICAL.items()
    ),
    Reading(
        "slurm_sacct_sample/gcm-sample-sacct-output.txt.gz",
        "slurm-sacct",
        68,
        0,
        {"JobID is a step of a job, not a job": 68},
    ),
)


def check(reading: Reading, folder: Path) -> Iterator[str]:
    """Yield what the reader makes of the file that is not as published."""
    left_out: Counter[str] = Counter()

    def on_bad(_: Path, bad: BadRecord) -> None:
        left_out[bad.kind] += 1

    trace = TraceFile(folder / reading.file, find_format(reading.trace_format), on_bad)
    jobs = largest = 0
    try:
        for job in trace:
            jobs += 1
            largest = max(largest, job.gpus)
    except InputError as error:
        yield str(error)
        return
    if trace.records != reading.records:
        yield f"{reading.records:,} records are known, {trace.records:,} were read"
    if left_out != Counter(reading.left_out):
        yield f"{reading.left_out} is known to be no job, {dict(left_out)} was left out"
    if jobs + left_out.total() != trace.records:
        yield f"{trace.records:,} records, {jobs:,} jobs and {left_out.total():,} left out"
    if largest != reading.largest:
        yield f"the largest job is known to have {reading.largest} GPUs, {largest} were read"


def run(folder: Path) -> int:
    """Print each file that is there; how many are not as published."""
    broken = 0
    for reading in READINGS:
        if not (folder / reading.file).is_file():
            print(f"{reading.file}: not there, passed over")
            continue
        wrong = list(check(reading, folder))
        broken += bool(wrong)
        print(f"{reading.file}: {reading.records:,} records as {reading.trace_format}")
        for sentence in wrong:
            print(f"  FAILED {sentence}")
    print(f"{broken} of {len(READINGS)} trace files are not read as published\n", flush=True)
    return broken
