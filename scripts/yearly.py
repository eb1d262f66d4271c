"""A year of failures under one gang of 16,384 GPUs, with spares in each of its zones.

    python -m scripts.yearly TRACES

Llama 3 405B runs for a year on roce-24k (3,072 hosts) while hosts fail: once as Poisson at the
rate of RSC-1 (6.50 per 1,000 host-days, a day of repair), once as the faults of InfiniteHBD's
400 servers did (TRACES/infinitehbd), laid over the fabric and told a second time after their 174
days. Spares are sized by the published rate, a day of repair, and what the log shows from then on;
the second log once more with its own time to repair, 158 h, as the first guess.
Exit code 1 when a year is off on either side: fewer than 99 % of the restarts in their zone with
the cut unchanged, hosts that fail more or less often than the rate says, or no more spares than
one pool for all zones would need, or as many as a tenth of the gang's hosts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from placement.fabric.reader import preset
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from placement.workload.training import Batch, ModelShape
from scheduler.core import JobSpec, SchedulingOptions, State
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.commands import LoadTenants, ReportHost, SubmitJob
from scheduler.core.model.events import (
    Event,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobRequeued,
    JobStarted,
)
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.restart_option import AT_HOME, RestartOption, taken
from scheduler.core.policies.spares import DAY_S, SparePolicy
from scheduler.core.policies.tenants import OPEN
from simulator.engine import Engine
from simulator.failures import Outage, merged, parse
from simulator.kernel import SimulationKernel
from simulator.sim_events import HEALTH, FailureDetected

DAY_NS = DAY_S * 10**9
YEAR_NS = 365 * DAY_NS
TOLD_NS = 174 * DAY_NS  # the log of InfiniteHBD
LEAST_SHARE = 0.99
MOST_OFF = 0.03  # of the failures that a rate says; they are thousands a year
MORE_HOSTS = 205  # a tenth of the gang's: what people hold who count nothing
# A failure that finds all spares out is one too many: a tenth of the usual leaves room for that.
EPSILON = 0.001
SEEDS = (1, 2, 3)
REPAIR_H = 158  # of InfiniteHBD's hosts
GUESSED_H = (24, REPAIR_H)
RSC_1 = "poisson:rate=6.5,repair_h=24"
FAULTS = "infinitehbd/fault_trace_days_0_173.json"

LLAMA3 = Request(
    Parallelism(tp=8, pp=16, dp=128),
    model=ModelShape(
        layers=126, hidden=16_384, ffn=53_248, heads=128, kv_heads=8, vocab=128_256, sequence=8_192
    ),
    batch=Batch(2_048),
)


@dataclass
class Year:
    """Results of a year. `expected`: failures, by the rate and the time that a host is away;
    `ways`: restarts by option; `lost`: hosts that failed under the gang; `held_ns`: spares held x
    time; `first_cut`, `most_cut`: bytes a step over the outermost tier."""

    name: str
    expected: float
    failures: int = 0
    ways: Counter[RestartOption] = field(default_factory=Counter)
    moved: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    requeues: int = 0
    held_ns: int = 0
    most_held: int = 0
    pooled: int = 0
    rate: float = 0.0
    dispersion: float = 1.0
    first_cut: int = 0
    most_cut: int = 0
    repair_h: float = 0.0

    @property
    def share(self) -> float:
        """Share of restarts in the zone with the cut unchanged."""
        all_ways = sum(self.ways.values()) + self.requeues
        same = sum(self.ways[option] for option in AT_HOME)
        return same / all_ways if all_ways else 0.0

    @property
    def mean_held(self) -> float:
        return self.held_ns / YEAR_NS

    def violations(self) -> Iterator[str]:
        if self.share < LEAST_SHARE:
            yield f"fewer than {100 * LEAST_SHARE:g} % of the restarts in their zone"
        if abs(self.failures / self.expected - 1) > MOST_OFF:
            yield f"{self.failures:,} failures, where the rate says {self.expected:,.0f}"
        if not self.pooled < self.mean_held < MORE_HOSTS:
            yield f"{self.mean_held:.1f} spares, not between {self.pooled} and {MORE_HOSTS}"

    def feed(self, event: Event, state: State) -> None:
        if isinstance(event, HostMoved) and event.move is HostMove.FAIL:
            job = state.jobs.get("llama3")
            self.lost += (
                job is not None and state.loaded_fabric.index_by_name[event.host] in job.hosts
            )
        if isinstance(event, JobRequeued | JobEnded):
            self.requeues += 1
        if isinstance(event, GangSwapped) and (step := taken(event.restart_options)):
            self.ways[step.option] += 1
            self.moved[step.moved] += 1
        if isinstance(event, JobStarted | GangSwapped):
            bytes_per_step = event.cuts[0].bytes_per_step
            self.first_cut = self.first_cut or bytes_per_step
            self.most_cut = max(self.most_cut, bytes_per_step)

    def __str__(self) -> str:
        ways = ", ".join(f"{option.value} {count:,}" for option, count in sorted(self.ways.items()))
        blocks = sum(n * count for n, count in self.moved.items())
        restarts = sum(self.moved.values())
        few = self.moved[0] + self.moved[1]
        return (
            f"{self.name}: {self.failures:,} hosts failed, {restarts + self.requeues:,} restarts"
            f" ({ways or 'none'}, requeued {self.requeues:,}); same zone, cut unchanged:"
            f" {100 * self.share:.2f} %; blocks moved {blocks:,},"
            f" {blocks / max(1, restarts):.3f} a restart,"
            f" {blocks / max(1, self.lost):.3f} a host that the gang lost,"
            f" one or none in {100 * few / max(1, restarts):.1f} %;"
            f" GB cut in a step: {self.first_cut / 1e9:,.0f} at first,"
            f" {self.most_cut / 1e9:,.0f} at most;"
            f" spares held {self.mean_held:.1f} on average, {self.most_held:,} at most (one pool:"
            f" {self.pooled:,}; 10 % more hosts: {MORE_HOSTS});"
            f" seen {self.rate:.2f} per 1,000 host-days, {self.repair_h:.1f} h of repair,"
            f" variance to mean {self.dispersion:.1f}"
        )


class Replay:
    """One gang, a year, on the engine of every other replay. `guessed_h`: hours of repair that
    spares are sized by at first; `repair_h`: those of the failures."""

    def __init__(
        self,
        name: str,
        fabric: Fabric,
        outages: Iterable[Outage],
        rate: float,
        guessed_h: int,
        repair_h: int,
    ) -> None:
        self.year = Year(name, failures_a_year(fabric.host_count, rate, repair_h / 24))
        self._kernel = SimulationKernel(0)
        self._kernel.on(FailureDetected, self._report)
        self._engine = Engine(self._kernel, fabric, SchedulingOptions(), self.year.feed)
        policy = SparePolicy(rate, guessed_h * 3600, EPSILON, in_zone=True)
        self._engine.send(LoadTenants(replace(OPEN, spares=policy)))
        spec = JobSpec("llama3", LLAMA3, priority=100, time_limit_s=2 * 365 * DAY_S)
        self._engine.send(SubmitJob(spec, "uid"))
        self._outages = iter(outages)
        self._last_ns = 0
        self._next()

    def run(self) -> Year:
        while self._kernel.step():
            self._count()
        pools = SparePools(self._engine.state)
        self.year.pooled = pools.pooled_spares
        self.year.rate = pools.sizing.failures_per_host_day * 1000
        self.year.dispersion = self._engine.state.faults.dispersion(self._engine.state.seen_ns)
        self.year.repair_h = pools.sizing.repair_days * 24
        return self.year

    def _count(self) -> None:
        job = self._engine.state.jobs.get("llama3")
        held = len(job.spares) if job else 0
        self.year.held_ns += held * (self._kernel.now_ns - self._last_ns)
        self.year.most_held = max(self.year.most_held, held)
        self._last_ns = self._kernel.now_ns

    def _next(self) -> None:
        outage = next(self._outages, None)
        if outage is not None:
            self._kernel.at(outage.time_ns, FailureDetected(outage), HEALTH)

    def _report(self, due: FailureDetected) -> None:
        outage = due.outage
        signal = "host-down" if outage.is_down else "repaired"
        self.year.failures += outage.is_down
        self._engine.send(ReportHost(outage.host, signal, outage.cause))
        self._next()


def failures_a_year(hosts: int, rate: float, repair_days: float) -> float:
    """Return failures a year at `rate` a day in service; a host in repair does not fail."""
    return hosts * 365 * rate / (1 + rate * repair_days)


def retold(fabric: Fabric, text: str) -> Iterator[Outage]:
    """The log told again and again, each time laid out anew."""
    return merged(
        [
            replace(outage, time_ns=outage.time_ns + at * TOLD_NS)
            for outage in parse(text)(fabric, at)
        ]
        for at in range(3)
    )


def within(outages: Iterable[Outage]) -> Iterator[Outage]:
    return takewhile(lambda outage: outage.time_ns < YEAR_NS, outages)


def years(traces: Path) -> Iterator[Year]:
    fabric = preset("roce-24k")
    for seed in SEEDS:
        poisson = within(parse(RSC_1)(fabric, seed))
        name = f"Poisson at the rate of RSC-1, seed {seed}"
        yield Replay(name, fabric, poisson, 6.5e-3, 24, 24).run()
    for guessed_h in GUESSED_H if (traces / FAULTS).is_file() else ():
        per_year = within(retold(fabric, f"infinitehbd:{traces / FAULTS}"))
        name = f"faults of InfiniteHBD, {guessed_h} h of repair guessed"
        yield Replay(name, fabric, per_year, 1.64 / 365, guessed_h, REPAIR_H).run()


def main(arguments: list[str]) -> int:
    failed = 0
    for year in years(Path(arguments[0] if arguments else ".")):
        print(year, flush=True)
        for violation in year.violations():
            failed += 1
            print(f"  FAILED {violation}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
