"""`muster calibrate`: make the model of steps one's own, by what the own cluster has measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.structs import replace
from placement import BadInput
from scheduler.cli import complete
from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    AnswerFormat,
    Output,
    connected,
    end,
    formatted,
)
from scheduler.cli.exit_codes import FAILED
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from placement.fabric.tree import Fabric
    from placement.objective.measured import LinkFit, MeasuredRun, RateFit
    from scheduler.files.plugins import Sizes

POINT_TO_POINT = ("alltoall", "sendrecv")  # whose bus bandwidth is of one network card


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate")(calibrate)


def calibrate(
    fabric: Annotated[
        str,
        typer.Option(
            help="The fabric file that was measured.",
            autocompletion=complete.fabrics,
            show_default=False,
        ),
    ],
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            help="JOB=LOG: a job file, and the log that Megatron-LM, TorchTitan or NeMo wrote.",
        ),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", help="JOB=SECONDS: a job file, and how long its step takes."),
    ] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(
            "--job", help="A job that runs or has ended, whose ranks reported their steps."
        ),
    ] = None,
    nccl: Annotated[
        list[str] | None,
        typer.Option(
            "--nccl",
            help="[LAYER=]FILE: output of nccl-tests. LAYER (scale-up, nic or a tier) where its"
            " hosts are not named as in the fabric.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", help="Write the calibration to this file. (default: to stdout)"),
    ] = None,
    output: Output = AnswerFormat.TABLE,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Fit rates of GPUs and goodput of links to what was measured.

    The fabric file then names the result: `calibration: calibration.yaml`. Errors are shown before
    and after; a fit is refused where there is too little. docs/calibration.md says how.
    Example: muster calibrate --fabric mine.yaml --run job.yaml=train.log --nccl all_reduce.txt
    """
    from scheduler.files import inputs
    from scheduler.files.atomic_file import write as write_file

    if not (run or step or job or nccl):
        message = "give at least one of --run, --step, --job and --nccl"
        raise InputError(Problem("calibrate", message))
    machine = _uncalibrated(inputs.load_fabric(fabric))
    links = _links(machine, nccl or [])
    from placement.fabric.tree import with_goodput
    from placement.objective.measured import fit_rates

    shares = {layer: share for layer, (share, *_) in links.items()}
    measured = with_goodput(machine, shares)
    runs = [_run_of_log(measured, text) for text in run or []]
    runs += [_run_of_seconds(measured, text) for text in step or []]
    runs += _runs_of_jobs(measured, job or [], address)
    try:
        rates = fit_rates(measured, runs)
    except BadInput as error:
        raise InputError(Problem(error.field or "calibrate", error.message)) from None
    content = _content(machine.name, links, rates)
    if write is not None:
        write_file(write, formatted(content, AnswerFormat.YAML) + "\n", "--write")
    if output is AnswerFormat.TABLE:
        typer.echo(_table(links, rates))
        if write is None:
            typer.echo("\n" + formatted(content, AnswerFormat.YAML))
        else:
            typer.echo(f"\nwritten to {write}: name it in {fabric}, calibration: {write.name}")
    else:
        typer.echo(formatted(content, output))


def _uncalibrated(fabric: Fabric) -> Fabric:
    """As its file states it, whatever was measured before."""
    from placement.fabric.reader import from_spec

    return from_spec({key: fabric.spec[key] for key in fabric.spec if key != "calibration"})


Link = tuple[float, "LinkFit", "Sizes", float]


def _links(fabric: Fabric, texts: list[str]) -> dict[str, Link]:
    """By layer: share of what is stated, the fit, its source, and GB/s expected.

    Raises: InputError with the file.
    """
    from placement.objective.measured import fit_link
    from scheduler.files.plugins import importer

    measured: dict[str, tuple[LinkFit, Sizes]] = {}
    for text in texts:
        layer, is_named, path = text.rpartition("=")
        sizes = importer("nccl")(path)
        layer = layer if is_named else _layer(fabric, sizes)
        if layer not in _layers(fabric):
            message = f"no layer {layer!r}; {fabric.name} has {', '.join(_layers(fabric))}"
            raise InputError(Problem("--nccl", message))
        if layer in measured:
            message = f"{path} and {measured[layer][1].source} are both of {layer}: give one"
            raise InputError(Problem("--nccl", message))
        try:
            measured[layer] = fit_link(sizes.rows), sizes
        except BadInput as error:
            raise InputError(Problem("", error.message, path)) from None
    shares: dict[str, Link] = {}
    for layer in _layers(fabric):  # from the inside: what is below holds up what is above
        if layer in measured:
            fit, sizes = measured[layer]
            expected = _expected(fabric, layer, sizes, shares)
            shares[layer] = (round(fit.gb_per_s / expected, 3), fit, sizes, expected)
    return shares


def _layers(fabric: Fabric) -> list[str]:
    return ["scale-up", "nic", *(tier.name for tier in reversed(fabric.tiers))]


def _layer(fabric: Fabric, sizes: Sizes) -> str:
    """The outermost links that lie between the hosts of a test. Raises: InputError."""
    hint = "--nccl LAYER=FILE says between what it ran"
    if not sizes.hosts:
        raise InputError(Problem("", f"names no hosts: {hint}", sizes.source))
    for name in sizes.hosts:
        if name not in fabric.index_by_name:
            message = f"ran on {name}, which {fabric.name} does not have: {hint}"
            raise InputError(Problem("", message, sizes.source))
    hosts = fabric.indices(sizes.hosts)
    if len(set(fabric.scale_up_by_host[list(hosts)].tolist())) == 1:
        return "scale-up"
    for depth, tier in enumerate(fabric.tiers):
        if len({fabric.domain(host, depth) for host in hosts}) > 1:
            return tier.name
    return "nic"


def _expected(fabric: Fabric, layer: str, sizes: Sizes, inner: dict[str, Link]) -> float:
    """GB/s of bus bandwidth that the file states, on what was measured of the layers inside."""
    if layer == "scale-up":
        return fabric.scale_up_gbps / 8
    cards = 1 if sizes.collective in POINT_TO_POINT else fabric.gpus_per_host
    injected = cards * fabric.nic_gbps / 8
    for below in _layers(fabric)[1 : _layers(fabric).index(layer)]:
        injected *= inner[below][0] if below in inner else 1.0
    for tier in fabric.tiers:
        if tier.name == layer:
            injected = min(injected, float(tier.uplink_bytes_per_s.min()) / 1e9)
    return injected


def _job_of(text: str, option: str) -> tuple[Any, str]:
    from scheduler.files import inputs

    path, is_pair, value = text.partition("=")
    if not is_pair or not path or not value:
        form = "JOB=LOG" if option == "--run" else "JOB=SECONDS"
        raise InputError(Problem(option, f"must be {form}, not {text!r}"))
    return inputs.read_job(path), value


def _run_of_log(fabric: Fabric, text: str) -> MeasuredRun:
    from scheduler.files.plugins import FEWEST_STEPS, importer

    job, path = _job_of(text, "--run")
    model, batch = job.spec.request.model, job.spec.request.batch
    if model is None or batch is None:
        raise job.document.error(("model", "is needed: its compute is what is fitted"))
    ranks = job.spec.request.parallelism.world_size
    steps = importer("steps")(path, batch.global_sequences * model.sequence / ranks)
    if len(steps.seconds) < FEWEST_STEPS:
        message = f"{len(steps.seconds)} steps are too little to fit: {FEWEST_STEPS} or more"
        raise InputError(Problem("", message, path))
    return _placed_run(fabric, job, path, steps.typical_s)


def _run_of_seconds(fabric: Fabric, text: str) -> MeasuredRun:
    job, value = _job_of(text, "--step")
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise InputError(Problem("--step", f"{value!r} is no number of seconds above 0"))
    return _placed_run(fabric, job, text.partition("=")[0], seconds)


def _placed_run(fabric: Fabric, job: Any, source: str, seconds: float) -> MeasuredRun:
    """The job where muster places it on the empty fabric: a log does not say where it ran."""
    from placement import place
    from placement.fabric import hostset
    from placement.objective.measured import MeasuredRun
    from placement.workload.request import NO_SPARES, Limits, Placement

    request = replace(job.spec.request, spares=NO_SPARES)
    with job.naming_lines():
        answer = place(fabric, hostset.full(fabric.host_count), request, Limits().first)
    if not isinstance(answer, Placement):
        raise job.document.error(("parallelism", f"{fabric.name} cannot hold it: {answer.reason}"))
    return MeasuredRun(source, request, answer.hosts, seconds)


def _runs_of_jobs(fabric: Fabric, names: list[str], address: str) -> list[MeasuredRun]:
    """Return the steps that ranks of jobs reported, on the hosts that they are or were on."""
    if not names:
        return []
    from placement.objective.measured import MeasuredRun
    from placement.workload.replicas import sized
    from scheduler.wire.specs import spec_from_proto

    runs = []
    with connected(address) as client:
        for name in names:
            message = client.get_job(name)
            if not message.placement.hosts or not message.progress.HasField("step_time"):
                text = f"the server knows no steps of job {name}: its ranks report none"
                raise end(f"{text}, or it ended before the server began; --run takes a log", FAILED)
            hosts = tuple(message.placement.hosts)
            if missing := [host for host in hosts if host not in fabric.index_by_name]:
                raise end(f"job {name} runs on {missing[0]}, which {fabric.name} has not", FAILED)
            request = sized(spec_from_proto(message.spec).request, message.dp)
            seconds = message.progress.step_time.ToNanoseconds() / 1e9
            runs.append(MeasuredRun(f"job {name}", request, fabric.indices(hosts), seconds))
    return runs


def _content(name: str, links: dict[str, Link], rates: tuple[RateFit, ...]) -> dict[str, Any]:
    """Return the content of the calibration file; `measured` is for people."""
    by_gpu: dict[str, dict[str, float]] = {}
    for rate in rates:
        by_gpu.setdefault(rate.gpu, {})[rate.precision] = round(rate.factor, 3)
    measured = {
        layer: {
            "gb_per_s": round(fit.gb_per_s, 2),
            "stated_gb_per_s": round(expected, 2),
            "error": round(fit.error, 4),
        }
        for layer, (_, fit, _, expected) in links.items()
    }
    steps = {
        f"{rate.gpu} {rate.precision}": {
            "runs": rate.runs,
            "error_before": round(rate.before, 4),
            "error_after": round(rate.after, 4),
        }
        for rate in rates
    }
    parts = {
        "rates": by_gpu,
        "goodput": {layer: share for layer, (share, *_) in links.items()},
        "measured": {**measured, **steps},
    }
    return {"fabric": name, **{key: value for key, value in parts.items() if value}}


def _table(links: dict[str, Link], rates: tuple[RateFit, ...]) -> str:
    from scheduler.cli.render.text import table

    parts = []
    if links:
        rows = list[list[str]]()
        for layer, (share, fit, sizes, expected) in links.items():
            speeds = [f"{expected:.1f} GB/s", f"{fit.gb_per_s:.1f} GB/s", f"{100 * share:.1f} %"]
            rows.append([layer, *speeds, f"{100 * fit.error:.1f} %", sizes.source])
        parts.append(table(["links", "stated", "measured", "goodput", "error", "from"], rows))
    if rates:
        heads = ["GPU", "precision", "rate", "runs", "error before", "after, each by the others"]
        rows = []
        for rate in rates:
            errors = [f"{100 * rate.before:.1f} %", f"{100 * rate.after:.1f} %"]
            rows.append([rate.gpu, rate.precision, f"{rate.factor:.3f} x", str(rate.runs), *errors])
        parts.append(table(heads, rows))
    return "\n\n".join(parts)
