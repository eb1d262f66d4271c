"""Long days of one cluster on which all that muster can do happens at once.

Quotas and cells, classes, elastic gangs, spares that are lent, maintenance and reservations,
failures and repairs, cancels and updates, defragmentation by policy, constraints and
neighbours: what each of the other machines promises of its own holds where they meet.
"""

from dataclasses import replace
from itertools import combinations
from random import Random
from unittest.mock import patch

import pytest

from placement.fabric.constraints import ANYWHERE, Constraints
from placement.workload.request import AUTO
from scheduler.core import (
    Conflict,
    Job,
    JobState,
    Plan,
    SchedulingOptions,
    State,
    admit,
    commit,
    decide,
    replay,
)
from scheduler.core.commit.ledger import Ledger
from scheduler.core.model.commands import (
    Command,
    HoldJob,
    ReleaseJob,
    RequeueJob,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangResized,
    GangSwapped,
    JobEligible,
    JobHeld,
    JobPreempted,
    JobReleased,
    JobRequeued,
    JobStarted,
    SparesChanged,
    TenantsLoaded,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import Hold
from scheduler.core.model.plan import Defragment, ReplenishSpares, Start, Swap
from scheduler.core.policies.affinity import ANYBODY, Affinity
from scheduler.core.policies.spares import SparePolicy
from scheduler.core.policies.tenants import Defragmentation, Tenants
from tests.build import (
    cancel,
    cordon,
    drain,
    end,
    exactly,
    fail,
    queue_order,
    repair,
    submit,
    uncordon,
)
from tests.property import constrained, laws, quotas
from tests.property import test_preemption as preemption
from tests.property import window_laws as windows
from tests.seeds import seeds

NAMES = "abcdefghijkl"
HOSTS = laws.FABRIC.hosts
SIZES = ((0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 4, 1), (1, 8, 1), (1, 4, 2), (2, 3, 1))
CALM = (JobPreempted, GangResized, GangSwapped, SparesChanged, JobStarted)


def _newest(ledger: Ledger, action: object) -> State:
    """As Ledger.state_for: every action reads the newest state."""
    return ledger.state


def _forget_views(ledger: Ledger, name: str, hosts: int) -> None:
    """As Ledger._enter: what a start changes is worked out anew."""
    ledger._quotas = ledger._affinity = ledger._calendar = None
    ledger.free &= ~hosts


class World(preemption.Machine):
    """`ends`: when the plan at hand takes gangs to end. `is_deferring`: whether jobs are held,
    requeued, wait for a time or for each other; `is_sharing`: jobs take parts of hosts."""

    def __init__(self, *, is_deferring: bool = False, is_sharing: bool = False) -> None:
        super().__init__()
        self.is_deferring, self.is_sharing = is_deferring, is_sharing
        self.ends: dict[str, int] = {}
        self.promised: tuple[int, str, int] | None = None

    def load(self, tenants: Tenants) -> None:
        self.made_room = 0
        told = TenantsLoaded(0, tenants.digest, tenants)
        limits = SchedulingOptions(resize_every_s=preemption.GUARD_S, assumed_limit_s=300)
        self.begin(FabricLoaded(0, laws.FABRIC.spec), told, limits=limits)

    def act(self, random: Random) -> None:
        for _ in range(random.randint(0, 2)):
            self.ask(any_command(random, self))

    def check_event(self, before: State, event: Event) -> None:
        laws.check_event(before, event)
        windows.check_joins(before, event, self.ends)
        laws.check_spares_kept(before, event, self.state)
        if isinstance(event, JobStarted) and not self.is_sharing:
            quotas.check_start(before, self.state, self.state.jobs[event.name])

    def check_state(self) -> None:
        laws.check_state(self.state)
        windows.check_closed(self.state)
        if not self.is_sharing:  # they count whole hosts
            quotas.check_state(self.state)
            laws.check_books(self.state)
        check_company(self.state)

    def committed(self, plan: Plan) -> tuple[Event, ...] | Conflict:
        tidy = [
            swap
            for action in plan.actions
            if isinstance(action, Defragment)
            for swap in action.swaps
        ]
        some = [a for a in (*plan.actions, *tidy) if isinstance(a, Start | Swap)]
        self.ends = {action.name: action.end_ns for action in some}
        answer = commit(self.state, plan, self.now_ns)
        with patch.multiple(Ledger, state_for=_newest, _enter=_forget_views):
            assert commit(self.state, plan, self.now_ns) == answer
        if not isinstance(answer, Conflict):
            self.check_preemptions(answer, list(self.state.index.queue))
            self.record(answer)
        return answer

    def schedule(self) -> Plan:
        """A plan on its own version commits whole."""
        self.decided_on = self.state
        plan = self.decision()
        windows.check_ends(self.state, plan, self.now_ns, self.limits)
        answer = self.committed(plan)
        assert not isinstance(answer, Conflict), answer
        started = [action.name for action in plan.actions if isinstance(action, Start)]
        assert started == [event.name for event in answer if isinstance(event, JobStarted)]
        if plan.next_decision_ns is not None:
            assert plan.next_decision_ns > self.now_ns
        self.check_promised(plan)
        return plan

    def check_promised(self, plan: Plan) -> None:
        """At one moment nobody's reservation moves back as others start that stand behind it. Who
        is evicted may come before it."""
        mild = all(
            isinstance(action, ReplenishSpares)
            or (isinstance(action, Start) and not action.victims)
            for action in plan.actions
        )
        first = next(iter(plan.reservations), None)
        if self.promised and self.overtaken(plan, self.promised[1]):
            self.promised = None
        if mild and self.promised and first and self.promised[:2] == (self.now_ns, first.name):
            assert first.start_ns <= self.promised[2], f"{first.name} is put off"
        self.promised = (self.now_ns, first.name, first.start_ns) if first and mild else None

    def overtaken(self, plan: Plan, name: str) -> bool:
        """Whether somebody starts who stands before `name` by now: every start moves its tenant
        back in the order."""
        before = self.decided_on
        line = queue_order(before, self.now_ns, self.limits)
        starts = {action.name for action in plan.actions if isinstance(action, Start)}
        return name in line and any(other in starts for other in line[: line.index(name)])

    def settle(self) -> Plan:
        """Decisions come to an end, and then nothing is left to decide."""
        self.promised = None
        for _ in range(60):
            plan = self.schedule()
            if not plan.actions:
                assert decide(self.state, self.now_ns, self.limits) == plan
                windows.check_left(self.state, self.now_ns)
                windows.check_counts(self.state)
                return plan
        raise AssertionError("decisions go on for ever")

    def turn(self) -> None:
        self.settle()

    def commit_stale(self) -> None:
        if self.stale:
            self.committed(self.stale.pop())

    def check_worth(
        self,
        start: State,
        event: JobStarted | GangSwapped,
        gone: list[preemption.MadeRoom],
        waiting: list[str],
    ) -> None:
        """Counts say whether somebody was needed where any host would do."""
        if is_plain(start.jobs[event.name]) and not start.windows:
            super().check_worth(start, event, gone, waiting)

    def calm_down(self) -> None:
        """Without anything from outside it comes to rest, whatever there is to look at again."""
        busy = 0
        for _ in range(80):
            plan, before = self.settle(), len(self.log)
            if plan.next_decision_ns is None:
                return
            self.now_ns = plan.next_decision_ns
            self.settle()
            busy += any(isinstance(event, CALM) for event in self.log[before:])
        assert busy < 40, "no rest"

    def empty(self) -> None:
        """Hosts are well, gangs end one after the other: whoever fits has a turn."""
        for name in list(self.state.windows):
            self.ask(windows.remove_window(name))
        for name in list(self.state.index.deferred):
            self.ask(ReleaseJob(name, Hold.OPERATOR))
            self.ask(UpdateJob(name, ("begin_ns", "dependencies")))
        for host in HOSTS:
            self.ask(repair(host))
            self.ask(uncordon(host))
        self.now_ns += 7_200 * SECOND_NS
        for _ in range(200):
            self.settle()
            running = [j for j in self.state.holding if j.state is JobState.RUNNING]
            if not running:
                break
            self.now_ns += 60 * SECOND_NS
            self.ask(end(min(running, key=lambda j: (j.present.start_ns, j.name)).name))
        for job in list(self.state.in_state(JobState.QUEUED)):
            assert not self.could_start(job), f"{job.name} starves"

    def could_start(self, job: Job) -> bool:
        alone = self.state
        for name in list(self.state.index.queue):
            if name != job.name:
                answer = admit(alone, cancel(name), self.now_ns)
                assert isinstance(answer, tuple)
                alone = replay(answer, alone)
        plan = decide(alone, self.now_ns, self.limits)
        return any(isinstance(action, Start) for action in plan.actions)


def check_company(state: State) -> None:
    """As `constrained.check`, but a spare may be left where it does not serve when the gang has
    to go on elsewhere."""
    running = [job for job in state.jobs.values() if job.state is JobState.RUNNING]
    for job in running:
        constrained.check_own(replace(job, gang=replace(job.present, spares=())))
    for one, other in combinations(running, 2):
        constrained.check_pair(one, other)


def is_plain(job: Job) -> bool:
    return job.request.where == ANYWHERE and job.spec.affinity == ANYBODY and not job.strikes


def tenants_of(random: Random, is_sharing: bool = False) -> Tenants:
    base = random.choice((preemption.ALONE, preemption.PLAIN, preemption.SHAPED))
    base = preemption.ALONE if is_sharing else base  # quotas count parts of hosts together
    spares = SparePolicy(
        random.choice((0.01, 0.2)), prior_host_days=0, keep_idle=random.choice((0, 1))
    )
    tidy = random.choice((None, Defragmentation(every_s=60, hosts=3)))
    return replace(base, spares=spares, defragmentation=tidy)


def any_command(random: Random, world: World) -> Command:
    name, host = random.choice(NAMES), random.choice(HOSTS)
    if world.is_deferring and random.random() < 0.4:
        return any_deferral(random, world, name)
    if world.is_sharing and random.random() < 0.5:
        return any_part(random, world.state, name)
    if random.random() < 0.5:
        return any_job(random, world.state, name)
    if random.random() < 0.1:
        return windows.any_window(random, world.now_ns)
    if random.random() < 0.1:
        fields = random.choice((("time_limit_s",), ("priority_class",)))
        level = random.choice(("", "spot", "dear", "urgent"))
        limit_s = random.choice((None, 10, 600))
        return UpdateJob(name, fields, priority_class=level, time_limit_s=limit_s)
    ill = [end(name)] * 6 + [cancel(name), fail(host), fail(host), cordon(host), drain(host)]
    well = [move(random.choice(HOSTS)) for move in (repair, uncordon) for _ in range(4)]
    return random.choice([*ill, *well])


def any_deferral(random: Random, world: World, name: str) -> Command:
    by = random.choice(list(Hold))
    terms = tuple(
        DependencyTerm(kind, "" if kind is DependencyKind.SINGLETON else random.choice(NAMES))
        for kind in random.sample(list(DependencyKind), random.choice((0, 1, 1, 2)))
    )
    begin_ns = world.now_ns + random.choice((-20, 20, 400)) * SECOND_NS
    job = any_job(random, world.state, name)
    assert isinstance(job, SubmitJob)
    waits = replace(
        job.spec,
        hold=random.random() < 0.2,
        begin_ns=max(begin_ns, 0),
        dependencies=terms,
        cancel_unmet=random.random() < 0.5,
    )
    change = UpdateJob(
        name,
        ("begin_ns", "dependencies", "cancel_unmet"),
        by=by,
        begin_ns=max(begin_ns, 0),
        dependencies=terms,
        cancel_unmet=random.random() < 0.5,
    )
    hold = RequeueJob(name, hold=random.random() < 0.3, by=by)
    frees = [ReleaseJob(name, Hold.OPERATOR), ReleaseJob(name, by)]
    return random.choice(
        [HoldJob(name, by), *frees, hold, change, *(replace(job, spec=waits),) * 3]
    )


def any_job(random: Random, state: State, name: str) -> Command:
    leaves = [t.name for t in state.tenants.tenants if t.name not in state.tenants.inner]
    least, full, pp = random.choice(SIZES)
    where, beside = ANYWHERE, ANYBODY
    if random.random() < 0.2:
        where = Constraints(random.choice((0, 1)), random.choice(("", "zone", "rack")))
    if random.random() < 0.2:
        avoid = random.choice(((), (("zone", ("a*",)),), (("rack", ("b", "c")),)))
        beside = Affinity(random.choice(("", "rack")), avoid, random.choice(("", "a", "b")))
    return submit(
        name,
        full * pp,
        dp=full,
        pp=pp,
        min_dp=least,
        limit_s=random.choice((None, 60, 600)),
        spares=random.choice((exactly(0), exactly(0), exactly(1), AUTO)),
        tenant=random.choice(leaves),
        priority_class=random.choice(("", "spot", "spot", "dear", "urgent")),
        where=where,
        affinity=beside,
    )


def any_part(random: Random, state: State, name: str) -> Command:
    leaves = [t.name for t in state.tenants.tenants if t.name not in state.tenants.inner]
    return submit(
        name,
        gpus=random.choice((1, 1, 2, 3, 4, 5)),
        limit_s=random.choice((None, 60, 600)),
        tenant=random.choice(leaves),
        priority_class=random.choice(("", "spot", "dear", "urgent")),
    )


def a_day(
    seed: int, rounds: int = 150, *, is_deferring: bool = False, is_sharing: bool = False
) -> World:
    random, world = Random(seed), World(is_deferring=is_deferring, is_sharing=is_sharing)
    world.load(tenants_of(random, is_sharing))
    world.live(random, rounds)
    return world


def check_end(world: World) -> None:
    """It comes to rest, and nobody starves."""
    world.calm_down()
    world.empty()
    world.check_replay()


@pytest.mark.parametrize(
    "seed", seeds(4, (4, 5, 35, 53, 113, 180, 205, 247, 327, 340, 372, 670, 793, 1029, 1048))
)
def test_a_long_day_of_everything(seed: int) -> None:
    check_end(a_day(seed))


@pytest.mark.parametrize("seed", [0, 2])
def test_a_long_day_of_holds_begin_times_and_dependencies(seed: int) -> None:
    world = a_day(seed, is_deferring=True)
    kinds = {type(event) for event in world.log}
    assert kinds >= {JobHeld, JobReleased, JobEligible, JobRequeued}
    check_end(world)


@pytest.mark.parametrize("seed", seeds(3, range(3, 6)))
def test_a_long_day_on_shared_hosts(seed: int) -> None:
    world = a_day(seed, is_sharing=True)
    assert any(isinstance(event, JobStarted) and event.gpus for event in world.log)
    check_end(world)
