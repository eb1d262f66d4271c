"""`muster console`: a log in the browser, at any time of it."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from typing import Annotated

import typer

from scheduler.files.errors import InputError, Problem

LISTEN = "127.0.0.1:7481"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(console)


def console(
    source: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="The folder of a replay's --report, a backup, or the URL of a store.",
            show_default=False,
        ),
    ],
    listen: Annotated[str, typer.Option(help="HOST:PORT on this machine, for a browser.")] = LISTEN,
) -> None:
    """Show the past of a cluster as a map that moves in time, until Ctrl-C.

    The log is read once and changes nothing. A running server has the same page in its own console.
    Example: muster replay trace.swf --fabric roce-24k --report out && muster console out
    """
    show_log(source, listen)


def show_log(source: str, listen: str) -> None:
    """Serve the console of a log. Raises: InputError, CannotListen."""
    import gzip

    from scheduler.access.addresses import host_and_port, is_loopback
    from scheduler.console.logs import read_log
    from scheduler.console.server import log_server
    from scheduler.console.thread import HttpEndpoint, bound
    from scheduler.console.timeline import timeline

    host, port = host_and_port(listen)
    if not is_loopback(host) or port is None:
        reason = f"must be HOST:PORT of this machine alone, as {LISTEN}: a log names everybody"
        raise InputError(Problem("--listen", reason))
    state, events = read_log(source)
    if not events and state.fabric is None:
        raise InputError(Problem("", "is empty: it has no event", source))
    content = gzip.compress(timeline(state, events), 5)
    listening = bound(HttpEndpoint(host, port, may_move=listen == LISTEN))
    server = log_server(content)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    address = f"http://{host}:{listening.getsockname()[1]}"
    typer.echo(f"{len(events):,} events of {source} on {address}, until Ctrl-C")
    server.run(listening, None, nullcontext)
