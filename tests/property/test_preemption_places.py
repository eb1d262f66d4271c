"""Preemption for jobs that do not lie anywhere: constraints, neighbours and windows say where,
and still nobody is evicted who need not be.

Whether a job could have started without one of its victims is worked out from the definition
of what it wants, host by host, and not by the functions that decide.
"""

from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from random import Random

import pytest

from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from scheduler.core import Job, SchedulingOptions, State, apply, replay
from scheduler.core.model.commands import Command
from scheduler.core.model.events import (
    Event,
    FabricLoaded,
    GangSwapped,
    JobStarted,
    SparesChanged,
    TenantsLoaded,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.scheduling_options import time_limit_ns
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.tenants import OPEN
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.rules.crash_loop import avoided
from tests.build import cancel, drain, end, exactly, fail, repair, submit, uncordon
from tests.property import constrained
from tests.property.driver import Driver
from tests.property.preempted import CLASSES, TERMS, MadeRoom, is_recall, makes_room
from tests.windows import remove_window, set_window

FABRIC = constrained.FABRIC
TENANTS = replace(OPEN, classes=CLASSES, preemption=TERMS)
DEPTHS = {"zone": 0, "rack": 1}
LIMITS = SchedulingOptions(assumed_limit_s=300)


class Day(Driver):
    """A cluster, and what was checked of it. `alone`: victims of jobs before which nobody
    waited, each of whom was needed."""

    def __init__(self, policy: str, windows: bool) -> None:
        self.alone, self.windows = 0, windows
        told = TenantsLoaded(0, TENANTS.digest, TENANTS)
        limits = replace(LIMITS, policy=policy)
        self.begin(FabricLoaded(0, constrained.SPEC), told, limits=limits)

    def check_event(self, before: State, event: Event) -> None:
        constrained.check(self.state)

    def act(self, random: Random) -> None:
        for _ in range(random.randint(0, 2)):
            self.ask(any_command(random, self.now_ns, self.windows))

    def turn(self) -> None:
        while (plan := self.decision()).actions:
            answer = self.whole(plan)
            self.check(answer)
            self.record(answer)

    def check(self, events: tuple[Event, ...]) -> None:
        """Whoever makes room is followed by the one who needed it."""
        state, gone = self.state, list[MadeRoom]()
        start = state
        for event in events:
            if makes_room(event):
                start = start if gone else state
                gone += [] if is_recall(state, event) else [event]
            elif gone and not isinstance(event, SparesChanged):
                assert isinstance(event, JobStarted | GangSwapped)
                self.check_needed(start, event, gone)
                gone = []
            state = apply(state, event)

    def check_needed(
        self,
        start: State,
        event: JobStarted | GangSwapped,
        gone: list[MadeRoom],
    ) -> None:
        job = start.jobs[event.name]
        if isinstance(event, JobStarted) and start.index.queue[0] != job.name:
            return  # somebody waits before it, whom it must not delay
        lacking = job.needed if isinstance(event, JobStarted) else len(event.swaps)
        for spared in gone:
            rest = replay([other for other in gone if other is not spared], start)
            assert room(rest, job, event, self.now_ns) < lacking, f"{spared.name} was not needed"
            self.alone += 1


def room(state: State, job: Job, event: JobStarted | GangSwapped, now_ns: int) -> int:
    """Hosts on which `job` could start, or that could join what is left of its gang."""
    stays: set[int] = set()
    free = state.free
    if isinstance(event, GangSwapped):
        stays = {*job.hosts} - {*FABRIC.indices([swap.left for swap in event.swaps])}
        free |= hostset.of(job.spares) & ~state.index.out_of_service
    free &= ~avoided(job, state.tenants.restarts, now_ns) & ~closed(state, job, now_ns)
    hosts = [host for host in hostset.members(free) if is_open(state, job, host)]
    where = job.spec.request.where
    if where.same:
        depth = DEPTHS[where.same]
        there = {FABRIC.domain(host, depth) for host in stays}
        parts = Counter(FABRIC.domain(host, depth) for host in hosts)
        return max((n for part, n in parts.items() if not there or part in there), default=0)
    if where.max_zones:
        there = {FABRIC.domain(host, 0) for host in stays}
        zones = Counter(FABRIC.domain(host, 0) for host in hosts)
        others = sorted((n for zone, n in zones.items() if zone not in there), reverse=True)
        home = sum(zones[zone] for zone in there)
        return home + sum(others[: max(0, where.max_zones - len(there))])
    return len(hosts)


def closed(state: State, job: Job, now_ns: int) -> int:
    """Hosts that windows close to the job before it would end."""
    end_ns, found = now_ns + time_limit_ns(job, LIMITS), 0
    for booking in state.windows.values():
        window = booking.window
        if job.name not in window.jobs and window.start_ns < end_ns and now_ns < window.end_ns:
            found |= booking.hosts
    return found


def is_open(state: State, job: Job, host: int) -> bool:
    """Whether labels and neighbours leave the host to the job."""
    if not all(FABRIC.labels[k][v] >> host & 1 for k, v in job.spec.request.where.labels):
        return False
    others = (other for other in state.holding if other.name != job.name)
    return not any(is_apart(job, other, host) for other in others)


def is_apart(job: Job, other: Job, host: int) -> bool:
    """Whether one of the two wants no other, or not this other, in a domain of `host`."""
    for a, b in ((job, other), (other, job)):
        wants = a.spec.affinity
        tiers = [wants.exclusive] if wants.exclusive else []
        tiers += [t for t, names in wants.avoid if any(fnmatchcase(b.name, n) for n in names)]
        held = other.hosts + other.spares + other.present.lent
        for depth in map(DEPTHS.__getitem__, tiers):
            if FABRIC.domain(host, depth) in {FABRIC.domain(h, depth) for h in held}:
                return True
    return False


def any_command(random: Random, now_ns: int, windows: bool) -> Command:
    name, chance = random.choice(("a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2")), random.random()
    if chance < 0.6:
        return any_job(random, name)
    if windows and chance < 0.75:
        return any_window(random, now_ns // SECOND_NS)
    host = random.choice(FABRIC.hosts)
    back = [repair(random.choice(FABRIC.hosts)) for _ in range(3)]
    others = [cancel(name), fail(host), drain(host), *map(uncordon, FABRIC.hosts[:3]), *back]
    return random.choice([end(name)] * 6 + others)


def any_job(random: Random, name: str) -> Command:
    """Those of low class lie anywhere, mostly; half of them are elastic."""
    rank = random.choice(("spot", "spot", "dear", "urgent", ""))
    hosts = random.choice((1, 1, 2, 2, 3, 4))
    avoid = random.choice(((), (), (("zone", ("a*",)),), (("rack", ("b1", "c?")),)))
    tiers = ("", "", "zone", "rack")
    bound = rank != "spot" or random.random() < 0.3
    where = Constraints(
        random.choice((0, 0, 1, 2)),
        random.choice(tiers),
        random.choice(((), (), (("gpu", "a"),), (("gpu", "b"),))),
    )
    near = random.choice(("", "", "a1"))
    wants = Affinity(random.choice(("", "", "rack", "zone")), avoid, near if not avoid else "")
    return submit(
        name,
        hosts,
        dp=hosts,
        pp=1,
        min_dp=random.choice((0, 1)),
        limit_s=random.choice((None, 60, 600)),
        spares=random.choice((exactly(0), exactly(0), exactly(1))),
        where=where if bound else Constraints(),
        affinity=wants if bound and random.random() < 0.5 else Affinity(),
        priority_class=rank,
    )


def any_window(random: Random, now_s: int) -> Command:
    """Of a zone or a rack, soon, for nobody or for some."""
    name, start_s = random.choice("vw"), now_s + random.choice((1, 30, 300))
    if random.random() < 0.3:
        return remove_window(name)
    among = random.choice(("z0", "z1", "z2-r0", "z1-r1"))
    jobs = random.choice(((), (), ("a1", "d1")))
    leave = random.choice(("wait", "requeue"))
    return set_window(name, among, start_s=start_s, end_s=start_s + 200, jobs=jobs, leave=leave)


def long_day(seed: int, policy: str, windows: bool = True) -> Day:
    day = Day(policy, windows)
    day.live(Random(seed), 120, kept=0)
    return day


@pytest.mark.parametrize("windows", [False, True], ids=["constraints", "windows"])
def test_nobody_is_sent_away_for_hosts_that_are_of_no_use(windows: bool) -> None:
    assert sum(long_day(seed, "production", windows).alone for seed in range(5)) > 12


@pytest.mark.parametrize("policy", [policy for policy in BUILT_IN if policy != "production"])
def test_constraints_hold_under_other_policies_which_send_nobody_away(policy: str) -> None:
    assert not long_day(1, policy).alone
