"""`muster run`: a gang at once, from a command; its output here, and Ctrl-C ends it."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, connected
from scheduler.cli.exit_codes import FAILED
from scheduler.cli.numbers import MOST, some_seconds

if TYPE_CHECKING:
    from scheduler.client import Client

_INTERRUPTED: Final = 130  # as a shell has it for SIGINT


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(context_settings={"ignore_unknown_options": True})(run)


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM [ARGUMENT]...",
            help="What every rank runs; torchrun once on each host.",
            show_default=False,
        ),
    ],
    ranks: Annotated[
        int, typer.Option("--ranks", "-n", min=1, max=MOST, help="Ranks of the gang, a GPU each.")
    ],
    name: Annotated[str, typer.Option(help="Name of the job. (default: of the program)")] = "",
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Set a variable; may be repeated."),
    ] = None,
    time_limit_s: Annotated[
        int | None,
        typer.Option(
            "--time-limit", parser=some_seconds, metavar="DURATION", help="As of a job file: 2h30m."
        ),
    ] = None,
    rank: Annotated[int, typer.Option(min=0, max=MOST, help="Print what this rank writes.")] = 0,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Run a gang now in this directory, and print what rank 0 writes until it ends.

    Ctrl-C cancels the job. It is not started again after a failure, and begins at step 0.
    Exit code: 0 completed, 1 failed, 130 cancelled by Ctrl-C.
    Example: muster run -n 16 -- torchrun train.py --lr 3e-4
    """
    from scheduler.files.job import job_from_mapping

    program = PurePosixPath(command[0]).name
    mapping: dict[str, Any] = {
        "name": name or f"{program.replace('.', '-')}-{secrets.token_hex(3)}",
        "parallelism": {"dp": ranks},
        "traffic": {"dp": 1},  # its hosts lie beside each other
        "spares": 0,
        "restarts": {"max": 0},
        "run": {"command": command, "workdir": os.getcwd(), "new_run": True},
    }
    if program == "torchrun":
        mapping["run"]["per_host"] = 1
    if env:
        mapping["run"]["env"] = dict(_pair(text) for text in env)
    if time_limit_s:
        mapping["time_limit_s"] = time_limit_s
    spec = job_from_mapping(mapping)
    with connected(address) as client:
        made = client.create_job(spec)
        typer.echo(f"{made.name}: {made.reason or 'starts'}", err=True)
        try:
            code = _follow(client, made.name, rank)
        except KeyboardInterrupt:
            client.cancel_job(made.name, "interrupted by its user", made.uid)
            typer.echo(f"{made.name}: cancelled", err=True)
            code = _INTERRUPTED
    raise typer.Exit(code)


def _follow(client: Client, name: str, rank: int) -> int:
    """Print the log of a rank until the job ends; the exit code."""
    from scheduler.v1 import job_pb2

    for data in client.tail_logs(name, rank, follow=True):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    job = client.get_job(name)
    if job.state == job_pb2.JOB_STATE_COMPLETED:
        return 0
    typer.echo(f"{job.name}: {job.reason or 'cancelled'}", err=True)
    return FAILED


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    return key, value
