"""Reservations are kept where guarantees have shapes, whatever else is asked for.

Cells, limits, jobs that can be preempted, constraints and neighbours: nobody who was promised a
start starts later for the sake of one who stands behind it. Jobs end at their limits or before,
and no host fails.
"""

from dataclasses import replace
from heapq import heappop, heappush
from random import Random

import pytest

from placement.fabric.constraints import ANYWHERE, Constraints
from scheduler.core import SchedulingOptions, decide, replay
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Plan, Start
from scheduler.core.policies.affinity import ANYBODY, Affinity
from scheduler.core.policies.tenants import GuaranteedCell, Tenant, Tenants
from tests.build import committed, end, fabric, loaded, queue_order, run, submit
from tests.cases import case
from tests.property import test_quotas as quotas
from tests.property.driver import tried

EMPTY = loaded(fabric(2, 2, 2))
GPUS = quotas.GPUS
SHAPES = (
    quotas.SHAPED,
    Tenants(
        (
            Tenant("a", cells=(GuaranteedCell("zone", 1, 3),)),
            Tenant("b", cells=(GuaranteedCell("rack", 1),)),
            Tenant("c", guaranteed_gpus=GPUS),
            Tenant("d"),
        )
    ),
    Tenants(
        (
            Tenant("a", cells=(GuaranteedCell("rack", 2),)),
            Tenant("b", guaranteed_gpus=3 * GPUS),
            Tenant("d", limit_gpus=5 * GPUS),
        )
    ),
    Tenants(
        (
            Tenant("a", cells=(GuaranteedCell("zone", 1, 4),)),
            Tenant("b", guaranteed_gpus=2 * GPUS, cells=(GuaranteedCell("zone", 1, 2),)),
            Tenant("d"),
        )
    ),
)
SEEDS = [12, 15, 25, 29, 38, 42, 58, 70, 72, 79, 95, 110, 114, 118, 136, 158, 162, 177, 194]
SEEDS += [304, 492, 1194, 2222, 2400, 2482]


def any_job(random: Random, name: str, leaves: list[str], limit_s: int) -> Command:
    hosts, where, beside = random.choice((1, 1, 2, 2, 3, 4, 5)), ANYWHERE, ANYBODY
    if random.random() < 0.3:
        where = Constraints(random.choice((0, 1)), random.choice(("", "zone", "rack")))
        hosts = min(hosts, 2 if where.same == "rack" else 4)
    if random.random() < 0.15:
        avoid = random.choice(((), (("zone", ("j1*",)),)))
        beside = Affinity(random.choice(("", "rack")), avoid, "")
    return submit(
        name,
        hosts,
        limit_s=limit_s,
        tenant=random.choice(leaves),
        priority_class=random.choice(("", "", "spot")),
        where=where,
        affinity=beside,
    )


class Life:
    """`promised`: the start that was promised to each job; `due`: when which gang ends."""

    def __init__(self, seed: int, policy: str) -> None:
        self.random, self.limits = Random(seed), SchedulingOptions(policy=policy)
        tenants = replace(self.random.choice(SHAPES), classes=quotas.CLASSES, aging=None)
        self.leaves = [t.name for t in tenants.tenants if t.name not in tenants.inner]
        self.state, self.promised = run(EMPTY, LoadTenants(tenants)), dict[str, int]()
        self.due: list[tuple[int, int, str, int]] = []  # s, 0 end or 1 arrival, job, attempt
        self.made_promises = 0
        self.shaped = {t.name for t in tenants.tenants if t.cells}
        self.ends_ns: dict[str, int] = {}  # when a gang has to end, by its limit

    def live(self, jobs: int = 25) -> None:
        at_s = 0
        for number in range(jobs):
            at_s += self.random.randint(0, 30)
            heappush(self.due, (at_s, 1, f"j{number}", 0))
        while self.due:
            now_s = self.due[0][0]
            while self.due and self.due[0][0] == now_s:
                self.happens(*heappop(self.due))
            self.decide(now_s)

    def happens(self, now_s: int, is_arrival: int, name: str, attempt: int) -> None:
        job = self.state.jobs.get(name)
        if is_arrival:
            command = any_job(self.random, name, self.leaves, self.random.randint(1, 60))
        elif job is not None and job.hosts and job.attempt == attempt:
            command = end(name)
            if job.tenant in self.shaped and self.ends_ns[name] > now_s * SECOND_NS:
                self.void_bound()
        else:
            return  # it was evicted in between
        self.state = tried(self.state, now_s * SECOND_NS, command)

    def void_bound(self) -> None:
        """A gang of a tenant with cells ends before its limit, so that its tenant's cell is due
        again, in whichever domain. The guarantee comes first, and a job that may lie in few
        places may find them taken. Those that may lie anywhere are not concerned."""
        jobs = self.state.jobs
        self.promised = {
            n: at
            for n, at in self.promised.items()
            if jobs[n].request.where == ANYWHERE and jobs[n].spec.affinity == ANYBODY
        }

    def decide(self, now_s: int) -> None:
        """Until nothing more is to be done at this moment."""
        while True:
            plan = decide(self.state, now_s * SECOND_NS, self.limits)
            self.check(plan, now_s * SECOND_NS)
            if not plan.actions:
                late = [n for n, at in self.promised.items() if at < now_s * SECOND_NS]
                assert not late, f"{late} wait beyond their start"
                return
            self.state = replay(committed(self.state, plan, now_s * SECOND_NS), self.state)
            sent = [n for a in plan.actions if isinstance(a, Start) for n in a.victims]
            if sent:
                self.void_behind(sent, now_s * SECOND_NS)
            for action in plan.actions:
                assert isinstance(action, Start)
                job = self.state.jobs[action.name]
                assert job.spec.time_limit_s
                self.ends_ns[action.name] = (now_s + job.spec.time_limit_s) * SECOND_NS
                runs_s = min(job.spec.time_limit_s, self.random.randint(1, 60))
                heappush(self.due, (now_s + runs_s, 0, job.name, job.attempt))

    def check(self, plan: Plan, now_ns: int) -> None:
        starts = [action for action in plan.actions if isinstance(action, Start)]
        self.void(starts, plan, queue_order(self.state, now_ns, self.limits))
        for start in starts:
            assert now_ns <= self.promised.get(start.name, now_ns), f"{start.name} is late"
        for reservation in plan.reservations:
            earlier = self.promised.get(reservation.name, reservation.start_ns)
            assert reservation.start_ns <= earlier, f"{reservation.name} is put off"
            self.promised[reservation.name] = reservation.start_ns
            self.made_promises += 1

    def void(self, starts: list[Start], plan: Plan, line: list[str]) -> None:
        """A promise is one against those behind. Nothing is known of it once somebody before its
        job starts, or has the reservation."""
        first = {start.name for start in starts} | {r.name for r in plan.reservations}
        ahead = min((line.index(name) for name in first), default=len(line))
        self.promised = {n: at for n, at in self.promised.items() if n in line[: ahead + 1]}

    def void_behind(self, names: list[str], now_ns: int) -> None:
        """They are back in the queue, at their places."""
        line = queue_order(self.state, now_ns, self.limits)
        ahead = min((line.index(name) for name in names), default=len(line))
        self.promised = {n: at for n, at in self.promised.items() if n in line[:ahead]}


@pytest.mark.parametrize("policy", ["easy", "fifo", "production"])
def test_nobody_is_put_off_for_one_behind_it(policy: str) -> None:
    made_promises = 0
    for seed in SEEDS:
        with case(seed=seed):
            life = Life(seed, policy)
            life.live()
            made_promises += life.made_promises
    assert made_promises > len(SEEDS)  # the lives are such as try it
