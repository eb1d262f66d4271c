"""Waits, slowdowns and cuts by size of job: a fold over ended jobs and started gangs."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from placement.fabric.tree import Fabric
from scheduler.core.model.events import JobStarted
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import JobState
from simulator.collectors.metrics import JobRow, percentile

MOST_POINTS = 120  # of a curve


# Largest size of each class in GPUs. Powers of eight: a device, a host, a rack or two,
# a zone, and what is larger.
LARGEST = (1, 8, 64, 512, 4096)


@dataclass(slots=True)
class _Class:
    """The counts of one size class."""

    jobs: int = 0
    completed: int = 0
    host_ns: int = 0
    waits_s: array[float] = field(default_factory=lambda: array("d"))
    slowdowns: array[float] = field(default_factory=lambda: array("d"))
    starts: int = 0
    cut_bytes: int = 0
    bound_bytes: int = 0
    at_bound: int = 0
    domains: int = 0
    most_domains: int = 0


class SizeClasses:
    """Jobs by size class: by GPUs that a job ran on, or asked for when it never ran.

    The cut is that of the outermost tier, bytes per step as each gang was placed.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._gpus = fabric.gpus_per_host
        self._index = fabric.index_by_name
        self._domain = fabric.tiers[0].domain_by_host if fabric.tiers else None
        self._classes: dict[int, _Class] = {}

    def ended(self, row: JobRow) -> None:
        """Count a job that is over."""
        size = self._class(row.part_gpus or row.hosts * self._gpus)
        size.jobs += 1
        size.host_ns += row.host_ns
        if row.wait_ns is not None:
            size.waits_s.append(row.wait_ns / SECOND_NS)
        if row.outcome is JobState.COMPLETED:
            size.completed += 1
            size.slowdowns.append(row.slowdown)

    def started(self, event: JobStarted) -> None:
        """Count a gang as it was placed. Cost: O(its hosts)."""
        size = self._class(len(event.gpus) or len(event.hosts) * self._gpus)
        cut = event.cuts[0].bytes_per_step if event.cuts else 0
        size.starts += 1
        size.cut_bytes += cut
        size.bound_bytes += min(event.lower_bound, cut)
        size.at_bound += cut <= event.lower_bound
        domains = self._spanned(event.hosts)
        size.domains += domains
        size.most_domains = max(size.most_domains, domains)

    def _spanned(self, hosts: tuple[str, ...]) -> int:
        if self._domain is None:
            return 1
        return len(np.unique(self._domain[[self._index[host] for host in hosts]]))

    def _class(self, gpus: int) -> _Class:
        at = size_class(gpus)
        return self._classes.setdefault(at, _Class())

    def data(self) -> list[dict[str, Any]]:
        """Return one entry for each class that has a job, smallest first."""
        return [_row(at, size) for at, size in sorted(self._classes.items())]


def size_class(gpus: int) -> int:
    """Return the number of the class of so many GPUs, smallest first."""
    return sum(gpus > largest for largest in LARGEST)


def label(at: int) -> str:
    """Return the sizes of a class in words."""
    if at == 0:
        return "1 GPU"
    if at == len(LARGEST):
        return f"over {LARGEST[-1]:,} GPUs"
    return f"{LARGEST[at - 1] + 1:,}-{LARGEST[at]:,} GPUs"


def _row(at: int, size: _Class) -> dict[str, Any]:
    return {
        "class": label(at),
        "jobs": size.jobs,
        "completed": size.completed,
        "host_s": size.host_ns / SECOND_NS,
        "wait_s": _quantiles(size.waits_s),
        "wait_curve": _curve(sorted(size.waits_s)),
        "slowdown": _quantiles(size.slowdowns),
        "starts": size.starts,
        "cut_bytes": size.cut_bytes,
        "bound_bytes": size.bound_bytes,
        "starts_at_bound": size.at_bound,
        "domains": {
            "mean": size.domains / size.starts if size.starts else 0.0,
            "most": size.most_domains,
        },
    }


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered, mean = sorted(values), sum(values) / len(values) if values else 0.0
    shares = {f"p{percent}": percentile(ordered, percent) for percent in (50, 95, 99)}
    return {name: round(value, 4) for name, value in {"mean": mean, **shares}.items()}


def _curve(ordered: Sequence[float]) -> list[list[float]]:
    """Return points (value, share of all values that do not exceed it), about even in share."""
    last = len(ordered) - 1
    shown = dict.fromkeys(
        ordered[at * last // MOST_POINTS] for at in range(MOST_POINTS + 1 if ordered else 0)
    )
    return [[round(v, 3), round(bisect_right(ordered, v) / len(ordered), 4)] for v in shown]
