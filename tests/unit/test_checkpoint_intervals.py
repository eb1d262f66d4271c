"""Intervals between checkpoints: what the optimum is, and what others lose."""

from math import inf

import pytest

from scheduler.cli.offline.checkpoint import (
    FailureModel,
    efficiency,
    mean_between_s,
    optimal,
    sensitivity,
)

GANG = FailureModel(mean_s=11_000, write_s=60, restart_s=300, down_s=60)


@pytest.mark.parametrize("mean_s", [700, 11_000, 1e7])
@pytest.mark.parametrize("write_s", [0.01, 60, 600])
def test_no_period_beats_the_optimum(mean_s: float, write_s: float) -> None:
    faults = FailureModel(mean_s, write_s, 300, 60)
    best = efficiency(faults, optimal(faults))
    for step in range(1, 400):
        assert efficiency(faults, write_s + step * mean_s / 100) <= best + 1e-12


def test_the_efficiency_is_what_a_long_run_comes_to() -> None:
    """Simulated failure by failure, restarts that fail included."""
    from random import Random

    random, clock_s, work_s, period_s = Random(1), 0.0, 0.0, 1_200.0
    while clock_s < 3e8:
        life_s = random.expovariate(1 / GANG.mean_s)
        periods = int(life_s // period_s)
        clock_s += life_s
        work_s += periods * (period_s - GANG.write_s)
        clock_s += GANG.down_s
        while (life_s := random.expovariate(1 / GANG.mean_s)) < GANG.restart_s:
            clock_s += life_s + GANG.down_s
        clock_s += GANG.restart_s
    assert work_s / clock_s == pytest.approx(efficiency(GANG, period_s), rel=0.005)


def test_the_best_factor_is_one() -> None:
    by_factor = {factor: share for factor, _, share in sensitivity(GANG)}
    assert max(by_factor, key=lambda factor: by_factor[factor]) == 1.0


def test_a_gang_that_never_fails_loses_its_writes_alone() -> None:
    assert mean_between_s(8, 0.0) == inf
    assert efficiency(FailureModel(inf, 60, 300), 600) == 0.9
