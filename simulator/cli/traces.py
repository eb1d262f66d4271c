"""`muster trace`: look at a trace, generate one."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scheduler.cli.numbers import finite
from scheduler.files.errors import InputError, Problem
from simulator.cli.replay import TotalsFormat
from simulator.options import BY_KEY

if TYPE_CHECKING:
    from placement.fabric.tree import Fabric
    from simulator.traces.record import BadRecord, TraceJob

MOST_SEED = 2**31 - 1  # as for a replay
DAY_NS = 86_400 * 1_000_000_000
File = Annotated[Path, typer.Argument(help="The trace, plain or gzip.", show_default=False)]
FormatName = Annotated[
    str, typer.Option("--trace-format", help=BY_KEY["trace_format"].help, show_default=False)
]
Columns = Annotated[str | None, typer.Option(help=BY_KEY["columns"].help)]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a trace that has a wrong record.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Output file, gzip if it ends in .gz. Default: standard output."
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the random draws.")]
Rules = Annotated[
    Literal["ring", "llm", "llm-elastic"],
    typer.Option(
        help="Shape of jobs: ring keeps sizes alone; llm and llm-elastic give jobs of a host"
        " and more a model and its parallelism."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    trace = typer.Typer(help="Look at and generate job traces.", no_args_is_help=True)
    trace.command("show")(show_command)
    trace.command("generate")(generate_command)
    app.add_typer(trace, name="trace")


def show_command(
    trace: File,
    trace_format: FormatName,
    columns: Columns = None,
    strict: Strict = False,
    output: Annotated[
        TotalsFormat, typer.Option("--format", "-o", help="Output format.")
    ] = TotalsFormat.TABLE,
) -> None:
    """Summarise a trace: sizes, run times, GPU-hours, arrivals, outcomes, bad records."""
    from simulator.report.trace_table import table
    from simulator.traces.summary import TraceSummary

    skipped: Counter[str] = Counter()
    summary = TraceSummary()
    for job in _jobs(trace, trace_format, columns, strict, skipped):
        summary.add(job)
    figures = summary.figures()
    figures |= {"skipped": skipped.total(), "skipped_by_reason": dict(sorted(skipped.items()))}
    typer.echo(json.dumps(figures) if output is TotalsFormat.JSON else table(trace.name, figures))


def generate_command(
    mix: Annotated[
        Literal["acme-kalos", "acme-seren", "philly", "rsc-1", "rsc-2"],
        typer.Option(
            help="The cluster whose published sizes, run times and outcomes are drawn.",
            show_default=False,
        ),
    ],
    fabric: Annotated[
        str, typer.Option(help="The cluster to fill: a preset or a file.", show_default=False)
    ],
    jobs: Annotated[int, typer.Option(min=1, max=100_000_000, help="Number of jobs.")] = 10_000,
    load: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=1000,
            callback=finite,
            help="Host time of all jobs over host time of the cluster.",
        ),
    ] = 0.8,
    seed: Seed = 0,
    attach: Rules = "ring",
    out: Out = None,
) -> None:
    """Generate a synthetic trace after the published job mix of a cluster.

    docs/traces.md says what is published and what is chosen. The same options
    give the same bytes.
    """
    from scheduler.files.inputs import load_fabric
    from simulator.mixes.fit import fit
    from simulator.mixes.generate import MixRequest, TraceExtent, generate
    from simulator.mixes.published import MIXES
    from simulator.report.trace_table import extent_text

    cluster = load_fabric(fabric)
    hosts, gpus_per_host = cluster.host_count, cluster.gpus_per_host
    wanted = MixRequest(fit(MIXES[mix]), jobs, hosts, gpus_per_host, load, seed)
    extent = TraceExtent()
    head = f"# synthetic: mix {mix}, {jobs} jobs, load {load:g}, {cluster.name}, seed {seed}\n"

    def text() -> Iterator[str]:
        yield head
        yield from _lines(extent.watch(generate(wanted)), attach, cluster, seed)

    _write(text(), out)
    typer.echo(extent_text(extent), err=True)


def _jobs(
    path: Path, trace_format: str, columns: str | None, strict: bool, skipped: Counter[str]
) -> Iterator[TraceJob]:
    """The jobs of a file. Wrong records go to stderr; whatever is left out is counted."""
    from simulator.cli.terminal import Warnings
    from simulator.options import DEFAULTS, conflicts
    from simulator.traces.load import TraceFile, advice, find_format

    options = {**DEFAULTS, "trace_format": trace_format, "columns": columns}
    for key, message in conflicts(options):
        raise InputError(Problem(BY_KEY[key].flag, message))
    warnings, faults = Warnings(), 0

    def on_bad(file: Path, bad: BadRecord) -> None:
        problem = Problem(bad.field, bad.detail, str(file), bad.line)
        if strict and bad.is_fault:
            raise InputError(problem)
        skipped[bad.kind] += 1
        if bad.is_fault:
            nonlocal faults
            faults += 1
            warnings.add(f"{problem}; skipped")

    trace = TraceFile(path, find_format(trace_format, columns), on_bad)
    yield from trace
    if faults and not trace.jobs:
        text = f"holds no job in the format {trace_format}: {faults:,} records are wrong"
        hint = f", the first is named above{advice(path, trace.format)}"
        raise InputError(Problem("", text + hint, str(path)))
    warnings.close()


def _lines(jobs: Iterable[TraceJob], attach: str, fabric: Fabric, seed: int) -> Iterator[str]:
    """Records that count from midnight before the first submit, so that the hours stay.
    Jobs of less than a host stay a size."""
    from simulator.traces.mapping import job_spec
    from simulator.traces.shapes import ShapeAssignment, ShapeRule
    from simulator.traces.write import line

    rule = ShapeAssignment(ShapeRule(attach), seed)
    zero_ns = None
    for job in jobs:
        zero_ns = job.submit_ns // DAY_NS * DAY_NS if zero_ns is None else zero_ns
        spec = job.spec
        if rule.rule is not ShapeRule.RING and job.gpus >= fabric.gpus_per_host:
            spec = job_spec(job, fabric.gpus_per_host, None, True, rule)
        yield line(job, zero_ns, spec)


def _write(lines: Iterable[str], out: Path | None) -> None:
    from simulator.traces.write import opened

    if out is None:
        sys.stdout.writelines(lines)
        return
    with opened(out) as file:
        file.writelines(lines)
