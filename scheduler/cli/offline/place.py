"""`muster place`: place one job on a fabric, without a server. Of gangs placed so, what they do to
the storage that they share."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.structs import replace
from placement.workload.request import Answer, Objective, Placement, Request
from scheduler.cli import clock, complete
from scheduler.cli.exit_codes import EXIT_CODES
from scheduler.cli.numbers import finite
from scheduler.cli.render.place import formats

if TYPE_CHECKING:
    from placement import Hint
    from placement.fabric.hostset import HostSet
    from placement.fabric.tree import Fabric
    from scheduler.cli.render.place.question import Question
    from scheduler.core import Job, SchedulingOptions, State
    from scheduler.core.capacity.placer import Placer
    from scheduler.core.policies.storage_use import StorageUse
    from scheduler.files.inputs import JobFile


class PlacementFormat(StrEnum):
    """Format of a placement."""

    TABLE = "table"
    JSON = "json"
    HOSTFILE = "hostfile"
    RANKFILE = "rankfile"
    SLURM = "slurm"
    TORCHRUN = "torchrun"
    ENV = "env"
    NCCL = "nccl"
    MSCCL = "msccl"
    K8S = "k8s"


Links = Annotated[
    Path | None,
    typer.Option(
        help="A file with the state of uplinks, one on a line: `z3: 14/16` or `z4: down`."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("place")(place_command)


def place_command(
    job: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The job file (YAML); `-`: standard input. Of several jobs, which `---`"
            " separates, each is placed on the hosts that earlier ones leave.",
            show_default=False,
        ),
    ],
    fabric: Annotated[
        str,
        typer.Option(
            help="A preset (roce-24k, ib-24k, nvl72-24k) or a fabric file.",
            autocompletion=complete.fabrics,
            show_default=False,
        ),
    ],
    busy: Annotated[
        Path | None,
        typer.Option(help="File of hosts that cannot be used: a name or hostlist range a line."),
    ] = None,
    links: Links = None,
    spares: Annotated[
        str | None,
        typer.Option(help='auto, a number of hosts or a share such as "2%"; replaces the file\'s.'),
    ] = None,
    objective: Annotated[
        Objective | None, typer.Option(help="Objective to minimise; replaces the file's.")
    ] = None,
    near: Annotated[
        Path | None,
        typer.Option(help="An old placement (`-o hostfile`) to stay close to."),
    ] = None,
    near_slack: Annotated[
        float | None,
        typer.Option(
            help="For --near: how much larger the cut may be, as a share, if fewer blocks move."
            " (default: 0)",
            min=0,
            max=1_000,
            callback=finite,
        ),
    ] = None,
    output: Annotated[
        PlacementFormat, typer.Option("--format", "-o", help="Output format.")
    ] = PlacementFormat.TABLE,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Write the proof of the answer here, a file for `muster verify`."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw the placement to this file, .png or .svg."),
    ] = None,
) -> None:
    """Place a job on a fabric, with a proof of how good the placement is.

    Exit code: 0 placed, 3 insufficient (too few free hosts now),
    4 infeasible (never fits this fabric), 5 undecided (search budget spent),
    2 bad input. Of several jobs the largest of their codes.
    """
    from scheduler.cli import plot
    from scheduler.files import inputs

    if picture is not None:
        plot.check_path(picture)
    if near_slack is not None and near is None:
        raise typer.BadParameter("needs --near", param_hint="--near-slack")
    network = inputs.load_fabric(fabric)
    changes = {"spares": spares, "objective": objective and objective.value}
    files = [_with_options(file, changes) for file in inputs.read_jobs(job)]
    if len(files) > 1 and (alone := near or picture or certificate):
        raise typer.BadParameter(f"has several jobs, and {alone} is for one", param_hint=job)
    taken = inputs.load_busy(str(busy), network) if busy else 0
    hint = (
        inputs.load_hint(str(near), network, files[0].spec.request, near_slack or 0.0)
        if near
        else None
    )
    codes = list[int]()
    for file in files:
        cluster = cluster_of(file, network, taken, links)
        question, answer, solve_s = place_job(file, cluster, hint)
        with file.naming_lines():
            _write(question, answer, output, solve_s)
        if picture is not None:
            _draw(question, answer, picture)
        if certificate is not None:
            _write_certificate(certificate, question, answer)
        codes.append(EXIT_CODES[outcome_of(answer)])
        if isinstance(answer, Placement):
            taken |= answer.allocation
    raise typer.Exit(max(codes))


def _with_options(job: JobFile, changes: dict[str, Any]) -> JobFile:
    """The job with what the command line says in place of what the file says."""
    from scheduler.files.job import job_from_document
    from scheduler.files.yaml12 import Document

    given = {key: value for key, value in changes.items() if value is not None}
    if not given:
        return job
    content = {**job.document.mapping(), **given}
    document = Document(content, "command line", written=job.document.written)
    return replace(job, spec=job_from_document(document, job.spec.name))


def outcome_of(answer: Answer) -> str:
    """Return the outcome, a key of EXIT_CODES."""
    from scheduler.cli.render.place.answers import outcome

    return outcome(answer)


def cluster_of(job: JobFile, fabric: Fabric, busy: HostSet, links: Path | None = None) -> State:
    """Build a cluster with the tenant and the priority class of the job. Busy hosts are out of
    service; so are hosts whose jobs an exclusive job may not lie beside. `links`: a file with the
    state of uplinks. Raises: InputError."""
    from placement.fabric import hostset
    from placement.fabric.constraints import around, tier_of
    from scheduler.core import replay
    from scheduler.core.model.events import (
        FabricLoaded,
        HostMoved,
        LinkReported,
        TenantsLoaded,
    )
    from scheduler.core.model.lifecycle import HostMove
    from scheduler.core.names import DEFAULT_TENANT
    from scheduler.core.policies import affinity
    from scheduler.core.policies.tenants import PriorityClass, Tenant, Tenants
    from scheduler.files.links.linksfile import load_links

    own, level = job.spec.tenant or DEFAULT_TENANT, job.spec.priority_class
    classes = (PriorityClass(level, job.spec.priority),) if level else ()
    known = Tenants((Tenant(own),), own, classes)
    state = replay([FabricLoaded(0, fabric.spec), TenantsLoaded(0, known.digest, known)])
    wants = job.spec.affinity
    with job.naming_lines():
        affinity.check(fabric, wants)
    if wants.exclusive:
        busy |= around(fabric, tier_of(fabric, wants.exclusive, "constraints"), busy)
    names = fabric.names(hostset.members(busy))
    uplinks = load_links(str(links), fabric) if links else ()
    reports = [LinkReported(0, link.domain, link.share, link.detail) for link in uplinks]
    busied = [HostMoved(0, name, HostMove.CORDON, "busy") for name in names]
    return replay([*reports, *busied], state)


def place_job(
    job: JobFile, cluster: State, hint: Hint | None = None
) -> tuple[Question, Answer, float]:
    """Place the job as if it were submitted to this cluster, and time it in seconds. The question
    is at the size that the answer is for; with a `hint` that is the one which the job asks for.

    Raises: InputError naming the line of the job file that cannot be.
    """
    from placement.fabric.constraints import view_for_gang
    from placement.workload.request import Infeasible
    from scheduler.cli.render.place.question import Question
    from scheduler.core import Rejected, SchedulingOptions, dry_run
    from scheduler.core.admission.admit import Code
    from scheduler.core.capacity.placer import make_placer
    from scheduler.core.model.commands import SubmitJob
    from scheduler.core.model.scheduling_options import time_limit_ns
    from scheduler.core.names import is_name
    from scheduler.core.policies.affinity import Affinity
    from scheduler.core.policies.storage_use import storage_use
    from scheduler.core.rules.network.links import fabric_between
    from scheduler.core.spares.outlook import spare_shortages

    limits, seconds = SchedulingOptions(), 0.0

    def timed(state: State, options: SchedulingOptions) -> Placer:
        find = make_placer(state, options, hint, now_ns=0)

        def placed(job: Job, free: HostSet, most: int) -> Placement | None:
            nonlocal seconds
            begin = time.perf_counter()
            placement = find(job, free, most)
            seconds += time.perf_counter() - begin
            return placement

        return placed

    spec = replace(job.spec, affinity=Affinity(job.spec.affinity.exclusive))
    spec = spec if is_name(spec.name) else replace(spec, name="job")
    spec = spec if hint is None else replace(spec, min_dp=0)
    outcome = dry_run(cluster, SubmitJob(spec, "dry-run"), limits, 0, timed)
    if isinstance(outcome, Rejected) and outcome.code is not Code.INFEASIBLE:
        raise job.document.error(*((each.field, each.message) for each in outcome.violations))
    question = Question(
        job.spec.name,
        view_for_gang(cluster.loaded_fabric, spec.request.where),
        spec.request,
        cluster.free,
        hint,
        peers=spec.checkpoint.peers,
        peer_interval_s=spec.checkpoint.peer_interval_s,
        cpu_ranks=spec.run.cpu_ranks if spec.run else 0,
        power_cap_w=spec.power_cap_w,
    )
    if isinstance(outcome, Rejected):
        return question, Infeasible(outcome.message), seconds
    gang, state = outcome.job, outcome.state
    end_ns, started = time_limit_ns(gang, limits), outcome.started(0)
    use = None
    if cluster.loaded_fabric.stores:
        terms, usual = (spec.dataset, spec.checkpoint), cluster.tenants.preemption.costs
        use = storage_use(cluster.loaded_fabric, gang.request, *terms, usual)
        if isinstance(outcome.answer, Placement):
            use = use.on(cluster.loaded_fabric, outcome.answer.hosts)
    question = replace(
        question,
        storage_use=use,
        fabric=view_for_gang(fabric_between(state, 0, end_ns), gang.request.where),
        request=gang.request,
        free=state.free,
        legal_dp=gang.sizes,
        shortages=spare_shortages(started, gang.name, 0, limits) if started else (),
    )
    return question, _noted(job, outcome.answer), seconds


def _noted(job: JobFile, answer: Answer) -> Answer:
    """Note constraints on other jobs, which only a server can keep."""
    wants = job.spec.affinity
    unknown = [f"near {wants.near}"] if wants.near else []
    unknown += [f"avoid {', '.join(names)} ({tier})" for tier, names in wants.avoid]
    if not unknown or not isinstance(answer, Placement):
        return answer
    note = f"no other job is known here: {'; '.join(unknown)} not considered"
    return replace(answer, notes=(*answer.notes, note))


def _write(question: Question, answer: Answer, output: PlacementFormat, solve_s: float) -> None:
    from scheduler.cli.render.place import answers

    seconds = {"solve": round(solve_s, 6), "total": round(clock.seconds_so_far(), 6)}
    if output is PlacementFormat.JSON:
        text = json.dumps(answers.to_mapping(question, answer, seconds), indent=2)
    elif output is PlacementFormat.TABLE:
        text = answers.to_text(question, answer, seconds)
    elif isinstance(answer, Placement) and output is PlacementFormat.NCCL:
        text = "\n".join(nccl_lines(question.name, question.fabric, question.request, answer.hosts))
    elif isinstance(answer, Placement) and output is PlacementFormat.MSCCL:
        text = "\n".join(msccl_lines(question, answer.hosts))
    elif isinstance(answer, Placement):
        text = "\n".join(formats.FILES[output](_gang(question, answer)))
    else:
        # Nothing that a launcher could mistake for a host.
        typer.echo(answers.to_text(question, answer, seconds), err=True)
        return
    sys.stdout.write(text + "\n")


def _draw(question: Question, answer: Answer, path: Path) -> None:
    """Nothing is drawn, and a note says so, where there is no placement."""
    from scheduler.cli import plot

    if not isinstance(answer, Placement):
        typer.echo(f"{path}: not drawn: there is no placement", err=True)
        return
    name, free = question.name, question.free
    plot.draw(question.fabric, question.request, answer, path, free=free, name=name)


def _write_certificate(path: Path, question: Question, answer: Answer) -> None:
    """Nothing is written, and a note says so, where there is no placement to certify."""
    from scheduler.files.certificates import certificate

    if not isinstance(answer, Placement):
        note_nothing_certified()
        return
    content = certificate(question.fabric, question.free, question.request, answer, question.name)
    write_certificate(path, content)


def note_nothing_certified() -> None:
    typer.echo("note: nothing is placed, so there is no certificate", err=True)


def write_certificate(path: Path, content: dict[str, Any]) -> None:
    """Write the certificate of a placement to a file. Raises: InputError where the file cannot be
    written."""
    from scheduler.files.atomic_file import written

    with written(path, "--certificate") as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")


def nccl_lines(name: str, fabric: Fabric, request: Request, hosts: Sequence[int]) -> Iterable[str]:
    """Return the lines of NCCL's configuration file for a placement. `hosts`: in block order, of
    the fabric as the gang sees it."""
    import numpy as np

    from network.collectives.nccl import nccl_tunings
    from network.routing import parse_routing
    from placement.objective.axis_loads import axis_loads
    from placement.workload.traffic import Pattern, axis_traffic, groups_of
    from scheduler.cli.render.place.nccl_file import nccl_file

    hints = [
        f"{load.traffic.axis}: groups of {load.traffic.size}, {load.traffic.pattern}, within one"
        f" {load.runs_on}"
        for load in axis_loads(fabric, request, hosts)
    ]
    joined = fabric.scale_up_by_host[list(hosts)]
    by_rank = np.repeat(joined, request.ranks_per_host(fabric.gpus_per_host))
    exchanged = {
        traffic.axis: bool((np.ptp(groups_of(by_rank, traffic), axis=1) > 0).any())
        for traffic in axis_traffic(request)
        if traffic.pattern is Pattern.ALL_TO_ALL
    }
    return nccl_file(
        name,
        nccl_tunings(fabric, request, hosts),
        hints,
        is_rail_optimised=fabric.kind == "infiniband",
        is_on_nvlink_racks=len(set(joined.tolist())) < len(hosts),
        exchanged=exchanged,
        queue_pairs=parse_routing(fabric.routing).queue_pairs if fabric.routing else 1,
    )


def msccl_lines(question: Question, hosts: Sequence[int]) -> Iterable[str]:
    """Yield the schedule of one axis as MSCCL's XML, with what the step model predicts of it.

    Raises: BadInput as `axis_program`.
    """
    from network.collectives.msccl import axis_program, msccl_algorithm
    from network.collectives.nccl import calls_per_step
    from placement.objective.axis_loads import axis_loads
    from scheduler.cli.render.place.nccl_file import AROUND
    from scheduler.cli.render.text import bytes_text, seconds_text

    fabric, request = question.fabric, question.request
    program = axis_program(request, request.ranks_per_host(fabric.gpus_per_host))
    axis, size = program.traffic.axis, program.traffic.size
    calls = calls_per_step(request, axis)
    call = round(program.payload_bytes / calls)
    load = next(each for each in axis_loads(fabric, request, hosts) if each.traffic.axis == axis)
    crossing = {each.layer: bytes_text(each.bytes_per_step) for each in load.loads}
    yield f"<!-- {axis} of {question.name!r}: groups of {size} ranks, {program.used.value} -->"
    yield (
        f"<!-- in a step {calls:,} x {call:,} bytes; predicted: {seconds_text(load.seconds)},"
        f" {', '.join(f'{sent} over {layer}' for layer, sent in crossing.items())} -->"
    )
    yield from msccl_algorithm(
        f"{question.name} {axis}", size, program.chunks, program.messages(),
        call // AROUND, call * AROUND,
    )  # fmt: skip


def _gang(question: Question, answer: Placement) -> formats.GangOption:
    fabric, request = question.fabric, question.request
    return formats.GangOption(
        question.name,
        fabric.names(answer.hosts),
        fabric.names(answer.spares),
        fabric.gpus_per_host,
        roles=tuple(
            (role.name, role.hosts_needed(number, fabric.gpus_per_host))
            for number, role in enumerate(request.roles)
        ),
    )


def use_beside(job: JobFile, fabric: Fabric, busy: HostSet) -> tuple[StorageUse, HostSet]:
    """Return what the gang of a job file does to storage, and the busy hosts with its own, which
    are known where its stores have paths: it is placed then.

    Raises: InputError where it names a store that the fabric does not have, or finds no hosts.
    """
    from scheduler.core.policies.costs import Costs
    from scheduler.core.policies.storage_use import storage_use

    spec = job.spec
    with job.naming_lines():
        use = storage_use(fabric, spec.request, spec.dataset, spec.checkpoint, Costs())
    if not (use.read_store.paths or use.write_store.paths):
        return use, busy
    _, answer, _ = place_job(job, cluster_of(job, fabric, busy))
    if not isinstance(answer, Placement):
        reason = f"finds no hosts, whose paths to storage count: {answer.reason}"
        raise job.document.error(("", reason))
    return use.on(fabric, answer.hosts), busy | answer.allocation
