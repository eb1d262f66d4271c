"""`muster exec`, `shell`, `port-forward`, `attach`: beside the ranks of a job, on their hosts; and
the logs of all ranks at once, a line each, after the number of its rank."""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, connected, end
from scheduler.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED
from scheduler.cli.jobs.jobs import JobName
from scheduler.cli.jobs.run import CHUNK, run_beside
from scheduler.cli.numbers import MOST

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1.service_pb2 import OpenChannelRequest

MOST_FOLLOWED: Final = 64  # ranks, each by a stream of its own
_lock = threading.Lock()

Rank = Annotated[int, typer.Option(min=0, max=MOST, help="Beside this rank.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("exec", context_settings={"ignore_unknown_options": True})(execute)
    app.command(context_settings={"ignore_unknown_options": True})(shell)
    app.command("port-forward")(port_forward)
    app.command()(attach)


def execute(
    job: JobName,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- PROGRAM [ARGUMENT]...", help="What to run.", show_default=False),
    ],
    rank: Rank = 0,
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="Let it read what this command reads.")
    ] = False,
    terminal: Annotated[bool, typer.Option("--tty", "-t", help="Give it this terminal.")] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Run a command beside a rank: on its host, as its user, with its environment.

    No shell reads the command. It ends with the attempt, or with Ctrl-C; the log has who ran it.
    Exit code: its own; 128 and the number of a signal that ended it.
    Example: muster exec pretrain --rank 8 -- nvidia-smi; muster exec pretrain -it -- bash
    """
    _run(address, job, rank, command, reads=stdin, terminal=terminal)


def shell(
    job: JobName,
    rank: Rank = 0,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Open a shell beside a rank: on its host, as its user, with its environment.

    It is the shell of that user, and ends with the attempt; the log has who opened it.
    """
    _run(address, job, rank, [], reads=True, terminal=sys.stdin.isatty())


def port_forward(
    job: JobName,
    ports: Annotated[
        str, typer.Argument(metavar="[LOCAL:]PORT", help="A port here, 0 for any; a port there.")
    ],
    rank: Rank = 0,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Connect a port of this machine to one of the host of a rank, until Ctrl-C.

    Connections are made as the user of the rank, to localhost there; only programs of this machine
    get to the port here.
    Example: muster port-forward pretrain 6006, and TensorBoard is at http://127.0.0.1:6006
    """
    local, _, remote = ports.rpartition(":")
    for text in (remote, local or remote):
        if not text.isdecimal() or int(text) > 65_535:
            raise end(f"{ports!r} is not a port, nor LOCAL:PORT", BAD_INPUT)
    if int(remote) == 0:
        raise end("the port there must be 1 to 65535, not 0", BAD_INPUT)

    class Connection(socketserver.BaseRequestHandler):
        request: socket.socket

        def handle(self) -> None:
            _pass_on(client, job, rank, int(remote), self.request)

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer.daemon_threads = True
    with connected(address) as client:
        client.step_times(job)  # is there such a job?
        at = ("127.0.0.1", int(local or remote))
        try:
            server = socketserver.ThreadingTCPServer(at, Connection)
        except OSError as error:
            raise end(f"cannot listen on port {at[1]}: {error.strerror}", FAILED) from None
        with server:
            port = server.server_address[1]
            typer.echo(f"127.0.0.1:{port} is port {remote} beside rank {rank} of {job}")
            sys.stdout.flush()
            with suppress(KeyboardInterrupt):
                server.serve_forever()


def attach(job: JobName, rank: Rank = 0, address: Address = DEFAULT_ADDRESS) -> None:
    """Follow what a rank writes, from its last lines on, and say how to get beside it.

    Ctrl-C leaves the job as it is.
    """
    typer.echo(f"muster: `muster shell {job} --rank {rank}` opens a shell beside it", err=True)
    with connected(address) as client, suppress(KeyboardInterrupt):
        for data in client.tail_logs(job, rank, 10, follow=True):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _run(
    address: str, job: str, rank: int, command: list[str], *, reads: bool, terminal: bool
) -> None:
    """Run a command with the streams of this process; ends with its exit code."""
    if terminal and not (reads and sys.stdin.isatty()):
        raise end("--tty needs --stdin and a terminal here", BAD_INPUT)
    with connected(address) as client:
        try:
            code = run_beside(client, job, rank, command, reads=reads, terminal=terminal)
        except KeyboardInterrupt:
            code = INTERRUPTED
    raise typer.Exit(code)


def _pass_on(client: Client, job: str, rank: int, port: int, link: socket.socket) -> None:
    """One connection, to its end."""
    from scheduler.client import ServiceError
    from scheduler.v1.service_pb2 import OpenChannelRequest

    def requests() -> Iterator[OpenChannelRequest]:
        yield OpenChannelRequest(name=job, rank=rank, port=port)
        with suppress(OSError):
            while data := link.recv(CHUNK):
                yield OpenChannelRequest(data=data)
        yield OpenChannelRequest(is_last=True)

    try:
        for answer in client.open_channel(job, requests()):
            if answer.is_error:
                typer.echo(f"muster: {answer.data.decode(errors='replace').strip()}", err=True)
            link.sendall(answer.data if not answer.is_error else b"")
    except ServiceError as error:
        typer.echo(f"muster: {error.message}", err=True)
    except OSError:
        return  # who connected has gone


def write_all_ranks(
    client: Client, job: str, pieces: Callable[[int], Iterator[bytes]], *, follow: bool
) -> None:
    """Write the logs of all ranks, rank by rank, or with `follow` as they are written. Raises:
    ServiceError."""
    from scheduler.cli.jobs.ranks import ranks_by_role
    from scheduler.client import ServiceError

    message = client.get_job(job)
    roles = ranks_by_role(message)
    on_host = max(1, roles[-1][1].stop // max(1, message.placement.host_count))
    is_shared = message.spec.run.per_host
    numbers = [
        rank
        for run, ranks in roles
        for rank in ranks[:: on_host if run.per_host or is_shared else 1]
    ]
    if not follow:
        for rank in numbers:
            _write(rank, pieces(rank))
        return
    if len(numbers) > MOST_FOLLOWED:
        raise end(f"{len(numbers):,} logs are too many to follow; {MOST_FOLLOWED} are not", FAILED)
    failures: list[ServiceError] = []

    def follow_rank(rank: int) -> None:
        try:
            _write(rank, pieces(rank))
        except ServiceError as error:
            failures.append(error)

    threads = [threading.Thread(target=follow_rank, args=(n,), daemon=True) for n in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _write(rank: int, pieces: Iterator[bytes]) -> None:
    """Whole lines; the last one also where it has no end."""
    begun = b""
    for data in pieces:
        *lines, begun = (begun + data).split(b"\n")
        _write_lines(rank, lines)
    if begun:
        _write_lines(rank, [begun])


def _write_lines(rank: int, lines: list[bytes]) -> None:
    with _lock:
        for line in lines:
            sys.stdout.buffer.write(b"%d: %s\n" % (rank, line))
        sys.stdout.buffer.flush()
