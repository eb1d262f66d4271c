"""Spares are lent, used, failed and repaired in any order, and none is lost from the books."""

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from placement.fabric import hostset
from placement.workload.request import AUTO
from scheduler.core import (
    JobState,
    State,
)
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.events import (
    Event,
    FabricChanged,
    FabricLoaded,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    SparesChanged,
)
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import RUNS, HostMove
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import OPEN, PriorityClass
from tests.build import cancel, cordon, drain, end, exactly, fabric, fail, repair, submit, uncordon
from tests.property.driver import Driver

FABRIC = fabric(zones=2, racks=2, hosts=3)
HOSTS = st.sampled_from(FABRIC.hosts)
GANGS = st.builds(
    submit,
    st.sampled_from("abc"),
    st.sampled_from((1, 2, 4)),
    spares=st.sampled_from((exactly(1), exactly(2), exactly(3), AUTO)),
    limit_s=st.sampled_from((None, 360_000)),
)
SPOT = st.builds(
    submit,
    st.sampled_from("xyz"),
    st.sampled_from((1, 2, 4)),
    min_dp=st.sampled_from((0, 1)),
    priority_class=st.just("spot"),
    limit_s=st.sampled_from((None, 3_600)),
)
NAMES = st.sampled_from("abcxyz")
COMMANDS = st.one_of(
    GANGS,
    SPOT,
    SPOT,
    st.builds(fail, HOSTS),
    st.builds(fail, HOSTS),
    st.builds(repair, HOSTS),
    st.builds(end, NAMES),
    st.builds(cancel, NAMES),
    *(st.builds(move, HOSTS) for move in (cordon, drain, uncordon)),
)
POLICIES = st.builds(
    SparePolicy,
    st.sampled_from((0.01, 0.2)),
    prior_host_days=st.just(0),
    in_zone=st.booleans(),
    keep_idle=st.sampled_from((0, 1)),
)
GIVES_UP = (JobEnded, JobRequeued, JobPreempted, GangResized)


class Machine(Driver, RuleBasedStateMachine):
    @initialize(policy=POLICIES)
    def load(self, policy: SparePolicy) -> None:
        self.begin(FabricLoaded(0, FABRIC.spec))
        spot = (PriorityClass("spot", -1, True),)
        self.ask(LoadTenants(replace(OPEN, classes=spot, spares=policy)))
        self.ask(submit("a", 4, spares=exactly(3), limit_s=360_000))
        self.ask(submit("filler", 5))
        self.schedule()

    def check_event(self, before: State, event: Event) -> None:
        kept(before, event, self.state)

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=5))
    def act(self, commands: list[Command]) -> None:
        for command in commands:
            self.ask(command)

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=3))
    def act_and_schedule(self, commands: list[Command]) -> None:
        self.act(commands)
        self.schedule()

    @rule(seconds=st.sampled_from((1, 700, 4_000)))
    def wait(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND_NS

    @rule()
    def schedule(self) -> None:
        """What is decided on a state commits on it, and comes to an end."""
        self.until_settled()

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=3))
    def schedule_late(self, commands: list[Command]) -> None:
        """Something happens between the decision and its commit."""
        plan = self.decision()
        self.act(commands)
        self.record(self.late(plan))

    @invariant()
    def no_host_has_two_holders_and_every_gang_is_whole(self) -> None:
        gangs = list(gangs_of(getattr(self, "state", State.empty())))
        on = Counter(host for job in gangs for host in (*job.hosts, *job.spares))
        assert all(count == 1 for count in on.values()), on
        if gangs:
            assert hostset.of(on) == self.state.index.held
        for job in gangs:
            assert len(job.hosts) == job.gang_hosts
            if job.state is JobState.RUNNING:
                assert all(self.state.host(host).state in RUNS for host in job.hosts)

    @invariant()
    def what_is_lent_is_on_the_books_once(self) -> None:
        check_books(getattr(self, "state", State.empty()))

    @invariant()
    def accounts_are_of_the_hosts_that_are_held(self) -> None:
        state = getattr(self, "state", State.empty())
        held = sum(account.held for account in state.accounts.values())
        assert held == state.index.held.bit_count()


def gangs_of(state: State) -> list[Job]:
    return [state.jobs[name] for name in state.index.running]


def check_books(state: State) -> None:
    lent = Counter(host for job in gangs_of(state) for host in job.present.lent)
    assert all(count == 1 for count in lent.values()), lent
    assert hostset.of(lent) == state.index.lent
    for job in gangs_of(state):
        assert not {*job.present.lent} & {*job.hosts, *job.spares}
        borrowed = hostset.of((*job.hosts, *job.spares)) & state.index.lent
        assert job.is_preemptible or not borrowed, job.name
    if state.fabric is not None:
        assert not state.free & (state.index.lent | state.index.held)


def kept(before: State, event: Event, after: State) -> None:
    """A spare leaves the books of its job when it fails or joins the gang, when the job gives up
    its hosts, or when the log says that it was given away."""
    if isinstance(event, FabricChanged):
        return  # hosts have other numbers
    for job in gangs_of(before):
        now = after.jobs.get(job.name)
        lost = {*job.spares, *job.present.lent} - (
            {*now.spares, *now.present.lent} if now else set()
        )
        if not lost:
            continue
        if isinstance(event, HostMoved):
            assert event.move is HostMove.FAIL
            assert lost == {before.loaded_fabric.index_by_name[event.host]}
            continue
        assert event.name == job.name  # type: ignore[union-attr]
        if isinstance(event, GangSwapped):
            assert now is not None
            assert lost <= {*now.hosts}
        elif isinstance(event, SparesChanged):
            assert " took " in event.reason or event.reason.startswith("releases "), event.reason
        else:
            assert isinstance(event, GIVES_UP), event


Machine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestMachine = Machine.TestCase
