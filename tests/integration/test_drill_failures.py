"""A small part of `make drill-failures`, where namespaces can be had."""

import os

import pytest

from drills.failures import DEFRAGMENTED, failure_lab, simulated_rate
from lab.cluster import missing_programs


@pytest.mark.slow
def test_a_gang_is_moved_and_goes_on_where_a_zone_is_made_free() -> None:
    if os.geteuid() != 0:
        pytest.skip("the drill runs as root")
    if lacking := missing_programs():
        pytest.skip(lacking)
    with failure_lab(DEFRAGMENTED) as made:
        found = made.play(DEFRAGMENTED)
        assert found.attempts == found.simulated == 1
        assert len(found.left) == 2
        step = made.step()
        assert made.wait(lambda: made.step() > step)


def test_half_an_uplink_makes_simulated_steps_longer_where_the_gang_crosses_it() -> None:
    inside = ["z0-r0-h0", "z0-r0-h1", "z0-r1-h0"]
    across = [*inside, "z1-r0-h0", "z1-r0-h1"]
    assert simulated_rate(inside, "z1", 0.5) == simulated_rate(inside, "z1", 1.0)
    assert simulated_rate(across, "z1", 0.5) < 0.9 * simulated_rate(across, "z1", 1.0)
