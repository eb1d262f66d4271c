"""Which number of spares is advised, and which are on the front."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.twin.advice.choices import advised, checkpoints, maintenance, spares, text
from simulator.twin.study import SeedMean

Run = tuple[float, float, float]  # effective, lost and spare GPU-hours


def study(*numbers: list[Run], costs: list[float] | None = None) -> dict[str, Any]:
    """One of these numbers of spares, from 0 on; the cluster as it is has none."""
    scenarios = []
    for at, runs in enumerate((numbers[0], *numbers)):
        found = [
            {
                "effective_gpu_h": effective,
                "lost_gpu_h": lost,
                "spare_gpu_h": spare,
                "all_gpu_h": 1000.0,
                "wait_mean_s": 60.0,
                "refused": {},
            }
            for effective, lost, spare in runs
        ]
        figures = {
            key: SeedMean.of([float(run[key]) for run in found]).data()  # type: ignore[arg-type]
            for key in ("effective_gpu_h", "lost_gpu_h", "wait_mean_s")
        }
        row: dict[str, Any] = {"name": str(at), "runs": found, "figures": figures}
        if costs:
            row["money"] = {"per_effective_gpu_h": SeedMean(costs[max(0, at - 1)], 0.0).data()}
            for run in found:
                run["money"] = {"per_effective_gpu_h": costs[max(0, at - 1)]}
        scenarios.append(row)
    return {
        "scenarios": scenarios,
        "seeds": list(range(len(numbers[0]))),
        "currency": "EUR" if costs else None,
        "fabric": {"name": "lab", "hosts": 100},
        "horizon_s": 86_400,
        "source": "x",
        "version": 3,
        "time": "now",
        "policy": "fifo",
        "fitted": [],
        "times": None,
    }


def test_the_scenarios_are_all_numbers_beside_the_cluster_as_it_is() -> None:
    assert spares(2).scenarios == [
        [],
        ["spares 0 a zone"],
        ["spares 1 a zone"],
        ["spares 2 a zone"],
    ]


def test_the_smallest_number_that_none_surely_beats_is_advised() -> None:
    none = [(700.0, 50.0, 0.0), (720.0, 52.0, 0.0), (680.0, 48.0, 0.0)]
    one = [(710.0, 20.0, 10.0), (731.0, 21.0, 10.0), (690.0, 19.0, 10.0)]  # surely more
    two = [(711.0, 19.0, 20.0), (729.0, 20.0, 20.0), (691.0, 18.0, 20.0)]  # who knows
    found = advised(spares(2), study(none, one, two))
    assert found["advice"] == 1
    assert found["sentence"].startswith("Hold 1 spare a zone: no other choice of 3 surely does")
    assert found["points"][1]["idle_hosts"]["mean"] == pytest.approx(1.0)
    assert "advised" in text(spares(2), found)


def test_a_number_that_another_beats_in_both_is_not_on_the_front() -> None:
    numbers = ([(700.0, 50.0, 0.0)], [(700.0, 60.0, 10.0)], [(690.0, 20.0, 20.0)])
    found = advised(spares(2), study(*numbers))
    assert [point["is_on_front"] for point in found["points"]] == [True, False, True]
    assert found["advice"] == 0
    assert "under this one seed" in found["sentence"]


def test_with_prices_the_cheapest_hour_counts() -> None:
    runs = [(700.0, 50.0, 0.0), (700.0, 50.0, 0.0)]
    found = advised(spares(2), study(runs, runs, runs, costs=[3.0, 2.0, 2.5]))
    assert found["advice"] == 1
    assert "makes an effective GPU-hour cheaper" in found["sentence"]


def test_domains_are_taken_out_in_order_of_the_work_that_is_done_all_the_same() -> None:
    runs = [[(700.0, 5.0, 0.0)], [(690.0, 5.0, 0.0)], [(720.0, 5.0, 0.0)], [(650.0, 5.0, 0.0)]]
    decision = maintenance(["z0", "z1", "z2", "z3"], "+1d", "8h")
    assert decision.scenarios[1] == ["drain z0 on +1d for 8h"]
    found = advised(decision, study(*runs))
    assert found["order"] == ["z2", "z0", "z1", "z3"]
    assert found["advice"] == "z2"
    assert found["sentence"].startswith("Take z2 out first, then z0, z1, z3, by effective")


def test_the_interval_with_most_work_on_average_is_advised() -> None:
    """None costs more than another: whether one surely beats it is not asked."""
    one, two = [(700.0, 50.0, 0.0), (720.0, 52.0, 0.0)], [(701.0, 20.0, 0.0), (721.0, 21.0, 0.0)]
    decision = checkpoints(["10m", "2h"])
    assert [choice.value for choice in decision.choices] == ["2h", "10m"]
    found = advised(decision, study(one, two))
    assert found["advice"] == "10m"
    assert found["points"][1]["checkpoints_a_day"]["mean"] == 144
    assert found["now"]["checkpoints_a_day"] is None
