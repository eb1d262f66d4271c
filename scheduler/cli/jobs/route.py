"""`muster route submit`: one job for several clusters, each a muster of its own.

The clusters are contexts of `muster config`, named in every call: nothing is kept here (see
scheduler.client.route).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.cli.calls import AnswerFormat, Output, end, formatted
from scheduler.cli.contexts import load_contexts, quiet_grpc, unknown
from scheduler.cli.exit_codes import EXIT_CODES, FAILED, INFEASIBLE, UNKNOWN
from scheduler.cli.numbers import some_seconds

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.client.route import ClusterView, Routed
    from scheduler.core import JobSpec


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Submit a job to the best of several clusters.")
    group.callback()(lambda: None)
    group.command("submit")(submit)
    app.add_typer(group, name="route")


def submit(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A job file (YAML); `-`: standard input.", show_default=False
        ),
    ],
    context: Annotated[
        str,
        typer.Option(
            "--context",
            envvar="MUSTER_ROUTE",
            metavar="A,B,...",
            help="The clusters: contexts of `muster config`, with commas; the same in every call"
            " for a job. Where offers are equal, the first one gets it.",
            show_default=False,
        ),
    ],
    request_id: Annotated[
        str,
        typer.Option(
            help="The job is made once for each id, also when it has ended."
            " (default: from its name)"
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what each cluster offers; submit nothing.")
    ] = False,
    answer_within: Annotated[
        str, typer.Option(help="How long a cluster may take to answer, such as 30s or 5m.")
    ] = "60s",
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Submit a job to that cluster where it starts first, and runs fastest.

    Every cluster is asked by a dry run; one gets the job. The same command again shows that job,
    and makes no second one. `muster --context NAME job JOB` follows it there (docs/route.md).

    Exit code: 0 a cluster has the job, 1 none takes it, 4 infeasible on all, 2 bad input,
    6 not known, as a cluster does not answer: run the same command again. With --dry-run the
    codes of `muster place`.
    Example: muster route submit train.yaml --context east,west,lab
    """
    from scheduler.client.route import NotRouted, ask_clusters, submit_to_best

    spec = _one_job(file)
    request_id = request_id or f"route {spec.tenant}/{spec.name}".replace(" /", " ")
    with _clients(context, answer_within) as clients:
        if dry_run:
            _show_offers(ask_clusters(clients, spec, request_id), output)
        outcome = submit_to_best(clients, spec, request_id)
    if isinstance(outcome, NotRouted):
        typer.echo(_views_text(outcome.views, _best_of(outcome.views)), err=True)
        if not outcome.is_unknown:
            raise end(outcome.reason, INFEASIBLE if outcome.is_infeasible else FAILED)
        typer.echo(f"muster: {outcome.reason}", err=True)
        advice = "the same command, with the same clusters, finds out once they answer"
        raise end(f"not known whether a cluster has the job: {advice}", UNKNOWN)
    if output is AnswerFormat.TABLE:
        typer.echo(_routed_text(outcome))
    else:
        typer.echo(formatted(_routed_mapping(outcome), output))


def _one_job(file: str) -> JobSpec:
    from scheduler.files.inputs import read_jobs

    jobs = read_jobs(file)
    if len(jobs) > 1:
        raise typer.BadParameter(f"{file} has {len(jobs)} jobs; give one", param_hint="FILE")
    if jobs[0].spec.array is not None:
        reason = "an array goes to one cluster: `muster submit --context NAME`"
        raise jobs[0].document.error(("array", reason))
    return jobs[0].spec


@contextmanager
def _clients(context: str, answer_within: str) -> Iterator[dict[str, Client]]:
    """Connect to each cluster that is named. Raises: typer.BadParameter, InputError."""
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


def _show_offers(views: Sequence[ClusterView], output: AnswerFormat) -> None:
    """Raises: typer.Exit, always."""
    from scheduler.v1 import placement_pb2

    best = _best_of(views)
    if output is AnswerFormat.TABLE:
        typer.echo(_views_text(views, best))
    else:
        body = {"cluster": best, "clusters": _views_mapping(views, best)}
        typer.echo(formatted(body, output))
    chosen = next((view for view in views if view.name == best), None)
    if chosen is not None and chosen.job is not None:
        is_placed = chosen.job.answer.outcome == placement_pb2.OUTCOME_PLACED
        raise typer.Exit(EXIT_CODES["placed" if chosen.has_job or is_placed else "insufficient"])
    if any(view.silence for view in views):
        raise typer.Exit(UNKNOWN)
    raise typer.Exit(INFEASIBLE if all(view.is_impossible for view in views) else FAILED)


def _best_of(views: Sequence[ClusterView]) -> str:
    """Return the cluster that has the job, else the one with the best offer, "" for none."""
    from scheduler.client.route import rank

    made = [view.name for view in views if view.has_job]
    return next(iter(made or rank(views)), "")


def _views_text(views: Sequence[ClusterView], chosen: str) -> str:
    """A row for each cluster, in the order in which they were named."""
    from scheduler.cli.render.text import bytes_text, columns, seconds_text
    from scheduler.v1 import job_pb2

    rows = [["CLUSTER", "STARTS", "STOPS", "STEP", "BOUND", "CUT", "WHY"]]
    for view in views:
        answer = (job_pb2.Job() if view.job is None else view.job).answer
        placement = answer.placement
        stops = [f"{answer.preempted_jobs:,} preempted"] if answer.preempted_jobs else []
        stops += [f"{answer.shrunk_jobs:,} shrunk"] if answer.shrunk_jobs else []
        steps = [
            seconds_text(getattr(placement, field).ToNanoseconds() / 1e9)
            if placement.HasField(field)
            else "-"
            for field in ("step_time", "step_time_lower_bound")
        ]
        cut = bytes_text(placement.cuts[0].bytes_per_step) if placement.cuts else "-"
        why = _why(view, chosen)
        rows.append([view.name, _starts(view), ", ".join(stops) or "-", *steps, cut, why])
    return columns(rows)


def _starts(view: ClusterView) -> str:
    from scheduler.cli.render.messages import time_text
    from scheduler.v1 import placement_pb2

    if view.job is None or view.has_job or view.is_impossible:
        return "-"
    if view.job.answer.outcome == placement_pb2.OUTCOME_PLACED:
        return "now"
    estimate = view.job.start_estimate
    if estimate.HasField("start_time"):
        return time_text(estimate.start_time)
    is_bounded = estimate.HasField("not_before_time")
    return f">{time_text(estimate.not_before_time)}" if is_bounded else "unknown"


def _why(view: ClusterView, chosen: str) -> str:
    """Words on a cluster beside its figures."""
    if view.job is None:
        return view.silence or f"refuses: {view.refusal}"
    if view.has_job:
        return "has the job"
    if view.is_impossible:
        return f"never fits: {view.job.answer.reason}"
    return "best" if view.name == chosen else view.job.answer.reason or "-"


def _views_mapping(views: Sequence[ClusterView], chosen: str) -> list[dict[str, Any]]:
    """Return the same as JSON values, with what each cluster has answered."""
    from scheduler.cli.render.messages import to_mapping
    from scheduler.cli.render.names import as_typed

    return [
        {
            "name": view.name,
            "is_best": view.name == chosen,
            "why": _why(view, chosen),
            "has_job": view.has_job,
            "is_silent": bool(view.silence),
            "job": None if view.job is None else to_mapping(as_typed(view.job)),
        }
        for view in views
    ]


def _routed_text(routed: Routed) -> str:
    """Where the job is, the job, and what each cluster offered."""
    from scheduler.cli.render import messages
    from scheduler.cli.render.names import as_typed

    head = f"cluster    {routed.cluster}"
    if routed.is_repeat:
        head += f", which has it since an earlier submit ({messages.job_state(routed.job)} now)"
    parts = [f"{head}\n{messages.job_text(as_typed(routed.job))}"]
    if not routed.is_repeat:
        parts.append(_views_text(routed.views, routed.cluster))
    return "\n\n".join(parts)


def _routed_mapping(routed: Routed) -> dict[str, Any]:
    from scheduler.cli.render import messages
    from scheduler.cli.render.names import as_typed

    mapping = messages.to_mapping(as_typed(routed.job))
    return {
        "name": mapping["name"],
        "cluster": routed.cluster,
        "is_repeat": routed.is_repeat,
        "request_id": routed.request_id,
        "job": mapping,
        "clusters": _views_mapping(routed.views, "" if routed.is_repeat else routed.cluster),
    }
