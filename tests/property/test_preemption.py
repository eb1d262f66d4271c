"""Random commands where classes send each other away, or take replicas of elastic gangs: what
holds of every preemption and of every shrink.

Rights, promises and need are those of `preempted`.
"""

from dataclasses import replace
from random import Random

import pytest

from placement.workload.request import AUTO
from scheduler.core import JobState, Plan, SchedulingOptions, State, apply
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangSwapped,
    JobPreempted,
    JobStarted,
    SparesChanged,
    TenantsLoaded,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import ReplenishSpares, Reserve, Start, Swap
from scheduler.core.policies.tenants import OPEN, Tenants
from scheduler.core.queue.policies import BUILT_IN
from tests.build import cancel, end, exactly, fail, repair, submit
from tests.property import laws, quotas
from tests.property.driver import Driver
from tests.property.preempted import (
    CLASSES,
    GUARD_S,
    TERMS,
    MadeRoom,
    check_lent,
    check_needed,
    check_right,
    is_owed,
    is_recall,
    makes_room,
)
from tests.seeds import seeds

ALONE, PLAIN, SHAPED = (
    replace(tenants, classes=CLASSES, preemption=TERMS)
    for tenants in (OPEN, quotas.PLAIN, quotas.SHAPED)
)


class Machine(Driver):
    """`made_room`: how many gangs were evicted, or made smaller."""

    def load(self, tenants: Tenants, policy: str = "production") -> None:
        self.made_room, self.is_late = 0, False
        told = TenantsLoaded(0, tenants.digest, tenants)
        limits = SchedulingOptions(policy=policy, resize_every_s=GUARD_S)
        self.begin(FabricLoaded(0, laws.FABRIC.spec), told, limits=limits)

    def check_event(self, before: State, event: Event) -> None:
        laws.check_event(before, event)
        if isinstance(event, JobStarted):
            # A commit does not know the policy, and nobody is lent to beyond what it counts.
            can_take_back = self.is_late or self.limits.policy == "production"
            job = self.state.jobs[event.name]
            quotas.check_start(before, self.state, job, can_take_back)
        if isinstance(event, JobPreempted):
            job = self.state.jobs[event.name]
            assert event.preempted_by in job.reason
            assert job.sequence == before.jobs[event.name].sequence

    def check_state(self) -> None:
        laws.check_state(self.state)
        quotas.check_state(self.state)

    def check_preemptions(self, events: tuple[Event, ...], waiting: list[str]) -> None:
        """Whoever is evicted is followed by the job that evicted it, and was needed."""
        state, gone, is_covered = self.state, list[MadeRoom](), False
        start = state
        for event in events:
            if makes_room(event):
                if not gone:
                    start, job = state, state.jobs[event.preempted_by]
                    is_covered = job.state is not JobState.QUEUED or is_owed(state, job)
                if not is_recall(state, event):
                    check_right(state, event, is_covered, self.now_ns)
                gone.append(event)
                self.made_room += 1
            elif gone and not isinstance(event, SparesChanged):
                assert isinstance(event, JobStarted | GangSwapped)
                assert {e.preempted_by for e in gone} == {event.name}
                self.check_worth(start, event, gone, waiting)
                gone = []
            state = apply(state, event)
        assert not gone, "preempted for nobody"

    def check_worth(
        self,
        start: State,
        event: JobStarted | GangSwapped,
        gone: list[MadeRoom],
        waiting: list[str],
    ) -> None:
        """Nobody makes room without need."""
        if isinstance(event, GangSwapped):
            check_lent(start, event, gone)
        else:
            check_needed(start, start.jobs[event.name], gone, waiting)

    def turn(self) -> None:
        before, plan = self.state, self.decision()
        answer = self.whole(plan)
        started = [action for action in plan.actions if isinstance(action, Start)]
        makers = [action for action in plan.actions if isinstance(action, Start | Swap)]
        sent = sum(len(action.victims) + len(action.shrinks) for action in makers)
        recalled = sum(len(action.recalls) for action in makers if isinstance(action, Swap))
        alone = sum(not isinstance(action, ReplenishSpares) for action in plan.actions)
        others = sum(not isinstance(event, SparesChanged) for event in answer)
        assert others == alone + sent + recalled
        names = {action.name for action in started}
        self.check_preemptions(answer, [name for name in before.index.queue if name not in names])
        self.record(answer)
        if plan.next_decision_ns is not None:
            assert plan.next_decision_ns > self.now_ns
        if before.tenants == ALONE and sent:
            self.check_promise(before, plan)
        elif before.tenants == ALONE:
            laws.check_order(before, plan, self.state, self.now_ns, self.limits)
            self.check_nobody_is_passed_over(before, plan)

    def check_promise(self, before: State, plan: Plan) -> None:
        """Nobody that waits with a reservation waits longer for what was evicted."""
        starts = [action for action in plan.actions if isinstance(action, Start)]
        names = {action.name for action in starts}
        waiting = next((name for name in before.index.queue if name not in names), None)
        if waiting is None or len(starts) != len(plan.actions):
            return
        place = before.index.queue.index(waiting)
        ahead = [a.name for a in starts if before.index.queue.index(a.name) < place]
        laws.check_kept(before, plan, self.state, waiting, ahead, self.now_ns, self.limits)

    def check_nobody_is_passed_over(self, before: State, plan: Plan) -> None:
        """The first that waits would not fit if all that it outranks, and that had their
        time, were gone: a plan that sends nobody away starves nobody who could."""
        names = {action.name for action in plan.actions if isinstance(action, Start)}
        waiting = next((before.jobs[n] for n in before.index.queue if n not in names), None)
        if waiting is None or any(
            not isinstance(action, Start | Reserve) for action in plan.actions
        ):
            return
        if waiting.strikes:
            return  # it may be avoiding a host
        ripe_ns = self.now_ns - GUARD_S * SECOND_NS
        lower = (
            job
            for job in before.in_state(JobState.RUNNING)
            if job.is_preemptible
            and job.priority < waiting.priority
            and job.present.start_ns <= ripe_ns
        )
        hosts = self.state.free
        for job in lower:
            hosts |= job.allocation & ~(
                before.index.unhealthy | before.index.lent
            )  # what it borrowed goes home
        assert waiting.needed > hosts.bit_count(), f"{waiting.name} waits in vain"

    def commit_stale(self) -> None:
        """A plan of some time ago: nobody is evicted who need not be any more."""
        if self.stale:
            answer, self.is_late = self.late(self.stale.pop()), True
            self.check_preemptions(answer, list(self.state.index.queue))
            self.record(answer)
            self.is_late = False

    def act(self, random: Random) -> None:
        """Where nobody is evicted, tenants change their files as well."""
        if self.limits.policy != "production" and random.random() < 0.05:
            self.ask(LoadTenants(random.choice((PLAIN, SHAPED))))
        for _ in range(random.randint(0, 2)):
            self.ask(any_command(random, self.state))


def a_day(seed: int, tenants: Tenants, policy: str = "production", rounds: int = 300) -> Machine:
    cluster = Machine()
    cluster.load(tenants, policy)
    cluster.live(Random(seed), rounds, kept=0.3)
    return cluster


@pytest.mark.parametrize("seed", seeds(3, range(3, 12), (409, 419, 1074, 1080, 1149, 2261)))
def test_gangs_make_room_by_right_and_where_they_are_needed(seed: int) -> None:
    assert a_day(seed, (ALONE, PLAIN, SHAPED)[seed % 3]).made_room


@pytest.mark.parametrize("policy", [policy for policy in BUILT_IN if policy != "production"])
def test_quotas_hold_and_nobody_makes_room_under_other_policies(policy: str) -> None:
    for tenants in (PLAIN, SHAPED):
        assert not a_day(1, tenants, policy, rounds=100).made_room


def any_command(random: Random, state: State) -> Command:
    """Half of it work, half of that elastic; hosts that fail come back."""
    name, leaves = random.choice("abcdefghijkl"), [t.name for t in state.tenants.tenants]
    tenant = random.choice([leaf for leaf in leaves if leaf not in state.tenants.inner])
    if random.random() < 0.5:
        least, full, pp = random.choice(((0, 1, 1), (0, 3, 1), (1, 4, 1), (1, 8, 1), (1, 4, 2)))
        return submit(
            name,
            full * pp,
            dp=full,
            pp=pp,
            min_dp=least,
            limit_s=random.choice((None, 60, 600)),
            spares=random.choice((exactly(0), exactly(0), exactly(1), AUTO)),
            tenant=tenant,
            priority_class=random.choice(("", "spot", "spot", "dear", "urgent")),
        )
    host = random.choice(laws.FABRIC.hosts)
    back = [repair(random.choice(laws.FABRIC.hosts)) for _ in range(3)]
    return random.choice([end(name)] * 6 + [cancel(name), fail(host), *back])
