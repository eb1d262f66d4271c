"""A twin goes on from any state that a cluster can be in, and its host time adds up."""

from dataclasses import replace

import pytest

from scheduler.core.model.scheduling_options import Overrun, SchedulingOptions
from simulator.timing import load_time_model
from simulator.twin.changes import scenario
from simulator.twin.fork import ClusterFork
from simulator.twin.future import TwinWorld, future
from simulator.twin.outages import fit_failures
from simulator.twin.workload import HOUR_NS, Workload, fit_workload
from tests.property.test_everything import a_day

HOURS = 12
HORIZON_NS = HOURS * HOUR_NS


def forked(seed: int, overrun: Overrun) -> ClusterFork:
    """A random day, cut off where it stands."""
    world = a_day(seed, 60, is_deferring=bool(seed % 2))
    now_ns = max(world.now_ns, world.state.seen_ns)
    return ClusterFork(
        world.state,
        now_ns,
        tuple(world.state.ended.values()),
        0,
        SchedulingOptions(overrun=overrun),
        "a day",
    )


def calm(workload: Workload) -> Workload:
    """As many jobs as a small cluster has room for: the random day has one every few seconds."""
    return replace(workload, rates=(2.0,) * 168)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(2, 10)))]
)
def test_it_goes_on_from_any_state(seed: int) -> None:
    fork = forked(seed, Overrun.KILL if seed % 3 else Overrun.EXTEND)
    failures = fit_failures(fork.state, fork.now_ns)
    for times, changes in (
        (None, []),
        (None, ["spares 1 a zone", "policy conservative"]),
        ("default", ["oversubscription 2"]),
    ):
        model = load_time_model(times) if times else None
        world = TwinWorld(fork, calm(fit_workload(fork)), failures, HORIZON_NS, model)
        built = scenario(fork, changes, HORIZON_NS, has_times=model is not None)
        run = future(world, built, seed)
        assert run == future(world, built, seed)
        gpus = fork.state.built_fabric.gpu_count
        assert run["all_gpu_h"] == pytest.approx(HOURS * gpus)
        assert 0 <= run["spare_gpu_h"] <= run["held_gpu_h"] <= run["all_gpu_h"] * (1 + 1e-9)
        assert 0 <= run["out_gpu_h"] <= run["all_gpu_h"] * (1 + 1e-9)
        assert run["effective_gpu_h"] <= run["held_gpu_h"] * (1 + 1e-9)
