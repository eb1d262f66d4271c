"""Whether a generated trace is long enough to reach its load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.report.text import duration
from simulator.traces.record import SECOND_NS, TraceJob

ENOUGH = 5  # runs, by GPU time, that submits go on for


class Extent:
    """How long submits go on beside how long jobs run, counted as jobs pass by.

    A cluster that begins empty fills over about one run; runs count by their GPU time,
    for it is the long and large ones that fill it.
    """

    def __init__(self) -> None:
        self.jobs = 0
        self.span_s = 0.0
        self._gpu_s = 0.0
        self._gpu_s2 = 0.0

    def watch(self, jobs: Iterable[TraceJob]) -> Iterator[TraceJob]:
        for job in jobs:
            run_s = job.run_ns / SECOND_NS
            self.jobs += 1
            self.span_s = job.submit_ns / SECOND_NS
            self._gpu_s += job.gpus * run_s
            self._gpu_s2 += job.gpus * run_s * run_s
            yield job

    @property
    def run_s(self) -> float:
        """Mean run time, by GPU time."""
        return self._gpu_s2 / self._gpu_s if self._gpu_s else 0.0

    def __str__(self) -> str:
        told = (
            f"{self.jobs:,} jobs over {duration(self.span_s)};"
            f" a run takes {duration(self.run_s)}, by GPU time"
        )
        if self.span_s >= ENOUGH * self.run_s:
            return told
        return f"{told}. The cluster begins empty: more jobs are needed to see it at this load"
