"""A replay under a health policy: what comes back has passed its tests, or is another machine."""

from muster.structs import replace
from scheduler.core.model.events import GangSwapped, HealthLoaded, HostMoved, JobStarted
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.health import HealthPolicy, HealthRule, LemonAction, LemonPolicy
from scheduler.core.policies.health_signals import SIGNALS, Effect, Threshold
from simulator.failures import Outage
from tests.replays import machine, replayed, trace_job

HOST = "z0-h0"


def moves(health: HealthPolicy, *times_s: int) -> list[HostMove]:
    """What a host goes through that is down and up again at these times, in turn."""
    outages = [Outage(t * SECOND_NS, HOST, n % 2 == 0, "crash") for n, t in enumerate(times_s)]
    world = replayed(machine(2), [trace_job("a", 0, 1_000)], outages=outages, health=health)
    assert isinstance(world.log[1], HealthLoaded)
    return [event.move for event in world.of(HostMoved)]


def test_a_repaired_host_passes_its_burn_in() -> None:
    burnt_in = moves(HealthPolicy(has_burn_in=True), 100, 200)
    assert burnt_in == [HostMove.FAIL, HostMove.TEST, HostMove.PASS]


def test_a_host_that_goes_back_to_its_maker_is_replaced() -> None:
    lemons = LemonPolicy(at_least=1, out_count=2, action=LemonAction.RMA)
    found = moves(HealthPolicy(lemons=lemons), 100, 200, 300, 400)
    assert found[-3:] == [HostMove.RETURN, HostMove.INSTALL, HostMove.PASS]


def announced(
    effect: Effect, *, is_true: bool, has_burn_in: bool = False
) -> tuple[list[HostMove], int, int]:
    """Report a signal of a gang's host 30 s before it fails, or is found to be well. Return its
    moves, the swaps without need, and how often the gang began."""
    rule = replace(SIGNALS["link-flap"], thresholds=(Threshold(3, 3600, effect),))
    told = Outage(105 * SECOND_NS, HOST, True, "gpu", "link-flap")
    ends = [(135, is_true, ""), (200, False, "")] if is_true else [(135, False, "link-flap")]
    world = replayed(
        machine(3),
        [trace_job("a", 0, 1_000, 2)],
        outages=[told, *(Outage(t * SECOND_NS, HOST, d, "gpu", s) for t, d, s in ends)],
        costs=Costs(checkpoint_s=10, restart_s=1),
        health=HealthPolicy(rules=(HealthRule("link-flap", rule),), has_burn_in=has_burn_in),
    )
    moves = [event.move for event in world.of(HostMoved)]
    return moves, world.false_swaps, len(world.of(JobStarted, GangSwapped))


def test_a_gang_that_leaves_in_time_is_not_stopped_by_the_failure() -> None:
    assert announced(Effect.NOTE, is_true=True)[0] == [HostMove.FAIL, HostMove.REPAIR]
    leaves = announced(Effect.RETIRE, is_true=True)
    assert leaves == ([HostMove.RETIRE, HostMove.REPAIR], 0, 2)


def test_a_host_that_was_left_for_nothing_comes_back_and_is_counted() -> None:
    left = announced(Effect.RETIRE, is_true=False)
    assert left == ([HostMove.RETIRE, HostMove.REPAIR], 1, 2)
    assert announced(Effect.SUSPECT, is_true=False) == ([HostMove.SUSPECT], 0, 1)


def test_a_host_that_was_left_for_nothing_passes_its_burn_in() -> None:
    left = announced(Effect.RETIRE, is_true=False, has_burn_in=True)
    assert left == ([HostMove.RETIRE, HostMove.TEST, HostMove.PASS], 1, 2)
