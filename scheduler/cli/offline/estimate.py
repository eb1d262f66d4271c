"""`muster estimate`: how long a step takes, on one fabric or several side by side;
`--table`: the step of every row of a table of training runs, as CSV."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement import BadInput
from scheduler.cli import clock, complete
from scheduler.cli.calls import AnswerFormat, Output, formatted
from scheduler.cli.exit_codes import EXIT_CODES
from scheduler.cli.offline.place import cluster_of, outcome_of, place_job, use_beside
from scheduler.cli.parameters import OptionalJobPath
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from placement.fabric.hostset import HostSet
    from placement.fabric.tree import Fabric
    from placement.objective.step_time import Assumptions
    from placement.workload.request import Answer
    from scheduler.cli.render.place.question import Question
    from scheduler.cli.render.place.steps import Estimate, NetworkChoice
    from scheduler.core.policies.storage_use import StorageUse
    from scheduler.files.inputs import JobFile
    from scheduler.files.step_table import StepRow


# Options that each way to ask may be given.
_SHARED = ("job", "fabric", "busy", "links", "output")
ALLOWED = {
    "--table": ("table", "output"),
    "--sweep": (*_SHARED, "sweep", "gpus", "top"),
    "--collectives": (*_SHARED, "collectives"),
}
COLUMNS = ("id", "seconds", "low", "high", "memory_gib", "note")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("estimate")(estimate_command)


def estimate_command(
    context: typer.Context,
    job: OptionalJobPath = None,
    fabric: Annotated[
        list[str] | None,
        typer.Option(
            help="A preset or a fabric file; give several to compare.",
            autocompletion=complete.fabrics,
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            help="In place of JOB: a CSV file of training runs, a step for each row as CSV."
            " docs/steptime.md has the columns."
        ),
    ] = None,
    busy: Annotated[
        list[Path] | None,
        typer.Option(
            help="Hosts that cannot be used; one file for each --fabric, in the same order."
        ),
    ] = None,
    links: Annotated[
        list[Path] | None,
        typer.Option(help="State of uplinks; one file for each --fabric, as in `muster place`."),
    ] = None,
    achieved_tflops: Annotated[
        float | None,
        typer.Option(
            help="TFLOP/s of one GPU while its kernels run, at most the peak."
            " (default: by parts, see docs/steptime.md)"
        ),
    ] = None,
    peak_tflops: Annotated[
        float | None,
        typer.Option(help="Dense peak of one GPU in TFLOP/s, in place of the catalogue's."),
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(
            help="How flows are routed: ecmp, e-ecmp[:QUEUE_PAIRS], pinned or adaptive."
            " (default: as each fabric file says, else spread perfectly)"
        ),
    ] = None,
    failed: Annotated[
        list[str] | None,
        typer.Option(help="A switch, cable or range that is down; with --routing."),
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            help="The job file of another gang that reads and writes the same storage; may be"
            " repeated."
        ),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate",
            help="Play the step message by message on fairly shared links, beside the formula.",
        ),
    ] = False,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep", help="Rank every parallelism that fits the memory by its placed step."
        ),
    ] = False,
    collectives: Annotated[
        bool,
        typer.Option(
            "--collectives",
            help="Place the job once for each collective of each axis, and rank them by step.",
        ),
    ] = False,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="With --sweep: GPUs to train on. (default: as many as the job)"),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="With --sweep: choices to show.")] = 20,
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Estimate the step time of a job: compute, pipeline bubble, communication.

    Compares muster's placement with consecutive ranks in the fewest domains and on the first
    free hosts by name, and with free hosts at random. docs/steptime.md has the rules.

    With --sweep: ranks every parallelism that frameworks take and the GPUs' memory holds;
    with --collectives: rings, hierarchies, halving and doubling, and trees.

    Exit code: as `muster place`; with several fabrics the highest.
    """
    from scheduler.files import inputs

    _refuse_others(context)
    if table is not None:
        print_table(table, output)
        raise typer.Exit
    if job is None or not fabric:
        raise InputError(Problem("JOB" if job is None else "--fabric", "is missing"))
    busy_files, link_files = (
        _by_fabric(fabric, busy, "--busy"),
        _by_fabric(fabric, links, "--links"),
    )
    if sweep or collectives:
        from scheduler.cli.offline.sweep import run_collectives, run_sweep

        if len(fabric) > 1:
            option = "--sweep" if sweep else "--collectives"
            raise InputError(Problem(option, f"takes one --fabric, not {len(fabric)}"))
        named = (str(job), fabric[0], busy_files[0], link_files[0])
        code = run_sweep(*named, gpus, top, output) if sweep else run_collectives(*named, output)
        raise typer.Exit(code)

    assumed = _assumptions(achieved_tflops, peak_tflops)
    network = _network(routing, failed, simulate)
    job_file = inputs.read_job(str(job))
    if (run := job_file.spec.run) and run.cpu_ranks:
        message = "its ranks run on CPUs, of which no step is modelled: `muster place` says where"
        raise InputError(Problem("run.cpu_ranks", message, str(job)))
    others = tuple(inputs.read_job(str(path)) for path in beside or ())
    runs = [
        _run(job_file, name, taken, carried, assumed, network, others)
        for name, taken, carried in zip(fabric, busy_files, link_files, strict=True)
    ]
    if output is not AnswerFormat.TABLE:
        text = formatted(_mapping(job_file.spec.name, runs, assumed, network), output)
    else:
        text = _text(job_file.spec.name, runs, assumed)
    sys.stdout.write(text + "\n")
    raise typer.Exit(max(EXIT_CODES[outcome_of(answer)] for _, answer, _ in runs))


def _refuse_others(context: typer.Context) -> None:
    """Raises: InputError where an option is given that is not of this way to ask."""
    given = {
        param.name or "": param.opts[0] if param.opts[0].startswith("-") else "JOB"
        for param in context.command.params
        if (source := context.get_parameter_source(param.name or ""))
        and source.name == "COMMANDLINE"
    }
    mode = next((option for option in ALLOWED if option in given.values()), None)
    for name, option in given.items():
        if mode is not None and name not in ALLOWED[mode]:
            raise InputError(Problem(option, f"is not for {mode}: leave it out"))
        if mode is None and name in ("gpus", "top"):
            raise InputError(Problem(option, "needs --sweep"))


Run = tuple["Question", "Answer", "Estimate | None"]


def _by_fabric(fabrics: list[str], given: list[Path] | None, option: str) -> list[Path | None]:
    files: list[Path | None] = [*(given or [])]
    if len(files) > len(fabrics):
        message = f"{len(files)} files for {len(fabrics)} fabrics: give at most one for each"
        raise InputError(Problem(option, message))
    return files + [None] * (len(fabrics) - len(files))


def _assumptions(achieved: float | None, peak: float | None) -> Assumptions:
    from placement.objective.step_time import Assumptions

    for option, value in (("--achieved-tflops", achieved), ("--peak-tflops", peak)):
        if value is not None and not 0 < value < 1e9:
            raise InputError(Problem(option, f"must be a positive number, not {value:g}"))
    if achieved is not None and peak is not None and achieved > peak:
        message = f"must be at most the peak of one GPU, {peak:g} (as given), is {achieved:g}"
        raise InputError(Problem("--achieved-tflops", message))
    return Assumptions(achieved, peak)


def _refuse_above_peak(machine: Fabric, job: JobFile, assumed: Assumptions) -> None:
    """Raises: InputError where no GPU of the fabric reaches the rate that is stated."""
    from placement.objective.step_time import peak_flops

    achieved, request = assumed.achieved_tflops, job.spec.request
    if achieved is None or assumed.peak_tflops is not None:
        return
    top = max(machine.by_host.kinds, key=lambda gpu: peak_flops(request, gpu, assumed))
    peak = peak_flops(request, top, assumed) / 1e12
    if achieved > peak:
        message = f"must be at most the peak of one {top.name}, {peak:g}, is {achieved:g}"
        raise InputError(Problem("--achieved-tflops", f"{message}; --peak-tflops says another"))


def _network(routing: str | None, failed: list[str] | None, simulate: bool) -> NetworkChoice:
    from network.routing import parse_routing
    from scheduler.cli.render.place.steps import NetworkChoice

    if simulate and routing is not None:
        message = "conflicts with --routing, a rule of the formula alone"
        raise InputError(Problem("--simulate", message))
    try:
        chosen = parse_routing(routing) if routing else None
    except BadInput as error:
        raise InputError(Problem("--routing", error.message)) from None
    return NetworkChoice(chosen, tuple(failed or ()), simulate)


def _run(
    job: JobFile,
    fabric: str,
    busy: Path | None,
    links: Path | None,
    assumed: Assumptions,
    network: NetworkChoice,
    beside: tuple[JobFile, ...],
) -> Run:
    from muster.structs import replace
    from network.routing import parse_routing
    from placement.workload.request import Placement
    from scheduler.cli.render.place.steps import estimate
    from scheduler.files import inputs

    machine = inputs.load_fabric(fabric)
    _refuse_above_peak(machine, job, assumed)
    taken = inputs.load_busy(str(busy), machine) if busy else 0
    question, answer, _ = place_job(job, cluster_of(job, machine, taken, links))
    if not isinstance(answer, Placement):
        return question, answer, None
    question = replace(question, beside=_neighbours(machine, beside, taken | answer.allocation))
    try:
        if network.routing is None and machine.routing and not network.is_simulated:
            network = replace(network, routing=parse_routing(machine.routing))
        if network.failed and network.routing is None:
            reason = "needs --routing: perfectly spread flows use no single switch or cable"
            raise InputError(Problem("--failed", reason))
        return question, answer, estimate(question, answer, assumed, network)
    except BadInput as error:
        if error.field == "failed":
            raise InputError(Problem("--failed", error.message)) from None
        raise job.document.error((error.field, error.message)) from None


def _neighbours(fabric: Fabric, jobs: tuple[JobFile, ...], busy: HostSet) -> tuple[StorageUse, ...]:
    """Return what other gangs do to the storage. Raises: InputError where there is none."""
    if jobs and not fabric.stores:
        raise InputError(Problem("--beside", f"needs `storage` in the file of {fabric.name}"))
    uses = []
    for job in jobs:
        use, busy = use_beside(job, fabric, busy)
        uses.append(use)
    return tuple(uses)


def _mapping(
    name: str, runs: list[Run], assumed: Assumptions, network: NetworkChoice
) -> dict[str, Any]:
    from scheduler.cli.render.place import steps

    return {
        "job": name,
        "assumptions": {
            "achieved_tflops": assumed.achieved_tflops,
            "peak_tflops": assumed.peak_tflops,
        },
        "estimates": [
            {
                "fabric": {"name": question.fabric.name, "digest": question.fabric.digest},
                "outcome": outcome_of(answer),
                **({"reason": answer.reason} if not estimate and hasattr(answer, "reason") else {}),
                **(steps.to_mapping(estimate) if estimate else {}),
                **_memory(question, answer, assumed),
            }
            for question, answer, estimate in runs
        ],
        "network": {
            "routing": str(network.routing) if network.routing else None,
            "failed": list(network.failed),
        },
        "seconds": {"total": round(clock.seconds_so_far(), 6)},
    }


def _memory(question: Question, answer: Answer, assumed: Assumptions) -> dict[str, Any]:
    from placement.workload.request import Placement
    from scheduler.cli.render.place import memory_use

    if not isinstance(answer, Placement):
        return {}
    body = {"memory": memory_use.to_mapping(question.fabric, question.request, answer)}
    held = memory_use.holders(question, answer)
    if renewal := memory_use.renewal_of(question, answer, held, assumed):
        body["checkpoint"] = memory_use.renewal_mapping(renewal)
    return body


def _text(name: str, runs: list[Run], assumed: Assumptions) -> str:
    from placement.workload.request import Placement
    from scheduler.cli.render.place import answers, memory_use, step_tables

    estimates = [estimate for _, _, estimate in runs if estimate]
    parts = []
    if estimates:
        ranks = estimates[0].question.request.parallelism.world_size
        said = step_tables.assumptions_text(estimates[0])
        parts += [f"{name}: {ranks:,} ranks; {said}", step_tables.ways_text(estimates)]
    parts += [
        memory_use.to_text(question.fabric, question.request, answer)
        for question, answer, _ in runs
        if isinstance(answer, Placement)
    ]
    for question, answer, estimate in runs:
        where = f"on {question.fabric.name}"
        if estimate and isinstance(answer, Placement):
            renewal = memory_use.renewal_of(
                question, answer, memory_use.holders(question, answer), assumed
            )
            copies = f"copies in memory: {memory_use.renewal_text(renewal)}" if renewal else ""
            parts += [f"{where}, as muster places it:", *step_tables.step_parts(estimate), copies]
        elif isinstance(answer, Placement):
            parts.append(f"{where}: no two ranks talk, so no communication to estimate")
        else:
            parts.append(f"{where}: {answers.to_text(question, answer, {})}")
    parts.append(step_tables.verdict_text(estimates) if len(estimates) > 1 else "")
    return "\n\n".join(part for part in parts if part)


def print_table(path: str, output: AnswerFormat) -> None:
    """Write a line for each row, in the file's order; numbers are empty where no job file says
    the row, and `note` says why. Raises: InputError where the file is no such table."""
    from scheduler.files.step_table import read_table

    rows = [_estimated(row) for row in read_table(path)]
    if output is not AnswerFormat.TABLE:
        body = {"rows": [dict(zip(COLUMNS, row, strict=True)) for row in rows]}
        sys.stdout.write(formatted(body, output) + "\n")
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow("" if cell is None else cell for cell in row)


def _estimated(row: StepRow) -> tuple[Any, ...]:
    from placement.objective.step_time import step_time
    from placement.workload.memory import memory

    nothing = (row.name, None, None, None, None)
    if row.request is None or row.fabric is None:
        return (*nothing, row.note)
    try:
        hosts = range(row.request.hosts_needed(row.fabric.gpus_per_host))
        step = step_time(row.fabric, row.request, hosts)
        use = memory(row.request)
    except BadInput as error:
        return (*nothing, str(error))
    low, high = step.likely_s or (None, None)
    seconds = (_rounded(each) for each in (step.seconds, low, high))
    held = None if use is None else round(use.total / 2**30, 1)
    return (row.name, *seconds, held, row.note)


def _rounded(seconds: float | None) -> float | None:
    """To five digits."""
    return None if seconds is None else float(f"{seconds:.5g}")
