"""Two numbers for every gang, and what its account says it has done."""

from scheduler.core import replay
from scheduler.core.fold.attempts import EffectReader
from scheduler.core.model.events import FabricLoaded, GangSwapped, JobStarted, JobSubmitted
from scheduler.core.model.job import SECOND_NS
from simulator.kernel import SimulationKernel
from simulator.launcher import SimulatedLauncher
from simulator.timing.flat import FlatTiming
from tests.build import fabric_spec, spec

HOST = ("z0-r0-h0",)


def test_an_adopted_job_on_a_part_of_a_host_has_done_what_its_own_time_says() -> None:
    """It holds two GPUs of a host, whose time is shared among all that hold some."""
    state = replay(
        [
            FabricLoaded(0, fabric_spec()),
            JobSubmitted(0, "u", spec("part", gpus=2)),
            JobStarted(0, "part", 1, HOST, (), (), 0, gpus=(0, 1)),
            GangSwapped(2_400 * SECOND_NS, "part", 2, (), ()),
        ]
    )
    job = state.jobs["part"]
    done_s = job.goodput.time.productive // SECOND_NS
    timing = FlatTiming(lambda: state)
    timing.expect("part", 5_000 * SECOND_NS, job.request, 1)
    launcher = SimulatedLauncher(SimulationKernel(), lambda _: None, timing, EffectReader())
    launcher.adopt(state)

    restart_s = state.tenants.preemption.costs.overhead_ns(2) // SECOND_NS
    ends_s = timing.end_ns("part", 2_400 * SECOND_NS) // SECOND_NS
    assert (done_s > 0, ends_s) == (True, 2_400 + restart_s + 5_000 - done_s)
