"""Generated traces have the published figures of the cluster that they are made after.

Tolerances: what is fitted is met to 0.1 %; shares of ends by GPU time to one point, since
a share below zero is cut off. Of 100,000 drawn jobs: mean size within 5 %, median run
time within 5 %, mean run time within 12 % (its tail is long), shares of jobs within a
point, of GPU time within six points.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simulator.mixes.fit import JobMix, fit
from simulator.mixes.generate import (
    HOUR_S,
    WEEK_S,
    WEIGHTS,
    MixRequest,
    generate,
    time_of,
    weight_until,
)
from simulator.mixes.published import MIXES, SUMMARIES, ClusterSummary
from simulator.traces.record import SECOND_NS

JOBS = 100_000
EVERY = pytest.mark.parametrize("published", SUMMARIES, ids=lambda found: found.name)
OUTCOMES = ("completed", "cancelled", "failed")


def wanted(published: ClusterSummary, jobs: int = 2_000, **changed: Any) -> MixRequest:
    given: dict[str, Any] = {"hosts": 3072, "gpus_per_host": 8, "load": 0.8, "seed": 1}
    return MixRequest(fit(published), jobs, **(given | changed))


def mean_gpu_s(mix: JobMix) -> float:
    return sum(c.share * c.gpus * c.mean_run_s for c in mix.classes)


def mean(mix: JobMix, field: str) -> float:
    return sum(c.share * float(getattr(c, field)) for c in mix.classes)


# --- the fit -------------------------------------------------------------------


@EVERY
def test_the_fit_has_the_published_figures(published: ClusterSummary) -> None:
    mix = fit(published)

    assert sum(c.share for c in mix.classes) == pytest.approx(1)
    assert mean_gpu_s(mix) == pytest.approx(published.gpu_s, rel=1e-3)
    if published.mean_gpus is not None:
        assert mean(mix, "gpus") == pytest.approx(published.mean_gpus, rel=1e-3)
    if published.mean_run_s is not None:
        assert mean(mix, "mean_run_s") == pytest.approx(published.mean_run_s, rel=1e-3)
    if published.median_run_s is not None:
        assert mix.shorter(published.median_run_s) == pytest.approx(0.5, abs=1e-3)
    gpu_s = {c: c.share * c.gpus * c.mean_run_s for c in mix.classes}
    for group in published.groups:
        if group.gpu_time is not None:
            inside = sum(gpu_s[c] for c in mix.classes if c.gpus in group.sizes)
            assert inside / mean_gpu_s(mix) == pytest.approx(group.gpu_time, rel=1e-3)
    for name in OUTCOMES:
        by_jobs = sum(c.share * getattr(c.ends, name) for c in mix.classes)
        assert by_jobs == pytest.approx(getattr(published.ends, name), abs=0.01)
        if published.ends_by_gpu_time:
            by_time = sum(gpu_s[c] * getattr(c.ends, name) for c in mix.classes) / mean_gpu_s(mix)
            aim = getattr(published.ends_by_gpu_time, name)
            assert by_time == pytest.approx(aim, abs=0.01)


# --- what is drawn -------------------------------------------------------------


@pytest.mark.slow
@EVERY
def test_a_trace_has_the_published_sizes_run_times_and_ends(published: ClusterSummary) -> None:
    jobs = [*generate(wanted(published, JOBS))]
    gpus = np.array([job.gpus for job in jobs])
    run_s = np.array([job.run_ns / SECOND_NS for job in jobs])
    ends = np.array([job.outcome.value for job in jobs])
    mix = fit(published)

    assert gpus.mean() == pytest.approx(mean(mix, "gpus"), rel=0.05)
    assert np.median(gpus) <= 2
    assert gpus.max() == max(c.gpus for c in mix.classes)
    assert run_s.mean() == pytest.approx(mean(mix, "mean_run_s"), rel=0.12)
    assert run_s.max() <= published.max_run_s
    if published.median_run_s is not None:
        assert np.median(gpus) == 1
        assert np.median(run_s) == pytest.approx(published.median_run_s, rel=0.05)
    for name in OUTCOMES:
        assert (ends == name).mean() == pytest.approx(getattr(published.ends, name), abs=0.01)
        if published.ends_by_gpu_time:
            share = (gpus * run_s)[ends == name].sum() / (gpus * run_s).sum()
            aim = getattr(published.ends_by_gpu_time, name)
            assert share == pytest.approx(aim, abs=0.06)


@EVERY
def test_the_jobs_fill_so_much_of_the_cluster(published: ClusterSummary) -> None:
    jobs = list(generate(wanted(published, load=0.5, hosts=200)))
    host_ns = sum(-(-job.gpus // 8) * job.run_ns for job in jobs)

    assert max(job.gpus for job in jobs) <= 1600  # none is larger than the cluster
    # The last of n submits is expected n / (n + 1) of the way to the end.
    assert host_ns / (200 * jobs[-1].submit_ns) == pytest.approx(0.5, rel=0.02)


def test_submits_are_in_order_and_follow_the_hours_of_the_week() -> None:
    times = [job.submit_ns / SECOND_NS for job in generate(wanted(MIXES["rsc-1"], 14_000))]
    # By the clock of the weights submits come evenly: Kolmogorov-Smirnov, one in a thousand.
    places = [weight_until(time) / weight_until(times[-1]) for time in times]
    away = max(abs(place - i / len(places)) for i, place in enumerate(places))

    assert times == sorted(times)
    assert away < 1.95 / len(places) ** 0.5
    assert times[-1] > 86_400  # a night and a day


def test_the_clock_of_the_weights_is_that_of_the_week_and_can_be_turned_round() -> None:
    ends = [weight_until(hour * HOUR_S) for hour in range(169)]
    assert [after - before for before, after in pairwise(ends)] == WEIGHTS
    assert weight_until(2 * WEEK_S + HOUR_S) == 2 * sum(WEIGHTS) + WEIGHTS[0]

    times = [0, 1, 3599, 3600, 100_000.5, WEEK_S - 1, WEEK_S, 5 * WEEK_S + 12_345]
    assert [time_of(weight_until(time)) for time in times] == pytest.approx(times)
    assert all(a < b for a, b in pairwise(map(weight_until, times)))


@pytest.mark.parametrize("other", [{"seed": 2}, {"load": 0.4}])
def test_the_same_options_give_the_same_jobs(other: dict[str, Any]) -> None:
    published = MIXES["acme-kalos"]
    once, again, changed = (
        list(generate(wanted(published, 50, **given))) for given in ({}, {}, other)
    )

    assert once == again
    assert once != changed
    same_work = [job.run_ns for job in once] == [job.run_ns for job in changed]
    assert same_work is ("load" in other)  # the load only stretches the time between them
