"""A replay on a terminal: warnings, a progress bar, a table of totals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scheduler.files.errors import unwritable

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.experiment import Experiment
    from simulator.run import Progress

MOST_WARNINGS = 20
LONG_BYTES = 100_000  # of a trace: some thousand jobs
STEPS = 2_000  # kernel steps between two looks at the progress bar


class Warnings:
    """Prints the first few warnings on stderr, and counts the rest."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, line: str) -> None:
        self._count += 1
        if self._count <= MOST_WARNINGS:
            typer.echo(line, err=True)

    def close(self) -> None:
        if self._count > MOST_WARNINGS:
            typer.echo(f"... and {self._count - MOST_WARNINGS:,} more", err=True)


def run_with_progress(experiment: Experiment, folder: Path | None = None) -> dict[str, Any]:
    """Run a replay with a progress bar, and return its totals. `folder`: of the report. Raises:
    InputError; typer.Exit when there are none."""
    from rich.console import Console

    from scheduler.interpreter import expect_no_cycles
    from simulator.run import run

    path = experiment.source.path
    if path.is_file() and path.stat().st_size >= LONG_BYTES:
        expect_no_cycles()
    console, warnings = Console(stderr=True), Warnings()
    note_replaced(folder, "totals.json")
    bar = _progress(console, path.name) if console.is_terminal else nullcontext()
    with violations_reported(), _full_disk_named(folder), bar as on_progress:
        totals = run(experiment, folder, warnings.add, on_progress)
    warnings.close()
    return totals


def note_replaced(folder: Path | None, file: str) -> None:
    """Say on stderr that a report replaces one of which the folder has this file."""
    if folder and (folder / file).exists():
        typer.echo(f"note: {folder} has a report already, which is replaced", err=True)


@contextmanager
def violations_reported() -> Iterator[None]:
    """Return a context in which a replay that breaks an invariant ends the command: exit code 1,
    and a line that says why."""
    from simulator.collectors.invariants import InvariantViolated

    try:
        yield
    except InvariantViolated as error:
        typer.echo(f"error: the replay is void, {error}; please report this", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _full_disk_named(folder: Path | None) -> Iterator[None]:
    """A write that fails does not say to which file; the report is what grows."""
    try:
        yield
    except OSError as error:
        if error.filename or not folder:
            raise
        raise unwritable(folder, "--report", error) from None


@contextmanager
def _progress(console: Console, name: str) -> Iterator[Callable[[Progress], None]]:
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
        task = bar.add_task(name, total=1, events=0)
        steps = 0

        def show(now: Progress) -> None:
            nonlocal steps
            steps += 1
            if steps % STEPS == 0:
                bar.update(task, total=now.records, completed=now.ended, events=now.events)

        yield show


def table(totals: dict[str, Any]) -> str:
    """Write the totals as a table for people."""
    from simulator.report.text import figures, headline

    rows = figures(totals)
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {value}" for name, value in rows]
    notes = [f"warning: {sentence}" for sentence in totals["warnings"]]
    notes += [f"note: {sentence}" for sentence in totals["assumptions"]]
    return "\n".join([headline(totals), "", *lines, "", *notes])
