"""The commands for jobs: submit, jobs, job, explain, watch, finish, and those of its neighbours.

`muster job NAME` shows a job and `muster job import FILE` makes a job file. A job that
bears the name of a command is shown by `muster job show import`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from muster.structs import replace
from scheduler.cli import complete
from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    After,
    AnswerFormat,
    AskedServer,
    DryRun,
    Etag,
    Filter,
    States,
    Uid,
    Why,
    asks_server,
    checked_only,
    connected,
    end,
    formatted,
    state_numbers,
)
from scheduler.cli.contexts import quoted
from scheduler.cli.exit_codes import EXIT_CODES, FAILED
from scheduler.cli.jobs import by_name, run
from scheduler.cli.jobs.by_name import each_of, wait
from scheduler.cli.jobs.certificates import certify_live, certify_supposed
from scheduler.cli.lists import ListFormat, Listing, asks_list
from scheduler.cli.numbers import MOST
from scheduler.cli.offline.job_files import import_command

if TYPE_CHECKING:
    from scheduler.v1 import job_pb2

JobName = Annotated[
    str,
    typer.Argument(
        help="Name of the job; TENANT/NAME for one of another tenant.",
        autocompletion=complete.jobs,
        show_default=False,
    ),
]


class _CommandOrName(TyperGroup):
    """A group whose first word is one of its commands, or else the name of a job to show."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(submit)
    app.command("jobs")(list_jobs)
    of_job = typer.Typer(
        cls=_CommandOrName,
        no_args_is_help=True,
        subcommand_metavar="NAME | COMMAND ...",
        help="Show one job (`muster job NAME`), or make a job file (`muster job import FILE`).",
    )
    of_job.command("show")(job)
    of_job.command("import")(import_command)
    app.add_typer(of_job, name="job")
    app.command()(explain)
    app.command()(watch)
    app.command()(wait)
    run.register(app)
    by_name.register(app)
    app.command()(finish)


@asks_server
def submit(
    server: AskedServer,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Job files (YAML), with several jobs where `---` separates them; `-`: standard"
            " input.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str, typer.Option(help="Name of the job. (default: of its file)", show_default=False)
    ] = "",
    request_id: Annotated[
        str,
        typer.Option(
            help="A second submit with the same id makes no second job. (default: a new id)"
        ),
    ] = "",
    hold: Annotated[
        bool, typer.Option("--hold", help="Hold the job until `muster release`.")
    ] = False,
    begin: Annotated[
        str, typer.Option(help="Earliest start: 2026-11-21T06:00Z, or +2h from now.")
    ] = "",
    dependency: Annotated[
        str,
        typer.Option(
            help="Dependencies, as for sbatch: `afterok:prepare:fetch,afterany:c` or `singleton`."
        ),
    ] = "",
    array: Annotated[
        str,
        typer.Option(
            help="Submit an array: 0-15%4 is NAME-0 to NAME-15, at most four at a time; 1,3,8-20:4."
        ),
    ] = "",
    new_run: Annotated[
        bool,
        typer.Option("--new-run", help="Begin at step 0, whatever jobs of the same run saved."),
    ] = False,
    resume_from: Annotated[
        str,
        typer.Option(
            metavar="RUN|PATH",
            help="Begin from the newest checkpoint of another run of yours, or from a path:"
            " /ckpt/step-500, or PATH@STEP.",
        ),
    ] = "",
    snapshot: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Copy the working directory, as git has it with its changes, into a folder that"
            " hosts see, and run that.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the job would get now; submit nothing.")
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="With --dry-run: write the proof of the placement here, a file for"
            " `muster verify`."
        ),
    ] = None,
) -> None:
    """Submit jobs; each starts as soon as it has its hosts.

    A job that agents start goes on from the newest checkpoint of your last job of the same name,
    or of the same `run.lineage`; --new-run begins anew. Nothing is submitted where a file has a
    fault. Of several jobs, those after a refused one are submitted all the same.

    Exit code: 0 accepted, 4 infeasible (never fits this fabric), 2 bad input,
    1 refused otherwise. With --dry-run the codes of `muster place`.
    Example: muster submit train.yaml --begin +2h --dependency afterok:prepare
    """
    from scheduler.cli.jobs.by_name import collapsed, tasks_of
    from scheduler.cli.jobs.submit_options import with_options, with_run, with_snapshot
    from scheduler.cli.render import messages
    from scheduler.files.inputs import read_jobs
    from scheduler.v1 import service_pb2

    jobs = [
        replace(
            job,
            spec=with_run(
                with_options(job.spec, name, begin, dependency, array, hold=hold),
                resume_from,
                new_run=new_run,
            ),
        )
        for file in files
        for job in read_jobs(file)
    ]
    if snapshot is not None and not dry_run:
        jobs = [replace(job, spec=with_snapshot(job.spec, snapshot)) for job in jobs]
    if len(jobs) > 1:
        if name or request_id or dry_run:
            option = "--name" if name else "--request-id" if request_id else "--dry-run"
            raise typer.BadParameter("is for one job", param_hint=option)
        each_of(server, jobs, lambda client, job: client.create_job(job.spec))
        return
    (job,) = jobs
    if certificate is not None and not dry_run:
        raise typer.BadParameter("needs --dry-run", param_hint="--certificate")
    if not dry_run:
        with server.connected(job) as client:
            made = client.create_job(job.spec, request_id)
            tasks = tasks_of(client, f"{made.tenant}/{made.array}") if made.array else []
        if made.array:
            answer = service_pb2.ListJobsResponse(jobs=tasks)
            server.write(answer, lambda listed: messages.jobs_text(collapsed(listed.jobs)))
        else:
            server.write(made, messages.job_text)
        return
    with server.connected(job) as client:
        supposed = client.supposed_job(job.spec, with_decision=certificate is not None)
    _write_supposed(server, supposed)
    if certificate is not None:
        certify_supposed(certificate, supposed)
    raise typer.Exit(EXIT_CODES[messages.outcome(supposed.answer)])


def _write_supposed(server: AskedServer, supposed: job_pb2.Job) -> None:
    """Print the answer to a dry run, and when the job would start where it has to wait."""
    from scheduler.cli.render import messages
    from scheduler.cli.render.names import as_typed
    from scheduler.cli.render.reason import dry_run_text

    if server.output is AnswerFormat.TABLE or not supposed.HasField("start_estimate"):
        server.write(supposed.answer, lambda answer: dry_run_text(answer, supposed.start_estimate))
        return
    estimate = messages.to_mapping(supposed.start_estimate)
    body = {**messages.to_mapping(as_typed(supposed.answer)), "start_estimate": estimate}
    typer.echo(formatted(body, server.output))


@asks_list
def list_jobs(
    listing: Listing,
    state: States = None,
    filter: Filter = "",
    me: Annotated[bool, typer.Option("--me", help="Only your own jobs.")] = False,
    users: Annotated[
        list[str] | None,
        typer.Option("--user", "-u", help="Only jobs of this user; may be repeated."),
    ] = None,
    tenants: Annotated[
        list[str] | None,
        typer.Option(
            "--tenant",
            help="Only jobs of this tenant; may be repeated.",
            autocompletion=complete.tenants,
        ),
    ] = None,
    order_by: Annotated[
        str, typer.Option(help="Fields with commas, such as `priority desc, name`.")
    ] = "",
    tasks: Annotated[
        bool,
        typer.Option(
            "--array", "-r", help="A row for each task of an array, waiting tasks included."
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Also ended jobs older than the newest 1,000 or so of their tenant."
        ),
    ] = False,
) -> None:
    """List live jobs and jobs that ended recently; with --all also older ones.

    STARTS is an estimate for jobs that wait: the server simulates its queue, as if every job ran
    to its time limit and nobody submitted, cancelled or failed. `>`: not before.
    Example: muster jobs --me --state queued --sort -priority --columns name,priority,reason
    """
    from scheduler.cli.jobs.by_name import collapsed
    from scheduler.cli.render import messages
    from scheduler.v1 import job_pb2

    states = state_numbers(job_pb2.JobState, "JOB_STATE_", state)
    is_estimated = listing.output is not ListFormat.NAME
    wanted = _filter(filter, me=me, users=users or (), tenants=tenants or ())
    listing.write(
        lambda client: client.jobs_answer(
            states, wanted, order_by, recent_only=not every, estimate_starts=is_estimated
        ),
        "jobs",
        messages.jobs_table,
        list if tasks else collapsed,
    )


def _filter(filter: str, *, me: bool, users: Sequence[str], tenants: Sequence[str]) -> str:
    """The filter of the request: what is given, and whose jobs."""

    def one_of(field: str, values: Sequence[str]) -> str:
        return " OR ".join(f"{field} = {value}" for value in values)

    own = ['"@me"'] if me else []
    terms = [one_of("user", own + [quoted(user) for user in users])]
    terms += [one_of("tenant", [quoted(tenant) for tenant in tenants]), filter]
    given = [term for term in terms if term]
    return given[0] if len(given) == 1 else " AND ".join(f"({term})" for term in given)


class JobFormat(StrEnum):
    """Formats of an answer, and files that say which rank is where now, as `muster place` writes
    them."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    HOSTFILE = "hostfile"
    RANKFILE = "rankfile"
    SLURM = "slurm"
    TORCHRUN = "torchrun"
    ENV = "env"
    NCCL = "nccl"
    K8S = "k8s"


def job(
    name: JobName,
    output: Annotated[
        JobFormat,
        typer.Option(
            "--format",
            "-o",
            help="Output format; hostfile to k8s: where its ranks are now.",
        ),
    ] = JobFormat.TABLE,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="Write here what proves the placement of a job that runs, a file for"
            " `muster verify`."
        ),
    ] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Show one job: its hosts or why it waits, and where its time went. Of an array: its tasks."""
    if certificate is not None:
        certify_live(certificate, name, address)
    if output.value not in {each.value for each in AnswerFormat}:
        _write_ranks(name, output, address)
        return
    from scheduler.cli.jobs.by_name import collapsed, tasks_of
    from scheduler.cli.render import messages
    from scheduler.cli.render.goodput import goodput_text
    from scheduler.client import ServiceError
    from scheduler.v1 import service_pb2

    server = AskedServer(AnswerFormat(output.value), address)
    with server.connected() as client:
        try:
            reply = client.get_job(name)
        except ServiceError as error:
            tasks = tasks_of(client, name) if error.code == "NOT_FOUND" else []
            if not tasks:
                raise
            answer = service_pb2.ListJobsResponse(jobs=tasks)
            server.write(answer, lambda listed: messages.jobs_text(collapsed(listed.jobs)))
            return
    server.write(
        reply, lambda message: f"{messages.job_text(message)}\n\n{goodput_text(message.goodput)}"
    )


def _write_ranks(name: str, wanted: JobFormat, address: str) -> None:
    """Write the ranks of the attempt that holds hosts now: another one after each swap."""
    from scheduler.cli.jobs.ranks import live_gang, live_nccl
    from scheduler.cli.render.place.formats import FILES
    from scheduler.v1 import job_pb2

    with connected(address) as client:
        message = client.get_job(name)
        if message.state not in (job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_INTERRUPTED):
            raise end(f"job {name} holds no hosts now", FAILED)
        if wanted is JobFormat.NCCL:
            lines = live_nccl(message, client.get_fabric(with_file=True).file)
        else:
            lines = FILES[wanted](live_gang(message))
    for line in lines:
        typer.echo(line)


@asks_server
def explain(
    server: AskedServer,
    name: JobName,
    suppose: Annotated[
        list[str] | None,
        typer.Option(
            "--if",
            help="Answer as if: `cordon z3`, `cancel b`, `priority 200`, `limit 2h`; may be"
            " repeated. Changes nothing.",
        ),
    ] = None,
) -> None:
    """Explain why a job waits, what blocks it, and when it can start.

    For a running job: what would happen if one of its hosts failed now, and its cost.
    """
    from scheduler.cli.render.reason import explain_text

    server.show(lambda client: client.explain_job(name, suppose or ()), explain_text)


@asks_server
def watch(
    server: AskedServer,
    after: After = None,
    name: Annotated[str, typer.Option("--job", help="Only changes of this job.")] = "",
    hosts: Annotated[bool, typer.Option("--hosts", help="Changes of the states of hosts.")] = False,
    host: Annotated[
        str,
        typer.Option("--host", help="Only changes of this host, or of the hosts of this domain."),
    ] = "",
) -> None:
    """Print changes of jobs or of hosts, as they happen, until Ctrl-C."""
    from scheduler.cli.render import messages

    of_hosts = hosts or bool(host)
    if of_hosts and name:
        raise typer.BadParameter("cannot be used with --hosts or --host", param_hint="--job")
    with server.connected() as client:
        if of_hosts:
            server.follow(client.watch_hosts(after, host), messages.hosts_change_text)
        else:
            server.follow(client.watch_jobs(after, name), messages.change_text)


@asks_server
def finish(
    server: AskedServer,
    name: JobName,
    outcome: Annotated[
        Literal["completed", "failed"], typer.Option(help="How it ended.", show_default=False)
    ],
    attempt: Annotated[
        int, typer.Option(help="The attempt that ended; 0: the current one.", min=0, max=MOST)
    ] = 0,
    reason: Why = "",
    uid: Uid = "",
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Report that a job's gang has ended, completed or failed."""
    from scheduler.cli.render import messages
    from scheduler.v1 import job_pb2

    state = job_pb2.JobState.Value(f"JOB_STATE_{outcome.upper()}")
    with server.connected() as client:
        job = client.end_job(name, state, attempt, reason, uid, etag=etag, dry_run=dry_run)
        server.write(job, messages.job_text)
    checked_only(dry_run)
