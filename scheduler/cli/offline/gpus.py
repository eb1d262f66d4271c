"""`muster gpus`: the catalogue of accelerators, with the source of each figure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placement import BadInput
from scheduler.cli.calls import AnswerFormat, Output, formatted
from scheduler.cli.render.text import table
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from placement.fabric.gpus import Gpu


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gpus")(gpus_command)


def gpus_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names to show, in any case; all where none is given."),
    ] = None,
    output: Output = AnswerFormat.TABLE,
) -> None:
    """List the GPUs that `gpu:` of a fabric file may name, and what their makers state of them.

    Peaks are dense, in TFLOP/s of one GPU. docs/steptime.md says what of them steps reach.
    """
    from placement.fabric.gpus import catalogue, gpu_named

    try:
        chosen = [gpu_named(name, "", {}) for name in names or ()] or [*catalogue().values()]
    except BadInput as error:
        raise InputError(Problem("NAMES", error.message)) from None
    if output is AnswerFormat.TABLE:
        sys.stdout.write(_page(chosen) + "\n")
    else:
        body = {"gpus": [_mapping(gpu) for gpu in chosen]}
        sys.stdout.write(formatted(body, output) + "\n")


def _mapping(gpu: Gpu) -> dict[str, Any]:
    return {
        "name": gpu.name,
        "memory_gb": gpu.memory_gb,
        "memory_gb_per_s": gpu.memory_gb_per_s,
        "scale_up_gbps": gpu.scale_up_gbps,
        "watts": gpu.watts or None,
        "tflops": dict(gpu.tflops),
        "sources": dict(gpu.sources),
    }


def _page(gpus: list[Gpu]) -> str:
    """A table, and below it the sources: the usual one of each GPU, then those that differ."""
    from placement.fabric.gpus import PRECISIONS

    heads = ["gpu", "memory GB", "GB/s", "scale-up Gbit/s", "W", *PRECISIONS]
    rows, sources = [], []
    for gpu in gpus:
        peaks, cited = dict(gpu.tflops), dict(gpu.sources)
        figures = (gpu.memory_gb, gpu.memory_gb_per_s, gpu.scale_up_gbps, gpu.watts)
        rates = [f"{peaks[each]:,.0f}" if each in peaks else "-" for each in PRECISIONS]
        rows.append([gpu.name, *(f"{x:,.0f}" if x else "-" for x in figures), *rates])
        usual = cited["tflops"]
        apart = [f"{key}: {text}" for key, text in cited.items() if text != usual]
        sources.append("; ".join([f"{gpu.name}: {usual}", *apart]))
    return "\n\n".join([table(heads, rows), "\n".join(sources)])
