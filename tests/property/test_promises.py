"""Reservations are kept: nobody who was promised a start starts later.

Jobs end at their limits or before, no host fails, and every decision's reservations are written
down. A promise is one against those behind: under priority it ends when something more important
arrives, among tenants when somebody before its job starts.
"""

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.fabric.constraints import ANYWHERE, Constraints
from scheduler.core import Job, SchedulingOptions, State, decide, replay
from scheduler.core.capacity.window_hosts import gangs_on
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import WindowState
from scheduler.core.model.plan import Plan, Start
from scheduler.core.model.window import WindowKind
from scheduler.core.policies.affinity import ANYBODY, Affinity
from scheduler.core.policies.tenants import GuaranteedCell, Tenant, Tenants
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.rules.calendar import next_edge_ns
from tests.build import admitted, committed, end, fabric, loaded, queue_order, run, submit
from tests.cases import case
from tests.property import quotas
from tests.property.driver import tried
from tests.windows import set_window

EMPTY = loaded(fabric(2, 2, 2))


class Life:
    """A cluster until all has ended. `promised`: the start that was promised to each job; `begun`:
    when each started; `due`: (s, 0 end or 1 arrival, job, attempt)."""

    def __init__(self, state: State, options: SchedulingOptions) -> None:
        self.state, self.options = state, options
        self.promised, self.begun = dict[str, int](), dict[str, int]()
        self.due: list[tuple[int, int, str, int]] = []
        self.made_promises = 0

    def arrival(self, name: str) -> Command:
        raise NotImplementedError

    def run_s(self, job: Job) -> int:
        """How long it runs."""
        raise NotImplementedError

    def void(self, plan: Plan, arrived: list[str], now_ns: int) -> None:
        """Drop the promises that hold no more, before `plan` is held to them."""

    def has_ended(self, job: Job, now_ns: int) -> None:
        """Drop the promises that hold no more when this gang ends."""

    def has_begun(self, plan: Plan, now_ns: int) -> None:
        """Drop the promises that hold no more once `plan` is committed."""

    def live(self) -> None:
        now_ns = 0
        while self.due or self.state.index.queue:
            due_ns = self.due[0][0] * SECOND_NS if self.due else None
            ahead = [at for at in (next_edge_ns(self.state), due_ns) if at is not None]
            if not ahead:
                break
            now_ns, arrived = max(now_ns, min(ahead)), list[str]()
            while self.due and self.due[0][0] * SECOND_NS == now_ns:
                _, is_arrival, name, attempt = heappop(self.due)
                job = self.state.jobs.get(name)
                if is_arrival:
                    arrived.append(name)
                    self.state = tried(self.state, now_ns, self.arrival(name))
                elif job is not None and job.hosts and job.attempt == attempt:  # not evicted
                    self.state = replay(admitted(self.state, end(name), now_ns), self.state)
                    self.has_ended(job, now_ns)
            self.decide(arrived, now_ns)

    def decide(self, arrived: list[str], now_ns: int) -> None:
        """Until nothing more is to be done at this moment."""
        while True:
            plan = decide(self.state, now_ns, self.options)
            self.void(plan, arrived, now_ns)
            self.check(plan, now_ns)
            if not plan.actions:
                late = [n for n in self.state.index.queue if self.promised.get(n, now_ns) < now_ns]
                assert not late, f"{late} wait beyond their start"
                return
            self.state = replay(committed(self.state, plan, now_ns), self.state)
            for start in starts(plan):
                job = self.state.jobs[start.name]
                self.begun[job.name] = now_ns
                ends_s = now_ns // SECOND_NS + self.run_s(job)
                heappush(self.due, (ends_s, 0, job.name, job.attempt))
            self.has_begun(plan, now_ns)

    def check(self, plan: Plan, now_ns: int) -> None:
        for start in starts(plan):
            assert now_ns <= self.promised.get(start.name, now_ns), f"{start.name} is late"
        for reservation in plan.reservations:
            earlier = self.promised.get(reservation.name, reservation.start_ns)
            assert reservation.start_ns <= earlier, f"{reservation.name} is put off"
            self.promised[reservation.name] = reservation.start_ns
            self.made_promises += 1


def starts(plan: Plan) -> list[Start]:
    return [action for action in plan.actions if isinstance(action, Start)]


# --- any jobs, alone, among guarantees or among windows ----------------------------------

# (seconds after the one before, hosts, limit, seconds it really runs at most, priority)
JobDrawn = tuple[int, int, int, int, int]
JOBS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(1, 8),
        st.integers(1, 60),
        st.integers(1, 60),
        st.integers(0, 2),
    ),
    min_size=3,
    max_size=25,
)
Window = tuple[int, int, tuple[str, ...], int, bool]
WINDOWS = st.lists(
    st.tuples(
        st.integers(0, 120),
        st.integers(1, 60),
        st.sampled_from([("z0",), ("z1-r0",), ("z0-r0", "z1-r1"), ("z1-r1-h0",), ()]),
        st.integers(1, 4),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)
GUARANTEES = Tenants(
    (Tenant("a", guaranteed_gpus=16), Tenant("b", guaranteed_gpus=24), Tenant("default"))
)
TENANT_BY_PRIORITY = ("a", "b", "default")


def booked(windows: Sequence[Window]) -> State:
    """The empty cluster with those of the windows that can be had."""
    state = EMPTY
    for number, (start_s, lasts_s, place, count, is_held) in enumerate(windows):
        window = set_window(
            f"w{number}",
            *place,
            start_s=start_s,
            end_s=start_s + lasts_s,
            count=0 if place else count,
            jobs=("vip*",) if is_held or not place else (),
        )
        state = tried(state, 0, window)
    return state


class DrawnLife(Life):
    """Where tenants are, a job's priority says whose it is; where windows are, whether it is a VIP.
    These are all known from the beginning, and jobs run exactly as long as they state."""

    def __init__(
        self,
        jobs: list[JobDrawn],
        policy: str,
        tenants: Tenants | None = None,
        windows: Sequence[Window] = (),
    ) -> None:
        state = booked(windows)
        state = run(state, LoadTenants(tenants)) if tenants else state
        super().__init__(state, SchedulingOptions(policy=policy))
        self.tenants, self.windows, self.jobs, at_s = tenants, windows, dict[str, JobDrawn](), 0
        for number, job in enumerate(jobs):
            name, at_s = f"{'vip' if windows and job[4] == 2 else 'j'}{number}", at_s + job[0]
            self.jobs[name] = job
            heappush(self.due, (at_s, 1, name, 0))

    def arrival(self, name: str) -> Command:
        _, hosts, limit_s, _, priority = self.jobs[name]
        if self.tenants:
            tenant = TENANT_BY_PRIORITY[priority]
            return submit(name, min(hosts, 3), limit_s=limit_s, tenant=tenant)
        return submit(name, hosts, limit_s=limit_s, priority=0 if self.windows else priority)

    def run_s(self, job: Job) -> int:
        _, _, limit_s, run_s, _ = self.jobs[job.name]
        return limit_s if self.windows else min(limit_s, run_s)

    def void(self, plan: Plan, arrived: list[str], now_ns: int) -> None:
        if self.options.policy == "production" and arrived:
            most = max(self.jobs[name][4] for name in arrived)
            self.promised = {n: at for n, at in self.promised.items() if self.jobs[n][4] >= most}
            for reservation in plan.reservations:
                needed = self.state.jobs[reservation.name].needed
                assert reservation.hosts.bit_count() == needed

    def decide(self, arrived: list[str], now_ns: int) -> None:
        """Maintenance finds its hosts empty, a reservation those alone that it is for."""
        super().decide(arrived, now_ns)
        for booking in self.state.windows.values():
            if booking.state is WindowState.OPEN:
                there = [job.name for job in gangs_on(self.state, booking)]
                is_held = booking.window.kind is WindowKind.RESERVATION
                assert all(is_held and name.startswith("vip") for name in there)

    def live(self) -> None:
        super().live()
        assert not self.state.jobs, "everybody had a turn"


@pytest.mark.parametrize(
    ("policy", "tenants"), [*((policy, None) for policy in BUILT_IN), ("easy", GUARANTEES)]
)
@settings(max_examples=25)
@given(jobs=JOBS)
def test_nobody_starts_later_than_promised(
    policy: str, tenants: Tenants | None, jobs: list[JobDrawn]
) -> None:
    """Also where others are guaranteed hosts, in order of arrival: nobody comes between."""
    DrawnLife(jobs, policy, tenants).live()


@pytest.mark.parametrize("policy", ["conservative", "easy", "fifo"])
@settings(max_examples=20)
@given(jobs=JOBS, windows=WINDOWS)
def test_windows_put_nobody_off(policy: str, jobs: list[JobDrawn], windows: list[Window]) -> None:
    DrawnLife(jobs, policy, windows=windows).live()


def test_a_tenant_does_not_use_up_what_its_first_job_counts_on() -> None:
    """j3 counts on the second of two hosts that are promised to its tenant; j4, of the same
    tenant, would outlast that start and hold it."""
    jobs = [(0, 1, 1, 1, 1), (0, 1, 2, 1, 1), (0, 3, 2, 1, 2), (0, 2, 1, 1, 1), (0, 1, 2, 1, 1)]
    life = DrawnLife(jobs, "easy", GUARANTEES)
    life.live()
    assert life.begun == {"j0": 0, "j1": 0, "j2": 0, "j3": SECOND_NS, "j4": SECOND_NS}


# --- guarantees with shapes, whatever else is asked for ----------------------------------

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
SEEDS = [12, 15, 25, 29, 38, 42, 58, 70, 79, 110, 118, 158, 304, 1194, 2222, 2400]


class ShapedLife(Life):
    """Cells, limits, jobs that can be preempted, constraints and neighbours."""

    def __init__(self, seed: int, policy: str) -> None:
        self.random = Random(seed)
        tenants = replace(self.random.choice(SHAPES), classes=quotas.CLASSES, aging=None)
        super().__init__(run(EMPTY, LoadTenants(tenants)), SchedulingOptions(policy=policy))
        self.leaves = [t.name for t in tenants.tenants if t.name not in tenants.inner]
        self.shaped = {t.name for t in tenants.tenants if t.cells}
        at_s = 0
        for number in range(25):
            at_s += self.random.randint(0, 30)
            heappush(self.due, (at_s, 1, f"j{number}", 0))

    def arrival(self, name: str) -> Command:
        random, limit_s = self.random, self.random.randint(1, 60)
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
            tenant=random.choice(self.leaves),
            priority_class=random.choice(("", "", "spot")),
            where=where,
            affinity=beside,
        )

    def run_s(self, job: Job) -> int:
        assert job.spec.time_limit_s
        return min(job.spec.time_limit_s, self.random.randint(1, 60))

    def has_ended(self, job: Job, now_ns: int) -> None:
        """A gang of a tenant with cells ends before its limit, so that its tenant's cell is due
        again, in whichever domain. The guarantee comes first, and a job that may lie in few
        places may find them taken. Those that may lie anywhere are not concerned."""
        limit_ns = (job.spec.time_limit_s or 0) * SECOND_NS
        if job.tenant in self.shaped and self.begun[job.name] + limit_ns > now_ns:
            jobs = self.state.jobs
            self.promised = {
                n: at
                for n, at in self.promised.items()
                if jobs[n].request.where == ANYWHERE and jobs[n].spec.affinity == ANYBODY
            }

    def void(self, plan: Plan, arrived: list[str], now_ns: int) -> None:
        """Nothing is known of a promise once somebody before its job starts, or has the
        reservation."""
        line = queue_order(self.state, now_ns, self.options)
        first = {start.name for start in starts(plan)} | {r.name for r in plan.reservations}
        ahead = min((line.index(name) for name in first), default=len(line))
        self.promised = {n: at for n, at in self.promised.items() if n in line[: ahead + 1]}

    def has_begun(self, plan: Plan, now_ns: int) -> None:
        """Victims are back in the queue, at their places."""
        if sent := [name for start in starts(plan) for name in start.victims]:
            line = queue_order(self.state, now_ns, self.options)
            ahead = min((line.index(name) for name in sent), default=len(line))
            self.promised = {n: at for n, at in self.promised.items() if n in line[:ahead]}


@pytest.mark.parametrize("policy", ["easy", "fifo", "production"])
def test_nobody_is_put_off_for_one_behind_it(policy: str) -> None:
    made_promises = 0
    for seed in SEEDS:
        with case(seed=seed):
            life = ShapedLife(seed, policy)
            life.live()
            made_promises += life.made_promises
    assert made_promises > len(SEEDS)  # the lives are such as try it
