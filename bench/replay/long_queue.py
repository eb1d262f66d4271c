"""make bench-queue: what a long queue of many tenants costs beside one of one tenant, and how many
events of a large loaded cluster a second of the processor takes.

    python -m bench.replay.long_queue [--only queue|events] [--waiting 16000] [--jobs 150000]
                                      [--policy easy] [--profile FILE] [--json FILE]

queue: 16,000 jobs come at once to 1,024 hosts of one tier, where placing them costs little,
and are replayed until the last has ended: of one tenant, of eleven, and of eleven whose jobs age.
events: 150,000 jobs of the mix of RSC-1 that arrive at 0.95 of what 98,304 GPUs can do (roce-98k).
Each replay is a process of its own and is timed by its processor time, log and totals included, as
those of bench-replay. The exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.placement.fabrics import bench_fabric
from bench.replay.own import machine
from placement.fabric.tree import Fabric
from scheduler.core import SchedulingOptions, State
from scheduler.core.model.events import Event
from scheduler.core.policies.tenants import Aging, Tenant, Tenants
from scheduler.interpreter import expect_no_cycles
from simulator.collectors.metrics import Metrics
from simulator.collectors.recorder import EventLogWriter
from simulator.experiment import Experiment
from simulator.mixes.fit import fit
from simulator.mixes.generate import MixRequest, generate
from simulator.mixes.published import MIXES
from simulator.replay import Replay
from simulator.traces.record import SECOND_NS, TraceJob

WAITING, HOSTS = 16_000, 1_024
ARRIVING, LOAD = 150_000, 0.95
SIZES = (1, 1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 16, 32, 64)  # hosts
MOST_RATIO, LEAST_EVENTS = 1.5, 2_500
TEAMS = tuple(Tenant(f"team{n:02d}", weight=1 + n % 3) for n in range(11))
TENANTS = {
    "one tenant": None,
    "11 tenants": Tenants(TEAMS, default="team00"),
    "11 tenants, aging": Tenants(TEAMS, default="team00", aging=Aging(3_600, 1)),
}
LARGE = "98,304 GPUs"


@dataclass(frozen=True)
class QueueRun:
    """One replay of a long queue. `seconds` of the processor."""

    setting: str
    policy: str
    jobs: int
    events: int
    seconds: float

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.setting:20} {self.policy:12} {self.jobs:8,} jobs {self.events:9,} events"
            f" {self.seconds:8.1f} s {self.events_per_second:8,.0f} events/s"
        )


def burst(count: int, seed: int = 1) -> Iterator[TraceJob]:
    """Return jobs that all come at once, each of one of eleven users."""
    rng = random.Random(f"{seed}/queue")
    for number in range(1, count + 1):
        run_s = max(60, min(3 * 86_400, round(rng.lognormvariate(8.0, 1.2))))
        limit_ns = round(run_s * rng.uniform(1, 3)) * SECOND_NS
        yield TraceJob(
            *(str(number), 0, run_s * SECOND_NS, number, rng.choice(SIZES), limit_ns),
            user=rng.choice(TEAMS).name,
        )


def arriving(count: int, fabric: Fabric) -> Iterator[TraceJob]:
    """Return jobs of the mix of RSC-1, with limits of one to three times their run."""
    rng = random.Random("limits")
    request = MixRequest(fit(MIXES["rsc-1"]), count, fabric.host_count, fabric.gpus_per_host, LOAD)
    for job in generate(request):
        yield replace(job, time_limit_ns=round(job.run_ns * rng.uniform(1, 3)))


def replayed(
    setting: str, fabric: Fabric, jobs: Iterable[TraceJob], policy: str, tenants: Tenants | None
) -> QueueRun:
    """Replay jobs as `muster replay` does, log and totals included."""
    metrics, log, events = Metrics(), EventLogWriter(), 0

    def sink(event: Event, state: State) -> None:
        nonlocal events
        events += 1
        metrics.feed(event, state)
        log.feed(event)

    experiment = Experiment(fabric, SchedulingOptions(policy=policy), tenants=tenants)
    expect_no_cycles()
    begin = time.process_time()
    replay = Replay(experiment, jobs, sink)
    metrics.follow(replay)
    count = replay.run().offered
    metrics.totals(fabric.host_count)
    return QueueRun(setting, policy, count, events, time.process_time() - begin)


def run_one(setting: str, count: int, policy: str) -> QueueRun:
    if setting == LARGE:
        fabric = bench_fabric("roce-98k")
        return replayed(setting, fabric, arriving(count, fabric), policy, None)
    return replayed(setting, machine(HOSTS), burst(count), policy, TENANTS[setting])


def apart(setting: str, count: int, policy: str) -> QueueRun:
    """Replay jobs in a process of its own."""
    command = [sys.executable, "-m", "bench.replay.long_queue", "--one", setting]
    command += ["--jobs", str(count), "--policy", policy]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    run = QueueRun(**json.loads(out))
    print(run, flush=True)
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--only", choices=("queue", "events"))
    parser.add_argument("--waiting", type=int, default=WAITING, help="jobs that come at once")
    parser.add_argument("--jobs", type=int, default=ARRIVING, help="jobs of the large cluster")
    parser.add_argument("--policy", default="easy", help="that of the large cluster")
    parser.add_argument("--one", metavar="SETTING", help="one replay, here; prints it as JSON")
    parser.add_argument("--profile", type=Path, help="write the profile of that one here")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.one:
        profiler = cProfile.Profile(builtins=False)
        if args.profile:
            profiler.enable()
        print(json.dumps(asdict(run_one(args.one, args.jobs, args.policy))))
        if args.profile:
            profiler.dump_stats(args.profile)
        return 0
    runs: list[QueueRun] = []
    is_all_met = True
    if args.only != "events":
        runs += [apart(setting, args.waiting, "production") for setting in TENANTS]
        for run in runs[1:]:
            ratio = run.seconds / runs[0].seconds
            is_all_met &= ratio <= MOST_RATIO
            word = "met   " if ratio <= MOST_RATIO else "MISSED"
            print(f"{word} {run.setting}: {ratio:.2f} x one tenant, at most {MOST_RATIO}")
    if args.only != "queue":
        run = apart(LARGE, args.jobs, args.policy)
        runs.append(run)
        is_met = run.events_per_second >= LEAST_EVENTS
        is_all_met &= is_met
        word = "met   " if is_met else "MISSED"
        print(f"{word} {LARGE}: {run.events_per_second:,.0f} events/s, at least {LEAST_EVENTS:,}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps([asdict(run) for run in runs], indent=2))
    return 0 if is_all_met else 1


if __name__ == "__main__":
    sys.exit(main())
