"""`muster stragglers`: who slows a gang, by measured times and its placement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, AnswerFormat, connected, end
from scheduler.cli.exit_codes import FAILED
from scheduler.cli.jobs.jobs import JobName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.observe.stragglers import MeasuredGang, Measurement, Suspect
    from scheduler.v1 import job_pb2, service_pb2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("stragglers")(stragglers_command)


def stragglers_command(
    name: JobName,
    times: Annotated[
        str,
        typer.Argument(
            metavar="[TIMES]",
            help="A CSV file with the columns step, seconds, rank or ranks, and maybe kind; `-`:"
            " standard input. Without it: the times that ranks report to their agents.",
            show_default=False,
        ),
    ] = "",
    report: Annotated[
        bool,
        typer.Option(
            "--report", help="Report hosts found with a confidence of 0.9 or more as stragglers."
        ),
    ] = False,
    output: Annotated[
        AnswerFormat, typer.Option("--format", "-o", help="Output format; table or json.")
    ] = AnswerFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Find the hosts, GPUs and uplinks that slow a running gang.

    Ranks tell their agents how long they compute by `muster.progress.computed`. In a file `rank`
    computed for so many seconds in a step; `ranks` (0-7 or 0 8 16) took so long together, as for a
    collective. Times of one kind are compared. docs/stragglers.md says how.
    Example: muster stragglers pretrain --report
    """
    from scheduler.core.policies.health_signals import STRAGGLER
    from scheduler.observe.step_times import load_times
    from scheduler.observe.stragglers import as_mapping, stragglers, worth_a_report

    measurements = load_times(times) if times else []
    with connected(address) as client:
        message = client.get_job(name)
        if not message.placement.hosts:
            raise end(f"job {name} holds no hosts now", FAILED)
        gang = _gang(message, client.get_fabric(with_file=True).file)
        if not times:
            measurements = _reported(message, client.step_times(name))
        ranks = len(gang.hosts) * gang.ranks_per_host
        if (largest := max(each.ranks[-1] for each in measurements)) >= ranks:
            raise end(f"{times} has rank {largest:,}; job {name} has {ranks:,}, from 0", FAILED)
        suspects = stragglers(gang, measurements)
        sure = worth_a_report(suspects)
        for suspect in sure if report else ():
            client.report_host(suspect.name, STRAGGLER, suspect.detail(name), gpu=suspect.gpu)
    if output is AnswerFormat.JSON:
        typer.echo(json.dumps({"suspects": [as_mapping(each) for each in suspects]}))
    else:
        typer.echo(_table(suspects))
    if report and sure:
        typer.echo(f"reported: {', '.join(dict.fromkeys(each.name for each in sure))}", err=True)


def _reported(message: job_pb2.Job, times: service_pb2.ListStepTimesResponse) -> list[Measurement]:
    """Return step times that the ranks now report. Raises: Exit where there are none."""
    from placement.workload.parallelism import Parallelism
    from placement.workload.replicas import sized
    from scheduler.observe.step_times import of_stages
    from scheduler.wire.specs import spec_from_proto

    request = sized(spec_from_proto(message.spec).request, message.dp)
    axes = request.parallelism
    if ranks := message.spec.run.cpu_ranks:
        axes = Parallelism(dp=len(message.placement.hosts) * ranks)
    worlds = [(role.name, role.request.parallelism) for role in request.roles] or [("", axes)]
    measurements = of_stages(worlds, ((each.step, each.seconds) for each in times.steps))
    if not measurements or times.attempt != message.attempt:
        text = f"the ranks of job {message.spec.name} have not said yet how long they compute"
        raise end(f"{text} (muster.progress.computed); or give a file of times", FAILED)
    return measurements


def _gang(message: job_pb2.Job, fabric_file: bytes) -> MeasuredGang:
    from placement.fabric.reader import from_spec
    from scheduler.cli.jobs.ranks import live_gang
    from scheduler.files.yaml12 import parse
    from scheduler.observe.stragglers import MeasuredGang

    live = live_gang(message)
    fabric = from_spec(parse(fabric_file.decode()).mapping())
    own = {fabric.index_by_name[host]: host for host in live.hosts}
    uplinks: dict[str, set[str]] = {}
    for tier in fabric.tiers:
        for index, host in own.items():
            uplinks.setdefault(tier.domains[tier.domain_by_host[index]], set()).add(host)
    crossed = {name: frozenset(hosts) for name, hosts in uplinks.items() if len(hosts) < len(own)}
    return MeasuredGang(live.hosts, live.ranks_per_host, crossed, tuple(message.placement.gpus))


def _table(suspects: Sequence[Suspect]) -> str:
    from scheduler.cli.render.text import columns

    if not suspects:
        return "no host, GPU or uplink stands out"
    head = ("KIND", "NAME", "GPU", "PHASE", "SLOWER BY", "CONFIDENCE", "MEASUREMENTS", "STEPS")
    rows = [
        (
            *(each.kind.value, each.name, "-" if each.gpu is None else str(each.gpu)),
            *(each.at or "-", f"{each.slower:.1%}", f"{each.confidence:.2f}"),
            *(f"{each.seen:,}", f"{each.steps:,}"),
        )
        for each in suspects
    ]
    return columns([head, *rows])
