"""A replay as people start it: warnings, a progress bar, a table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scheduler.files.errors import InputError, Problem, unwritable

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.experiment import Case, Progress

MOST_WARNINGS = 20
LONG_BYTES = 100_000  # of a trace: some thousand jobs
STEPS = 2_000  # kernel steps between two looks at the progress bar


class Warnings:
    """The first few lines on stderr, and how many more there were."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, line: str) -> None:
        self._count += 1
        if self._count <= MOST_WARNINGS:
            typer.echo(line, err=True)

    def close(self) -> None:
        if self._count > MOST_WARNINGS:
            typer.echo(f"... and {self._count - MOST_WARNINGS:,} more", err=True)


@dataclass(frozen=True, slots=True)
class Order:
    """A replay, and what becomes of it. `folder`: of the report."""

    case: Case
    folder: Path | None = None
    has_parquet: bool = False
    warnings: Warnings = field(default_factory=Warnings)


def run(order: Order) -> dict[str, Any]:
    """The totals. Raises: InputError; typer.Exit when there are none."""
    from rich.console import Console

    from scheduler.interpreter import expect_no_cycles
    from simulator.collectors.tables import need_parquet
    from simulator.experiment import run_case
    from simulator.report.folder import ReportFolder

    if order.has_parquet:
        if order.folder is None:
            raise InputError(Problem("--parquet", "needs --report, the folder to write to"))
        need_parquet()
    if _is_long(order.case):
        expect_no_cycles()
    console = Console(stderr=True)
    report = ReportFolder(order.folder, has_parquet=order.has_parquet) if order.folder else None
    bar = _progress(console, order.case) if console.is_terminal else nullcontext()
    with violations_reported(), _full_disk_named(order), bar as on_progress:
        totals = run_case(order.case, report, order.warnings.add, on_progress)
    order.warnings.close()
    return totals


def _is_long(case: Case) -> bool:
    return case.trace.is_file() and case.trace.stat().st_size >= LONG_BYTES


@contextmanager
def violations_reported() -> Iterator[None]:
    """A replay that does not add up ends its command: exit code 1, and a line that says why."""
    from simulator.collectors.invariants import InvariantViolated

    try:
        yield
    except InvariantViolated as error:
        typer.echo(f"error: the replay is void, {error}; please report this", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _full_disk_named(order: Order) -> Iterator[None]:
    """A write that fails does not say to which file; the report is what grows."""
    try:
        yield
    except OSError as error:
        if error.filename or not order.folder:
            raise
        raise unwritable(order.folder, "--report", error) from None


@contextmanager
def _progress(console: Console, case: Case) -> Iterator[Callable[[Progress], None]]:
    """A bar of the jobs ended among those read so far."""
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("{task.completed:,.0f} of {task.total:,.0f} jobs"),
        rich.TextColumn("{task.fields[events]:,} events"),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(case.trace.name, total=1, events=0)
        steps = 0

        def show(now: Progress) -> None:
            nonlocal steps
            steps += 1
            if steps % STEPS == 0:
                bar.update(task, total=now.records, completed=now.ended, events=now.events)

        yield show


def table(totals: dict[str, Any]) -> str:
    """The totals for people."""
    from simulator.report.text import figures, headline

    rows = figures(totals)
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {value}" for name, value in rows]
    notes = [f"note: {sentence}" for sentence in totals["assumptions"]]
    return "\n".join([headline(totals), "", *lines, "", *notes])
