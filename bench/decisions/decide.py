"""How long a decision takes with a long queue, and what a greedy one would have made.

    python -m bench.decisions.decide [--json FILE]

3,072 hosts (roce-24k), 1,000 gangs running, 10,000 waiting, of mixed size; of one tenant, of 22,
and of 22 with 50 priorities. Three questions: nothing can start; a tenth of the gangs ends at
once; one small job is submitted. Greedy counts slots: in the order of the queue, the first free
hosts in fabric order, no reservations. Both are judged by the referee. Times are of the
processor, for a decision is one thread and the machine may be shared. A decision ends when it has
started 128 hosts' worth; the table has the first decision's time, and the starts of all of them
until nothing more starts. The exit code is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.reader import preset
from placement.objective.cut import cut
from scheduler.core import Plan, SchedulingOptions, State, decide, replay
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.model.commands import LoadTenants, SubmitJob
from scheduler.core.model.job import SECOND_NS
from scheduler.core.policies.tenants import GuaranteedCell, PriorityClass, Tenant, Tenants
from scheduler.core.queue.order import by_arrival
from scheduler.core.tenancy.quota_check import Quotas
from tests.build import admitted, committed, end, loaded, run, submit

RUNNING, WAITING, REPEATS = 1_000, 10_000, 15
PRIORITIES = 50
IDLE_MS, BATCH_MS, SUBMIT_MS, LEVELS_MS = 100, 1_000, 50, 250  # the last: with priorities
RUNNING_HOSTS = (1, 1, 1, 2, 2, 3, 4, 4, 6)
WAITING_HOSTS = (1, 1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 16, 32, 64, 128)
NOW_NS = 3_600 * SECOND_NS

TEAMS = Tenants(
    (
        *(Tenant(f"team{i:02d}", guaranteed_gpus=512, weight=1 + i % 3) for i in range(20)),
        Tenant("shaped", cells=(GuaranteedCell("zone", 1, 64), GuaranteedCell("rack", 32))),
        Tenant("default"),
    ),
    classes=(
        PriorityClass("spot", -1, is_preemptible=True),
        PriorityClass("wall", 9, is_preemptible=True),
    ),
)


@dataclass(frozen=True)
class DecisionRow:
    """One measured decision. Times in milliseconds; `cut_bytes` over zones, of what starts."""

    question: str
    target_ms: int
    median_ms: float
    worst_ms: float
    started: int
    hosts: int
    cut_bytes: int
    greedy_ms: float = 0.0
    greedy_started: int = 0
    greedy_hosts: int = 0
    greedy_cut_bytes: int = 0

    @property
    def is_met(self) -> bool:
        return self.median_ms < self.target_ms


def cluster(tenants: Tenants | None, priorities: int, seed: int = 1) -> State:
    """Return the cluster and its queue, after decisions until nothing more starts."""
    rng = random.Random(seed)
    state = loaded(preset("roce-24k"))
    if tenants:
        state = run(state, LoadTenants(tenants))
    leaves = [t.name for t in tenants.tenants] if tenants else [""]
    for number in range(RUNNING):
        state = run(state, job(f"r{number}", rng.choice(RUNNING_HOSTS), rng, rng.choice(leaves)))
    state = settled(state, 0)
    for number in range(WAITING):
        asked = job(f"q{number}", rng.choice(WAITING_HOSTS), rng, rng.choice(leaves))
        if priorities > 1 and not asked.spec.priority_class:
            level = rng.randrange(priorities)
            asked = replace(asked, spec=replace(asked.spec, priority=level))
        state = replay(admitted(state, asked, 1), state)
    return settled(state, NOW_NS)


def walled(state: State) -> State:
    """Return a cluster in which hosts are free, and nothing can start: twenty gangs have ended, and
    the first job in the queue needs their hosts and those of the next gang to end, which every
    other job would outlast."""
    state = run(state, *(end(name) for name in state.index.running[::50]), now_ns=NOW_NS)
    quotas = Quotas(state)
    first = Outlook(state, NOW_NS, SchedulingOptions(), quotas).ends()[0]
    assert first.end_ns < NOW_NS + 2 * 3_600 * SECOND_NS
    hosts = state.free.bit_count() + first.held
    level = "wall" if state.tenants.classes else ""
    wall = submit("wall", hosts, priority=0 if level else 9, priority_class=level, limit_s=3_600)
    return settled(run(state, wall, now_ns=NOW_NS), NOW_NS)


def job(name: str, hosts: int, rng: random.Random, tenant: str) -> SubmitJob:
    pp = rng.choice([n for n in (1, 2, 4) if hosts % n == 0])
    limit_s = rng.randint(2 * 3_600, 72 * 3_600)
    level = "spot" if tenant == "default" else ""
    return submit(name, hosts, pp=pp, limit_s=limit_s, tenant=tenant, priority_class=level)


def settled(state: State, now_ns: int) -> State:
    """Decide and commit until nothing is left to do."""
    while (plan := decide(state, now_ns, SchedulingOptions())).actions:
        state = replay(committed(state, plan, now_ns), state)
    return state


def timed(make: Callable[[], Plan]) -> tuple[Plan, list[float]]:
    plan, spent = Plan(0), []
    for _ in range(REPEATS):
        begin = time.process_time()
        plan = make()
        spent.append((time.process_time() - begin) * 1e3)
    return plan, spent


def greedy(state: State) -> list[tuple[str, tuple[int, ...]]]:
    """Place the queue by consecutive packing, first fit: (job, hosts) of what would start."""
    free, starts = hostset.members(state.free), []
    for waiting in by_arrival(state):
        if waiting.needed <= len(free):
            starts.append((waiting.name, tuple(free[: waiting.needed])))
            free = free[waiting.needed :]
        if not free:
            break
    return starts


def zone_cut(state: State, name: str, hosts: Sequence[int]) -> int:
    request = state.jobs[name].spec.request
    return cut(state.loaded_fabric, request, tuple(hosts))[0].bytes_per_step


def measured(question: str, target_ms: int, state: State) -> DecisionRow:
    _, spent = timed(lambda: decide(state, NOW_NS, SchedulingOptions()))
    after = settled(state, NOW_NS)
    begun = [(n, after.jobs[n].hosts) for n in after.index.running if n not in state.index.running]
    begin = time.process_time()
    rival = greedy(state)
    rival_ms = (time.process_time() - begin) * 1e3
    return DecisionRow(
        question,
        target_ms,
        statistics.median(spent),
        max(spent),
        len(begun),
        sum(len(hosts) for _, hosts in begun),
        sum(zone_cut(state, name, hosts) for name, hosts in begun),
        rival_ms,
        len(rival),
        sum(len(hosts) for _, hosts in rival),
        sum(zone_cut(state, name, hosts) for name, hosts in rival),
    )


def rows(tenants: Tenants | None, priorities: int = 1) -> list[DecisionRow]:
    state = cluster(tenants, priorities)
    who = f"{len(tenants.tenants)} tenants" if tenants else "one tenant"
    who += f", {priorities} levels" if priorities > 1 else ""
    ended = run(state, *(end(name) for name in state.index.running[::10]), now_ns=NOW_NS)
    # Hosts that the queue leaves: a short job of one host fits beside the reservation.
    gone = iter(state.index.running)
    room = state
    while not room.free:
        room = settled(run(room, end(next(gone)), now_ns=NOW_NS), NOW_NS)
    small = run(room, submit("small", 1, limit_s=60, tenant="team00" if tenants else ""))
    idle = walled(state)
    free = idle.free.bit_count()
    return [
        measured(f"{free} free, nothing can start, {who}", IDLE_MS, idle),
        measured(f"{len(state.index.running[::10])} gangs end, {who}", BATCH_MS, ended),
        measured(f"one small job more, {who}", LEVELS_MS if priorities > 1 else SUBMIT_MS, small),
    ]


def table(found: Sequence[DecisionRow]) -> str:
    head = ("question", "median", "worst", "target", "starts", "hosts", "zone cut")
    lines = [f"{head[0]:54}" + "".join(f"{word:>10}" for word in head[1:])]
    for row in found:
        lines.append(
            f"{row.question:54}{row.median_ms:7.1f} ms{row.worst_ms:7.1f} ms"
            f"{row.target_ms:7d} ms{row.started:10,}{row.hosts:10,}{row.cut_bytes:10,}"
            f"{'' if row.is_met else '  MISSED'}"
        )
        lines.append(
            f"{'  greedy, first fit':54}{row.greedy_ms:7.1f} ms{'':20}"
            f"{row.greedy_started:10,}{row.greedy_hosts:10,}{row.greedy_cut_bytes:10,}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.decisions.decide")
    parser.add_argument("--json", help="write the rows to this file")
    options = parser.parse_args(arguments)
    found = [*rows(None), *rows(TEAMS), *rows(TEAMS, PRIORITIES)]
    print(f"{preset('roce-24k').host_count:,} hosts, {RUNNING:,} gangs, {WAITING:,} waiting")
    print(table(found))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([asdict(row) for row in found], file, indent=2)
    return 0 if all(row.is_met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
