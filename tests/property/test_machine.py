"""Random commands, decisions and stale plans: what must hold after every event.

The machine drives the four functions as the service does, except that it may keep a
plan back and commit it much later.
"""

from __future__ import annotations

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

from placement import hostset
from placement.check import violations
from placement.cut import cut
from placement.request import AUTO, Placement, SpareRule
from scheduler import snapshot
from scheduler.core import (
    Conflict,
    HostState,
    JobState,
    Limits,
    Plan,
    Policy,
    Rejected,
    State,
    admit,
    apply,
    commit,
    decide,
    explain,
    replay,
)
from scheduler.core.commands import Command, LoadTenants
from scheduler.core.costs import Costs
from scheduler.core.events import (
    Event,
    FabricLoaded,
    GangResized,
    GangSwapped,
    JobStarted,
    SparesChanged,
)
from scheduler.core.failures.storm import avoided, looks_again_ns
from scheduler.core.job import SECOND_NS
from scheduler.core.plan import Reserve, Resize, Start, Swap
from scheduler.core.queue.order import Line
from scheduler.core.queue.reserve import Outlook
from scheduler.core.tenancy.admission import Quotas
from scheduler.core.tenancy.tenants import OPEN, Preemption
from tests.build import (
    cancel,
    cordon,
    drain,
    end,
    exactly,
    fabric,
    fail,
    repair,
    submit,
    uncordon,
)

FABRIC = fabric(zones=2, racks=2, hosts=2)
HOSTS = st.sampled_from(FABRIC.hosts)
NAMES = st.sampled_from("abcdefgh")
HOLDING = (JobState.RUNNING, JobState.INTERRUPTED)

SUBMITS = st.builds(
    submit,
    NAMES,
    st.sampled_from((1, 2, 3, 4, 6, 8)),
    priority=st.integers(0, 2),
    limit_s=st.sampled_from((None, 10, 100, 1_000)),
    spares=st.sampled_from((exactly(0), exactly(1), AUTO, SpareRule(share=0.25))),
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


class Cluster:
    """A scheduler and its log. Every event is checked as it is applied."""

    def __init__(self, policy: Policy) -> None:
        self.limits = Limits(policy=policy, resize_every_s=5)
        self.now_ns = 0
        self.log: list[Event] = []
        self.state = State.empty()
        self.decided_version = 0
        self.record(FabricLoaded(0, FABRIC.spec))
        # Gangs save at every step, so that they may grow at any moment.
        saving = Preemption(costs=Costs(checkpoint_s=0, restart_s=1))
        self.send(LoadTenants(replace(OPEN, preemption=saving)))

    def record(self, *events: Event) -> None:
        for event in events:
            check_event(self.state, event)
            self.state = apply(self.state, event)
            self.log.append(event)
        check_state(self.state)

    def send(self, command: Command) -> None:
        answer = admit(self.state, command, self.now_ns)
        if not isinstance(answer, Rejected):
            self.record(*answer)

    def plan(self) -> Plan:
        plan = decide(self.state, self.now_ns, self.limits)
        assert plan.version == self.state.version
        self.decided_version = plan.version
        return plan

    def schedule(self) -> None:
        """A plan on its own version commits whole, and keeps its promise."""
        before, plan = self.state, self.plan()
        events = commit(before, plan, self.now_ns)
        assert not isinstance(events, Conflict), events
        lenders = sum(len(a.lenders) for a in plan.actions if isinstance(a, Swap))
        shrinks = sum(len(a.shrinks) for a in plan.actions if isinstance(a, Start | Swap))
        assert len(events) == len(plan.actions) + lenders + shrinks
        self.record(*events)
        for job in self.state.in_state(JobState.INTERRUPTED):  # all others were dealt with
            assert looks_again_ns(job, self.state.tenants.restarts, self.now_ns) is not None
            assert plan.look_again_ns is not None
        check_order(before, plan, self.state, self.now_ns, self.limits)
        check_growth(before, plan, self.state, self.now_ns, self.limits)

    def commit(self, plan: Plan) -> None:
        """The checks of events and states say what a stale plan must not do."""
        answer = commit(self.state, plan, self.now_ns)
        if not isinstance(answer, Conflict):
            lenders = sum(len(a.lenders) for a in plan.actions if isinstance(a, Swap))
            shrinks = sum(len(a.shrinks) for a in plan.actions if isinstance(a, Start | Swap))
            assert len(answer) <= len(plan.actions) + lenders + shrinks
            self.record(*answer)

    def check_replay(self) -> None:
        """The log is the state, and the state is all that a decision sees."""
        again = replay(self.log)
        assert again == self.state
        assert decide(again, self.now_ns, self.limits) == self.plan()
        middle = len(self.log) // 2
        body = snapshot.encode(replay(self.log[:middle]), self.now_ns)
        assert replay(self.log[middle:], snapshot.decode(body)[0]) == self.state

    def check_reasons(self) -> None:
        for name in self.state.queue:
            reason = explain(self.state, name, self.now_ns, self.limits)
            assert reason.sentence
            assert set(reason.waits_for) <= set(self.state.jobs) - {name}


def check_state(state: State) -> None:
    """What holds after every event."""
    jobs = state.jobs.values()
    assert all(job.name == name for name, job in state.jobs.items())
    # no host is held twice, and held is the sum of what jobs hold
    held = [host for job in jobs for host in (*job.hosts, *job.spares)]
    assert len(held) == len(set(held))
    assert state.held == hostset.of(held)
    # a gang is whole or absent; what runs runs on hosts that have not failed
    failed = {i for i, host in state.hosts.items() if host.state is HostState.FAILED}
    for job in jobs:
        assert len(job.hosts) == (job.gang_hosts if job.state in HOLDING else 0)
        assert job.hosts or not job.spares
        assert job.dp in (job.sizes or (job.spec.request.parallelism.dp,))
        assert job.state is not JobState.QUEUED or job.dp == min(job.sizes, default=job.dp)
        if job.state is JobState.RUNNING:
            assert not failed & {*job.hosts, *job.spares}
            assert job.cuts == cut(FABRIC, job.request, job.hosts)
            assert job.lower_bound <= job.cuts[0].bytes_per_step
        if job.state is JobState.INTERRUPTED:
            assert not failed & {*job.spares}
    # the queue is the queued jobs in order
    queued = [job for job in jobs if job.state is JobState.QUEUED]
    assert list(state.queue) == [j.name for j in sorted(queued, key=lambda j: j.order)]
    assert sorted(state.running) == sorted(j.name for j in jobs if j.state in HOLDING)
    stopped = [job.name for job in jobs if job.state is JobState.INTERRUPTED]
    assert sorted(state.stopped) == sorted(stopped)
    assert state.minding == tuple(name for name in state.running if state.jobs[name].minds)
    # only a gang keeps a host draining
    assert state.unhealthy == hostset.of(state.hosts)
    for index, host in state.hosts.items():
        if host.state is HostState.DRAINING:
            assert any(index in job.hosts for job in jobs)


def check_event(state: State, event: Event) -> None:
    """Gangs start, and hosts join, on healthy hosts that nobody else holds."""
    if isinstance(event, JobStarted):
        taken = hostset.of(FABRIC.indices(event.hosts + event.spares))
        borrowed = hostset.of(FABRIC.indices(event.hosts)) & state.lent & ~state.held
        assert taken & ~(state.free | borrowed) == 0
        assert state.jobs[event.name].is_preemptible or not borrowed
        assert len(event.hosts) == state.jobs[event.name].on(len(event.hosts)).gang_hosts
        required = state.jobs[event.name].spec.request.spares.required(len(event.hosts))
        assert len(event.spares) >= required
        assert event.attempt == state.jobs[event.name].attempt + 1
    if isinstance(event, JobStarted | GangSwapped | GangResized):
        check_avoids(state, event)
    if isinstance(event, SparesChanged):
        job = state.jobs[event.name]
        more = hostset.of(FABRIC.indices(event.spares)) & ~hostset.of(job.spares)
        assert not more & ~(state.free | hostset.of(job.lent) & ~state.held)
    if isinstance(event, GangResized):
        check_resize(state, event)
    if isinstance(event, GangSwapped):
        own = hostset.of(state.jobs[event.name].spares) & ~state.unhealthy
        joined = hostset.of(FABRIC.indices([s.joined for s in event.swaps]))
        assert joined & ~(state.free | own) == 0
        assert joined.bit_count() == len(event.swaps)


def check_avoids(state: State, event: JobStarted | GangSwapped | GangResized) -> None:
    """No gang runs again on the host that has just stopped it."""
    job = state.jobs[event.name]
    if isinstance(event, GangSwapped):
        names = {swap.block: swap.joined for swap in event.swaps}
        after = [FABRIC.index_by_name.get(names.get(b, ""), h) for b, h in enumerate(job.hosts)]
    else:
        after = list(FABRIC.indices(event.hosts))
    if job.state is not JobState.RUNNING:
        shut = avoided(job, state.tenants.restarts, event.time_ns)
        assert not hostset.of(after) & shut
    newest = max(job.strikes, key=lambda s: s.at_ns, default=None)
    is_new = newest is not None and event.time_ns - newest.at_ns < 600 * SECOND_NS
    if newest and is_new and job.state is not JobState.RUNNING:
        assert newest.host not in after


def check_resize(state: State, event: GangResized) -> None:
    """The gang has a valid layout at another legal size. It grows on healthy free hosts,
    and shrinks when a host has failed, on those that it has or that are free."""
    job = state.jobs[event.name]
    placement = Placement(
        FABRIC.indices(event.hosts), FABRIC.indices(event.spares), event.cuts, event.lower_bound
    )
    failed = {i for i, host in state.hosts.items() if host.state is HostState.FAILED}
    own = hostset.of(set(job.hosts) - failed) | (job.held & ~state.unhealthy)
    assert not violations(FABRIC, state.free | own, job.at(event.dp).request, placement)
    assert event.dp in job.sizes
    assert event.attempt == job.attempt + 1
    if job.state is JobState.INTERRUPTED:
        assert event.dp < job.dp
    elif event.preempted_by:
        assert event.dp < job.dp
        assert not hostset.of(placement.hosts + placement.spares) & ~job.held
    elif event.dp < job.dp:  # a window opened
        left = job.held & ~hostset.of(placement.hosts)
        assert any(left & booking.hosts for booking in state.windows.values())
    else:
        assert event.dp > job.dp
        assert not job.held & state.unhealthy


def check_growth(before: State, plan: Plan, after: State, now_ns: int, limits: Limits) -> None:
    """Gangs grow when nothing starts, and no job's foreseen start is later for it."""
    grown = [a for a in plan.actions if isinstance(a, Resize) and a.dp > before.jobs[a.name].dp]
    if not grown:
        return
    assert not any(isinstance(action, Start | Swap) for action in plan.actions)
    if limits.policy is Policy.CONSERVATIVE or not before.queue:
        return
    order = [job.name for job in Line(before, now_ns, limits, Quotas(before).book)]
    promised = [foreseen(before, name, now_ns, limits) for name in order]
    first = next((i for i, start in enumerate(promised) if start is not None), None)
    if first is not None:
        kept = foreseen(after, order[first], now_ns, limits)
        assert kept is not None
        assert kept <= (promised[first] or 0)


def check_order(before: State, plan: Plan, after: State, now_ns: int, limits: Limits) -> None:
    """Nobody starts before an earlier job except without delaying the first that waits."""
    if any(not isinstance(action, Start | Reserve) for action in plan.actions):
        return  # swaps move hosts and ends as well
    if limits.policy is Policy.CONSERVATIVE or not Quotas(before).is_open:
        return  # these have machines of their own
    order = [job.name for job in Line(before, now_ns, limits, Quotas(before).book)]
    starts = [action.name for action in plan.actions if isinstance(action, Start)]
    assert starts == [name for name in order if name in starts]
    waiting = [name for name in order if name not in starts]
    if not waiting:
        return
    head = before.jobs[waiting[0]]
    if head.strikes:
        return  # it may be avoiding a host
    ahead = starts[: order.index(head.name)]
    room = before.free.bit_count() - sum(
        (after.jobs[n].held & before.free).bit_count() for n in ahead
    )
    assert head.needed > room, "it fits, and waits"
    if limits.policy is Policy.FIFO:
        assert starts == ahead
    at_once = replay(started_alone(before, plan, ahead, now_ns), before)
    promised, kept = (foreseen(state, head.name, now_ns, limits) for state in (at_once, after))
    assert promised is None or (kept is not None and kept <= promised)


def started_alone(before: State, plan: Plan, names: list[str], now_ns: int) -> tuple[Event, ...]:
    """The events of these starts of the plan and no others."""
    some = [a for a in plan.actions if isinstance(a, Start) and a.name in names]
    events = commit(before, Plan(plan.version, tuple(some)), now_ns)
    assert not isinstance(events, Conflict)
    return events


def foreseen(state: State, name: str, now_ns: int, limits: Limits) -> int | None:
    """The start that running jobs' limits promise to this queued job."""
    job, quotas = state.jobs[name], Quotas(state)
    if job.needed <= state.free.bit_count():
        return now_ns
    outlook = Outlook(state, now_ns, limits, quotas)
    found = outlook.reservation(job, state.free)
    return None if found is None else found.start_ns


class Machine(RuleBasedStateMachine):
    """Hypothesis at the levers: it searches for a story that breaks, and shortens it."""

    plans = Bundle("plans")

    @initialize(policy=st.sampled_from(Policy))
    def load(self, policy: Policy) -> None:
        self.cluster = Cluster(policy)

    def has_moved(self) -> bool:
        """To decide on the same version again teaches nothing."""
        return self.cluster.state.version != self.cluster.decided_version

    @rule(commands=st.lists(COMMANDS, min_size=1, max_size=5))
    def send(self, commands: list[Command]) -> None:
        for command in commands:
            self.cluster.send(command)

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


Machine.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestMachine = Machine.TestCase


@pytest.mark.parametrize("seed", range(12))
def test_a_long_day(seed: int) -> None:
    """A busy cluster for 300 rounds: deeper than the search goes, and always the same."""
    random = Random(seed)
    cluster = Cluster(random.choice(list(Policy)))
    plans: list[Plan] = []
    for _ in range(300):
        for _ in range(random.randint(0, 3)):
            cluster.send(any_command(random))
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
