"""Usage that fades: integers against the integral in floating point."""

from __future__ import annotations

import math

import pytest

from scheduler.core.model.records.tenant import UsageAccount, standing, usage_decay

H = 3_600_000_000_000


@pytest.mark.parametrize("elapsed", [0, 1, H // 7, H // 2, H, 3 * H + 17, 20 * H])
def test_what_is_kept_halves_with_every_half_life(elapsed: int) -> None:
    assert usage_decay(elapsed, H) / 2**64 == pytest.approx(2 ** (-elapsed / H), rel=1e-8)


def test_nothing_is_left_in_the_end() -> None:
    assert usage_decay(64 * H, H) == 0
    assert usage_decay(-5, H) == 2**64  # a clock that went back adds nothing


@pytest.mark.parametrize("hours", [0.5, 1, 2.25, 30])
def test_holding_adds_the_integral(hours: float) -> None:
    used = UsageAccount().having(3, 0, H).used_at(round(hours * H), H)
    assert used == pytest.approx(3 * H / math.log(2) * (1 - 2**-hours), rel=1e-7)


def test_an_account_does_not_depend_on_how_often_it_is_touched() -> None:
    once = UsageAccount().having(5, 0, H)
    often = once
    for step in range(1, 50):
        often = often.having(0, step * H // 50, H)
    assert often.used_at(H, H) == pytest.approx(once.used_at(H, H), rel=1e-7)


def test_usage_tends_to_what_is_held() -> None:
    assert UsageAccount().having(7, 0, H).used_at(100 * H, H) == pytest.approx(
        standing(7, H), rel=1e-9
    )
    assert standing(7, H) == pytest.approx(7 * H / math.log(2))
