"""Published values against ours, the readers on the real traces, then those under every policy.

    make validate [TRACES=folder]

The folder holds the public traces as distributed: philly/philly.csv.gz,
swf/NASA-iPSC-1993-3.1-cln.swf.gz, swf/lublin_256-synthetic.swf.gz,
swf/hpc2n-alea-subset.swf.gz; they are replayed, and what must hold whatever they say is checked.
Under the textbook policies the start of every
job of an SWF trace is compared with an independent reference. Exit code 1 when a value or a
check fails, 2 when a trace is missing.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from scheduler.core import SchedulingOptions
from scheduler.files.errors import InputError
from scripts import published, readings
from scripts.starts import Estimate, differences, loose, restated, stated_or_true
from simulator.collectors.invariants import InvariantViolated
from simulator.experiment import Experiment, TraceSource
from simulator.run import run


def machine(name: str, hosts: int, gpus_per_host: int) -> Fabric:
    """One tier of hosts, as the machines behind these traces are described."""
    tiers = [{"name": "zone", "count": 1}, {"name": "host", "count": hosts}]
    return from_spec({"name": name, "gpus_per_host": gpus_per_host, "tiers": tiers})


@dataclass(frozen=True, slots=True)
class Trial:
    """`records`: lines of the trace that are jobs, good or bad; `limit`: no more of them.
    `estimate`: in place of what the log states; such a log has no bad records."""

    trace: str
    trace_format: str
    fabric: Fabric
    records: int
    failures: str | None = None
    policies: tuple[str, ...] = ("production", "easy", "fifo")
    limit: int | None = None
    estimate: Estimate | None = None


PHILLY = "philly/philly.csv.gz"
NASA = "swf/NASA-iPSC-1993-3.1-cln.swf.gz"
LUBLIN = "swf/lublin_256-synthetic.swf.gz"
HPC2N = "swf/hpc2n-alea-subset.swf.gz"
LLAMA3 = "poisson:rate=3.79,repair_h=24"  # 419 interruptions of 2,048 hosts in 54 days

TRIALS = (
    Trial(NASA, "swf", machine("ipsc", 128, 1), 18_239),
    Trial(NASA, "swf", machine("ipsc", 128, 1), 18_239, LLAMA3, ("production",)),
    Trial(LUBLIN, "swf", machine("lublin-256", 256, 1), 10_000),
    Trial(NASA, "swf", machine("ipsc", 128, 1), 18_239, policies=("conservative",)),
    # 434 jobs wait; with estimates, most end early and all who wait are planned anew each time.
    Trial(LUBLIN, "swf", machine("lublin-256", 256, 1), 10_000, policies=("conservative",)),
    Trial(
        LUBLIN,
        "swf",
        machine("lublin-256", 256, 1),
        3_000,
        policies=("conservative",),
        limit=3_000,
        estimate=loose,
    ),
    # Users state time limits here, far too long ones as a rule, and a tenth of jobs outrun them.
    Trial(HPC2N, "swf", machine("hpc2n", 240, 1), 3_170),
    # What a schedule does with jobs that outrun their estimates is not published: none does.
    Trial(
        HPC2N,
        "swf",
        machine("hpc2n", 240, 1),
        3_145,
        policies=("conservative",),
        estimate=stated_or_true,
    ),
    # Whole hosts for mostly one-GPU jobs: overloaded, a queue of tens of thousands.
    Trial(PHILLY, "philly-csv", machine("philly-28", 28, 8), 78_156),
    # A GPU for a host: the load that the trace was recorded at.
    Trial(PHILLY, "philly-csv", machine("philly-224", 224, 1), 78_156),
    Trial(PHILLY, "philly-csv", preset("roce-24k"), 78_156, None, ("production",)),
)


def main(arguments: list[str]) -> int:
    failed = _values()
    if not arguments or not arguments[0]:
        print("traces are not replayed: make validate TRACES=folder", file=sys.stderr)
        return 1 if failed else 0
    return _traces(Path(arguments[0])) or (1 if failed else 0)


def _values() -> int:
    """Print every published value and ours; how many fail."""
    outcomes = [_checked(row) for row in published.rows()]
    failed = sum(not outcome.passed for outcome in outcomes)
    print(published.table(outcomes))
    print(f"{failed} of {len(outcomes)} published values fail\n", flush=True)
    return failed


def _checked(row: published.Row) -> published.Outcome:
    """A row that takes a while says on stderr that it is over."""
    done = published.check(row)
    if row.slow:
        verdict = "pass" if done.passed else "FAIL"
        print(f"row {row.number}: {verdict}, {done.seconds:.0f} s", file=sys.stderr, flush=True)
    return done


def _traces(folder: Path) -> int:
    """Replay what `folder` holds; the exit code."""
    missing = sorted({t.trace for t in TRIALS if not (folder / t.trace).is_file()})
    if missing:
        for name in missing:
            print(f"validate: {folder / name} is not there", file=sys.stderr)
        return 2
    misread = readings.run(folder)
    broken = 0
    for trial in TRIALS:
        for policy in trial.policies:
            broken += not _passes(trial, folder, policy)
    print(f"{broken} replays break an invariant" if broken else "every invariant holds")
    return 1 if broken or misread else 0


def _passes(trial: Trial, folder: Path, policy: str) -> bool:
    path, limit, hosts = folder / trial.trace, trial.limit, trial.fabric.host_count
    # As published: estimates are believed, everybody has a reservation, and all who wait are
    # planned before the first is planned again.
    options = SchedulingOptions(policy=policy, most_slips=0, most_reservations=0, batch_hosts=10**9)
    try:
        with tempfile.TemporaryDirectory() as place:
            if trial.estimate is not None:
                text = restated(path, hosts, limit, trial.estimate)
                path, limit = Path(place) / "trace.swf", None
                path.write_text(text)
            source = TraceSource(path, trial.trace_format, limit=limit)
            experiment = Experiment(trial.fabric, options, trace=source, failures=trial.failures)
            totals = run(experiment, Path(place) / "report", has_pages=False)
            wrong = list(_violations(trial, totals, Path(place) / "report"))
            if trial.trace_format == "swf" and not trial.failures:
                wrong += differences(path, policy, hosts, limit, Path(place) / "report")
    except (InputError, InvariantViolated) as error:
        print(f"FAILED {path.name}, {policy}: {error}")
        return False
    _print(trial, totals)
    for sentence in wrong:
        print(f"  FAILED {sentence}")
    return not wrong


def _print(trial: Trial, totals: dict[str, Any]) -> None:
    wait, speed = totals["wait_s"], totals["events_per_second"]
    print(
        f"{Path(trial.trace).name} on {trial.fabric.name}, {totals['policy']}"
        f"{', failures' if trial.failures else ''}"
        f"{f', estimates {trial.estimate.__name__}' if trial.estimate else ''}:"
        f" {totals['completed']:,} completed, {totals['rejected']:,} rejected,"
        f" {totals['skipped']:,} skipped, {totals['restarts']:,} restarts;"
        f" makespan {totals['makespan_s']:,.0f} s, wait mean {wait['mean']:,.0f} s"
        f" p50 {wait['p50']:,.0f} p95 {wait['p95']:,.0f} p99 {wait['p99']:,.0f},"
        f" slowdown {totals['bounded_slowdown']['mean']:,.2f},"
        f" utilization {totals['utilization']:.4f}, goodput {totals['goodput']:.4f};"
        f" {totals['events']:,} events in {totals['seconds']:.1f} s, {speed:,.0f}/s",
        flush=True,
    )


def _violations(trial: Trial, totals: dict[str, Any], report: Path) -> Iterator[str]:
    """Yield contradictions between the totals, the jobs and the log."""
    accounted = totals["completed"] + totals["rejected"] + totals["skipped"]
    if accounted != trial.records:
        yield f"{trial.records} records in, {accounted} accounted for"
    if totals["completed"] != totals["jobs"] or totals["unfinished"]:
        yield f"{totals['jobs']} jobs, {totals['completed']} completed"
    busy_s, rows = _busy_s(report / "jobs.csv")
    if rows != totals["completed"]:
        yield f"{rows} rows of jobs, {totals['completed']} completed"
    counted_s = totals["utilization"] * trial.fabric.host_count * totals["makespan_s"]
    if abs(busy_s - counted_s) > 1e-6 * busy_s:
        yield f"jobs ran {busy_s} host-seconds, utilization says {counted_s}"
    yield from _double_use(report / "events.jsonl")


def _busy_s(path: Path) -> tuple[float, int]:
    """Host-seconds over all jobs, and how many jobs there are."""
    with path.open(encoding="utf-8") as file:
        spent = [float(row["host_s"]) for row in csv.DictReader(file)]
    return sum(spent), len(spent)


def _double_use(path: Path) -> Iterator[str]:
    """Follow the log by host names alone."""
    holder: dict[str, str] = {}
    held: dict[str, set[str]] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            event, kind = record["event"], record["type"]
            if kind in ("JobEnded", "JobRequeued"):
                for host in held.pop(event["name"], ()):
                    holder.pop(host, None)
                continue
            for host in _taken(kind, event):
                if holder.setdefault(host, event["name"]) != event["name"]:
                    yield f"version {record['version']}: {host} is {holder[host]}'s already"
                held.setdefault(event["name"], set()).add(host)
            for host in _replaced_hosts(kind, event):
                holder.pop(host, None)
                held[event["name"]].discard(host)


def _taken(kind: str, event: dict[str, Any]) -> list[str]:
    if kind == "JobStarted":
        return [*event["hosts"], *event["spares"]]
    return [swap["joined"] for swap in event["swaps"]] if kind == "GangSwapped" else []


def _replaced_hosts(kind: str, event: dict[str, Any]) -> list[str]:
    return [swap["left"] for swap in event["swaps"]] if kind == "GangSwapped" else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
