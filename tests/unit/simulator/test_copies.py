"""Replays of jobs that keep copies in memory: what a failure costs them."""

import json

import pytest

from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.costs import Costs
from simulator.traces.formats import muster
from simulator.traces.record import TraceJob
from tests.replays import down, machine, replayed

COSTS = Costs(checkpoint_s=1_000, restart_s=300)


def asking(**checkpoint: int) -> TraceJob:
    job = {
        "name": "a",
        "submit_s": 0,
        "run_s": 3_600,
        "parallelism": {"dp": 4},
        "traffic": {"dp": 1},
        "spares": 0,
        "checkpoint": checkpoint,
    }
    (found,) = muster.read([(1, json.dumps(job))])
    assert isinstance(found, TraceJob)
    return found


def end_s(job: TraceJob, *failing: str) -> float:
    """When it ends if these hosts fail after 557 s."""
    outages = [down(558, host) for host in failing]  # its start is decided for a second
    world = replayed(machine(8), [job], outages=outages, costs=COSTS, decision_ns=SECOND_NS)
    return world.ends_s()["a"]


@pytest.mark.parametrize(
    ("checkpoint", "again_s"),
    [
        ({}, 557),
        ({"interval_s": 100}, 57),
        ({"peers": 1, "peer_interval_s": 10}, 7),
        ({"peers": 1, "interval_s": 500, "peer_interval_s": 50}, 7),
    ],
)
def test_only_what_was_not_saved_is_done_again(checkpoint: dict[str, int], again_s: int) -> None:
    assert end_s(asking(**checkpoint), "z0-h0") == 1 + 3_600 + again_s + 1 + 300


def test_with_the_copy_the_memory_is_lost() -> None:
    """Four hosts copy half a turn apart: the first to the third, and back."""
    asked = asking(peers=1, interval_s=500, peer_interval_s=10)
    assert end_s(asked, "z0-h0", "z0-h1") == 1 + 3_600 + 7 + 1 + 300
    assert end_s(asked, "z0-h0", "z0-h2") == 1 + 3_600 + 57 + 1 + 300
