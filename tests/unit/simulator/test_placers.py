"""Replays with other placers: the same queue, other hosts."""

from __future__ import annotations

import pytest

from scheduler.core.model.events import Event, JobStarted
from simulator.experiment import Experiment
from simulator.placers import PlacementStrategy
from simulator.replay import Replay
from tests.build import fabric
from tests.replays import trace_job

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
