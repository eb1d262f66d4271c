"""A replay under a health policy: what comes back has passed its tests, or is another machine."""

from scheduler.core import SchedulingOptions
from scheduler.core.model.events import Event, HealthLoaded, HostMoved
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.health import HealthPolicy, LemonAction, LemonPolicy
from simulator.experiment import Experiment
from simulator.failures import Outage
from simulator.replay import Replay
from tests.replays import machine, trace_job

HOST = "z0-h0"


def moves(health: HealthPolicy, *times_s: int) -> list[HostMove]:
    """What a host goes through that is down and up again at these times, in turn."""
    log: list[Event] = []
    experiment = Experiment(machine(2), SchedulingOptions(), health=health)
    outages = [Outage(t * SECOND_NS, HOST, n % 2 == 0, "crash") for n, t in enumerate(times_s)]
    job = trace_job("a", 0, 1_000, 1)
    Replay(experiment, [job], lambda event, _: log.append(event), outages).run()
    assert isinstance(log[1], HealthLoaded)
    return [event.move for event in log if isinstance(event, HostMoved)]


def test_a_repaired_host_passes_its_burn_in() -> None:
    burnt_in = moves(HealthPolicy(has_burn_in=True), 100, 200)
    assert burnt_in == [HostMove.FAIL, HostMove.TEST, HostMove.PASS]


def test_a_host_that_goes_back_to_its_maker_is_replaced() -> None:
    lemons = LemonPolicy(at_least=1, out_count=2, action=LemonAction.RMA)
    found = moves(HealthPolicy(lemons=lemons), 100, 200, 300, 400)
    assert found[-3:] == [HostMove.RETURN, HostMove.INSTALL, HostMove.PASS]
