"""The formula of a step against its simulation, on small jobs in six placements each."""

from dataclasses import replace

import pytest

from bench.steps.emulated import by_instance, compare, spearman, summary
from bench.steps.emulated_jobs import layouts
from network.step_simulation import simulate_step
from placement.objective.step_time import step_time

NAMES = ("fsdp dp12", "pp4 dp4", "ep4 dp4")


def test_the_formula_orders_placements_as_the_simulation_does() -> None:
    rows = compare(NAMES, [1])
    assert len(rows) == 6 * len(NAMES)
    found = summary(rows)
    assert found["median"] < 0.03
    assert found["worst"] < 0.1
    assert found["spearman"] > 0.97
    # Muster's own placement is never slower in the simulation than another.
    assert found["muster slower"] == 0
    assert [ways[0].way for ways in by_instance(rows)] == ["muster"] * len(NAMES)


def test_stages_that_send_by_turns_and_end_early_wait_for_less_than_all_at_once() -> None:
    """All of dp needs 2.4 s of an uplink, all of cp 1.92 s, where the groups of several stages
    meet: counted as if at once the two would be 30 % and 10 % over what the simulation takes."""
    for name in ("cp2 pp4 dp2", "pp4 dp4"):
        fabric, request, ways = layouts(name, 2)
        step = step_time(fabric, request, ways["random"])
        simulated = simulate_step(fabric, request, ways["random"], step.compute_s).seconds
        assert step.seconds == pytest.approx(simulated, rel=0.08)


def test_state_hides_behind_no_compute_in_which_messages_keep_its_link_busy() -> None:
    fabric, request, ways = layouts("pp4 v2 dp4", 1)
    quiet = replace(request, traffic=tuple(each for each in request.traffic if each[0] != "pp"))
    alone, beside = (step_time(fabric, each, ways["by name"]) for each in (quiet, request))
    waits = [next(a for a in step.axes if a.load.traffic.axis == "dp") for step in (alone, beside)]
    assert waits[0].seconds == waits[1].seconds
    assert waits[0].exposed_s < waits[1].exposed_s


def test_equal_values_share_a_rank() -> None:
    assert spearman([1.0, 2.0, 2.0, 3.0], [1.0, 5.0, 5.0, 9.0]) == pytest.approx(1.0)
    assert spearman([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)


def test_pipelines_that_share_an_uplink_unevenly_send_while_others_compute() -> None:
    """Packets took 5.5 s; exactly even shares, which keep all pipelines in step, 7.0 s."""
    fabric, request, ways = layouts("tp2 pp4 dp4", 1)
    simulated = simulate_step(fabric, request, ways["cut"], 2.0).seconds
    assert simulated == pytest.approx(5.5, rel=0.12)
