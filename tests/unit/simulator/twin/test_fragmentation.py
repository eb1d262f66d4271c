"""What it costs that free hosts do not lie together, on states small enough to say by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request
from scheduler.core import JobSpec, SchedulingOptions
from scheduler.core.fold.apply import replay
from scheduler.core.model.events import FabricLoaded, JobStarted, JobSubmitted
from simulator.timing import load_time_model
from simulator.timing.network import NetworkModel
from simulator.traces.record import TraceOutcome
from simulator.twin.advice.fragmentation import fragmentation
from simulator.twin.advice.fragmentation_text import fragmentation_text, write_fragmentation
from simulator.twin.fork import ClusterFork
from simulator.twin.hardware import with_oversubscription
from simulator.twin.workload import JobSample, Workload
from tests.twins import MONDAY_NS, cluster

FABRIC = with_oversubscription(cluster(), 28)
TIMES = load_time_model("default")
HOUR_NS = 3600 * 10**9


def ring(hosts: int) -> Request:
    return Request(Parallelism(tp=8, dp=hosts), (("tp", 0), ("dp", 1000)), spares=NO_SPARES)


def busy(*free: int) -> ClusterFork:
    """So many hosts of each zone are free; a gang has the others."""
    held = [
        host for zone, n in enumerate(free) for host in FABRIC.hosts[8 * zone : 8 * zone + 8 - n]
    ]
    spec = JobSpec("wide", ring(len(held)))
    log = (
        FabricLoaded(MONDAY_NS, FABRIC.spec),
        JobSubmitted(MONDAY_NS, "u", spec),
        JobStarted(MONDAY_NS, "wide", 1, tuple(held), (), (), 0),
    )
    return ClusterFork(replay(log), MONDAY_NS + HOUR_NS, (), 0, SchedulingOptions(), "test")


def arriving(hosts: int, per_hour: float, run_h: int) -> Workload:
    spec = JobSpec("j", ring(hosts))
    work = hosts * run_h * HOUR_NS
    sample = JobSample(spec, "default", hosts, work, False, TraceOutcome.COMPLETED, HOUR_NS)
    return Workload((sample,), (0,), (per_hour,) * 168, 200 * HOUR_NS, 0, 0)


def test_gangs_without_a_slot_cost_what_their_step_is_longer_across_zones() -> None:
    found = fragmentation(busy(3, 4), arriving(6, 2.0, 5), TIMES, 1.5, "EUR")
    across = [*FABRIC.hosts[12:16], *FABRIC.hosts[5:7]]
    stretch = NetworkModel(FABRIC, 0.3).load(ring(6), across).stretch
    assert stretch > 1.05
    expected = 2.0 * 6 * 8 * 5 * (1 - 1 / stretch) * 1.5
    assert found["cost_per_hour"] == pytest.approx(expected)
    (kind,) = found["kinds"]
    assert (kind["slots"], kind["slots_in_one_piece"]) == (0, 1)
    assert [each["price_of_a_host"] for each in found["domains"]] == [0, 0]  # two are missing
    front = [(p["domain"], p["hosts"]) for p in found["points"] if p["is_on_front"]]
    assert front == [(None, 0), ("z1", 2)]
    assert found["advice"] == {"domain": "z1", "hosts": 2}
    (move,) = [p for p in found["points"] if p["domain"] == "z1"]
    assert move["cost_per_hour"] == 0
    assert move["moves_cost"] == pytest.approx(2 * 8 * (300 + 900) / 3600 * 1.5)
    assert move["pays_back_h"] == pytest.approx(move["moves_cost"] / expected)


def test_a_host_has_a_price_where_it_makes_a_slot() -> None:
    found = fragmentation(busy(3, 5), arriving(6, 2.0, 5), TIMES, None, None)
    prices = [each["price_of_a_host"] for each in found["domains"]]
    assert prices == [0, pytest.approx(found["cost_per_hour"])]


@pytest.mark.parametrize(
    ("free", "hosts"), [((6, 0), 6), ((2, 3), 6), ((1, 1), 1)], ids=["room", "too few", "one host"]
)
def test_what_one_piece_would_not_mend_costs_nothing(free: tuple[int, int], hosts: int) -> None:
    found = fragmentation(busy(*free), arriving(hosts, 2.0, 5), TIMES, None, None)
    assert found["cost_per_hour"] == 0
    assert found["advice"] is None
    assert fragmentation_text(found).startswith("Fragmentation costs nothing now")


def test_the_sentence_leads_and_the_page_has_a_picture(tmp_path: Path) -> None:
    found = fragmentation(busy(3, 4), arriving(6, 2.0, 5), TIMES, 1.5, "EUR")
    first = fragmentation_text(found).splitlines()[0]
    assert first.startswith("Fragmentation costs ")
    assert "EUR an hour while 7 hosts are free as now" in first
    assert "Free 2 hosts more in z1" in first
    write_fragmentation(tmp_path / "a.html", found)
    page = (tmp_path / "a.html").read_text()
    assert page.index("Fragmentation costs") < page.index("<svg") < page.index("<table>")
