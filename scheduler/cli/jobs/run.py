"""`muster run`: a gang at once, from a command; `muster alloc`: hosts, and a shell on the first;
and a command beside a rank, with the streams of this process."""

from __future__ import annotations

import os
import queue
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, connected, end
from scheduler.cli.exit_codes import FAILED, INTERRUPTED
from scheduler.cli.numbers import MOST, some_seconds

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.core import JobSpec
    from scheduler.v1.service_pb2 import OpenChannelRequest, OpenChannelResponse

CHUNK: Final = 32 << 10
_DEPTH: Final = 64  # pieces of stdin that wait
_LOOK_S: Final = 0.5  # between two looks at a job that waits for its hosts
_HOUR_S: Final = 3_600


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(context_settings={"ignore_unknown_options": True})(run)
    app.command()(alloc)


Ranks = Annotated[
    int, typer.Option("--ranks", "-n", min=1, max=MOST, help="Ranks of the gang, a GPU each.")
]
Name = Annotated[str, typer.Option(help="Name of the job. (default: of the program)")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="Set a variable; may be repeated."),
]
_duration = {"parser": some_seconds, "metavar": "DURATION"}


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM [ARGUMENT]...",
            help="What every rank runs; torchrun once on each host.",
            show_default=False,
        ),
    ],
    ranks: Ranks,
    name: Name = "",
    env: Env = None,
    time_limit_s: Annotated[
        int | None, typer.Option("--time-limit", **_duration, help="As of a job file: 2h30m.")
    ] = None,
    rank: Annotated[int, typer.Option(min=0, max=MOST, help="Print what this rank writes.")] = 0,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Run a gang now in this directory, and print what rank 0 writes until it ends.

    Ctrl-C cancels the job. It is not started again after a failure, and begins at step 0.
    Exit code: 0 completed, 1 failed, 130 cancelled by Ctrl-C.
    Example: muster run -n 16 -- torchrun train.py --lr 3e-4
    """
    run_keys = {"per_host": 1} if PurePosixPath(command[0]).name == "torchrun" else {}
    spec = _spec(command, ranks, name, env, time_limit_s, **run_keys)
    with connected(address) as client:
        made = client.create_job(spec)
        typer.echo(f"{spec.name}: {made.reason or 'starts'}", err=True)
        try:
            code = _follow(client, spec.name, rank)
        except KeyboardInterrupt:
            client.cancel_job(spec.name, "interrupted by its user", made.uid)
            typer.echo(f"{spec.name}: cancelled", err=True)
            code = INTERRUPTED
    raise typer.Exit(code)


def alloc(
    ranks: Ranks,
    name: Name = "",
    env: Env = None,
    time_limit_s: Annotated[
        int | None,
        typer.Option("--time-limit", **_duration, help="As of a job file: 2h30m. (default: 1h)"),
    ] = None,
    idle_s: Annotated[
        int | None,
        typer.Option(
            "--idle",
            **_duration,
            help="Give them back when nobody has used them for so long. (default: 30m)",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--no-shell", help="Open no shell, and keep the hosts.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Get hosts without a command, and a shell on the first; its end gives them back.

    Commands run there by `muster exec NAME --rank R -- ...`, with the variables of a rank. Without
    a terminal or with --no-shell the hosts stay until `muster cancel NAME`. A command that runs
    uses them, and so does a shell in which something was read or written.
    Exit code: of the shell; 1 where the hosts were not had, 130 after Ctrl-C.
    Example: muster alloc -n 16 --time-limit 4h
    """
    from scheduler.client import ServiceError

    run_keys = {"idle_s": idle_s or _HOUR_S // 2, "per_host": 1, "grace_s": 1}
    name, limit_s = name or _unique("alloc"), time_limit_s or _HOUR_S
    spec = _spec(["sleep", "infinity"], ranks, name, env, limit_s, **run_keys)
    has_shell = sys.stdin.isatty() and not keep
    with connected(address) as client:
        made = client.create_job(spec)
        typer.echo(f"{spec.name}: {made.reason or 'starts'}", err=True)
        code, is_kept = INTERRUPTED, False
        try:
            hosts = _hosts(client, spec.name)
            typer.echo(f"{spec.name}: {' '.join(hosts)}")
            is_kept = not has_shell
            code = 0
            if has_shell:
                code = run_beside(client, spec.name, 0, [], reads=True, terminal=True)
        except KeyboardInterrupt:
            is_kept = False
        finally:
            if not is_kept:
                with suppress(ServiceError):  # it may have ended
                    client.cancel_job(spec.name, "given back by its user", made.uid)
    raise typer.Exit(code)


def _hosts(client: Client, name: str) -> list[str]:
    """The hosts of a job once its ranks have started. Raises: typer.Exit where they do not."""
    from scheduler.v1 import job_pb2

    waiting = (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_INTERRUPTED)
    while not (job := client.get_job(name)).HasField("launch_time"):
        if job.state not in waiting:
            raise end(f"{name}: {job.reason or 'it has ended'}", FAILED)
        time.sleep(_LOOK_S)
    return list(job.placement.hosts)


def _spec(
    command: list[str],
    ranks: int,
    name: str,
    env: list[str] | None,
    time_limit_s: int | None,
    **run_keys: int,
) -> JobSpec:
    """A job of this directory that is not started again."""
    from scheduler.files.job import job_from_mapping

    run_mapping = {"command": command, "workdir": os.getcwd(), "new_run": True, **run_keys}
    mapping: dict[str, Any] = {
        "name": name or _unique(PurePosixPath(command[0]).name.replace(".", "-")),
        "parallelism": {"dp": ranks},
        "traffic": {"dp": 1},  # its hosts lie beside each other
        "spares": 0,
        "restarts": {"max": 0},
        "run": run_mapping,
    }
    if env:
        run_mapping["env"] = dict(_pair(text) for text in env)
    if time_limit_s:
        mapping["time_limit_s"] = time_limit_s
    return job_from_mapping(mapping)


def _unique(name: str) -> str:
    return f"{name}-{os.urandom(3).hex()}"


def _follow(client: Client, name: str, rank: int) -> int:
    """Print the log of a rank until the job ends; the exit code."""
    from scheduler.v1 import job_pb2

    for data in client.tail_logs(name, rank, follow=True):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    job = client.get_job(name)
    if job.state == job_pb2.JOB_STATE_COMPLETED:
        return 0
    typer.echo(f"{name}: {job.reason or 'cancelled'}", err=True)
    return FAILED


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    return key, value


def run_beside(
    client: Client, job: str, rank: int, command: list[str], *, reads: bool, terminal: bool
) -> int:
    """Run a command beside a rank with the streams of this process; return its exit code. Raises:
    ServiceError."""
    from scheduler.v1.service_pb2 import OpenChannelRequest

    first = OpenChannelRequest(name=job, rank=rank, command=command)
    inputs: queue.Queue[OpenChannelRequest | None] = queue.Queue(_DEPTH)
    if terminal:
        first.columns, first.rows = _terminal_size()

    def resize(*_: object) -> None:
        columns, rows = _terminal_size()
        with suppress(queue.Full):
            inputs.put_nowait(OpenChannelRequest(rows=rows, columns=columns))

    def read() -> None:
        while data := os.read(0, CHUNK):
            inputs.put(OpenChannelRequest(data=data))
        inputs.put(OpenChannelRequest(is_last=True))

    if reads:
        threading.Thread(target=read, daemon=True).start()
    else:
        inputs.put(OpenChannelRequest(is_last=True))
    requests = (each for each in _after(first, iter(inputs.get, None)))
    with _raw(resize) if terminal else nullcontext():
        code = FAILED
        for answer in client.open_channel(job, requests):
            _write(answer)
            code = answer.exit_code if answer.HasField("exit_code") else code
    inputs.put(None)
    return code


def _after(
    first: OpenChannelRequest, others: Iterator[OpenChannelRequest]
) -> Iterator[OpenChannelRequest]:
    yield first
    yield from others


def _terminal_size() -> tuple[int, int]:
    """Columns and rows; those of a usual terminal where this one does not say."""
    columns, rows = os.get_terminal_size(0)
    return columns or 80, rows or 24


def _write(answer: OpenChannelResponse) -> None:
    stream = sys.stderr if answer.is_error else sys.stdout
    stream.buffer.write(answer.data)
    stream.buffer.flush()


@contextmanager
def _raw(resize: signal.Handlers | object) -> Iterator[None]:
    """The terminal passes on every key, and says when it has another size."""
    before = termios.tcgetattr(0)
    signal.signal(signal.SIGWINCH, resize)  # type: ignore[arg-type]
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
