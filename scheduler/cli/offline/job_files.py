"""`muster job import`: a job file from what another tool is started with; `muster launch template`:
one to begin with, for the framework that one has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from muster.structs import struct
from scheduler.cli.calls import end
from scheduler.cli.exit_codes import BAD_INPUT
from scheduler.cli.numbers import MOST
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


@struct(frozen=True, slots=True)
class _Template:
    """`command`: of the job. `saved`: what its program calls when a checkpoint is complete.
    `resumed`: how it begins from the newest one."""

    command: tuple[str, ...]
    saved: str
    resumed: str


_WHERE: Final = 'os.environ["MUSTER_CHECKPOINT"]'
_TEMPLATES: Final = {
    "python": _Template(
        ("python3", "train.py"),
        "with progress.saving(root, step) as folder: ...",
        "progress.resume(root)",
    ),
    "torchrun": _Template(
        ("torchrun", "train.py"),
        'progress.saved(step, path, marker=".metadata")  # after dcp.save',
        f"dcp.load(state, checkpoint_id={_WHERE})",
    ),
    "torchtitan": _Template(
        ("torchrun", "-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_8b"),
        'progress.saved(step, path, marker=".metadata")',
        "--checkpoint.load_step",
    ),
    "megatron": _Template(
        ("torchrun", "pretrain_gpt.py", "--save", "ckpt", "--load", "ckpt"),
        'progress.saved(iteration, f"{args.save}/iter_{iteration:07d}", marker="metadata.json")',
        "--load reads latest_checkpointed_iteration.txt",
    ),
    "deepspeed": _Template(
        ("torchrun", "train.py", "--deepspeed", "ds_config.json"),
        'progress.saved(step, f"{root}/{tag}")  # after engine.save_checkpoint on all ranks',
        f"engine.load_checkpoint(root, tag=Path({_WHERE}).name)",
    ),
    "accelerate": _Template(
        ("torchrun", "train.py"),
        "progress.saved(step, path)  # after accelerator.save_state(path)",
        f"accelerator.load_state({_WHERE})",
    ),
    "hf": _Template(
        ("torchrun", "train.py"),
        'TrainerCallback.on_save: progress.saved(step, path, marker="trainer_state.json")',
        f"trainer.train(resume_from_checkpoint={_WHERE})",
    ),
    "lightning": _Template(
        ("torchrun", "train.py"),
        "progress.saved(step, path)  # after trainer.save_checkpoint(path)",
        f"trainer.fit(model, ckpt_path={_WHERE})",
    ),
}


def register(app: typer.Typer) -> None:
    """Add the group."""
    launch = typer.Typer(help="Job files of programs that agents start.", no_args_is_help=True)
    launch.command()(template)
    app.add_typer(launch, name="launch")


def template(
    framework: Annotated[
        str, typer.Argument(help=f"One of {', '.join(_TEMPLATES)}.", show_default=False)
    ],
    ranks: Annotated[
        int, typer.Option("--ranks", "-n", min=1, max=MOST, help="Ranks of the gang, a GPU each.")
    ] = 16,
) -> None:
    """Print a job file for a framework, which `muster submit` takes as it is.

    The program is in this directory. Its comments say what the program calls so that it goes on
    from its last checkpoint after a failure.
    Example: muster launch template megatron -n 64 > train.yaml
    """
    chosen = _TEMPLATES.get(framework)
    if chosen is None:
        known = ", ".join(_TEMPLATES)
        raise end(f"{framework!r} is not a framework known here: {known}", BAD_INPUT)
    per_host = "\n  per_host: 1            # it starts a rank for each GPU itself"
    typer.echo(
        f"""# {framework}. All keys: docs/job-file.md
name: train
parallelism: {{dp: {ranks}}}     # as the program splits its model: {{tp: 8, pp: 2, dp: 4}}
traffic: {{dp: 1}}         # or model: and batch:, for the seconds of a step
spares: 1                # hosts that take over for one that fails
restarts: {{max: 10}}
hang: {{action: warn}}     # or restart, or ask
run:
  command: {json.dumps(chosen.command)}
  workdir: {json.dumps(os.getcwd())}{per_host if chosen.command[0] == "torchrun" else ""}
  env: {{NCCL_DEBUG: WARN}}
# In the program, `from muster import progress`:
#   progress.report(step)            each step: its rate, its end, and hangs are seen
#   {chosen.saved}
#   to go on: {chosen.resumed}"""
    )
