"""A small part of `make drill-failover`."""

from __future__ import annotations

import pytest

from tests.drills.failover import run
from tests.postgres import Cluster


@pytest.mark.slow
def test_a_leader_that_is_killed_paused_or_cut_off_is_replaced(postgres: Cluster) -> None:
    tally = run(postgres, ["killed", "paused", "cut off"], rounds=1, lease_s=1)
    assert tally.rounds == 3
    assert tally.histories > 50
    assert max(tally.led_s["killed"]) < 20
