"""The year of failures can fail: on either side of what it must be."""

from collections import Counter

import pytest

from scheduler.core.model.restart_option import RestartOption
from scripts.yearly import YEAR_NS, Year, failures_a_year


def year(failures: int = 1_000, at_home: int = 995, held: int = 50) -> Year:
    ways = Counter({RestartOption.ZONE: at_home, RestartOption.REPLACE: 1_000 - at_home})
    return Year("a", 1_000, failures, ways, held_ns=held * YEAR_NS, pooled=26)


def test_a_year_as_it_must_be() -> None:
    assert not list(year().violations())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (year(at_home=989), "99 % of the restarts"),
        (year(failures=100), "100 failures, where the rate says 1,000"),
        (year(failures=1_031), "1,031 failures"),
        (year(held=26), "26.0 spares"),
        (year(held=205), "205.0 spares"),
    ],
)
def test_a_year_that_is_off(wrong: Year, said: str) -> None:
    (violation,) = wrong.violations()
    assert said in violation


def test_hosts_in_repair_do_not_fail() -> None:
    assert failures_a_year(100, 0.01, 0) == 365
    assert failures_a_year(100, 0.01, 100) == 365 / 2
