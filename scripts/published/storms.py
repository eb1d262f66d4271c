"""One bad host: a job that it stops again and again, and a fleet with and without lemons.

Both run the scheduler's own functions on a virtual clock. Source: Kokolis et al., Revisiting
Reliability in Large-Scale Machine Learning Research Clusters (HPCA 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import log
from random import Random

from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request
from scheduler.core import JobSpec, JobState, SchedulingOptions, State, Tenants
from scheduler.core.model.commands import CancelJob, EndJob, LoadHealth, ReportHost, SubmitJob
from scheduler.core.model.events import Event, JobPreempted, JobStarted
from scheduler.core.model.lifecycle import IN_SERVICE, HostState
from scheduler.core.policies.health import HealthPolicy, LemonAction, LemonPolicy
from scheduler.core.policies.tenants import Preemption, PriorityClass
from scripts.published import Value
from simulator.engine import Engine
from simulator.kernel import SimulationKernel

S = 10**9
MINUTE_NS, DAY_NS = 60 * S, 86_400 * S


def fleet(hosts: int) -> Fabric:
    """Racks of two hosts of 8 GPUs."""
    tiers: list[dict[str, object]] = [{"name": "zone", "count": 1}]
    tiers.append({"name": "rack", "count": hosts // 2})
    tiers.append({"name": "host", "count": 2})
    return from_spec({"name": "fleet", "gpus_per_host": 8, "tiers": tiers})


def job(name: str, hosts: int, level: str = "") -> SubmitJob:
    gang = Request(Parallelism(tp=8, dp=hosts), traffic=(("dp", 1),), spares=NO_SPARES)
    return SubmitJob(JobSpec(name, gang, priority_class=level), name)


# --- 35: the storm -----------------------------------------------------------------

REQUEUES, LARGE, SMALL, BESIDE, WAITING = 35, 128, 2, 16, 16
CLASSES = (PriorityClass("high", 10), PriorityClass("low", -10, is_preemptible=True))


def _clock() -> SimulationKernel:
    """A clock for calls: nobody writes these runs down."""
    kernel = SimulationKernel(0)
    kernel.on(partial, partial.__call__)
    return kernel


class Storm:
    """128 hosts of 160 hold a job of high priority; one of them stops it half an hour after
    it started, and is back five minutes later. 16 small jobs run beside it and 16 wait.

    `is_requeued`: the failed job gives all its hosts back and comes again ten minutes later,
    as where nothing is known of the host or of swaps; else muster does what it does.
    """

    def __init__(self, is_requeued: bool) -> None:
        self.preempted = self.hits = 0
        self._bad = ""
        self._is_requeued = is_requeued
        tenants = Tenants(classes=CLASSES, preemption=Preemption(min_run_s=0))
        self._kernel = _clock()
        self._engine = Engine(
            self._kernel, fleet(160), SchedulingOptions(), self._saw, tenants=tenants
        )
        self._engine.send(job("large", LARGE, "high"))
        for number in range(BESIDE + WAITING):
            self._engine.send(job(f"small-{number}", SMALL, "low"))
        for cycle in range(REQUEUES):
            self._kernel.at((30 + 40 * cycle) * MINUTE_NS, partial(self._fail))
        while self._kernel.now_ns < 40 * REQUEUES * MINUTE_NS and self._kernel.step():
            pass

    def _saw(self, event: Event, state: State) -> None:
        self.preempted += isinstance(event, JobPreempted)
        if isinstance(event, JobStarted) and event.name == "large":
            self._bad = self._bad or event.hosts[0]

    def _after(self, minutes: int, action: partial[object]) -> None:
        self._kernel.at(self._kernel.now_ns + minutes * MINUTE_NS, action)

    def _fail(self) -> None:
        """The bad host fails; whoever is on it feels that."""
        engine = self._engine
        engine.send(ReportHost(self._bad, "host-down"))
        if engine.state.jobs["large"].state is JobState.INTERRUPTED:
            self.hits += 1
            if self._is_requeued:
                engine.send(CancelJob("large"))
                self._after(10, partial(engine.send, job("large", LARGE, "high")))
        self._after(5, partial(engine.send, ReportHost(self._bad, "repaired")))


@cache
def storm(is_requeued: bool) -> Storm:
    return Storm(is_requeued)


# --- 36: lemons --------------------------------------------------------------------

HOSTS, GANG, BASE, CLEAN = 2_000, 64, 0.14, 0.04
LEMONS = 24  # 1.2 % of the hosts
RATE = 6.5e-3  # of the whole fleet, failures per host-day
BEFORE_DAYS, WATCHED_DAYS = 28, 28


def fitted() -> tuple[float, float, float]:
    """(days that a gang runs, rate of a clean host, rate of a lemon), with which gangs of 64
    random hosts fail as published with lemons and without, and the fleet as published.

    A gang meets Poisson(64 x 1.2 %) lemons, of which each spares it with exp(-x).
    """
    clean = -log(1 - CLEAN) / GANG  # expected failures of a clean host in one run
    spared = (1 - BASE) / (1 - CLEAN)
    lemon = -log(1 + log(spared) / (GANG * LEMONS / HOSTS))
    mean = (clean * (HOSTS - LEMONS) + lemon * LEMONS) / HOSTS
    days = mean / RATE
    return days, clean / days, lemon / days


class Fleet:
    """30 gangs of 64 hosts at any time, each for its run or until a host stops it; failed
    hosts are back after an hour, unless the health policy has taken them out.

    `action`: what becomes of lemons. Counted: runs that ended after the first 28 days.
    """

    def __init__(self, action: LemonAction, seed: int = 0) -> None:
        self.runs = self.failed = self._jobs = 0
        self._random = Random(seed)
        self._days, clean, lemon = fitted()
        self._kernel, fabric = _clock(), fleet(HOSTS)
        bad = self._random.sample(fabric.hosts, LEMONS)
        self.bad = frozenset(bad)
        self._engine = Engine(self._kernel, fabric, SchedulingOptions(), self._saw)
        self._engine.send(LoadHealth(HealthPolicy(lemons=LemonPolicy(action=action))))
        for _ in range(30):
            self._submit()
        good = [host for host in fabric.hosts if host not in self.bad]
        self._await(good, clean)
        self._await(bad, lemon)
        while self._kernel.now_ns < (BEFORE_DAYS + WATCHED_DAYS) * DAY_NS and self._kernel.step():
            pass

    @property
    def out(self) -> frozenset[str]:
        """Hosts that serve nobody in the end for what they are."""
        state = self._engine.state
        states = (HostState.RETIRING, HostState.IN_REPAIR, HostState.RMA)
        names = enumerate(state.loaded_fabric.hosts)
        return frozenset(name for i, name in names if state.host(i).state in states)

    def _submit(self) -> None:
        self._jobs += 1
        self._engine.send(job(f"job-{self._jobs}", GANG))

    def _saw(self, event: Event, state: State) -> None:
        if isinstance(event, JobStarted):
            at_ns = event.time_ns + round(self._days * DAY_NS)
            self._kernel.at(at_ns, partial(self._end, event.name, event.attempt))

    def _end(self, name: str, attempt: int) -> None:
        job = self._engine.state.jobs.get(name)
        if job is not None and job.attempt == attempt:
            self._over(EndJob(name, JobState.COMPLETED, attempt), has_failed=False)

    def _over(self, command: EndJob | CancelJob, has_failed: bool) -> None:
        self._engine.send(command)
        if self._kernel.now_ns >= BEFORE_DAYS * DAY_NS:
            self.runs += 1
            self.failed += has_failed
        self._submit()

    def _await(self, hosts: Sequence[str], rate: float) -> None:
        """The next failure of these hosts."""
        gap_days = self._random.expovariate(rate * len(hosts))
        at_ns = self._kernel.now_ns + round(gap_days * DAY_NS)
        self._kernel.at(at_ns, partial(self._fail, hosts, rate))

    def _fail(self, hosts: Sequence[str], rate: float) -> None:
        host, engine = self._random.choice(hosts), self._engine
        index = engine.state.loaded_fabric.index_by_name[host]
        if engine.state.host(index).state in IN_SERVICE:
            engine.send(ReportHost(host, "host-down"))
            for hit in list(engine.state.in_state(JobState.INTERRUPTED)):
                self._over(CancelJob(hit.name), has_failed=True)
            self._kernel.at(self._kernel.now_ns + 60 * MINUTE_NS, partial(self._mend, host))
        self._await(hosts, rate)

    def _mend(self, host: str) -> None:
        index = self._engine.state.loaded_fabric.index_by_name[host]
        if self._engine.state.host(index).state is HostState.FAILED:
            self._engine.send(ReportHost(host, "repaired"))


@cache
def watched(action: LemonAction) -> Fleet:
    return Fleet(action)


def percent(action: LemonAction) -> Value:
    share = watched(action)
    return 100 * share.failed / share.runs


def named() -> Value:
    """Lemons that are out at the end, and hosts that are out and are none."""
    share = watched(LemonAction.RMA)
    return len(share.out & share.bad), len(share.out - share.bad)


OURS = {
    "35": lambda: storm(is_requeued=True).preempted,
    "35b": lambda: (storm(is_requeued=False).hits, storm(is_requeued=False).preempted),
    "36": lambda: percent(LemonAction.SHOW),
    "36b": lambda: percent(LemonAction.RMA),
    "36c": named,
}
