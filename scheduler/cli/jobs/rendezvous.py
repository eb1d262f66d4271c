"""`muster rendezvous`: a host's place in a gang, for ranks that somebody else's launcher starts.

The launcher runs the same command on every host and has no ranks to negotiate: which host is
which node is what the server placed, also after a swap.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, connected, end
from scheduler.cli.exit_codes import FAILED, NOT_A_MEMBER, TIMED_OUT
from scheduler.cli.jobs.by_name import changes_of
from scheduler.cli.jobs.jobs import JobName
from scheduler.cli.numbers import some_seconds

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1 import job_pb2

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as of shells


class EnvironmentFormat(StrEnum):
    """Format of environment variables."""

    ENV = "env"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rendezvous)


def rendezvous(
    name: JobName,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="What to become, with this environment; no shell reads it. (default: print it)",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            envvar=["MUSTER_AGENT_NAME", "SLURMD_NODENAME"],
            help="This host, as the fabric calls it. (default: its host name, or that up to the"
            " first dot)",
        ),
    ] = "",
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="On a host that is not in the gang: wait until it is called in."
        ),
    ] = False,
    timeout: Annotated[
        str, typer.Option(help="Wait no longer than this, such as 10m. (default: for ever)")
    ] = "",
    output: Annotated[
        EnvironmentFormat,
        typer.Option("--format", "-o", help="`env`: lines that a shell reads; without a command."),
    ] = EnvironmentFormat.ENV,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Print the place of this host in a gang as environment variables, or run a command with them.

    For torchrun, NVRx's ft_launcher and the like, started by others on each host of the gang. It
    waits until the gang has its hosts; after a swap the new host gets the rank of the lost one.

    Exit code: 0 printed, 1 refused, or the job has ended, 6 this host is not in the gang, 124 the
    timeout came first. With a command: that of the command; 127 it does not exist, 126 it does not
    start.
    Example: muster rendezvous gang --timeout 10m -- torchrun train.py
    """
    from scheduler.cli.render.place.formats import rendezvous_environment

    names = [host] if host else _names_of_this_machine()
    timeout_s = some_seconds(timeout) if timeout else None
    with connected(address) as client:
        job, node = _placed(client, name, names, timeout_s, is_standby=standby)
    from scheduler.cli.jobs.ranks import live_gang

    environment = rendezvous_environment(live_gang(job), node)
    if command:
        raise _run(command, environment)
    if output is EnvironmentFormat.JSON:
        typer.echo(json.dumps(environment))
        return
    for key, value in environment.items():
        typer.echo(f"{key}={shlex.quote(value)}")


def _names_of_this_machine() -> list[str]:
    name = socket.gethostname()
    return list(dict.fromkeys((name, name.partition(".")[0])))


def _placed(
    client: Client, name: str, names: Sequence[str], timeout_s: float | None, *, is_standby: bool
) -> tuple[job_pb2.Job, int]:
    """The job with its hosts, and the number of this one among them.

    Raises: typer.Exit where it has none, or not in time."""
    from scheduler.v1 import job_pb2

    job, shown = client.get_job(name), ""
    changes = changes_of(client, [name], {job.uid: job}, timeout_s)
    while True:
        if job.spec.HasField("run"):
            raise end(f"job {name} has `run`: agents start its ranks, nobody else", FAILED)
        if job.state == job_pb2.JOB_STATE_RUNNING:
            hosts = list(job.placement.hosts)
            node = next((hosts.index(each) for each in names if each in hosts), None)
            if node is not None:
                return job, node
            reason = _why_not_a_member(job, name, names)
            if not is_standby:
                raise end(reason, NOT_A_MEMBER)
        elif job.state in (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_INTERRUPTED):
            state = job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
            reason = f"job {name} is {state}: {job.reason or 'no reason yet'}"
        else:
            state = job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
            raise end(f"job {name} has ended: {state}", FAILED)
        if reason != shown:
            typer.echo(f"muster: waiting: {reason}", err=True)
            shown = reason
        if next(changes, None) is None:
            raise end(f"nothing after {timeout_s:g} s: {reason}", TIMED_OUT)
        job = client.get_job(name, job.uid)


def _why_not_a_member(job: job_pb2.Job, name: str, names: Sequence[str]) -> str:
    spare = next((each for each in names if each in job.placement.spares), None)
    if spare is not None:
        return f"host {spare} is a spare of job {name}, with no ranks in attempt {job.attempt}"
    return f"host {' or '.join(names)} is not in the gang of job {name}, attempt {job.attempt}"


def _run(command: Sequence[str], added: dict[str, str]) -> typer.Exit:
    """Become the command; returns only where that fails."""
    sys.stdout.flush()
    try:
        os.execvpe(command[0], list(command), {**os.environ, **added})
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        return end(f"{command[0]}: {error.strerror}", code)
