"""`muster route`: one job for several clusters, each a muster of its own.

The clusters are contexts of `muster config`, named in every call: nothing is kept here (see
scheduler.client.route). Reads go to all of them at once, and say which ones do not answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.structs import struct
from scheduler.cli.calls import AnswerFormat, Output, Why, end, formatted, refusal
from scheduler.cli.contexts import load_contexts, quiet_grpc, unknown
from scheduler.cli.exit_codes import EXIT_CODES, FAILED, INFEASIBLE, TIMED_OUT, UNKNOWN
from scheduler.cli.jobs.wait import Awaited, is_there
from scheduler.cli.numbers import some_seconds
from scheduler.cli.parameters import Timeout

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.client.route import ClusterView, Outcome
    from scheduler.core import JobSpec
    from scheduler.v1 import job_pb2

POLL_S = 2.0

Among = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="MUSTER_ROUTE",
        metavar="A,B,...",
        help="The clusters: contexts of `muster config`, with commas; the same in every call for"
        " a job. Where offers are equal, the first one gets it.",
        show_default=False,
    ),
]
Name = Annotated[
    str,
    typer.Argument(help="Name of the job; TENANT/NAME of another tenant.", show_default=False),
]
Patience = Annotated[
    str, typer.Option(help="How long a cluster may take to answer, such as 30s or 5m.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Submit a job to the best of several clusters, once, and follow it there.",
    )
    group.command("submit")(submit)
    group.command("jobs")(list_jobs)
    group.command("job")(job)
    group.command("wait")(wait)
    group.command("cancel")(cancel)
    app.add_typer(group, name="route")


def submit(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A job file (YAML); `-`: standard input.", show_default=False
        ),
    ],
    context: Among,
    request_id: Annotated[
        str,
        typer.Option(
            help="The job is made once for each id, also when it has ended."
            " (default: from its name)"
        ),
    ] = "",
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="This job was never submitted: half of the clusters must answer, not a majority.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what each cluster offers; submit nothing.")
    ] = False,
    answer_within: Patience = "60s",
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Submit a job to that cluster where it starts first, and runs fastest.

    Every cluster is asked by a dry run; one gets the job. The same command again shows that job,
    and makes no second one, whatever answers were lost (docs/route.md).

    Exit code: 0 a cluster has the job, 1 none takes it, 4 infeasible on all, 2 bad input,
    6 not known, as too few clusters answer: run the same command again. With --dry-run the
    codes of `muster place`.
    Example: muster route submit train.yaml --context east,west,lab
    """
    from scheduler.cli.render.route import routed_mapping, routed_text
    from scheduler.client.route import Router

    spec = _one_job(file)
    request_id = request_id or f"route {spec.tenant}/{spec.name}".replace(" /", " ")
    with _clients(context, answer_within) as clients:
        router = Router(clients, new)
        if dry_run:
            _show_offers(router.newest(spec, request_id)[1], output)
        outcome = router.submit(spec, request_id)
    _end_badly(outcome, is_new=new)
    from scheduler.client.route import Routed

    assert isinstance(outcome, Routed)
    if output is AnswerFormat.TABLE:
        typer.echo(routed_text(outcome))
    else:
        typer.echo(formatted(routed_mapping(outcome), output))


def _one_job(file: str) -> JobSpec:
    from scheduler.files.inputs import read_jobs

    jobs = read_jobs(file)
    if len(jobs) > 1:
        raise typer.BadParameter(f"{file} has {len(jobs)} jobs; give one", param_hint="FILE")
    if jobs[0].spec.array is not None:
        reason = "an array goes to one cluster: `muster submit --context NAME`"
        raise jobs[0].document.error(("array", reason))
    return jobs[0].spec


def _show_offers(views: Sequence[ClusterView], output: AnswerFormat) -> None:
    """Raises: typer.Exit, always."""
    from scheduler.cli.render.route import best_of, views_mapping, views_text
    from scheduler.client.offers import StartKind

    best = best_of(views)
    if output is AnswerFormat.TABLE:
        typer.echo(views_text(views, best))
    else:
        body = {"cluster": best, "clusters": views_mapping(views, best)}
        typer.echo(formatted(body, output))
    offers = {view.name: view.offer for view in views if view.offer is not None}
    if any(view.made is not None for view in views):
        raise typer.Exit(EXIT_CODES["placed"])
    if best:
        is_now = offers[best].start in (StartKind.NOW, StartKind.BY_STOPPING_OTHERS)
        raise typer.Exit(EXIT_CODES["placed" if is_now else "insufficient"])
    if any(view.silence for view in views):
        raise typer.Exit(UNKNOWN)
    never = len(offers) == len(views) > 0
    raise typer.Exit(INFEASIBLE if never else FAILED)


def _end_badly(outcome: Outcome, *, is_new: bool) -> None:
    """Raises: typer.Exit where no cluster has the job, or none is known to have it."""
    from scheduler.cli.render.route import best_of, views_text
    from scheduler.client.route import NotRouted, Unknown, others_needed

    if not isinstance(outcome, NotRouted | Unknown):
        return
    if outcome.views:
        typer.echo(views_text(outcome.views, best_of(outcome.views)), err=True)
    if isinstance(outcome, NotRouted):
        raise end(outcome.reason, INFEASIBLE if outcome.is_infeasible else FAILED)
    typer.echo(f"muster: {outcome.reason}", err=True)
    command = "the same command without --new" if is_new else "the same command"
    advice = f"{command}, with the same clusters, finds out once they answer"
    answering = sum(not view.silence for view in outcome.views)
    count = len(outcome.views)
    is_enough = answering > others_needed(count, is_new=True) if count else False
    if not is_new and not outcome.cluster and is_enough:
        advice += "; if this job was never submitted before, --new goes on without the others"
    raise end(f"not known whether a cluster has the job: {advice}", UNKNOWN)


def list_jobs(
    context: Among, answer_within: Patience = "60s", output: Output = AnswerFormat.TABLE
) -> None:
    """List the live and recent jobs of all clusters.

    Exit code: 0 all of them answer, 6 some do not, and their jobs are left out.
    Example: muster route jobs --context east,west,lab
    """
    from scheduler.cli.render import messages
    from scheduler.cli.render.names import as_typed
    from scheduler.cli.render.route import jobs_text
    from scheduler.v1 import service_pb2

    with _clients(context, answer_within) as clients:
        answers = _ask(
            {
                name: partial(client.jobs_answer, recent_only=True, estimate_starts=True)
                for name, client in clients.items()
            }
        )
    rows = [
        (name, job)
        for name, answer in answers.by_name.items()
        for job in as_typed(service_pb2.ListJobsResponse(jobs=answer.jobs)).jobs
    ]
    if output is AnswerFormat.TABLE:
        typer.echo(jobs_text(rows))
    else:
        mappings = [{"cluster": name, **messages.to_mapping(job)} for name, job in rows]
        typer.echo(formatted({"jobs": mappings}, output))
    if answers.silent:
        raise typer.Exit(UNKNOWN)


def job(
    name: Name, context: Among, answer_within: Patience = "60s", output: Output = AnswerFormat.TABLE
) -> None:
    """Show a job, and which cluster has it.

    Exit code: 0 a cluster has it, 1 no cluster has it, 6 no cluster that answers has it.
    """
    with _clients(context, answer_within) as clients:
        located = _find(clients, name)
    _show(located.cluster, located.job, output)


def wait(
    name: Name,
    context: Among,
    awaited: Annotated[
        Awaited, typer.Option("--for", help="`start`: until its gang runs, or it has ended.")
    ] = Awaited.END,
    timeout: Timeout = "",
    answer_within: Patience = "60s",
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Wait until a job has ended, also while its cluster does not answer.

    Exit code: 0 completed (with --for start: it runs or has completed), 1 failed, cancelled or not
    there, 124 the timeout came first.
    """
    from scheduler.v1 import job_pb2

    until_s = time.monotonic() + some_seconds(timeout) if timeout else None
    shown = ""
    with _clients(context, answer_within) as clients:
        while True:
            located = _look(clients, name)
            if located.job is None and not located.silent:
                raise _absent(located, name)
            if located.job is not None and located.is_certain and is_there(located.job, awaited):
                break
            if until_s is not None and time.monotonic() >= until_s:
                raise end(f"the timeout came before job {name} was there", TIMED_OUT)
            if located.silence != shown and located.silent:
                typer.echo(f"muster: {located.silence}; waiting", err=True)
            shown = located.silence
            time.sleep(POLL_S)
    _show(located.cluster, located.job, output)
    if located.job.state in (job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED):
        raise typer.Exit(FAILED)


def cancel(
    name: Name,
    context: Among,
    reason: Why = "",
    answer_within: Patience = "60s",
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Cancel a job in the cluster that has it.

    Exit code: 0 cancelled, 1 refused, or no cluster has it, 6 no cluster that answers has it.
    """
    from scheduler.client import ServiceError

    with _clients(context, answer_within) as clients:
        located = _find(clients, name)
        if not located.is_certain:
            raise end(f"job {name} has ended in {located.cluster}; {located.silence}", UNKNOWN)
        try:
            cancelled = clients[located.cluster].cancel_job(name, reason, located.job.uid)
        except ServiceError as error:
            raise refusal(error) from None
    _show(located.cluster, cancelled, output)


def _show(cluster: str, job: job_pb2.Job, output: AnswerFormat) -> None:
    from scheduler.cli.render import messages
    from scheduler.cli.render.names import as_typed

    job = as_typed(job)
    if output is AnswerFormat.TABLE:
        typer.echo(f"cluster    {cluster}\n{messages.job_text(job)}")
    else:
        mapping = messages.to_mapping(job)
        typer.echo(formatted({"name": mapping["name"], "cluster": cluster, "job": mapping}, output))


@struct(frozen=True, slots=True)
class Answers:
    """What clusters answered, by name, and why others did not."""

    by_name: Mapping[str, Any]
    silent: Mapping[str, str]


@struct(frozen=True, slots=True)
class Found:
    """Where a job is: the live one of this name, else the newest that has ended. `cluster` is ""
    where none has it."""

    cluster: str
    job: Any
    silent: Mapping[str, str]

    @property
    def silence(self) -> str:
        return "; ".join(f"{name} does not answer: {why}" for name, why in self.silent.items())

    @property
    def is_certain(self) -> bool:
        """Whether no silent cluster can have a newer one."""
        return not self.silent or self.job.state not in _ended()


def _ended() -> tuple[int, ...]:
    from scheduler.v1 import job_pb2

    return (
        job_pb2.JOB_STATE_COMPLETED,
        job_pb2.JOB_STATE_FAILED,
        job_pb2.JOB_STATE_CANCELLED,
    )


def _ask(calls: Mapping[str, Any]) -> Answers:
    """All at once; who does not answer is told on stderr."""
    from scheduler.client import ServiceError
    from scheduler.client.route import in_parallel

    def tried(call: Any) -> Any:
        try:
            return call()
        except ServiceError as error:
            return error

    results = dict(
        zip(calls, in_parallel(partial(tried, call) for call in calls.values()), strict=True)
    )
    silent = {name: got.message for name, got in results.items() if isinstance(got, ServiceError)}
    for name, why in silent.items():
        typer.echo(f"muster: {name}: {why}", err=True)
    return Answers({name: got for name, got in results.items() if name not in silent}, silent)


def _look(clients: Mapping[str, Client], name: str) -> Found:
    from scheduler.client import ServiceError
    from scheduler.client.route import in_parallel

    def get(client: Client) -> Any:
        try:
            return client.get_job(name)
        except ServiceError as error:
            return None if error.code == "NOT_FOUND" else error

    got = dict(
        zip(clients, in_parallel(partial(get, each) for each in clients.values()), strict=True)
    )
    silent = {each: error.message for each, error in got.items() if isinstance(error, ServiceError)}
    jobs = {each: job for each, job in got.items() if job is not None and each not in silent}
    ended = _ended()
    ordered = sorted(
        jobs, key=lambda each: (jobs[each].state in ended, -jobs[each].create_time.ToNanoseconds())
    )
    return Found(ordered[0], jobs[ordered[0]], silent) if ordered else Found("", None, silent)


def _find(clients: Mapping[str, Client], name: str) -> Found:
    """Raises: typer.Exit where no cluster has it."""
    located = _look(clients, name)
    if located.job is None:
        raise _absent(located, name)
    if not located.is_certain:
        typer.echo(f"muster: {located.silence}", err=True)
    return located


def _absent(located: Found, name: str) -> typer.Exit:
    if located.silent:
        return end(f"no cluster that answers has a job {name}; {located.silence}", UNKNOWN)
    return end(f"no cluster has a job {name}", FAILED)


@contextmanager
def _clients(context: str, answer_within: str) -> Iterator[dict[str, Client]]:
    """A client of each cluster that is named. Raises: typer.BadParameter, InputError."""
    quiet_grpc()
    from scheduler.client import Client
    from scheduler.client.credentials import Credentials, read_token

    names = [name.strip() for name in context.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("names no context", param_hint="--context")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise typer.BadParameter(f"{twice!r} is named twice", param_hint="--context")
    contexts = load_contexts()
    by_address: dict[str, str] = {}
    deadline_s = some_seconds(answer_within)
    with ExitStack() as stack:
        clients = {}
        for name in names:
            keys = contexts.by_name.get(name)
            if keys is None:
                raise unknown(contexts, name)
            address = keys.get("address", "")
            if not address:
                raise typer.BadParameter(f"{name!r} has no address", param_hint="--context")
            if (other := by_address.setdefault(address, name)) != name:
                message = f"{other} and {name} are the same cluster, {address}"
                raise typer.BadParameter(message, param_hint="--context")
            who = Credentials(
                keys.get("ca", ""),
                keys.get("cert", ""),
                keys.get("key", ""),
                read_token(keys["token_file"]) if "token_file" in keys else "",
            )
            client = Client(address, deadline_s, credentials=who)
            clients[name] = stack.enter_context(client)
        yield clients
