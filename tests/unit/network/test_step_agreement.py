"""The formula of a step against its simulation, on small jobs in six placements each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.objective.step_time import step_time
from tests.bench.bench_emulated import by_instance, compare, spearman, summary
from tests.bench.emulated_jobs import JOBS, layouts

NAMES = ("fsdp dp12", "pp4 dp4", "ep4 dp4")


def test_the_formula_orders_placements_as_the_simulation_does() -> None:
    rows = compare(NAMES, [1])
    assert len(rows) == 6 * len(NAMES)
    found = summary(rows)
    assert found["median"] < 0.06
    assert found["worst"] < 0.15
    assert found["spearman"] > 0.95
    # Muster's own placement is never slower in the simulation than another.
    assert found["muster slower"] == 0
    assert [ways[0].way for ways in by_instance(rows)] == ["muster"] * len(NAMES)


def test_earlier_models_of_a_step_keep_their_seconds() -> None:
    fabric, request, ways = layouts("pp4 dp4", 1)
    old = replace(request, step_model=2)
    hosts = ways["by name"]
    assert step_time(fabric, old, hosts).axes[0].load.hops == ()
    assert step_time(fabric, old, hosts).seconds < step_time(fabric, request, hosts).seconds


@pytest.mark.parametrize("name", list(JOBS)[::5])
def test_every_way_takes_free_hosts_once(name: str) -> None:
    fabric, request, ways = layouts(name, 1)
    for hosts in ways.values():
        assert len(set(hosts)) == len(hosts) == request.hosts_needed(fabric.gpus_per_host)


def test_equal_values_share_a_rank() -> None:
    assert spearman([1.0, 2.0, 2.0, 3.0], [1.0, 5.0, 5.0, 9.0]) == pytest.approx(1.0)
    assert spearman([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
