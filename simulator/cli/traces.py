"""`muster trace`: generate a trace."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scheduler.cli.numbers import finite

if TYPE_CHECKING:
    from simulator.mixes.generate import TraceExtent
    from simulator.traces.record import TraceJob

MOST_SEED = 2**31 - 1  # as for a replay
DAY_NS = 86_400 * 1_000_000_000


def register(app: typer.Typer) -> None:
    """Add the commands."""
    trace = typer.Typer(help="Generate job traces.", no_args_is_help=True)
    trace.command("generate")(generate_command)
    app.add_typer(trace, name="trace")


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
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the random draws.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Output file, gzip if it ends in .gz. Default: standard output."
        ),
    ] = None,
) -> None:
    """Generate a synthetic trace after the published job mix of a cluster.

    docs/traces.md says what is published and what is chosen. The same options
    give the same bytes.
    """
    from scheduler.files.inputs import load_fabric
    from simulator.mixes.fit import fit
    from simulator.mixes.generate import MixRequest, TraceExtent, generate
    from simulator.mixes.published import MIXES

    cluster = load_fabric(fabric)
    hosts, gpus_per_host = cluster.host_count, cluster.gpus_per_host
    wanted = MixRequest(fit(MIXES[mix]), jobs, hosts, gpus_per_host, load, seed)
    extent = TraceExtent()
    head = f"# synthetic: mix {mix}, {jobs} jobs, load {load:g}, {cluster.name}, seed {seed}\n"

    def text() -> Iterator[str]:
        yield head
        yield from _lines(extent.watch(generate(wanted)))

    _write(text(), out)
    typer.echo(_extent_text(extent), err=True)


def _extent_text(extent: TraceExtent) -> str:
    """Say how long a generated trace is, and whether that is long enough to reach its load."""
    from simulator.report.text import duration

    text = (
        f"{extent.jobs:,} jobs over {duration(extent.span_s)};"
        f" a run takes {duration(extent.run_s)}, by GPU time"
    )
    if extent.is_enough:
        return text
    return f"{text}. The cluster begins empty: more jobs are needed to see it at this load"


def _lines(jobs: Iterable[TraceJob]) -> Iterator[str]:
    """Records that count from midnight before the first submit, so that the hours stay."""
    from simulator.traces.write import line

    zero_ns = None
    for job in jobs:
        zero_ns = job.submit_ns // DAY_NS * DAY_NS if zero_ns is None else zero_ns
        yield line(job, zero_ns)


def _write(lines: Iterable[str], out: Path | None) -> None:
    from simulator.traces.write import opened

    if out is None:
        sys.stdout.writelines(lines)
        return
    with opened(out) as file:
        file.writelines(lines)
