"""What runs are compared by: a figure from the totals, its words, which way is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.structs import struct
from simulator.report.text import duration


@struct(frozen=True, slots=True)
class Measure:
    """A figure in the totals, which `path` leads to. `better`: 1 where more is better, -1 where
    less is, 0 where neither."""

    key: str
    words: str
    path: tuple[str, ...]
    better: int
    text: Callable[[float], str]

    def of(self, totals: Mapping[str, Any]) -> float:
        value: Any = totals
        for step in self.path:
            value = value[step] if value else 0
        number: float = value
        return number


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _share(value: float) -> str:
    return f"{100 * value:.2f} %"


FIGURES = (
    Measure("completed", "completed", ("completed",), 1, _count),
    Measure("rejected", "rejected", ("rejected",), -1, _count),
    Measure("unfinished", "unfinished", ("unfinished",), -1, _count),
    Measure("makespan_s", "makespan", ("makespan_s",), -1, duration),
    Measure("wait_mean_s", "wait, mean", ("wait_s", "mean"), -1, duration),
    Measure("wait_p50_s", "wait, p50", ("wait_s", "p50"), -1, duration),
    Measure("wait_p95_s", "wait, p95", ("wait_s", "p95"), -1, duration),
    Measure("wait_p99_s", "wait, p99", ("wait_s", "p99"), -1, duration),
    Measure("slowdown", "bounded slowdown", ("bounded_slowdown", "mean"), -1, "{:,.2f}".format),
    Measure("utilization", "utilization of hosts", ("utilization",), 1, _share),
    Measure("gpu_utilization", "utilization of GPUs", ("gpu_utilization",), 1, _share),
    Measure("goodput", "goodput", ("goodput",), 1, _share),
    Measure("ettr", "ETTR", ("ettr",), 1, _share),
    Measure(
        "largest_took_s", "largest job, first start to end", ("largest_job", "took_s"), -1, duration
    ),
    Measure("largest_wait_s", "largest job, wait", ("largest_job", "wait_s"), -1, duration),
    Measure("host_failures", "host failures", ("host_failures",), 0, _count),
    Measure("restarts", "restarts", ("restarts",), -1, _count),
    Measure("preemptions", "preemptions", ("preemptions",), 0, _count),
)
BY_KEY = {figure.key: figure for figure in FIGURES}


@struct(frozen=True, slots=True)
class SeedRange:
    """One figure over several seeds."""

    mean: float
    least: float
    most: float

    @staticmethod
    def of(values: Sequence[float]) -> SeedRange:
        return SeedRange(sum(values) / len(values), min(values), max(values))

    def text(self, measure: Measure) -> str:
        """The mean, with the range where seeds differ."""
        spread = self.spread(measure)
        return measure.text(self.mean) + (f" ({spread})" if spread else "")

    def spread(self, measure: Measure) -> str:
        """The least and the most value; "" where they are equal."""
        if self.least == self.most:
            return ""
        return f"{measure.text(self.least)} to {measure.text(self.most)}"


def shown(runs: Sequence[Mapping[str, Any]]) -> list[Measure]:
    """Return the figures that are not 0 everywhere."""
    always = ("completed", "makespan_s", "wait_mean_s", "utilization", "gpu_utilization", "goodput")
    return [f for f in FIGURES if f.key in always or any(f.of(run) for run in runs)]
