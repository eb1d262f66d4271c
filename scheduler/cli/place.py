"""`muster place`: place one job on a fabric, without a server."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement.workload.request import Answer, Objective, Placement
from scheduler.cli import clock, formats
from scheduler.cli.render.picture import Draw, Plot, PlotBy, drawer

if TYPE_CHECKING:
    from placement.fabric.hostset import HostSet
    from placement.fabric.tree import Fabric
    from scheduler.cli.render.answers import Question
    from scheduler.files.inputs import JobFile

EXIT_CODES = {"placed": 0, "insufficient": 3, "infeasible": 4, "undecided": 5}


class PlacementFormat(StrEnum):
    """What the answer is written as."""

    TABLE = "table"
    JSON = "json"
    HOSTFILE = "hostfile"
    RANKFILE = "rankfile"
    SLURM = "slurm"
    TORCHRUN = "torchrun"
    ENV = "env"


LAUNCHER_FILES: dict[PlacementFormat, Callable[[formats.GangOption], Iterable[str]]] = {
    PlacementFormat.HOSTFILE: formats.hostfile,
    PlacementFormat.RANKFILE: formats.rankfile,
    PlacementFormat.SLURM: formats.slurm,
    PlacementFormat.TORCHRUN: formats.torchrun,
    PlacementFormat.ENV: formats.env,
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("place")(place_command)


def place_command(
    job: Annotated[Path, typer.Argument(help="The job file (YAML).", show_default=False)],
    fabric: Annotated[
        str,
        typer.Option(help="A preset (roce-24k, ib-24k) or a fabric file.", show_default=False),
    ],
    busy: Annotated[
        Path | None,
        typer.Option(help="File of hosts that cannot be used: a name or hostlist range a line."),
    ] = None,
    windows: Annotated[
        Path | None,
        typer.Option(
            help="A windows file; the job avoids hosts of windows that it would run into."
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Start of the job, for --windows: 2026-11-21T06:00Z or +2h.  [default: now]"
        ),
    ] = None,
    spares: Annotated[
        str | None,
        typer.Option(help='auto, a number of hosts or a share such as "2%"; replaces the file\'s.'),
    ] = None,
    objective: Annotated[
        Objective | None, typer.Option(help="Objective to minimise; replaces the file's.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Weight of DP groups in --objective spread, 0 to 1.  [default: 0.5]"),
    ] = None,
    near: Annotated[
        Path | None,
        typer.Option(help="An old placement (JSON answer or hostfile) to stay close to."),
    ] = None,
    near_slack: Annotated[
        float | None,
        typer.Option(
            help="For --near: how much larger the cut may be, as a share, if fewer blocks move."
            "  [default: 0]",
            min=0,
            max=1_000,
        ),
    ] = None,
    output: Annotated[
        PlacementFormat, typer.Option("--format", help="Output format.")
    ] = PlacementFormat.TABLE,
    picture: Plot = None,
    picture_by: PlotBy = None,
) -> None:
    """Place a job on a fabric, with a proof of how good the placement is.

    Exit code: 0 placed, 3 insufficient (too few free hosts now),
    4 infeasible (never fits this fabric), 5 undecided (search budget spent),
    2 bad input.
    """
    from placement.fabric.hostset import full
    from scheduler.cli.render.answers import Question
    from scheduler.files import inputs
    from scheduler.files.old_placement import load_hint

    _refuse_alone("--at", at, "--windows", windows)
    _refuse_alone("--near-slack", near_slack, "--near", near)
    network = inputs.load_fabric(fabric)
    changes = {
        "spares": spares,
        "objective": objective and objective.value,
        "spread_alpha": alpha,
    }
    file = _with_options(inputs.read_job(str(job)), changes)
    request = file.spec.request
    spread = request if request.objective is Objective.SPREAD else None
    _refuse_alone("--alpha", alpha, "--objective spread", spread)
    free = full(network.host_count) & ~(inputs.load_busy(str(busy), network) if busy else 0)
    if windows:
        free &= ~_spoken_for(str(windows), at or "+0s", file, network)
    free = _left_alone(file, network, free)
    hint = load_hint(str(near), network, request, near_slack or 0.0) if near else None
    draw = drawer(picture, picture_by)
    peers = file.spec.checkpoint.peers
    asked = Question(file.spec.name, network, request, free, hint, peers=peers)
    code = _answer(file, asked, output, draw)
    raise typer.Exit(code)


def _refuse_alone(option: str, given: object, other: str, beside: object) -> None:
    """An option that only says more about another one is not passed over in silence."""
    if given is not None and beside is None:
        raise typer.BadParameter(f"goes with {other}", param_hint=option)


def _spoken_for(path: str, at: str, file: JobFile, network: Fabric) -> HostSet:
    """Hosts of windows that the job would reach into; a note says how long it was taken to
    run."""
    from placement import BadInput
    from scheduler.core import SchedulingOptions
    from scheduler.core.wording import duration
    from scheduler.files.timeparse import parse_moment
    from scheduler.files.windows import load_windows

    try:
        at_ns = parse_moment(at, time.time_ns())
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint="--at") from None
    windows, limits = load_windows(path), SchedulingOptions()
    if file.spec.time_limit_s is None:
        assumed = duration(limits.assumed_limit_s)
        typer.echo(f"note: the job states no time limit; {assumed} are assumed", err=True)
    return windows.closed(network, file.spec, at_ns, limits)


def _with_options(job: JobFile, changes: dict[str, Any]) -> JobFile:
    """The job with what the command line says in place of what the file says."""
    from scheduler.files.job import job_from_mapping, job_to_mapping

    given = {key: value for key, value in changes.items() if value is not None}
    if not given:
        return job
    spec = job_from_mapping({**job_to_mapping(job.spec), **given}, "command line")
    return replace(job, spec=spec)


def _answer(job: JobFile, asked: Question, output: PlacementFormat, draw: Draw) -> int:
    from placement import BadInput, refuse_without_peers
    from scheduler.cli.render.answers import outcome

    begin = time.perf_counter()
    try:
        if asked.peers:
            refuse_without_peers(asked.request, asked.fabric.gpus_per_host, asked.peers)
        asked, answer = _placed(job, asked)
        answer = _noted(job, answer)
    except BadInput as error:
        raise job.document.error((error.field, error.message)) from None
    _write(asked, answer, output, time.perf_counter() - begin)
    draw(asked, answer)
    return EXIT_CODES[outcome(answer)]


def _placed(job: JobFile, asked: Question) -> tuple[Question, Answer]:
    """The answer, and the question at the size that it is for: of an elastic job the
    largest that fits; near an old placement, the one that it asks for."""
    from placement import legal_sizes, place, place_largest
    from placement.workload.replicas import sized

    fabric, free, request = asked.fabric, asked.free, asked.request
    if not job.spec.min_dp or asked.near is not None:
        return asked, place(fabric, free, request, hint=asked.near)
    sizes = legal_sizes(fabric, request, job.spec.min_dp)
    answer, dp = place_largest(fabric, free, request, sizes)
    return replace(asked, request=sized(request, dp), legal_dp=sizes), answer


def _left_alone(job: JobFile, fabric: Fabric, free: HostSet) -> HostSet:
    """`free` less what an exclusive job may not share: busy hosts are taken to be others'."""
    from placement import BadInput
    from placement.fabric.constraints import around, tier_of
    from placement.fabric.hostset import full
    from scheduler.core.policies import affinity

    wants = job.spec.neighbours
    try:
        affinity.check(fabric, wants)
    except BadInput as error:
        raise job.document.error((error.field, error.message)) from None
    if not wants.exclusive:
        return free
    busy = full(fabric.host_count) & ~free
    return free & ~around(fabric, tier_of(fabric, wants.exclusive, "constraints"), busy)


def _noted(job: JobFile, answer: Answer) -> Answer:
    """What only a server can keep is said, for here no other job is known."""
    wants = job.spec.neighbours
    asked = [f"near {wants.near}"] if wants.near else []
    asked += [f"avoid {', '.join(names)} ({tier})" for tier, names in wants.avoid]
    if not asked or not isinstance(answer, Placement):
        return answer
    note = f"no other job is known here: {'; '.join(asked)} not considered"
    return replace(answer, notes=(*answer.notes, note))


def _write(asked: Question, answer: Answer, output: PlacementFormat, solve_s: float) -> None:
    from scheduler.cli.render import answers

    seconds = {"solve": round(solve_s, 6), "total": round(clock.seconds_so_far(), 6)}
    if output is PlacementFormat.JSON:
        text = json.dumps(answers.to_mapping(asked, answer, seconds), indent=2)
    elif output is PlacementFormat.TABLE:
        text = answers.to_text(asked, answer, seconds)
    elif isinstance(answer, Placement):
        text = "\n".join(LAUNCHER_FILES[output](_gang(asked, answer)))
    else:
        # Nothing that a launcher could mistake for a host.
        typer.echo(answers.to_text(asked, answer, seconds), err=True)
        return
    sys.stdout.write(text + "\n")


def _gang(asked: Question, answer: Placement) -> formats.GangOption:
    fabric = asked.fabric
    return formats.GangOption(
        asked.name,
        fabric.names(answer.hosts),
        fabric.names(answer.spares),
        fabric.gpus_per_host,
    )
