"""Gavel's `.trace`, and Shockwave's: cells between tabs, no header.

Which fields there are follows from their number:

    7   job_type command num_steps_arg needs_data_dir total_steps arrival_time GPUs
    10  job_type command working_directory num_steps_arg needs_data_dir total_steps GPUs
        priority_weight SLO arrival_time
    12  as 10 with mode after GPUs and duration before arrival_time (Shockwave)

Only Shockwave gives a run time; else it is total_steps over the rate that Gavel's authors measured
for the type alone on one P100 (oracle_throughputs_v2.json), times √GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from simulator.traces.formats.columns import split
from simulator.traces.record import (
    SECOND_NS,
    BadRecord,
    FieldError,
    Lines,
    TraceJob,
    count,
    number,
    read_records,
    seconds_ns,
    usable,
)

# Steps a second on one P100, by job type and batch size.
RATES = {
    "ResNet-18": {16: 35.87, 32: 35.83, 64: 22.30, 128: 11.68, 256: 7.72},
    "ResNet-50": {16: 9.05, 32: 4.89, 64: 2.62, 128: 1.58},
    "Transformer": {16: 9.54, 32: 7.87, 64: 5.09, 128: 3.07, 256: 1.68},
    "LM": {5: 90.8, 10: 77.1, 20: 58.2, 40: 35.8, 80: 21.2},
    "Recommendation": {512: 48.9, 1024: 30.7, 2048: 16.6, 4096: 8.90, 8192: 5.55},
}
RATE = {
    "A3C": 5.68,
    "CycleGAN": 2.40,
    **{
        f"{model} (batch size {batch})": rate
        for model, rates in RATES.items()
        for batch, rate in rates.items()
    },
}
NOTE = "a job of Gavel's runs for total_steps / (rate of its type on one P100 x √GPUs)"
# (total_steps, arrival_time, GPUs, duration) by the number of fields.
PLACES = {7: (4, 5, 6, None), 10: (5, 9, 6, None), 12: (5, 11, 6, 10)}


def read(lines: Lines) -> Iterator[TraceJob | BadRecord]:
    """Yield the jobs of a Gavel trace in the order of the file."""
    return read_records(((line, text) for line, text in lines if text.strip()), _job)


def _job(line: int, text: str) -> TraceJob:
    fields = split(text, "\t")
    if len(fields) not in PLACES:
        raise FieldError("fields", "must be 7, 10 or 12 between tabs", str(len(fields)))
    steps, arrival, size, duration = PLACES[len(fields)]
    submit_ns = seconds_ns(fields[arrival], "arrival_time")
    if submit_ns < 0:
        raise FieldError("arrival_time", "must not be negative", fields[arrival])
    gpus = count(fields[size], "GPUs")
    if duration is not None:
        run_ns = seconds_ns(fields[duration], "duration")
    else:
        run_ns = _run_ns(fields[0], number(fields[steps], "total_steps"), gpus)
    job = TraceJob(f"line-{line}", submit_ns, run_ns, line, gpus, queue=fields[0])
    return usable(job, "total_steps", "GPUs")


def _run_ns(job_type: str, steps: float, gpus: int) -> int:
    if job_type not in RATE:
        raise FieldError("job_type", "must be one whose rate is known", job_type)
    return round(steps / (RATE[job_type] * sqrt(max(1, gpus))) * SECOND_NS)
