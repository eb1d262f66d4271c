"""The formula of a step against its simulation, on small jobs in six placements each."""

from dataclasses import replace

import pytest

from bench.steps.emulated import by_instance, compare, spearman, summary
from bench.steps.emulated_jobs import JOBS, fabric_of
from network.step_simulation import simulate_step
from placement.fabric.tree import Fabric
from placement.objective.step_time import step_time
from placement.workload.request import Request

NAMES = ("fsdp dp12", "ep4 dp4")


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


def job_and_fabric(name: str) -> tuple[Fabric, Request]:
    ranks, request = JOBS[name]
    return fabric_of(ranks), request


@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        ("cp2 pp4 dp2", [2, 17, 5, 22, 0, 9, 12, 10, 29, 23, 24, 18, 11, 15, 30, 13]),
        ("pp4 dp4", [4, 21, 7, 26, 1, 9, 13, 10, 30, 27, 28, 24, 11, 19, 31, 17]),
    ],
)
def test_stages_that_send_by_turns_and_end_early_wait_for_less_than_all_at_once(
    name: str, hosts: list[int]
) -> None:
    """All of dp needs 2.4 s of an uplink, all of cp 1.92 s, where the groups of several stages
    meet: counted as if at once the two would be 30 % and 10 % over what the simulation takes."""
    fabric, request = job_and_fabric(name)
    step = step_time(fabric, request, hosts)
    simulated = simulate_step(fabric, request, hosts, step.compute_s).seconds
    assert step.seconds == pytest.approx(simulated, rel=0.08)


def test_state_hides_behind_no_compute_in_which_messages_keep_its_link_busy() -> None:
    fabric, request = job_and_fabric("pp4 v2 dp4")
    hosts = [0, 1, 2, 4, 7, 10, 11, 12, 15, 18, 19, 20, 21, 23, 24, 25]
    quiet = replace(request, traffic=tuple(each for each in request.traffic if each[0] != "pp"))
    alone, beside = (step_time(fabric, each, hosts) for each in (quiet, request))
    waits = [next(a for a in step.axes if a.load.traffic.axis == "dp") for step in (alone, beside)]
    assert waits[0].seconds == waits[1].seconds
    assert waits[0].exposed_s < waits[1].exposed_s


def test_equal_values_share_a_rank() -> None:
    assert spearman([1.0, 2.0, 2.0, 3.0], [1.0, 5.0, 5.0, 9.0]) == pytest.approx(1.0)
    assert spearman([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)


def test_pipelines_that_share_an_uplink_unevenly_send_while_others_compute() -> None:
    """Packets took 5.5 s; exactly even shares, which keep all pipelines in step, 7.0 s."""
    fabric, request = job_and_fabric("tp2 pp4 dp4")
    hosts = [0, 16, 24, 8, 1, 18, 26, 9, 2, 19, 27, 14, 4, 21, 28, 15]
    simulated = simulate_step(fabric, request, hosts, 2.0).seconds
    assert simulated == pytest.approx(5.5, rel=0.12)
