"""`muster hold`, `release`, `requeue` and `cancel`: what is done to jobs by name, to several at a
time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

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
    _each(server, names, "hold", reason=reason, uid=uid, etag=etag, dry_run=dry_run)


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
    _each(server, names, "release", uid=uid, etag=etag, dry_run=dry_run)


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
    if failed:
        from scheduler.cli.jobs.arrays import failed_tasks

        with server.connected() as client:
            names = [task for name in names for task in failed_tasks(client, name)]
        if not names:
            typer.echo("no failed tasks", err=True)
            return
    options = {"reason": reason, "uid": uid, "hold": hold, "etag": etag, "dry_run": dry_run}
    _each(server, names, "requeue", **options)


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
    _each(server, names, "cancel", reason=reason, uid=uid, etag=etag, dry_run=dry_run)


def _each(
    server: AskedServer,
    texts: Sequence[str],
    verb: Literal["hold", "release", "requeue", "cancel"],
    **options: Any,
) -> None:
    """Do it to every job. Of the options, uid and etag are for one job alone."""
    from scheduler.cli.jobs.arrays import with_tasks
    from scheduler.cli.render import messages

    def act(client: Client, name: str) -> job_pb2.Job:
        changed: job_pb2.Job = getattr(client, f"{verb}_job")(name, **options)
        return changed

    names, is_of_one = expanded(texts), options["uid"] or options["etag"]
    if not is_of_one:
        with server.connected() as client:
            names = with_tasks(client, texts)
    if is_of_one and len(names) > 1:
        raise typer.BadParameter(
            "goes with one job, not with several", param_hint="--uid or --etag"
        )
    if len(names) == 1:
        server.show(lambda client: act(client, names[0]), messages.job_text)
    else:
        each_of(server, names, act)
    checked_only(options["dry_run"])


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
