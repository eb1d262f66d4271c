"""A small part of `make drill-failover`."""

import pytest

from drills.failover import differences, run
from tests.postgres import Cluster


@pytest.mark.slow
def test_a_leader_that_is_killed_paused_or_cut_off_is_replaced(postgres: Cluster) -> None:
    tally = run(postgres, ["killed", "paused", "cut off"], rounds=1, lease_s=1)
    assert tally.rounds == 3
    assert tally.histories > 50
    assert max(tally.led_s["killed"]) < 20


def test_a_list_has_every_job_of_the_log_also_those_that_the_state_let_go_of() -> None:
    kept, submitted = {"new": 2, "newer": 1}, ["old", "new", "newer"]
    assert differences([("old", 1), ("new", 2), ("newer", 1)], kept, submitted) == []
    assert differences([("new", 1), ("newer", 1), ("newer", 1), ("odd", 1)], kept, submitted) == [
        "job newer is listed 2 times",
        "job old is not listed",
        "job odd is not in the log",
        "job new is in attempt 2, listed in 1",
    ]
