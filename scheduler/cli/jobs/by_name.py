"""What is done to jobs by name, of an array too: `muster update`, `resize`, `hold`, `release`,
`requeue`, `cancel` and `wait`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
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
from scheduler.cli.contexts import quoted
from scheduler.cli.exit_codes import FAILED, TIMED_OUT
from scheduler.cli.numbers import MOST, seconds, some_seconds
from scheduler.cli.parameters import Timeout

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1 import job_pb2


def register(app: typer.Typer) -> None:
    """Add the commands but `wait`, which stands above others in the help."""
    app.command()(update)
    app.command()(resize)
    app.command()(hold)
    app.command()(release)
    app.command()(requeue)
    app.command()(cancel)


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
    from scheduler.cli.jobs.submit_options import begin_ns, dependencies
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


class Awaited(StrEnum):
    """Event to wait for."""

    START = "start"
    END = "end"


@asks_server
def wait(
    server: AskedServer,
    names: JobNames,
    awaited: Annotated[
        Awaited, typer.Option("--for", help="`start`: until their gangs run, or they have ended.")
    ] = Awaited.END,
    timeout: Timeout = "",
) -> None:
    """Wait until jobs have ended, and show how.

    Exit code: 0 all completed (with --for start: all run or completed), 1 some failed or were
    cancelled, 124 the timeout came first.
    Example: muster wait prepare 'sweep-[0-15]' --timeout 6h && muster submit train.yaml
    """
    from scheduler.cli.render import messages
    from scheduler.v1 import job_pb2, service_pb2

    timeout_s = some_seconds(timeout) if timeout else None
    with server.connected() as client:
        jobs = _awaited(client, with_tasks(client, names, live_only=False), awaited, timeout_s)
    if len(jobs) == 1:
        server.write(jobs[0], messages.job_text)
    else:
        server.write(service_pb2.ListJobsResponse(jobs=jobs), messages.listed_jobs_text)
    ill = (job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED)
    if any(job.state in ill for job in jobs):
        raise typer.Exit(FAILED)
    if not all(is_there(job, awaited) for job in jobs):
        raise typer.Exit(TIMED_OUT)


def is_there(job: job_pb2.Job, awaited: Awaited) -> bool:
    """Return whether the awaited event has come."""
    from scheduler.v1 import job_pb2

    if awaited is Awaited.START and job.state == job_pb2.JOB_STATE_RUNNING:
        return job.HasField("launch_time") or not job.spec.HasField("run")
    return job.state in (
        job_pb2.JOB_STATE_COMPLETED,
        job_pb2.JOB_STATE_FAILED,
        job_pb2.JOB_STATE_CANCELLED,
    )


def _awaited(
    client: Client, names: Sequence[str], awaited: Awaited, timeout_s: float | None
) -> list[job_pb2.Job]:
    """The jobs as they are when all are there, or when the time is over."""
    jobs = {job.uid: job for job in map(client.get_job, names)}
    changes = changes_of(client, names, jobs, timeout_s)
    while not all(is_there(job, awaited) for job in jobs.values()):
        job = next(changes, None)
        if job is None:
            break
        jobs[job.uid] = job
    return list(jobs.values())


def changes_of(
    client: Client, names: Sequence[str], jobs: dict[str, job_pb2.Job], timeout_s: float | None
) -> Iterator[job_pb2.Job]:
    """Yield each of the jobs as it is now, and after every change."""
    from scheduler.v1 import service_pb2

    wanted = " OR ".join(f"name = {quoted(name.rpartition('/')[2])}" for name in names)
    listed = set[str]()
    for change in client.watch_jobs(filter=wanted, initial_list=True, timeout_s=timeout_s):
        if change.change == service_pb2.JOB_CHANGE_BOOKMARK:
            # Who ended before the watch began may be no longer at hand.
            for job in [job for job in jobs.values() if job.uid not in listed]:
                yield client.get_job(job.name, job.uid)
        elif change.job.uid in jobs:
            listed.add(change.job.uid)
            yield change.job


def with_tasks(client: Client, texts: Sequence[str], *, live_only: bool = True) -> list[str]:
    """Names of jobs, with ranges written out; where no job has a name, but an array, those of its
    tasks, the waiting ones first: they are not to start while others are cancelled. Raises:
    BadInput, ServiceError."""
    plain = [text for text in texts if "[" not in text]
    tasks = {text: names for text in plain if (names := _tasks(client, text, live_only=live_only))}
    each = (tasks.get(text) or expanded([text]) for text in texts)
    return list(dict.fromkeys(name for some in each for name in some))


def _tasks(client: Client, text: str, *, live_only: bool) -> list[str]:
    """Tasks of arrays of this name; empty where it is the name of a job, or of nothing."""
    tasks = tasks_of(client, text, live_only=live_only)
    if not tasks or is_job(client, text):
        return []
    return [task.name for task in sorted(tasks, key=_by_state)]


def _by_state(job: job_pb2.Job) -> int:
    from scheduler.v1 import job_pb2

    return 0 if job.state == job_pb2.JOB_STATE_QUEUED else 1


def tasks_of(client: Client, text: str, *, live_only: bool = False) -> list[job_pb2.Job]:
    """Return the tasks of the newest array of this name, or all that live, by number. Raises:
    ServiceError."""
    from scheduler.v1 import job_pb2

    tenant, _, name = text.rpartition("/")
    live = (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_INTERRUPTED)
    wanted = f"array = {quoted(name)}"
    if tenant:
        wanted += f" AND tenant = {quoted(tenant.removeprefix('tenants/').removesuffix('/jobs'))}"
    jobs = list(client.jobs_answer(live if live_only else (), wanted, recent_only=True).jobs)
    newest = max((job.create_time.ToNanoseconds() for job in jobs), default=0)
    if not live_only:
        jobs = [job for job in jobs if job.create_time.ToNanoseconds() == newest]
    return sorted(jobs, key=lambda job: job.array_task)


def failed_tasks(client: Client, text: str) -> list[str]:
    """Return the names of the failed tasks of the newest array that is called so. Raises:
    ServiceError."""
    from scheduler.v1 import job_pb2

    tasks = tasks_of(client, text)
    return [task.name for task in tasks if task.state == job_pb2.JOB_STATE_FAILED]


def is_job(client: Client, name: str) -> bool:
    """Return whether a job of this name lives or has ended. Raises: ServiceError."""
    from scheduler.client import ServiceError

    try:
        client.get_job(name)
    except ServiceError as error:
        if error.code != "NOT_FOUND":
            raise
        return False
    return True


def collapsed(jobs: Sequence[job_pb2.Job]) -> list[job_pb2.Job]:
    """Merge the tasks of an array that wait for the same reason: `sweep-[4-15]`."""
    from placement.fabric import hostlist
    from scheduler.v1 import job_pb2

    rows: list[job_pb2.Job] = []
    groups: dict[tuple[str, ...], tuple[int, list[str]]] = {}
    for job in jobs:
        if not job.array or job.state != job_pb2.JOB_STATE_QUEUED:
            rows.append(job)
            continue
        key = (job.tenant, job.array, job.create_time.ToJsonString(), job.reason)
        if key in groups:
            groups[key][1].append(job.name)
        else:
            groups[key] = (len(rows), [job.name])
            rows.append(job)
    for at, names in groups.values():
        if len(names) > 1:
            row = job_pb2.Job()
            row.CopyFrom(rows[at])
            row.name = hostlist.fold(names)
            rows[at] = row
    return rows
