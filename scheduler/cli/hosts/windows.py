"""`muster window`: maintenance windows and reservations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from placement import BadInput
from scheduler.cli import complete
from scheduler.cli.calls import (
    AskedServer,
    DryRun,
    Etag,
    Filter,
    States,
    Why,
    asks_server,
    checked_only,
    state_numbers,
)
from scheduler.cli.lists import Listing, asks_list
from scheduler.cli.numbers import MOST

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.core.model.window import Window
    from scheduler.files.windows import WindowsFile
    from scheduler.v1 import window_pb2

app = typer.Typer(
    help="Reserve hosts for a period, for maintenance, a tenant or jobs; or maintain links.",
    no_args_is_help=True,
)

Name = Annotated[
    str,
    typer.Argument(help="Name of the window.", autocompletion=complete.windows, show_default=False),
]
Kind = Literal["maintenance", "reservation"]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--hosts", help="Hosts or domains, by name or range; may be repeated."),
]
LinkNames = Annotated[
    list[str] | None,
    typer.Option("--links", help="Domains whose uplinks are under maintenance; may be repeated."),
]
LinkShare = Annotated[
    str | None,
    typer.Option(
        "--share", help="Share of capacity that these links keep: 0.5 or 8/16. (default: nothing)"
    ),
]
Count = Annotated[
    int | None,
    typer.Option(min=1, max=MOST, help="Reservations: this number of --hosts, or of all hosts."),
]
Start = Annotated[
    str | None, typer.Option(help="When it opens: 2026-11-21T06:00Z, or +2h from now.")
]
End = Annotated[str | None, typer.Option(help="When it closes, as --start; or give --duration.")]
Duration = Annotated[str | None, typer.Option(help="How long it lasts: 90m, 4h, 1d12h.")]
Tenant = Annotated[
    str | None, typer.Option(help="Reservations: the tenant that may use the hosts.")
]
Jobs = Annotated[
    list[str] | None,
    typer.Option(
        "--job",
        help="Reservations: jobs that may use the hosts, by name or pattern; may be repeated.",
    ),
]
Leaving = Annotated[
    Literal["wait", "move", "requeue"] | None,
    typer.Option(
        help="Gangs on the hosts when the window opens: wait for their end (default), move them"
        " to other hosts, or requeue them where no other hosts are free."
    ),
]


def register(root: typer.Typer) -> None:
    """Add the commands."""
    root.add_typer(app, name="window")


@app.command()
@asks_server
def create(
    server: AskedServer,
    name: Name,
    kind: Annotated[Kind, typer.Option(help="Kind of window.", show_default=False)],
    start: Annotated[
        str, typer.Option(help="When it opens: 2026-11-21T06:00Z, or +2h from now.")
    ] = "+0s",
    end: End = None,
    duration: Duration = None,
    hosts: Hosts = None,
    count: Count = None,
    tenant: Tenant = None,
    job: Jobs = None,
    leave: Leaving = None,
    links: LinkNames = None,
    share: LinkShare = None,
    reason: Why = "",
    dry_run: DryRun = False,
) -> None:
    """Create a window. A job that would run into it does not start on its hosts."""
    if (end is None) == (duration is None):
        raise typer.BadParameter("give exactly one", param_hint="--end or --duration")
    message = _message(
        name,
        kind=kind,
        hosts=hosts,
        host_count=count,
        tenant=tenant,
        jobs=job,
        leave=leave,
        links=links,
        link_share=_share(share),
        reason=reason,
        **_times(start, end, duration),
    )
    server.show(lambda client: client.create_window(message, dry_run=dry_run), _text)
    checked_only(dry_run)


@app.command()
@asks_server
def apply(
    server: AskedServer,
    file: Annotated[str, typer.Argument(help="A windows file.", show_default=False)],
    dry_run: DryRun = False,
) -> None:
    """Create all windows of a file; windows that exist already stay as they are."""
    from scheduler.files.windows import load_windows

    desired = load_windows(file)
    windows = desired.windows(time.time_ns())
    with server.connected() as client:
        made = [
            _create_window(client, desired, at, each, dry_run) for at, each in enumerate(windows)
        ]
        answer = client.windows_answer()
        del answer.windows[:]
        answer.windows.extend(made)
        server.write(answer, _list_text)
    checked_only(dry_run)


def _create_window(
    client: Client, file: WindowsFile, at: int, window: Window, dry_run: bool
) -> window_pb2.Window:
    """Raises: InputError with the line of what is wrong with it, ServiceError."""
    from scheduler.client import ServiceError

    try:
        return client.create_window(_of(window), dry_run=dry_run)
    except ServiceError as error:
        if error.code != "INVALID_ARGUMENT":
            raise
        wrong = [(field.removeprefix("window."), text) for field, text in error.violations]
        raise file.refused(at, error.message, wrong) from None


@app.command("list")
@asks_list
def list_windows(
    listing: Listing,
    state: States = None,
    filter: Filter = "",
    order_by: Annotated[
        str, typer.Option(help="Fields with commas, such as `start_time, name desc`.")
    ] = "",
) -> None:
    """List the windows that are not over."""
    from scheduler.cli.render import window_tables
    from scheduler.v1 import window_pb2

    states = state_numbers(window_pb2.WindowState, "WINDOW_STATE_", state)
    listing.write(
        lambda client: client.windows_answer(states, filter, order_by),
        "windows",
        lambda _: window_tables.WINDOWS,
    )


@app.command()
@asks_server
def get(
    server: AskedServer,
    name: Name,
) -> None:
    """Show one window, its hosts and the jobs on them."""
    server.show(lambda client: client.get_window(name), _text)


@app.command()
@asks_server
def change(
    server: AskedServer,
    name: Name,
    start: Start = None,
    end: End = None,
    hosts: Hosts = None,
    count: Count = None,
    tenant: Tenant = None,
    job: Jobs = None,
    leave: Leaving = None,
    links: LinkNames = None,
    share: LinkShare = None,
    reason: Annotated[str | None, typer.Option(help="A reason, kept in the log.")] = None,
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Change a window; once it is open, only its end, terms and reason."""
    given = {
        "hosts": hosts,
        "host_count": count,
        "tenant": tenant,
        "jobs": job,
        "leave": leave,
        "links": links,
        "link_share": _share(share),
        "reason": reason,
        **_times(start, end, None),
    }
    fields = [field for field, value in given.items() if value is not None]
    if not fields:
        raise typer.BadParameter("nothing to change", param_hint="muster window change")
    message = _message(name, etag=etag, **given)
    server.show(lambda client: client.update_window(message, fields, dry_run=dry_run), _text)
    checked_only(dry_run)


@app.command()
@asks_server
def delete(
    server: AskedServer,
    name: Name,
    reason: Why = "",
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Remove a window; its hosts are open to all jobs again."""
    server.show(
        lambda client: client.delete_window(name, reason, etag=etag, dry_run=dry_run), _text
    )
    checked_only(dry_run)


def _share(text: str | None) -> float | None:
    from scheduler.files.links.linksfile import parse_share

    if text is None:
        return None
    try:
        return parse_share(text, "--share")
    except BadInput as error:
        raise typer.BadParameter(error.message, param_hint="--share") from None


def _times(start: str | None, end: str | None, duration: str | None) -> dict[str, Any]:
    """`start_time` and `end_time`, as far as they are given."""
    from scheduler.files.timeparse import parse_duration, parse_moment
    from scheduler.wire.jobs import timestamp

    now_ns = time.time_ns()
    times: dict[str, int] = {}
    for name, text in (("start", start), ("end", end), ("duration", duration)):
        if text is None:
            continue
        try:
            times[name] = (
                times["start"] + parse_duration(text)
                if name == "duration"
                else parse_moment(text, now_ns)
            )
        except BadInput as error:
            raise typer.BadParameter(error.message, param_hint=f"--{name}") from None
    moments = {
        "start_time": times.get("start"),
        "end_time": times.get("end", times.get("duration")),
    }
    return {name: None if ns is None else timestamp(ns) for name, ns in moments.items()}


def _message(name: str, **fields: Any) -> window_pb2.Window:
    """Build a window from all fields that are not None; `kind` and `leave` are words."""
    from scheduler.v1 import window_pb2

    enums = {"kind": window_pb2.WindowKind, "leave": window_pb2.WindowLeave}
    for field, enum in enums.items():
        if fields.get(field):
            fields[field] = enum.Value(f"WINDOW_{field.upper()}_{fields[field].upper()}")
    return window_pb2.Window(name=name, **{k: v for k, v in fields.items() if v is not None})


def _of(window: Window) -> window_pb2.Window:
    from scheduler.wire.jobs import timestamp

    return _message(
        window.name,
        kind=str(window.kind),
        start_time=timestamp(window.start_ns),
        end_time=timestamp(window.end_ns),
        hosts=window.among,
        host_count=window.count,
        tenant=window.tenant,
        jobs=window.jobs,
        leave=str(window.leave),
        links=window.links,
        link_share=window.share,
        reason=window.reason,
    )


def _text(message: window_pb2.Window) -> str:
    from scheduler.cli.render import window_tables

    return window_tables.window_text(message)


def _list_text(message: Any) -> str:
    from scheduler.cli.render import window_tables

    return window_tables.windows_text(message.windows)
