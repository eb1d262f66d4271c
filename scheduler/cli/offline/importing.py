"""`muster job import`: a job file from what another tool is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scheduler.files.errors import InputError, Problem


def import_command(
    file: Annotated[
        Path,
        typer.Argument(
            help="A launch script of Megatron-LM or of any program that torchrun starts, a line of"
            " Megatron-LM arguments, a TorchTitan TOML or Python registry, a NeMo recipe, a"
            " DeepSpeed JSON, or a YAML of Accelerate or MaxText.",
            show_default=False,
        ),
    ],
    tool: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="<megatron|torchtitan|deepspeed|accelerate|maxtext>",
            help="Format of the file. (default: by its suffix)",
        ),
    ] = None,
    gpus: Annotated[
        int, typer.Option(help="Number of GPUs, if the file does not give it.", min=0)
    ] = 0,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A file with the model: a job file, or a config.json.",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="The function of a Python file, where it has several.")
    ] = "",
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a key of the job file, such as model.vocab=32000, over the value in FILE.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set a variable that the launch script uses."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The job file to write. (default: standard output)"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file of --output if there is one.")
    ] = False,
) -> None:
    """Make a job file from what another tool is started with, with `run` where that is a script.

    Nothing is executed. A missing value is an error that names the option to give it;
    settings that a job file cannot express become comments. Exit code: 0 written, 2 bad input.
    """
    from scheduler.files.atomic_file import write
    from scheduler.files.plugins import importer

    if output is not None and output.is_file() and not force:
        raise InputError(Problem("--output", f"{output} exists; --force replaces it"))
    shape = None if model is None else str(model)
    keys, variables = dict(_pairs(given, "--set")), dict(_pairs(env, "--env"))
    text: str = importer("job")(str(file), tool, gpus, shape, keys, variables, recipe)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write(output, text, "--output")
        typer.echo(f"{output}: the job file", err=True)


def _pairs(given: list[str] | None, option: str) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in given or []]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise InputError(Problem(option, f"must be a name, = and a value, is {key!r}"))
    return [(key, value) for key, _, value in pairs]
