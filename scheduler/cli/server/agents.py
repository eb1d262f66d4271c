"""The commands about agents: agent, agent-token, logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, connected
from scheduler.cli.contexts import quiet_grpc
from scheduler.cli.jobs.jobs import JobName
from scheduler.cli.numbers import MOST, finite
from scheduler.files.errors import InputError, Problem

STATE = "/var/lib/muster-agent"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(agent)
    app.command("agent-token")(agent_token)
    app.command()(logs)


def agent(
    server: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_AGENT_SERVER",
            help="HOST:PORT where servers listen for agents; several with commas.",
        ),
    ],
    name: Annotated[
        str,
        typer.Option(
            envvar=["MUSTER_AGENT_NAME", "SLURMD_NODENAME"],
            help="The host, as the fabric calls it. (default: its host name)",
        ),
    ] = "",
    state: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_AGENT_STATE",
            help="Folder in which the agent keeps its state; %h stands for the host.",
        ),
    ] = STATE,
    allow: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_AGENT_ALLOW",
            help="File that says who may run what on this host: users, default_user, workdirs."
            " (default: the agent's own user, if that is not root)",
        ),
    ] = "",
    join_token_file: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_JOIN_TOKEN_FILE",
            help="File with the host's join token, where it has no certificate; - is stdin.",
        ),
    ] = "",
    address: Annotated[
        str,
        typer.Option(
            help="Address at which other hosts reach this one. (default: its address towards the"
            " server)"
        ),
    ] = "",
    linger_s: Annotated[
        float,
        typer.Option(
            min=0,
            callback=finite,
            help="Seconds for which running ranks go on after SIGTERM, so that the server can move"
            " their jobs away.",
        ),
    ] = 0.0,
    place: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_AGENT_PLACE",
            help="Domains of the host, with which it joins a fabric that lacks it:"
            " zone=z0,rack=z0-r001.",
        ),
    ] = "",
    place_file: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_AGENT_PLACE_FILE",
            help="A file with these domains, one tier on a line, or with the labels of a Kubernetes"
            " node.",
        ),
    ] = "",
    one_attempt: Annotated[
        bool, typer.Option("--one-attempt", help="Leave when one attempt of a job is over.")
    ] = False,
) -> None:
    """Start, watch and stop ranks on this host, on the orders of a server.

    --ca turns on TLS; --cert and --key, with the host as common name, identify the agent.
    SIGTERM ends the agent; its ranks go on, and the next agent takes them over.
    """
    quiet_grpc()
    import logging
    import os
    import socket

    from scheduler.agent.program import AgentOptions, run

    own_name = name or socket.gethostname()  # many agents write into one file of a Slurm step
    marked = f"%(asctime)s %(levelname)s {own_name.replace('%', '%%')} %(name)s: %(message)s"
    logging.basicConfig(level=logging.WARNING, format=marked)
    variable = os.environ.get
    run(
        AgentOptions(
            server,
            own_name,
            state,
            address,
            allow,
            join_token_file,
            variable("MUSTER_CA", ""),
            variable("MUSTER_CERT", ""),
            variable("MUSTER_KEY", ""),
            linger_s=linger_s,
            place=place,
            place_file=place_file,
            one_attempt=one_attempt,
        )
    )


def agent_token(
    host: Annotated[
        str, typer.Argument(help="The host that the token is for.", show_default=False)
    ],
    secret: Annotated[
        str, typer.Option(help="The secret file of the servers; created if it does not exist.")
    ] = "join-secret",
) -> None:
    """Print the join token of a host, for its agent: it proves that host's name and no other."""
    import os
    from pathlib import Path

    from scheduler.access.tokens import LEAST_CHARACTERS, join_token, new_secret
    from scheduler.files.yaml12 import read_text

    path = Path(secret)
    if not path.exists():
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w") as file:
            file.write(new_secret() + "\n")
        typer.echo(f"muster: made the secret {path}", err=True)
    lines = read_text(path, 65_536).split()
    if not lines or min(map(len, lines)) < LEAST_CHARACTERS:
        reason = f"must have a secret of {LEAST_CHARACTERS} characters or more on each line"
        raise InputError(Problem("", reason, str(path)))
    typer.echo(join_token(lines[0], host))


def logs(
    job: JobName,
    rank: Annotated[int, typer.Option(min=0, max=MOST, help="The rank.")] = 0,
    lines: Annotated[
        int,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            max=MOST,
            help="Print the last lines only, this many; 0: all that are kept.",
        ),
    ] = 0,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Print new lines as they come, also after restarts, until the job ends.",
        ),
    ] = False,
    attempt: Annotated[
        int, typer.Option(min=0, max=MOST, help="In this attempt; 0: the present or last one.")
    ] = 0,
    all_ranks: Annotated[
        bool,
        typer.Option(
            "--all-ranks", "-a", help="Of all ranks, each line after the number of its rank."
        ),
    ] = False,
    stacks: Annotated[
        bool,
        typer.Option("--stacks", help="Print the stacks that were taken when the gang hung."),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Print what a rank has written, read from the host where it runs or ran.

    With --all-ranks and --follow lines come as they are written; without --follow rank by rank.
    Example: muster logs pretrain --attempt 1; muster logs pretrain --all-ranks --lines 5
    """
    from scheduler.cli.jobs.channels import write_all_ranks

    with connected(address) as client:

        def pieces(of_rank: int) -> Iterator[bytes]:
            return client.tail_logs(
                job, of_rank, lines, follow=follow, attempt=attempt, stacks=stacks
            )

        if all_ranks:
            write_all_ranks(client, job, pieces, follow=follow)
            return
        for data in pieces(rank):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
