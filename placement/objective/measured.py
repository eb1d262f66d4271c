"""Fits to what a cluster measured: the rate of a link, a factor of a GPU's compute by
precision. Errors count as shares of the time, so that short and long ones weigh alike."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import median

import numpy as np

from muster.structs import struct
from placement.errors import BadInput
from placement.fabric.calibration import LEAST, MOST
from placement.fabric.tree import Fabric, with_rates
from placement.objective.step_time import step_time
from placement.workload.request import Request

FEWEST_SIZES, FEWEST_SPAN, LARGEST_AT_LEAST = 5, 64, 8 << 20
FEWEST_RUNS = 2  # unlike ones, of a GPU and a precision: one is met exactly, whatever it says
MOST_ERROR = 0.02  # of a fit that is no better than none: less is noise
ROUNDS = 60  # of the search for a factor: each narrows it by a third


@struct(frozen=True, slots=True)
class LinkFit:
    """The goodput that was fitted for a link: GB/s of bus bandwidth that large messages reach.
    `error`: median share by which times of all sizes differ from a time that each takes + bytes /
    rate."""

    gb_per_s: float
    error: float


@struct(frozen=True, slots=True)
class MeasuredRun:
    """A measured run: a gang on hosts, and the seconds that its step took. `source`: where that was
    read."""

    source: str
    request: Request
    hosts: tuple[int, ...]
    seconds: float


@struct(frozen=True, slots=True)
class RateFit:
    """A fitted rate of a GPU in a precision, times the usual rate. `before`, `after`: median error
    of the runs, as a share, with the usual rate, and each run predicted by the others."""

    gpu: str
    precision: str
    factor: float
    runs: int
    before: float
    after: float


def fit_link(rows: Sequence[tuple[int, float, float]]) -> LinkFit:
    """Fit (bytes, microseconds, GB/s of bus bandwidth) of one collective.

    What every message takes besides its bytes is fitted so that it does not slow the rate, and left
    out: steps are a model of bandwidth.

    Raises: BadInput where there are too few sizes, or none large enough to fill the link.
    """
    sizes = {size for size, _, _ in rows}
    if len(sizes) < FEWEST_SIZES or max(sizes) < FEWEST_SPAN * min(sizes):
        raise BadInput(
            "",
            f"too little to fit: {FEWEST_SIZES} sizes, the largest {FEWEST_SPAN} times the least",
        )
    if max(sizes) < LARGEST_AT_LEAST:
        raise BadInput("", f"too little to fit: no size of {LARGEST_AT_LEAST >> 20} MiB or more")
    micros = np.array([time for _, time, _ in rows])
    gigabytes = np.array([bus * time * 1e-6 for _, time, bus in rows])
    weighed = np.stack([np.ones(len(rows)), gigabytes], axis=1) / micros[:, None]
    (latency, per_gb), *_ = np.linalg.lstsq(weighed, np.ones(len(rows)), rcond=None)
    if per_gb <= 0:
        raise BadInput("", "larger messages take no longer: nothing follows from that")
    latency = max(0.0, float(latency))
    error = median(np.abs((latency + gigabytes * per_gb) / micros - 1).tolist())
    return LinkFit(1e6 / float(per_gb), error)


def fit_rates(fabric: Fabric, runs: Sequence[MeasuredRun]) -> tuple[RateFit, ...]:
    """Fit one factor for each GPU and precision that the runs have.

    Raises: BadInput naming the run where one has no model, or where there are too few.
    """
    groups: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in runs:
        if run.request.model is None:
            raise BadInput("model", f"{run.source}: the job has no model whose compute is fitted")
        kinds = fabric.by_host.kinds_of(list(run.hosts))
        if len(kinds) > 1:
            raise BadInput(
                "", f"{run.source}: ran on several kinds of GPU: nothing tells them apart"
            )
        groups.setdefault((kinds[0].name, run.request.model.dtype), []).append(run)
    return tuple(_fit_rate(fabric, *key, group) for key, group in groups.items())


def _fit_rate(fabric: Fabric, gpu: str, precision: str, runs: Sequence[MeasuredRun]) -> RateFit:
    if (unlike := len({run.request for run in runs})) < FEWEST_RUNS:
        raise BadInput(
            "",
            f"{gpu} in {precision}: runs of {unlike} layout are too little to fit:"
            f" give {FEWEST_RUNS} or more that differ in model, batch or parallelism",
        )

    def errors(some: Sequence[MeasuredRun], factor: float) -> list[float]:
        changed = with_rates(fabric, {gpu: {precision: factor}})
        return [log(step_time(changed, r.request, r.hosts).seconds / r.seconds) for r in some]

    def best(some: Sequence[MeasuredRun]) -> float:
        low, high = log(LEAST), log(MOST)
        for _ in range(ROUNDS):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            at_left, at_right = (
                sum(error**2 for error in errors(some, exp(at))) for at in (left, right)
            )
            low, high = (low, right) if at_left < at_right else (left, high)
            if high - low < 1e-4:
                break
        return exp((low + high) / 2)

    factor = best(runs)
    if not LEAST * 1.01 < factor < MOST * 0.99:
        raise BadInput(
            "",
            f"{gpu} in {precision}: {runs[0].source} and its like would need {factor:.2f} times the"
            " usual rate: is it the log of this job?",
        )
    before = median(abs(exp(error) - 1) for error in errors(runs, 1.0))
    held_out = [
        errors([run], best([other for other in runs if other is not run]))[0] for run in runs
    ]
    after = median(abs(exp(error) - 1) for error in held_out)
    if after > max(before, MOST_ERROR):
        raise BadInput(
            "",
            f"{gpu} in {precision}: the runs disagree: predicted by the others each is"
            f" {100 * after:.0f} % off, and {100 * before:.0f} % without a fit",
        )
    return RateFit(gpu, precision, factor, len(runs), before, after)
