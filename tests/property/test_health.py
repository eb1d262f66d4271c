"""Hosts come and go by every signal there is: who may begin where, and what is remembered."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from placement.fabric import hostset
from scheduler.core import JobState, State
from scheduler.core.model.commands import Command, LoadHealth, LoadTenants, ReportHost
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangResized,
    GangSwapped,
    HostMoved,
    JobStarted,
    SparesChanged,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import ALLOWS, HOST_MOVES, RUNS, Allows, HostMove
from scheduler.core.policies.health import HealthPolicy, LemonAction, LemonPolicy
from scheduler.core.policies.health_signals import SIGNALS, XID
from scheduler.core.policies.tenants import OPEN, PriorityClass
from tests.build import cancel, cordon, drain, end, exactly, fabric, submit, uncordon
from tests.property.driver import Driver

FABRIC = fabric(zones=2, racks=2, hosts=2)
HOSTS = st.sampled_from(FABRIC.hosts)
NAMES = st.sampled_from("abcd")
DOMAINS = st.sampled_from(("z0", "z0-r0", "z1-r1"))
CODES = st.sampled_from((13, 63, 79, 94))
PLAIN = [name for name, signal in SIGNALS.items() if not signal.is_domain and name != XID]
SWITCHES = [name for name, signal in SIGNALS.items() if signal.is_domain]
JOBS = st.builds(
    submit,
    NAMES,
    st.sampled_from((1, 2, 4, 6)),
    spares=st.sampled_from((exactly(0), exactly(1))),
    priority_class=st.sampled_from(("", "spot")),
    limit_s=st.sampled_from((None, 3_600)),
)
COMMANDS = st.one_of(
    JOBS,
    JOBS,
    st.builds(end, NAMES),
    st.builds(cancel, NAMES),
    st.builds(ReportHost, HOSTS, st.sampled_from(PLAIN), st.just("x")),
    st.builds(ReportHost, HOSTS, st.sampled_from(("repaired", "stress-test-passed"))),
    st.builds(lambda h, code: ReportHost(h, XID, xid=code), HOSTS, CODES),
    st.builds(ReportHost, DOMAINS, st.sampled_from(SWITCHES)),
    st.builds(cordon, HOSTS),
    st.builds(drain, HOSTS),
    st.builds(uncordon, HOSTS),
)
POLICIES = st.builds(
    HealthPolicy,
    clear_s=st.sampled_from((60, 3_600)),
    has_burn_in=st.booleans(),
    golden_s=st.sampled_from((0, 60)),
    large_hosts=st.just(2),
    lemons=st.builds(LemonPolicy, at_least=st.just(1), action=st.sampled_from(LemonAction)),
)


class Machine(Driver, RuleBasedStateMachine):
    """`cordons`: hosts that an operator took out, and has not taken back."""

    @initialize(policy=POLICIES)
    def load(self, policy: HealthPolicy) -> None:
        self.cordons = set[str]()
        self.begin(FabricLoaded(0, FABRIC.spec))
        spot = replace(OPEN, classes=(PriorityClass("spot", 0, True),))
        self.ask(LoadTenants(spot))
        self.ask(LoadHealth(policy))

    def check_event(self, before: State, event: Event) -> None:
        check(before, event)

    def remember(self, event: Event) -> None:
        if not isinstance(event, HostMoved):
            return
        if event.move in (HostMove.CORDON, HostMove.DRAIN):
            self.cordons.add(event.host)
        elif event.move is HostMove.UNCORDON:
            self.cordons.discard(event.host)

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=6))
    def act(self, commands: list[Command]) -> None:
        for command in commands:
            for event in self.ask(command):
                self.remember(event)

    @rule(seconds=st.sampled_from((1, 100, 4_000, 100_000)))
    def wait(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND_NS

    @rule()
    def schedule(self) -> None:
        """What is decided on a state commits on it, and comes to an end."""
        plan = self.until_settled()
        assert plan.next_decision_ns is None or plan.next_decision_ns > self.now_ns

    @invariant()
    def an_operators_cordon_holds(self) -> None:
        for name in getattr(self, "cordons", ()):
            state = self.state.host(FABRIC.index_by_name[name]).state
            assert ALLOWS[state] is Allows.NOTHING, (name, state)

    @invariant()
    def the_sets_are_what_the_table_says(self) -> None:
        if not hasattr(self, "state"):
            return
        for index in range(FABRIC.host_count):
            allows = ALLOWS[self.state.host(index).state]
            assert hostset.has(self.state.index.unhealthy, index) is (allows is Allows.NOTHING)
            assert hostset.has(self.state.index.probation, index) is (allows is Allows.PREEMPTIBLE)
            assert hostset.has(self.state.index.golden, index) is (allows is Allows.LARGE_FIRST)

    @invariant()
    def what_runs_runs_where_it_may(self) -> None:
        if not hasattr(self, "state"):
            return
        for job in self.state.in_state(JobState.RUNNING):
            assert all(self.state.host(host).state in RUNS for host in job.hosts)


def check(state: State, event: Event) -> None:
    """Whoever begins on a host is allowed to by its state; moves are those of the table."""
    if isinstance(event, HostMoved):
        index = FABRIC.index_by_name[event.host]
        assert event.move in HOST_MOVES[state.host(index).state]
    begun: set[str] = set()
    if isinstance(event, JobStarted):
        begun = {*event.hosts, *event.spares}
    elif isinstance(event, GangSwapped):
        begun = {swap.joined for swap in event.swaps}
    elif isinstance(event, GangResized | SparesChanged):
        held = state.jobs[event.name].allocation
        names = (*getattr(event, "hosts", ()), *event.spares)
        begun = {n for n in names if not hostset.has(held, FABRIC.index_by_name[n])}
    for name in begun:
        allows = ALLOWS[state.host(FABRIC.index_by_name[name]).state]
        assert allows is not Allows.NOTHING
        if allows is Allows.PREEMPTIBLE:
            assert state.jobs[event.name].is_preemptible  # type: ignore[union-attr]


Machine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestMachine = Machine.TestCase
