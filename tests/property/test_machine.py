"""Random commands, decisions and stale plans: what must hold after every event.

The cluster is driven as the service drives it, except that a plan may be kept back and
committed much later.
"""

from dataclasses import replace
from random import Random

import pytest

from placement.workload.request import AUTO
from scheduler.core import JobState, Plan, SchedulingOptions, State, decide, replay
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.events import Event, FabricLoaded
from scheduler.core.model.plan import Start, Swap
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import OPEN, Preemption
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.rules.crash_loop import next_attempt_ns
from tests.build import cancel, cordon, drain, end, exactly, fail, repair, submit, uncordon
from tests.property.driver import Driver
from tests.property.laws import FABRIC, check_event, check_growth, check_order, check_state
from tests.seeds import seeds


class Cluster(Driver):
    """Every event is checked as it is applied."""

    def __init__(self, policy: str) -> None:
        limits = SchedulingOptions(policy=policy, resize_every_s=5)
        self.begin(FabricLoaded(0, FABRIC.spec), limits=limits)
        # Gangs save at every step, so that they may grow at any moment.
        saving = Preemption(costs=Costs(checkpoint_s=0, restart_s=1))
        self.ask(LoadTenants(replace(OPEN, preemption=saving)))

    def check_event(self, before: State, event: Event) -> None:
        check_event(before, event)

    def check_state(self) -> None:
        check_state(self.state)

    def act(self, random: Random) -> None:
        for _ in range(random.randint(0, 3)):
            self.ask(any_command(random))

    def turn(self) -> None:
        """A plan on its own version commits whole, and keeps its promise."""
        before, plan = self.state, self.decision()
        events = self.whole(plan)
        assert len(events) == most_events(plan)
        self.record(events)
        for job in self.state.in_state(JobState.INTERRUPTED):  # all others were dealt with
            assert next_attempt_ns(job, self.state.tenants.restarts, self.now_ns) is not None
            assert plan.next_decision_ns is not None
        check_order(before, plan, self.state, self.now_ns, self.limits)
        check_growth(before, plan, self.state, self.now_ns, self.limits)

    def commit_stale(self) -> None:
        """The checks of events and states say what a stale plan must not do."""
        if self.stale:
            plan = self.stale.pop()
            events = self.late(plan)
            assert len(events) <= most_events(plan)
            self.record(events)

    def check_replay(self) -> None:
        """The log is the state, and the state is all that a decision sees."""
        super().check_replay()
        assert decide(replay(self.log), self.now_ns, self.limits) == self.decision()


def most_events(plan: Plan) -> int:
    """The events of a plan that commits whole."""
    lenders = sum(len(a.lenders) for a in plan.actions if isinstance(a, Swap))
    shrinks = sum(len(a.shrinks) for a in plan.actions if isinstance(a, Start | Swap))
    return len(plan.actions) + lenders + shrinks


@pytest.mark.parametrize("seed", seeds(3, range(3, 12)))
def test_a_long_day(seed: int) -> None:
    """A busy cluster for 300 rounds: deeper than the search goes, and always the same."""
    random = Random(seed)
    Cluster(random.choice(list(BUILT_IN))).live(random, 300, kept=0.4, late=0.4)


def any_command(random: Random) -> Command:
    """Half of it work, a quarter ends, the rest people and hosts that come and go."""
    host, name = random.choice(FABRIC.hosts), random.choice("abcdefghijkl")
    hosts = random.choice((1, 1, 2, 2, 3, 4, 6))
    if random.random() < 0.1:
        return submit(
            name,
            gpus=random.choice((1, 2, 3, 4, 6)),
            priority=random.randint(0, 2),
            limit_s=random.choice((None, 10, 100, 1_000)),
        )
    job = submit(
        name,
        hosts,
        min_dp=random.choice((0, (hosts + 1) // 2)) if hosts > 1 else 0,
        priority=random.randint(0, 2),
        limit_s=random.choice((None, 10, 100, 1_000)),
        spares=random.choice((exactly(0), exactly(1), AUTO)),
    )
    others = [cancel(name), fail(host), drain(host), cordon(host)]
    for _ in range(4):
        back = random.choice(FABRIC.hosts)
        others += [repair(back), uncordon(back)]
    return random.choice([job] * 16 + [end(name)] * 8 + others)
