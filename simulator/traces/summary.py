"""What a trace holds: sizes, run times, GPU-hours, arrivals, ends. One pass, little memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import Any

from simulator.traces.record import SECOND_NS, TraceJob

BOUNDS = (1, 7, 8, 63, 255, 1023)  # GPUs of the largest job of a class; the last has no end
CLASSES = ("1", "2-7", "8", "9-63", "64-255", "256-1,023", "1,024 and more")
STEP = log(1.01)  # run times of one bin differ by 1 %
HOUR_NS = 3600 * SECOND_NS


@dataclass(slots=True)
class RunTimes:
    """Run times in bins of 1 %: quantiles are right to that."""

    count: int = 0
    total_s: float = 0.0
    most_s: float = 0.0
    _bins: Counter[float] = field(default_factory=Counter)

    def add(self, run_s: float) -> None:
        self.count += 1
        self.total_s += run_s
        self.most_s = max(self.most_s, run_s)
        self._bins[round(log(run_s) / STEP) if run_s else -inf] += 1

    def quantile(self, share: float) -> float:
        """Return a quantile of the run times; 0 when there are none."""
        left = share * self.count
        for number in sorted(self._bins):
            left -= self._bins[number]
            if left <= 0:
                return min(exp(number * STEP), self.most_s)
        return self.most_s

    def figures(self) -> dict[str, float]:
        mean_s = self.total_s / self.count if self.count else 0.0
        quantiles = {f"p{p}": self.quantile(p / 100) for p in (50, 95, 99)}
        return {"mean": mean_s, **quantiles, "max": self.most_s}


@dataclass(slots=True)
class JobGroup:
    """Jobs of one kind. Times of GPUs in seconds."""

    jobs: int = 0
    gpu_s: float = 0.0
    runs: RunTimes = field(default_factory=RunTimes)

    def add(self, gpus: int, run_s: float) -> None:
        self.jobs += 1
        self.gpu_s += gpus * run_s
        self.runs.add(run_s)


class TraceSummary:
    """Counts jobs of a trace by size, end and hour of the day."""

    def __init__(self) -> None:
        self.all = JobGroup()
        self.by_class = {name: JobGroup() for name in CLASSES}
        self.by_outcome: dict[str, JobGroup] = {}
        self.by_hour = [0] * 24
        self.sizes: Counter[int] = Counter()
        self.limited = 0
        self.first_ns = self.last_ns = -1

    def add(self, job: TraceJob) -> None:
        """Count one job; jobs come in submit order."""
        run_s = job.run_ns / SECOND_NS
        if self.first_ns < 0:
            self.first_ns = job.submit_ns
        self.last_ns = job.submit_ns
        outcome = self.by_outcome.setdefault(job.outcome.value or "unknown", JobGroup())
        for bundle in (self.all, self.by_class[_class(job.gpus)], outcome):
            bundle.add(job.gpus, run_s)
        self.by_hour[job.submit_ns // HOUR_NS % 24] += 1
        self.sizes[job.gpus] += 1
        self.limited += job.time_limit_ns is not None

    def figures(self) -> dict[str, Any]:
        """Return JSON values. Shares are of 1."""
        return {
            "jobs": self.all.jobs,
            "span_s": (self.last_ns - self.first_ns) / SECOND_NS,
            "gpu_hours": self.all.gpu_s / 3600,
            "gpus": self._gpus(),
            "run_s": self.all.runs.figures(),
            "with_time_limit": self.limited,
            "by_gpus": {name: self._part(part) for name, part in self.by_class.items()},
            "by_outcome": {
                name: self._part(part) for name, part in sorted(self.by_outcome.items())
            },
            "submits_by_hour": self.by_hour,
        }

    def _gpus(self) -> dict[str, float]:
        jobs = self.all.jobs
        middle = (jobs + 1) // 2
        median = so_far = 0
        for gpus in sorted(self.sizes):
            so_far += self.sizes[gpus]
            if so_far >= middle:
                median = gpus
                break
        mean = sum(gpus * n for gpus, n in self.sizes.items()) / jobs if jobs else 0.0
        return {"mean": mean, "p50": median, "max": max(self.sizes, default=0)}

    def _part(self, part: JobGroup) -> dict[str, Any]:
        return {
            "jobs": part.jobs,
            "share": part.jobs / self.all.jobs if self.all.jobs else 0.0,
            "gpu_hours": part.gpu_s / 3600,
            "gpu_hours_share": part.gpu_s / self.all.gpu_s if self.all.gpu_s else 0.0,
            "run_s": part.runs.figures(),
        }


def _class(gpus: int) -> str:
    return next((n for n, most in zip(CLASSES, BOUNDS, strict=False) if gpus <= most), CLASSES[-1])
