"""Replays of muster beside AccaSim: the same jobs, job by job the same starts, and how fast.

    python -m bench.replay [--traces FOLDER] [--json FILE] [--docs FILE]

Each simulator runs in a process of its own, one after the other, and is timed by the
processor time of its simulation alone. Waits, makespan and bounded slowdown are counted by
one rule from the start times of each. Exit code 1 when any job starts at another time, or
when the speed that is aimed at on the large machine is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.replay import jobs as loads
from bench.replay.jobs import PlainJob
from bench.tables import renew_page

FLOOR_S = 10
AIM = 10.0  # times the jobs per second of the other, where the machine is large
POLICIES = (("fifo", "fifo"), ("easy", "easy-kept"), ("easy", "easy"))


@dataclass(frozen=True, slots=True)
class ReplayLoad:
    """Jobs for a machine of `hosts`. `is_aimed`: whether AIM is the goal for its speed."""

    name: str
    hosts: int
    jobs: list[PlainJob]
    changed: dict[str, int]
    is_aimed: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds; `slowdown` is bounded, with runs below 10 s counted as 10 s."""

    jobs_per_second: float
    wait_mean_s: float
    makespan_s: int
    slowdown: float


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One load under one policy. `other`: AccaSim's policy. `differ`: jobs that start at
    another time."""

    load: str
    hosts: int
    jobs: int
    policy: str
    other: str
    differ: int
    ours: Figures
    theirs: Figures
    is_aimed: bool

    @property
    def ratio(self) -> float:
        return self.ours.jobs_per_second / self.theirs.jobs_per_second

    @property
    def is_met(self) -> bool:
        """Whether the speed meets its goal; where AccaSim's EASY is another policy, only the speed
        counts."""
        is_same = self.other == "easy" or not self.differ
        return is_same and (self.ratio >= AIM or not self.is_aimed)


LOGS = (
    ("NASA iPSC", "NASA-iPSC-1993-3.1-cln.swf.gz", 128, 18_239),
    ("Lublin 256", "lublin_256-synthetic.swf.gz", 256, 10_000),
)


def measured(folder: Path | None, jobs: int | None) -> Iterator[ReplayLoad]:
    """Measure the logs of `folder`, then drawn loads for a machine of 3,072 hosts."""
    for name, file, hosts, count in LOGS if folder else ():
        path = Path(str(folder), "swf", file)
        if path.exists():
            found, changed = loads.of_log(path, hosts, jobs or count)
            yield ReplayLoad(name, hosts, found, _counted(changed))
    for load in (0.56, 0.99):
        found = loads.drawn(jobs or 10_000, 3_072, load, seed=1)
        yield ReplayLoad(f"drawn, load {load}", 3_072, found, {}, is_aimed=True)


def _counted(changed: Counter[str]) -> dict[str, int]:
    return {what: count for what, count in sorted(changed.items()) if count}


def rows(load: ReplayLoad) -> Iterator[ReplayRow]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "jobs.swf")
        loads.write(load.jobs, path)
        for policy, other in POLICIES:
            ours = _run("own", path, load.hosts, policy)
            theirs = _run("accasim", path, load.hosts, other)
            yield _row(load, policy, other, ours, theirs)


def _run(module: str, path: Path, hosts: int, policy: str) -> dict[str, Any]:
    out = path.with_name(f"{module}.json")
    command = [sys.executable, "-m", f"bench.replay.{module}"]
    subprocess.run([*command, str(path), str(hosts), policy, str(out)], check=True)
    answer: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return answer


def _row(
    load: ReplayLoad, policy: str, other: str, ours: dict[str, Any], theirs: dict[str, Any]
) -> ReplayRow:
    names = [str(job.number) for job in load.jobs]
    differ = sum(ours["starts"].get(n) != theirs["starts"].get(n) for n in names)
    here, there = _figures(load.jobs, ours), _figures(load.jobs, theirs)
    _agrees(ours["totals"], here)
    args = (load.name, load.hosts, len(load.jobs), policy, other, differ)
    return ReplayRow(*args, here, there, load.is_aimed)


def _figures(jobs: Sequence[PlainJob], answer: dict[str, Any]) -> Figures:
    starts = [int(answer["starts"][str(job.number)]) for job in jobs]
    waits = [start - job.submit for start, job in zip(starts, jobs, strict=True)]
    ends = [start + job.run for start, job in zip(starts, jobs, strict=True)]
    slow = [max(1.0, (w + j.run) / max(j.run, FLOOR_S)) for w, j in zip(waits, jobs, strict=True)]
    return Figures(
        len(jobs) / answer["seconds"],
        sum(waits) / len(jobs),
        max(ends) - min(job.submit for job in jobs),
        sum(slow) / len(jobs),
    )


def _agrees(totals: dict[str, Any], figures: Figures) -> None:
    """The totals that a replay reports are those counted from its start times."""
    pairs = [
        (totals["wait_s"]["mean"], figures.wait_mean_s),
        (totals["makespan_s"], figures.makespan_s),
        (totals["bounded_slowdown"]["mean"], figures.slowdown),
    ]
    for reported, counted in pairs:
        if abs(reported - counted) > 1e-6 * max(1.0, counted):
            raise RuntimeError(f"totals say {reported}, the start times {counted}")


def table(found: Sequence[ReplayRow]) -> str:
    lines = [
        "| load | hosts | jobs | policy | AccaSim's | starts that differ | mean wait, s"
        " | makespan, s | bounded slowdown | jobs/s | AccaSim's jobs/s | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        ours, theirs = row.ours, row.theirs
        is_same = not row.differ
        cells = [
            row.load,
            f"{row.hosts:,}",
            f"{row.jobs:,}",
            row.policy,
            row.other,
            f"{row.differ:,}",
            _pair(f"{ours.wait_mean_s:,.1f}", f"{theirs.wait_mean_s:,.1f}", is_same),
            _pair(f"{ours.makespan_s:,}", f"{theirs.makespan_s:,}", is_same),
            _pair(f"{ours.slowdown:,.2f}", f"{theirs.slowdown:,.2f}", is_same),
            f"{ours.jobs_per_second:,.0f}",
            f"{theirs.jobs_per_second:,.0f}",
            f"{row.ratio:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _pair(ours: str, theirs: str, is_same: bool) -> str:
    return ours if is_same and ours == theirs else f"{ours} / {theirs}"


def text(found: Sequence[ReplayRow], changes: dict[str, dict[str, int]]) -> str:
    """Write the tables of the page."""
    said = [
        f"- {load}: " + ", ".join(f"{what} ({count:,})" for what, count in changed.items())
        for load, changed in changes.items()
        if changed
    ]
    return "\n".join([table(found), "", "Changed before both read the jobs:", "", *said]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replay")
    parser.add_argument("--traces", type=Path, help="folder of the public traces")
    parser.add_argument("--jobs", type=int, help="no more jobs of each load than these")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--docs", type=Path, help="the page whose tables to replace")
    options = parser.parse_args(arguments)
    found: list[ReplayRow] = []
    changes: dict[str, dict[str, int]] = {}
    for load in measured(options.traces, options.jobs):
        changes[load.name] = load.changed
        for row in rows(load):
            found.append(row)
            print(
                f"{row.load}, {row.policy}: {row.differ} differ, {row.ratio:.1f} times", flush=True
            )
    page_text = text(found, changes)
    print(page_text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=2))
    if options.docs:
        renew_page(page_text, options.docs)
    return 0 if all(row.is_met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
