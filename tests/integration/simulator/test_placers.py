"""Replays with other placers: the same queue, other hosts."""

from dataclasses import replace

import pytest

from placement.fabric.reader import from_spec
from scheduler.core.model.events import JobStarted
from scheduler.files.job import job_from_mapping
from simulator.placers import PlacementStrategy
from tests.build import fabric
from tests.replays import replayed, trace_job

FABRIC = fabric(zones=4, racks=2, hosts=2, gpus=1)
JOBS = [trace_job(f"j{i}", 10 * i, 200, 1 + i * 5 % 7, line=i) for i in range(40)]


def starts(placement: PlacementStrategy, seed: int = 0) -> dict[str, JobStarted]:
    world = replayed(FABRIC, JOBS, placement=placement, seed=seed)
    return {event.name: event for event in world.of(JobStarted)}


@pytest.mark.slow
def test_who_places_changes_hosts_and_cuts_and_not_who_starts_when() -> None:
    found = {placement: starts(placement) for placement in PlacementStrategy}
    times = [{name: e.time_ns for name, e in each.items()} for each in found.values()]
    assert all(each == times[0] for each in times)

    cuts, zones = (
        {placement: sum(map(count, each.values())) for placement, each in found.items()}
        for count in (
            lambda event: event.cuts[0].bytes_per_step,
            lambda event: len({host.split("-")[0] for host in event.hosts}),
        )
    )
    random, counted = PlacementStrategy.RANDOM, PlacementStrategy.CONSECUTIVE
    assert cuts[random] > cuts[counted] >= cuts[PlacementStrategy.MINIMUM_CUT]
    assert zones[PlacementStrategy.SPREAD] < zones[random]


def test_the_same_seed_gives_the_same_hosts() -> None:
    random = PlacementStrategy.RANDOM
    assert starts(random, 3) == starts(random, 3) != starts(random, 4)


def test_jobs_that_say_how_long_they_compute_are_placed_by_their_step() -> None:
    """Eight ranks that exchange with each other, over racks whose uplinks hold four of them up."""
    tiers = [
        {"name": "zone", "count": 1},
        {"name": "rack", "count": 8, "oversubscription": 4},
        {"name": "host", "count": 4},
    ]
    narrow = from_spec({"name": "f", "gpus_per_host": 1, "nic_gbps": 100, "tiers": tiers})
    job = {"parallelism": {"ep": 8}, "traffic": {"ep": 10**9}, "compute_time_s": 0.1, "spares": 0}
    jobs = [
        replace(
            trace_job(name, at, 100, line=at), spec=job_from_mapping({"name": name, **job, **more})
        )
        for at, (name, more) in enumerate({"a": {}, "b": {"objective": "cut"}}.items())
    ]
    timed, by_cut = replayed(narrow, jobs).of(JobStarted)
    minimum = PlacementStrategy.MINIMUM_CUT
    (cut,) = replayed(narrow, jobs[:1], placement=minimum).of(JobStarted)
    assert cut.cuts[1].bytes_per_step < timed.cuts[1].bytes_per_step
    assert timed.step.least_seconds <= timed.step.seconds < by_cut.step.seconds
    assert timed.cuts[1].bytes_per_step > by_cut.cuts[1].bytes_per_step
