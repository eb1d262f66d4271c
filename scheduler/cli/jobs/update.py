"""`muster update` and `resize`: another priority, time limit, begin time, other labels or another
number of replicas for a job."""

from __future__ import annotations

from typing import Annotated

import typer

from scheduler.cli import complete
from scheduler.cli.calls import AskedServer, DryRun, Etag, Uid, asks_server, checked_only
from scheduler.cli.numbers import MOST, seconds


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(update)
    app.command()(resize)


@asks_server
def update(
    server: AskedServer,
    name: Annotated[
        str,
        typer.Argument(help="Name of the job.", autocompletion=complete.jobs, show_default=False),
    ],
    priority: Annotated[int | None, typer.Option(min=-MOST, max=MOST, help="New priority.")] = None,
    priority_class: Annotated[
        str | None, typer.Option("--class", help="New priority class; empty for none.")
    ] = None,
    time_limit_s: Annotated[
        int | None,
        typer.Option(
            "--time-limit",
            "--limit",
            help="New time limit, such as 2h30m; 0: none. Also of a running job.",
            parser=seconds,
            metavar="DURATION",
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(help="New begin time, 2026-11-21T06:00Z or +2h; empty: at once."),
    ] = None,
    dependency: Annotated[
        str | None,
        typer.Option(
            help="New dependencies, such as `afterok:prepare:fetch,singleton`; empty for none."
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Set a label KEY=VALUE; may be repeated.")
    ] = None,
    unlabel: Annotated[
        list[str] | None, typer.Option(help="Remove the label KEY; may be repeated.")
    ] = None,
    at_most: Annotated[
        int | None,
        typer.Option(
            min=0, max=MOST, help="Of an array: tasks that run at a time from now on; 0: all."
        ),
    ] = None,
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Change a job: labels and time limit at any time, the rest while it is queued.

    Only an operator can extend the time limit of a running job, because others wait for its end.
    Example: muster update pretrain --time-limit 12h; muster update sweep --at-most 8
    """
    from scheduler.cli.jobs.arrays import with_tasks
    from scheduler.cli.jobs.options import begin_ns, dependencies
    from scheduler.cli.render import messages
    from scheduler.v1 import job_pb2
    from scheduler.wire.durations import duration

    given = {"priority": priority, "priority_class": priority_class, "time_limit": time_limit_s}
    given |= {"begin_time": begin, "dependencies": dependency, "array": at_most}
    fields = [field for field, value in given.items() if value is not None]
    changes = [_label(text) for text in label or ()]
    if not (fields or changes or unlabel):
        raise typer.BadParameter("nothing to change", param_hint="muster update")
    keys = [*(key for key, _ in changes), *(unlabel or ())]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise typer.BadParameter(f"{twice[0]!r} is given twice", param_hint="--label, --unlabel")
    wanted = job_pb2.JobSpec(
        priority=priority or 0,
        priority_class=priority_class or "",
        time_limit=duration(time_limit_s) if time_limit_s else None,
    )
    if at_most is not None:
        wanted.array = f"%{at_most}"
    if begin:
        wanted.begin_time.FromSeconds(begin_ns(begin) // 10**9)
    if dependency:
        for term in dependencies(dependency):
            kind = job_pb2.DependencyKind.Value(f"DEPENDENCY_KIND_{term.kind.upper()}")
            wanted.dependencies.add(kind=kind, job=term.job)
    with server.connected() as client:
        if at_most is not None:  # any task stands for its array
            name = with_tasks(client, [name])[0]
        if changes or unlabel:
            # Labels are replaced as a whole: the etag keeps what others add meanwhile.
            now = client.get_job(name)
            etag = etag or now.etag
            labels = {**now.spec.labels, **dict(changes)}
            wanted.labels.update({k: v for k, v in labels.items() if k not in (unlabel or ())})
            fields.append("labels")
        job = job_pb2.Job(name=name, spec=wanted, etag=etag)
        server.write(client.update_job(job, fields, dry_run=dry_run), messages.job_text)
    checked_only(dry_run)


@asks_server
def resize(
    server: AskedServer,
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the running job.", autocompletion=complete.jobs, show_default=False
        ),
    ],
    dp: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Data parallel replicas of the gang.", metavar="N"),
    ] = None,
    role: Annotated[
        str,
        typer.Option(help="Data parallel replicas of one of its roles.", metavar="NAME=N"),
    ] = "",
    uid: Uid = "",
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Give a running gang, or one of its roles, another number of replicas.

    Its file says that number from here on. The gang goes on from its checkpoint; the last role of a
    gang begins again alone where its restart is `role`, and the others run on.
    Example: muster resize ppo-70b --role rollout=24
    """
    from scheduler.cli.render import messages

    named, _, replicas = role.partition("=")
    if (dp is None) is not bool(role):
        raise typer.BadParameter("give one of the two", param_hint="--dp or --role")
    is_number = replicas.isdecimal() and len(replicas) <= len(str(MOST)) and int(replicas) <= MOST
    if role and not (named and is_number):
        text = f"{role!r} is not NAME=N, with N up to {MOST:,}"
        raise typer.BadParameter(text, param_hint="--role")
    size = int(replicas) if dp is None else dp
    server.show(
        lambda client: client.resize_job(name, size, named, uid, etag=etag, dry_run=dry_run),
        messages.job_text,
    )
    checked_only(dry_run)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--label")
    return key, value
