"""`muster hold`, `release`, `requeue` and `cancel`: what is done to jobs by name, to several at a
time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from scheduler.cli import complete
from scheduler.cli.calls import (
    AskedServer,
    DryRun,
    Etag,
    Uid,
    Why,
    asks_server,
    checked_only,
    each_done,
    expanded,
)

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1 import job_pb2

Thing = TypeVar("Thing")
JobNames = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="Names of jobs, with ranges such as sweep-[0-15], or of arrays; TENANT/NAME of"
        " another tenant.",
        autocompletion=complete.jobs,
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(hold)
    app.command()(release)
    app.command()(requeue)
    app.command()(cancel)


@asks_server
def hold(
    server: AskedServer,
    names: JobNames,
    reason: Why = "",
    uid: Uid = "",
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Hold jobs: the scheduler passes over them until they are released.

    A running gang goes on; its job is held when it is requeued. Only an operator can release
    a job that an operator holds.
    Example: muster hold nightly-7 'sweep-[0-15]' --reason 'data is being copied'
    """
    _each(
        server,
        names,
        lambda client, name: client.hold_job(name, reason, uid, etag=etag, dry_run=dry_run),
        uid or etag,
    )
    checked_only(dry_run)


@asks_server
def release(
    server: AskedServer,
    names: JobNames,
    uid: Uid = "",
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Release jobs that are held.

    Example: muster release nightly-7
    """
    _each(
        server,
        names,
        lambda client, name: client.release_job(name, uid, etag=etag, dry_run=dry_run),
        uid or etag,
    )
    checked_only(dry_run)


@asks_server
def requeue(
    server: AskedServer,
    names: JobNames,
    hold: Annotated[
        bool, typer.Option("--hold", help="Hold the job, so that it does not start again.")
    ] = False,
    failed: Annotated[
        bool,
        typer.Option("--failed", help="Of an array: submit its failed tasks once more."),
    ] = False,
    reason: Why = "",
    uid: Uid = "",
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Stop the gangs of jobs; the jobs wait again, at their old places in the queue.

    The gangs go on from their newest checkpoints. A queued job stays as it is, except with
    --hold. A job that failed or was cancelled is submitted once more.
    Example: muster requeue pretrain --hold; muster requeue sweep --failed
    """

    def act(client: Client, name: str) -> job_pb2.Job:
        return client.requeue_job(name, reason, uid, hold=hold, etag=etag, dry_run=dry_run)

    if failed:
        from scheduler.cli.jobs.arrays import failed_tasks

        with server.connected() as client:
            names = [task for name in names for task in failed_tasks(client, name)]
        if not names:
            typer.echo("no failed tasks", err=True)
            return
    _each(server, names, act, uid or etag)
    checked_only(dry_run)


@asks_server
def cancel(
    server: AskedServer,
    names: JobNames,
    reason: Why = "",
    uid: Uid = "",
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Cancel jobs; their gangs stop and the hosts are free again.

    Example: muster cancel 'sweep-[0-15]'
    """
    _each(
        server,
        names,
        lambda client, name: client.cancel_job(name, reason, uid, etag=etag, dry_run=dry_run),
        uid or etag,
    )
    checked_only(dry_run)


def _each(
    server: AskedServer,
    texts: Sequence[str],
    act: Callable[[Client, str], job_pb2.Job],
    of_one: str,
) -> None:
    """Do it to every job. `of_one`: the uid or etag, which only one job has."""
    from scheduler.cli.jobs.arrays import with_tasks
    from scheduler.cli.render import messages

    names = expanded(texts)
    if not of_one:
        with server.connected() as client:
            names = with_tasks(client, texts)
    if of_one and len(names) > 1:
        raise typer.BadParameter(
            "goes with one job, not with several", param_hint="--uid or --etag"
        )
    if len(names) == 1:
        server.show(lambda client: act(client, names[0]), messages.job_text)
    else:
        each_of(server, names, act)


def each_of(
    server: AskedServer, things: Sequence[Thing], act: Callable[[Client, Thing], job_pb2.Job]
) -> None:
    """Call a function for each job, and show the jobs after it. Report refusals, and go on with the
    others."""
    from scheduler.cli.render import messages
    from scheduler.v1 import service_pb2

    with server.connected() as client:
        done, code = each_done(client, things, act)
    if done:
        server.write(service_pb2.ListJobsResponse(jobs=done), messages.listed_jobs_text)
    if code:
        raise typer.Exit(code)
