"""Runs of a twin side by side: the cluster as it is, and with changes, on the same seeds.

Figures are means over the seeds with 95 % intervals by Student's t. What a change makes of them is
taken seed by seed, for a seed gives all scenarios the same arrivals, failures and run times: the
interval of the differences is the narrower for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import sqrt
from time import perf_counter
from typing import Any

from muster.structs import struct
from scheduler.files.timeparse import written
from simulator.pool import run_all
from simulator.traces.record import SECOND_NS
from simulator.twin.changes import Scenario
from simulator.twin.future import TwinWorld, future
from simulator.twin.prices import PriceList

FIGURES = (
    *("effective_gpu_h", "goodput", "effective_share", "wait_mean_s", "wait_p95_s"),
    *("lost_gpu_h", "spare_gpu_h", "out_gpu_h"),
    *("restarts", "preemptions", "host_failures", "still_waiting", "submitted", "ended"),
    *("retired_hosts", "false_swaps"),
)
# 97.5 % quantiles of Student's t by degrees of freedom, from 1 on.
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@struct(frozen=True, slots=True)
class SeedMean:
    """A mean over seeds, and half of the width of its 95 % interval; None for a single seed."""

    mean: float
    half: float | None

    @staticmethod
    def of(values: Sequence[float]) -> SeedMean:
        count = len(values)
        mean = sum(values) / count if count else 0.0
        if count < 2:
            return SeedMean(mean, None)
        variance = sum((value - mean) ** 2 for value in values) / (count - 1)
        t = _T[min(count - 2, len(_T) - 1)]
        return SeedMean(mean, t * sqrt(variance / count))

    def data(self) -> dict[str, float | None]:
        if self.half is None:
            return {"mean": self.mean, "low": None, "high": None}
        return {"mean": self.mean, "low": self.mean - self.half, "high": self.mean + self.half}


@struct(frozen=True, slots=True)
class _Piece:
    scenario: Scenario
    seed: int


def study(
    world: TwinWorld,
    scenarios: Sequence[Scenario],
    seeds: Sequence[int],
    processes: int = 1,
    dask: str | None = None,
    prices: PriceList | None = None,
    on_done: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Run each scenario once a seed; return all figures as JSON values. The first is the base.
    `processes`, `dask`: as of `run_all`. `on_done`: called after each run with its seconds.

    Raises: InputError when a process ends, or there is no such Dask scheduler.
    """
    pieces = [_Piece(scenario, seed) for scenario in scenarios for seed in seeds]
    runs: list[dict[str, Any]] = [{} for _ in pieces]
    common = partial(_run, world)
    for number, (figures, took_s) in run_all(common, pieces, processes, dask):
        runs[number] = {"seed": pieces[number].seed, **figures}
        if on_done:
            on_done(took_s)
    each = [runs[i : i + len(seeds)] for i in range(0, len(runs), len(seeds))]
    horizon_h = world.horizon_ns / SECOND_NS / 3600
    if prices is not None:
        for scenario, of in zip(scenarios, each, strict=True):
            for run in of:
                run["money"] = prices.of(run, scenario.state.built_fabric, horizon_h)
    fork = world.fork
    return {
        "source": fork.source,
        "version": fork.state.version,
        "time": written(datetime.fromtimestamp(fork.now_ns / SECOND_NS, UTC)),
        "fabric": {
            "name": fork.state.built_fabric.name,
            "digest": fork.state.built_fabric.digest,
            "hosts": fork.state.built_fabric.host_count,
            "gpus": fork.state.built_fabric.gpu_count,
        },
        "policy": fork.options.policy,
        "horizon_s": world.horizon_ns / SECOND_NS,
        "seeds": list(seeds),
        "currency": None if prices is None else prices.currency,
        "times": None if world.times is None else world.times.source,
        "fitted": [*world.workload.sentences(), *world.failures.sentences()],
        "scenarios": [
            _row(scenario, of, each[0]) for scenario, of in zip(scenarios, each, strict=True)
        ],
    }


def _run(world: TwinWorld, piece: _Piece) -> tuple[dict[str, Any], float]:
    """In a process of its own; with the seconds that it took."""
    began_s = perf_counter()
    figures = future(world, piece.scenario, piece.seed)
    return figures, perf_counter() - began_s


def _row(
    scenario: Scenario, runs: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    figures, differences = _estimates(runs, base, FIGURES)
    row = {
        "name": scenario.name,
        "changes": list(scenario.changes),
        "figures": figures,
        "differences": differences,
        "waits": _waits(runs, base),
        "runs": list(runs),
    }
    if "money" in runs[0]:
        bills, usual = [run["money"] for run in runs], [run["money"] for run in base]
        row["money"], row["money_differences"] = _estimates(bills, usual, tuple(bills[0]))
    return row


def _estimates(
    runs: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures, and how much more they are than the base's, seed by seed."""
    means = {key: SeedMean.of([run[key] for run in runs]).data() for key in keys}
    more = {
        key: SeedMean.of([a[key] - b[key] for a, b in zip(runs, base, strict=True)]).data()
        for key in keys
    }
    return means, more


def _waits(
    runs: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """By tenant and size; seeds under which no such job came are left out."""
    kinds = {(wait["tenant"], wait["size"]): wait["order"] for run in runs for wait in run["waits"]}
    rows = []
    for tenant, size in sorted(kinds, key=lambda kind: (kind[0], kinds[kind])):
        here, there = (_by_kind(of, tenant, size) for of in (runs, base))
        pairs = [(a, b) for a, b in zip(here, there, strict=True) if a and b]
        present = [wait for wait in here if wait]
        rows.append(
            {
                "tenant": tenant,
                "size": size,
                "jobs": sum(wait["jobs"] for wait in present) / len(runs),
                "wait_mean_s": SeedMean.of([wait["wait_mean_s"] for wait in present]).data(),
                "difference": SeedMean.of(
                    [a["wait_mean_s"] - b["wait_mean_s"] for a, b in pairs]
                ).data(),
            }
        )
    return rows


def _by_kind(
    runs: Sequence[Mapping[str, Any]], tenant: str, size: str
) -> list[Mapping[str, Any] | None]:
    return [
        next((w for w in run["waits"] if (w["tenant"], w["size"]) == (tenant, size)), None)
        for run in runs
    ]
