"""A replay as people start it: warnings, a progress bar, snapshots, a table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from scheduler.files.errors import InputError, Problem, unwritable

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.case import Case, Progress
    from simulator.report import Place
    from simulator.snapshot.resume import Record, Resumed
    from simulator.snapshot.saver import Saver, When

MOST_WARNINGS = 20
LONG_BYTES = 100_000  # of a trace: some thousand jobs, for which a second process pays
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
    """A replay, and what becomes of it. `folder`: of the report. `snapshot`: where it is
    written down meanwhile, `when`: how often. `resumed`: where it goes on."""

    case: Case
    record: Record
    folder: Path | None = None
    has_parquet: bool = False
    snapshot: Path | None = None
    when: When | None = None
    resumed: Resumed | None = None
    warnings: Warnings = field(default_factory=Warnings)


def run(order: Order) -> dict[str, Any]:
    """The totals. Raises: InputError; typer.Exit when there are none."""
    from rich.console import Console

    from scheduler.interpreter import expect_no_cycles
    from simulator.case import run_case
    from simulator.report import Report
    from simulator.report.tables import need_parquet
    from simulator.snapshot.saver import Stopped
    from simulator.study.pool import cores

    if order.has_parquet:
        if order.folder is None:
            raise InputError(Problem("--parquet", "needs --report, the folder to write to"))
        need_parquet()
    is_long = _is_long(order.case)
    if is_long:
        expect_no_cycles()
    console = Console(stderr=True)
    earlier = order.resumed.files if order.resumed else None
    _warn_of_code(order)
    with ExitStack() as stack:
        report = None
        if order.folder:
            report = Report(order.folder, earlier, has_parquet=order.has_parquet)
        saver = _saver(order, report, stack) if order.snapshot else None
        bar = stack.enter_context(_progress(console, order.case)) if console.is_terminal else None
        try:
            with void_told(), _full_disk_named(order):
                totals = run_case(
                    order.case,
                    report,
                    order.warnings.add,
                    bar,
                    saver=saver,
                    resumed=order.resumed,
                    is_beside=is_long and cores() > 1,
                )
        except Stopped as stopped:
            typer.echo(_how_to_go_on(order, stopped.after_s), err=True)
            raise typer.Exit(128 + stopped.signum if stopped.signum else 0) from None
    if order.when and order.when.at_h is not None:
        order.warnings.add(
            f"note: the replay ended before {order.when.at_h:g} h, so it was not stopped"
        )
    order.warnings.close()
    return totals


def _is_long(case: Case) -> bool:
    return case.trace.is_file() and case.trace.stat().st_size >= LONG_BYTES


@contextmanager
def void_told() -> Iterator[None]:
    """A replay that does not add up ends its command: exit code 1, and a line that says why."""
    from simulator.conserved import NotConserved

    try:
        yield
    except NotConserved as error:
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


def _warn_of_code(order: Order) -> None:
    from simulator.snapshot.marks import marks

    if order.resumed and order.resumed.code != marks()["code"]:
        told = "is of another version of muster, which may have decided otherwise from here on"
        order.warnings.add(f"{order.resumed.path}: {told}")


def _saver(order: Order, report: Place | None, stack: ExitStack) -> Saver:
    """Without a report its tables are written all the same, for the snapshot alone."""
    from simulator.report import Place
    from simulator.snapshot.file import check_target
    from simulator.snapshot.marks import marks
    from simulator.snapshot.saver import Saver

    assert order.snapshot
    check_target(order.snapshot)
    if report is None:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="muster-")))
        report = Place(folder, order.resumed.files if order.resumed else None)
    saver = Saver(order.snapshot, order.record, report, marks(), order.when)
    stack.enter_context(saver.heeding())
    return saver


def _how_to_go_on(order: Order, after_s: float) -> str:
    from simulator.report import duration

    report = f" --report {order.folder}" if order.folder else ""
    return (
        f"stopped {duration(after_s)} after the first submit; go on with\n"
        f"  muster replay --resume {order.snapshot}{report} --snapshot {order.snapshot}"
    )


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
    from simulator.report import figures, headline

    rows = figures(totals)
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {value}" for name, value in rows]
    notes = [f"note: {sentence}" for sentence in totals["assumptions"]]
    return "\n".join([headline(totals), "", *lines, "", *notes])
