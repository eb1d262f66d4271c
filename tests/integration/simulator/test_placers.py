"""Replays with other placers: the same queue, other hosts."""

from dataclasses import replace

import pytest

from placement.fabric.reader import from_spec
from scheduler.core.model.events import Event, JobStarted
from scheduler.files.job import job_from_mapping
from simulator.experiment import Experiment
from simulator.placers import PlacementStrategy
from simulator.replay import Replay
from tests.build import fabric
from tests.replays import replayed, trace_job

FABRIC = fabric(zones=4, racks=2, hosts=2, gpus=1)
JOBS = [trace_job(f"j{i}", 10 * i, 200, 1 + i * 5 % 7, line=i) for i in range(40)]


def log_of(placer: PlacementStrategy, seed: int = 0) -> list[Event]:
    log: list[Event] = []
    experiment = Experiment(FABRIC, placement=placer, seed=seed)
    Replay(experiment, JOBS, lambda event, _: log.append(event)).run()
    return log


def starts(log: list[Event]) -> dict[str, JobStarted]:
    return {event.name: event for event in log if isinstance(event, JobStarted)}


def cut_of(log: list[Event]) -> int:
    return sum(event.cuts[0].bytes_per_step for event in starts(log).values())


@pytest.mark.slow
@pytest.mark.parametrize("placer", list(PlacementStrategy))
def test_who_places_does_not_change_who_starts_when(placer: PlacementStrategy) -> None:
    own, other = starts(log_of(PlacementStrategy.MINIMUM_CUT)), starts(log_of(placer))
    assert {n: e.time_ns for n, e in own.items()} == {n: e.time_ns for n, e in other.items()}


@pytest.mark.slow
def test_chance_cuts_more_than_counting_and_counting_no_less_than_the_minimum_cut() -> None:
    by = {placer: cut_of(log_of(placer)) for placer in PlacementStrategy}
    assert (
        by[PlacementStrategy.RANDOM]
        > by[PlacementStrategy.CONSECUTIVE]
        >= by[PlacementStrategy.MINIMUM_CUT]
    )


def test_the_same_seed_gives_the_same_log() -> None:
    assert log_of(PlacementStrategy.RANDOM, 3) == log_of(PlacementStrategy.RANDOM, 3)
    assert log_of(PlacementStrategy.RANDOM, 3) != log_of(PlacementStrategy.RANDOM, 4)


@pytest.mark.slow
def test_arnolds_spread_keeps_groups_in_fewer_zones_or_as_few_as_chance() -> None:
    def zones(event: JobStarted) -> int:
        return len({host.split("-")[0] for host in event.hosts})

    spread, chance = (
        starts(log_of(PlacementStrategy.SPREAD)),
        starts(log_of(PlacementStrategy.RANDOM)),
    )
    assert sum(map(zones, spread.values())) < sum(map(zones, chance.values()))


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
    events = starts(replayed(narrow, jobs).log)
    timed, by_cut = events.values()  # in the order of their starts
    cuts: list[Event] = []
    experiment = Experiment(narrow, placement=PlacementStrategy.MINIMUM_CUT)
    Replay(experiment, jobs[:1], lambda event, _: cuts.append(event)).run()
    assert starts(cuts)["a"].cuts[1].bytes_per_step < timed.cuts[1].bytes_per_step
    assert by_cut.step is not None
    assert timed.step is not None
    assert timed.step.least_seconds <= timed.step.seconds < by_cut.step.seconds
    assert timed.cuts[1].bytes_per_step > by_cut.cuts[1].bytes_per_step
