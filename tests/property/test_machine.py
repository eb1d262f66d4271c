"""Random commands, decisions and stale plans: what must hold after every event.

The machine drives the four functions as the service does, except that it may keep a
plan back and commit it much later.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    precondition,
    rule,
)

from placement.workload.request import AUTO, SpareRule
from scheduler.core import JobState, Plan, SchedulingOptions, State, decide, explain, replay
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.events import Event, FabricLoaded
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Start, Swap
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import OPEN, Preemption
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.rules.crash_loop import next_attempt_ns
from tests.build import cancel, cordon, drain, end, exactly, fail, repair, submit, uncordon
from tests.property.driver import Driver
from tests.property.laws import FABRIC, check_event, check_growth, check_order, check_state
from tests.seeds import seeds

HOSTS = st.sampled_from(FABRIC.hosts)
NAMES = st.sampled_from("abcdefgh")

SUBMITS = st.builds(
    submit,
    NAMES,
    st.sampled_from((1, 2, 3, 4, 6, 8)),
    priority=st.integers(0, 2),
    limit_s=st.sampled_from((None, 10, 100, 1_000)),
    spares=st.sampled_from((exactly(0), exactly(1), AUTO, SpareRule(share=0.25))),
)
PARTS = st.builds(
    submit,
    NAMES,
    gpus=st.sampled_from((1, 2, 3, 4, 6)),
    priority=st.integers(0, 2),
    limit_s=st.sampled_from((None, 10, 100, 1_000)),
)
ELASTIC = st.builds(
    lambda name, dp, **job: submit(name, dp[1] * job["pp"], dp=dp[1], min_dp=dp[0], **job),
    NAMES,
    st.sampled_from(((1, 2), (1, 3), (2, 3), (1, 4), (3, 4))),
    pp=st.sampled_from((1, 2)),
    priority=st.integers(0, 2),
    limit_s=st.sampled_from((None, 1_000)),
    spares=st.sampled_from((exactly(0), exactly(1), AUTO)),
)
COMMANDS = st.one_of(
    SUBMITS,
    SUBMITS,
    PARTS,
    ELASTIC,
    st.builds(cancel, NAMES),
    st.builds(end, NAMES, st.sampled_from((JobState.COMPLETED, JobState.FAILED))),
    st.builds(fail, HOSTS),
    st.builds(repair, HOSTS),
    st.builds(repair, HOSTS),
    st.builds(drain, HOSTS),
    st.builds(cordon, HOSTS),
    st.builds(uncordon, HOSTS),
)


class Cluster(Driver):
    """Every event is checked as it is applied."""

    def __init__(self, policy: str) -> None:
        self.decided_version = 0
        limits = SchedulingOptions(policy=policy, resize_every_s=5)
        self.begin(FabricLoaded(0, FABRIC.spec), limits=limits)
        # Gangs save at every step, so that they may grow at any moment.
        saving = Preemption(costs=Costs(checkpoint_s=0, restart_s=1))
        self.ask(LoadTenants(replace(OPEN, preemption=saving)))

    def check_event(self, before: State, event: Event) -> None:
        check_event(before, event)

    def check_state(self) -> None:
        check_state(self.state)

    def plan(self) -> Plan:
        plan = self.decision()
        self.decided_version = plan.version
        return plan

    def schedule(self) -> None:
        """A plan on its own version commits whole, and keeps its promise."""
        before, plan = self.state, self.plan()
        events = self.whole(plan)
        assert len(events) == most_events(plan)
        self.record(events)
        for job in self.state.in_state(JobState.INTERRUPTED):  # all others were dealt with
            assert next_attempt_ns(job, self.state.tenants.restarts, self.now_ns) is not None
            assert plan.next_decision_ns is not None
        check_order(before, plan, self.state, self.now_ns, self.limits)
        check_growth(before, plan, self.state, self.now_ns, self.limits)

    def commit(self, plan: Plan) -> None:
        """The checks of events and states say what a stale plan must not do."""
        answer = self.late(plan)
        assert len(answer) <= most_events(plan)
        self.record(answer)

    def check_replay(self) -> None:
        """The log is the state, and the state is all that a decision sees."""
        super().check_replay()
        assert decide(replay(self.log), self.now_ns, self.limits) == self.plan()

    def check_reasons(self) -> None:
        for name in self.state.index.queue:
            reason = explain(self.state, name, self.now_ns, self.limits)
            assert reason.sentence
            assert set(reason.waits_for) <= set(self.state.jobs) - {name}


def most_events(plan: Plan) -> int:
    """The events of a plan that commits whole."""
    lenders = sum(len(a.lenders) for a in plan.actions if isinstance(a, Swap))
    shrinks = sum(len(a.shrinks) for a in plan.actions if isinstance(a, Start | Swap))
    return len(plan.actions) + lenders + shrinks


class Machine(RuleBasedStateMachine):
    """Hypothesis at the levers: it searches for a story that breaks, and shortens it."""

    plans = Bundle("plans")

    @initialize(policy=st.sampled_from(list(BUILT_IN)))
    def load(self, policy: str) -> None:
        self.cluster = Cluster(policy)

    def has_moved(self) -> bool:
        """To decide on the same version again teaches nothing."""
        return self.cluster.state.version != self.cluster.decided_version

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=5))
    def send(self, commands: list[Command]) -> None:
        for command in commands:
            self.cluster.ask(command)

    @rule(seconds=st.sampled_from((1, 10, 200)))
    def wait(self, seconds: int) -> None:
        self.cluster.now_ns += seconds * SECOND_NS

    @precondition(has_moved)
    @rule()
    def schedule(self) -> None:
        self.cluster.schedule()

    @precondition(has_moved)
    @rule(target=plans)
    def plan(self) -> Plan:
        return self.cluster.plan()

    @rule(plan=consumes(plans))
    def commit_stale(self, plan: Plan) -> None:
        self.cluster.commit(plan)

    @rule()
    def explain(self) -> None:
        self.cluster.check_reasons()

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.check_replay()


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestMachine = Machine.TestCase


@pytest.mark.parametrize("seed", seeds(4, range(4, 12)))
def test_a_long_day(seed: int) -> None:
    """A busy cluster for 300 rounds: deeper than the search goes, and always the same."""
    random = Random(seed)
    cluster = Cluster(random.choice(list(BUILT_IN)))
    plans: list[Plan] = []
    for _ in range(300):
        for _ in range(random.randint(0, 3)):
            cluster.ask(any_command(random))
        cluster.now_ns += random.choice((0, 1, 30)) * SECOND_NS
        if random.random() < 0.4:
            plans.append(cluster.plan())
        if plans and random.random() < 0.4:
            cluster.commit(plans.pop(-random.randint(1, min(3, len(plans)))))
        if random.random() < 0.4:
            cluster.schedule()
            cluster.check_reasons()
    cluster.check_replay()


def any_command(random: Random) -> Command:
    """Half of it work, a quarter ends, the rest people and hosts that come and go."""
    host, name = random.choice(FABRIC.hosts), random.choice("abcdefghijkl")
    hosts = random.choice((1, 1, 2, 2, 3, 4, 6))
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
