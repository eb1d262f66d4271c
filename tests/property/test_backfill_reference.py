"""The references that replays are held to (test_replay.py), by hand and against each other."""

import random

import pytest

from tests import backfill_reference as reference
from tests import conservative_reference
from tests.backfill_reference import Job

PROCESSORS = 64


def workload(seed: int, count: int, load: float, exactness: str) -> list[Job]:
    """Jobs whose queue forms and dissolves: sizes in powers of two and odd ones, run
    times over three decades, several at one instant."""
    rng = random.Random(seed)
    jobs, now = [], 0
    for number in range(1, count + 1):
        size = min(PROCESSORS, rng.choice([1, 1, 2, 3, 4, 8, 8, 13, 16, 32, 50, 64]))
        run = round(10 ** rng.uniform(1, 4))
        factors = {"exact": [1], "loose": [1, 1.5, 3, 10]}
        estimate = max(1, round(run * rng.choice(factors[exactness])))
        jobs.append(Job(str(number), now, run, estimate, size))
        mean_s = size * run / PROCESSORS
        now += round(rng.choice([0, 1, 2]) * mean_s / load)
    return jobs


@pytest.mark.parametrize("exactness", ["exact", "loose"])
def test_the_fast_reference_says_what_the_plain_one_does(exactness: str) -> None:
    """The plain one takes too long for the logs that `make validate` replays."""
    jobs = workload(5, 100, 1.3, exactness)
    plan = conservative_reference.planned(jobs, PROCESSORS)
    assert plan.starts == reference.schedule(jobs, PROCESSORS, reference.conservative)
    assert plan.longest_queue > 20


def test_the_reference_by_hand() -> None:
    """Four processors; `wide` waits for `long`; EASY lets `brief` by and holds `tardy`."""
    jobs = [
        Job("long", 0, 10, 10, 3),
        Job("wide", 1, 5, 5, 4),
        Job("tardy", 2, 20, 20, 1),
        Job("brief", 3, 7, 7, 1),
    ]
    fifo = {"long": 0, "wide": 10, "tardy": 15, "brief": 15}
    assert reference.schedule(jobs, 4, reference.fifo) == fifo
    assert reference.schedule(jobs, 4, reference.easy) == {**fifo, "brief": 3}
    assert reference.schedule(jobs, 4, reference.conservative) == {**fifo, "brief": 3}


def test_conservative_keeps_what_easy_breaks() -> None:
    """`second` may be delayed under EASY, for only `first` holds a reservation."""
    jobs = [
        Job("runs", 0, 10, 10, 2),
        Job("first", 1, 10, 10, 3),
        Job("second", 2, 10, 10, 4),
        Job("filler", 3, 30, 30, 1),
    ]
    easy = reference.schedule(jobs, 4, reference.easy)
    conservative = reference.schedule(jobs, 4, reference.conservative)
    assert (easy["filler"], easy["second"]) == (3, 33)
    assert (conservative["filler"], conservative["second"]) == (30, 20)
