"""A replay on disk: totals.json, jobs.csv, events.jsonl and a summary for people."""

from __future__ import annotations

import csv
import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from scheduler.core.job import SECOND_NS
from scheduler.problems import InputError, Problem
from simulator.metrics import JobRow

JOB_COLUMNS = (
    "job",
    "submit_s",
    "start_s",
    "end_s",
    "wait_s",
    "run_s",
    "hosts",
    "host_s",
    "attempts",
    "bounded_slowdown",
    "outcome",
)


class Report:
    """Files that grow while the replay runs; a context manager that closes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.events = self._open("events.jsonl")
            self._jobs = csv.writer(self._open("jobs.csv"), lineterminator="\n")
        except OSError as error:
            self._stack.close()
            raise InputError(Problem("--report", f"cannot be written: {error}")) from None
        self._jobs.writerow(JOB_COLUMNS)

    def _open(self, name: str) -> TextIO:
        path = self._folder / name
        return self._stack.enter_context(path.open("w", encoding="utf-8", newline=""))

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def job(self, row: JobRow) -> None:
        """One line of jobs.csv."""
        start_ns, wait_ns = row.start_ns, row.wait_ns
        self._jobs.writerow(
            [
                row.name,
                row.submit_ns / SECOND_NS,
                "" if start_ns is None else start_ns / SECOND_NS,
                row.end_ns / SECOND_NS,
                "" if wait_ns is None else wait_ns / SECOND_NS,
                row.run_ns / SECOND_NS,
                row.hosts,
                row.host_ns / SECOND_NS,
                row.attempts,
                f"{row.slowdown:.6g}",
                row.outcome.value,
            ]
        )

    def finish(self, totals: dict[str, Any]) -> None:
        """Write the totals and the summary."""
        self._open("totals.json").write(json.dumps(totals, indent=2) + "\n")
        self._open("summary.md").write(markdown(totals))


def figures(totals: dict[str, Any]) -> list[tuple[str, str]]:
    """What a reader looks for first, in words and units."""
    wait = totals["wait_s"]
    speed = totals["events_per_second"]
    rows = [
        ("jobs", f"{totals['jobs']:,}"),
        ("completed", f"{totals['completed']:,}"),
        ("rejected", _counted(totals["rejected"], totals["rejected_by_reason"])),
        ("records skipped", _counted(totals["skipped"], totals["skipped_by_reason"])),
        ("makespan", duration(totals["makespan_s"])),
        ("wait, mean", duration(wait["mean"])),
        *((f"wait, {p}", duration(wait[p])) for p in ("p50", "p95", "p99")),
        ("bounded slowdown, mean", f"{totals['bounded_slowdown']['mean']:,.2f}"),
        ("utilization", f"{totals['utilization']:.1%}"),
        ("goodput", f"{totals['goodput']:.2%}"),
        ("host failures", f"{totals['host_failures']:,}"),
        ("restarts", f"{totals['restarts']:,}"),
        ("events", f"{totals['events']:,} in {totals['seconds']:.1f} s, {speed:,.0f} a second"),
    ]
    if totals["preemptions"]:
        lost = f"{totals['preempted_host_s'] / 3600:,.1f} host-hours repeated"
        rows.insert(-1, ("preemptions", f"{totals['preemptions']:,}, {lost}"))
    if totals["resizes"]:
        rows.insert(-1, ("of these resizes", f"{totals['resizes']:,}"))
    if totals["unfinished"]:
        rows.insert(2, ("unfinished", f"{totals['unfinished']:,}"))
    return rows


def headline(totals: dict[str, Any]) -> str:
    """What was replayed on what, in one line."""
    fabric = totals["fabric"]
    return (
        f"{totals['trace']['file']} on {fabric['name']} ({fabric['hosts']:,} hosts x"
        f" {fabric['gpus_per_host']} GPUs), policy {totals['policy']}, seed {totals['seed']}"
    )


def markdown(totals: dict[str, Any]) -> str:
    """The summary of a report folder."""
    lines = ["# Replay", "", headline(totals), "", "| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in figures(totals)]
    lines += ["", "## Assumptions", ""]
    lines += [f"- {sentence}" for sentence in totals["assumptions"]]
    lines += ["", f"SHA-256 of events.jsonl: `{totals['log_sha256']}`", ""]
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Two units at most: 92 d 04 h, 3 h 05 min, 12 min, 4.1 s."""
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    hours = round(seconds / 3600)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{hours // 24:,} d {hours % 24:02d} h"


def _counted(count: int, by_reason: dict[str, int]) -> str:
    if not count:
        return "0"
    return f"{count:,} ({', '.join(f'{reason}: {n:,}' for reason, n in by_reason.items())})"
