"""`muster store`: look after the event log, beside a server or without one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.calls import AnswerFormat, Output, end, formatted
from scheduler.cli.exit_codes import BAD_INPUT, FAILED
from scheduler.files.defaults import MOST_DAYS, STORE

if TYPE_CHECKING:
    from scheduler.eventlog.repair import RepairPlan
    from scheduler.eventlog.store.verify import VerifyReport

Url = Annotated[str, typer.Option("--store", help="The store, sqlite:///FILE or postgresql://...")]
MarkFile = Annotated[
    Path | None,
    typer.Option(
        "--mark",
        help="The file that says how far the log has come."
        " (default: FILE.mark beside a SQLite store, none for postgresql://)",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing one.")]

app = typer.Typer(help="Back up, restore and check the event log.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="store")


@contextmanager
def _store_errors() -> Iterator[None]:
    """Return a context in which a fault of a store ends the command. Raises: typer.Exit."""
    from scheduler.eventlog.store import StoreError

    try:
        yield
    except StoreError as error:
        raise end(str(error), BAD_INPUT) from None


@app.command()
def init(store: Url = STORE, mark: MarkFile = None) -> None:
    """Make an empty store; its first server loads the fabric. An existing store stays."""
    from scheduler.eventlog.store import open_store

    with _store_errors(), closing(open_store(store, init=True, mark=mark)) as opened:
        version = opened.last_version()
    typer.echo(f"{_without_password(store)} is at version {version:,}")


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="File of the backup.")],
    store: Url = STORE,
    force: Force = False,
) -> None:
    """Copy the store to a file; the server may keep running.

    A backup of SQLite can be restored into PostgreSQL, and the other way round.
    """
    from scheduler.eventlog.store import backup as copy

    with _store_errors():
        version = copy(store, target, is_forced=force)
    typer.echo(f"{target} holds the store up to version {version:,}")


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="A backup.")],
    store: Url = STORE,
    mark: MarkFile = None,
    force: Force = False,
) -> None:
    """Replace the store by a backup; stop all its servers first.

    The old store is kept as FILE.replaced, in PostgreSQL as tables NAME_replaced.
    """
    from scheduler.eventlog.store import restore as put_back

    with _store_errors():
        version = put_back(source, store, is_forced=force, mark=mark)
    typer.echo(f"{_without_password(store)} is at version {version:,}, as {source} was")


@app.command()
def verify(
    store: Url = STORE,
    mark: MarkFile = None,
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Check every event and snapshot by replaying the log. Exit code 1: damaged."""
    from scheduler.eventlog.store import look_at
    from scheduler.eventlog.store.verify import verify as check

    with _store_errors(), closing(look_at(store, mark)) as opened:
        report = check(opened)
    _write(_rows(report), output)
    if report.problems:
        raise typer.Exit(FAILED)


@app.command()
def recover(
    store: Url = STORE,
    mark: MarkFile = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Recover; without it only the loss is shown.")
    ] = False,
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Show what a damaged store, or one without its end, has lost; with --yes make it usable.

    The old store is kept as FILE.damaged, in PostgreSQL as tables NAME_damaged. Prefer a backup
    that has more.
    """
    from scheduler.eventlog.repair import repair, repair_plan

    with _store_errors():
        plan = repair_plan(store, mark)
        if yes and plan.problem:
            repair(store, plan, mark)
    _write(_plan_rows(plan, is_done=yes), output)


@app.command()
def info(store: Url = STORE, output: Output = AnswerFormat.TABLE) -> None:
    """Show size and versions of the store; the server may keep running."""
    from scheduler.eventlog.store import look_at

    with _store_errors(), closing(look_at(store)) as opened:
        kept = {
            "store": opened.name,
            "bytes": opened.size_bytes(),
            "first_version": opened.first_version(),
            "last_version": opened.last_version(),
            "snapshots": sorted(version for version, _ in opened.snapshots()),
            "ended_jobs": opened.ended_counts()[0],
        }
    _write(kept, output)


@app.command()
def compact(
    keep_days: Annotated[
        int, typer.Option(min=0, max=MOST_DAYS, help="Keep the events of this many days.")
    ],
    store: Url = STORE,
    mark: MarkFile = None,
) -> None:
    """Drop old events and shrink the store; stop the server of a SQLite store first."""
    from time import time_ns

    from scheduler.engine.snapshotter import DAY_S, compacted
    from scheduler.eventlog.store import look_at, open_store, shrink

    with _store_errors():
        look_at(store).close()  # says better what is wrong with the file
        with closing(open_store(store, init=False, mark=mark)) as opened:
            dropped = compacted(opened, time_ns() - keep_days * DAY_S * 10**9)
        shrink(store)
    typer.echo(f"dropped {dropped:,} events")


def _without_password(url: str) -> str:
    return re.sub(r"(://[^/@:]*):[^@]*@", r"\1@", url)


def _rows(report: VerifyReport) -> dict[str, object]:
    from scheduler.files.timeparse import written

    fabric, last_s = report.state.fabric, report.last_ns / 1e9
    return {
        "fabric": fabric.name if fabric else "",
        "first_version": report.first_version,
        "last_version": report.last_version,
        "last_event": written(datetime.fromtimestamp(last_s, UTC)),
        "snapshots": list(report.snapshots),
        "live_jobs": len(report.state.jobs),
        "ended_jobs": report.ended_jobs,
        "problems": list(report.problems),
    }


def _plan_rows(plan: RepairPlan, *, is_done: bool) -> dict[str, object]:
    from scheduler.eventlog.audit import subject

    if not plan.problem:
        return {"problem": "", "next": "nothing to do"}
    return {
        "problem": plan.problem,
        "keeps": f"versions {plan.keep_from:,} to {plan.keep_to:,}"
        if plan.keep_to >= plan.keep_from
        else f"the snapshot of version {plan.keep_to:,}",
        "lost_changes": plan.lost_count,
        "lost_events": [
            f"{version} {type(event).__name__} {subject(event)}".rstrip()
            for version, event in plan.lost
        ],
        "next": "done: start the server, and compare muster jobs with the cluster"
        if is_done
        else "nothing was changed: stop the server, then repeat with --yes",
    }


def _write(rows: dict[str, object], output: AnswerFormat) -> None:
    if output is not AnswerFormat.TABLE:
        typer.echo(formatted(rows, output, is_line=True))
        return
    for name, value in rows.items():
        typer.echo(f"{name.replace('_', ' '):<14} {_shown(value)}")


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
