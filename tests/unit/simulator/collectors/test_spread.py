"""Spreads: quantiles to one percent, whatever the values."""

from __future__ import annotations

from random import Random

import pytest

from simulator.collectors.size_classes import Distribution


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95, 0.99, 1.0])
def test_quantiles_are_right_to_one_percent(share: float) -> None:
    random = Random(4)
    values = sorted(random.lognormvariate(3, 2) for _ in range(5_000))
    spread = Distribution()
    for value in values:
        spread.add(value)

    exact = values[max(0, -(-int(share * 100_000) * len(values) // 100_000) - 1)]
    assert spread.quantile(share) == pytest.approx(exact, rel=0.0101)
    assert spread.mean == pytest.approx(sum(values) / len(values))


def test_zeros_stay_zero_and_come_first() -> None:
    spread = Distribution()
    for value in (5.0, 0.0, 0.0, 0.0):
        spread.add(value)

    assert spread.quantile(0.75) == 0.0
    assert spread.curve()[0] == (0.0, 0.75)
    assert spread.curve()[-1][1] == 1.0


def test_nothing_has_quantiles_and_a_curve_of_nothing() -> None:
    assert (Distribution().quantile(0.5), Distribution().mean, Distribution().curve()) == (
        0.0,
        0.0,
        [],
    )


def test_memory_grows_with_the_range_not_the_number() -> None:
    spread = Distribution()
    for i in range(100_000):
        spread.add(1 + i % 1000)

    assert len(spread._buckets) < 400
