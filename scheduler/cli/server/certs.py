"""`muster certs`: a CA and certificates to start with, where a site has none."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from scheduler.cli.calls import AnswerFormat, Output, write_rows
from scheduler.files.errors import InputError, Problem

Folder = Annotated[Path, typer.Option("--folder", help="Where the files are.", file_okay=False)]
Days = Annotated[int, typer.Option(min=1, max=3_650, help="Days until it expires.")]
DEFAULT_FOLDER = Path("tls")
_YEAR_D = 365


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Make a CA, and certificates of servers, callers and hosts."
    )
    group.command("init")(init)
    group.command("new")(new)
    group.command("list")(list_certificates)
    app.add_typer(group, name="certs")


def init(
    server: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or IP address by which clients call the server; give it again for more."
            " (default: localhost, 127.0.0.1 and the name of this machine)"
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(help="A caller; give it again for more."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A host, for its agent; give it again for more."),
    ] = None,
    days: Days = _YEAR_D,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Make a CA, a server's certificate, and certificates of callers and hosts.

    Example: muster certs init --server muster.example.org --client ada --folder /etc/muster/tls
    """
    from scheduler.access.certificates import CA, SERVER, issue, make_ca

    now, clients, hosts = _now(), client or [], host or []
    for option, names in (("--client", clients), ("--host", hosts)):
        for name in names:
            _check(name, option)
    if both := sorted({*clients} & {*hosts}):
        raise InputError(Problem("--host", f"{both[0]} is the name of a caller already"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(Problem("--folder", f"{error.strerror}", str(folder))) from None
    make_ca(folder, now)
    issue(folder, SERVER, server or _this_machine(), days, now, replace=False)
    for name in clients:
        issue(folder, name, [name], days, now, replace=False)
    for name in hosts:
        issue(folder, name, [name], days, now, replace=False, is_host=True)
    for name in (CA, SERVER, *clients, *hosts):
        typer.echo(f"{folder / name}.pem  {folder / name}.key")
    typer.echo(
        f"muster: keep {folder / CA}.key away from the server: whoever has it can let anybody in",
        err=True,
    )


def new(
    name: Annotated[
        str, typer.Argument(help="A caller or a host; `server` for one more of the server.")
    ],
    server: Annotated[
        list[str] | None,
        typer.Option(help="With `server`: name or IP address of it; give it again for more."),
    ] = None,
    days: Days = _YEAR_D,
    is_host: Annotated[
        bool, typer.Option("--host", help="For the agent of a host, and for no caller.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing certificate.")] = (
        False
    ),
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Make one more certificate with the CA in a folder.

    A server takes a replaced one for the next connection, without a restart.

    Example: muster certs new h0001 --host --folder /etc/muster/tls
    """
    from scheduler.access.certificates import SERVER, issue

    if server and name != SERVER:
        raise InputError(Problem("--server", "goes with the name `server` alone"))
    if is_host and name == SERVER:
        raise InputError(Problem("--host", "does not go with the name `server`"))
    _check(name, "NAME")
    names = (server or _this_machine()) if name == SERVER else [name]
    path = issue(folder, name, names, days, _now(), replace=replace, is_host=is_host)
    typer.echo(f"{path}  {path.with_suffix('.key')}")


def list_certificates(output: Output = AnswerFormat.TABLE, folder: Folder = DEFAULT_FOLDER) -> None:
    """List the certificates in a folder, and when they expire."""
    from scheduler.access.certificates import certificates_in
    from scheduler.files.timeparse import written

    now = _now()
    rows = [
        {
            "name": file.path.stem,
            "names": ", ".join(file.names),
            "expires": written(file.expires),
            "days_left": max(0, (file.expires - now).days),
        }
        for file in certificates_in(folder)
    ]
    write_rows(rows, output, "no certificates")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _check(name: str, option: str) -> None:
    """A name is one of files, too."""
    from scheduler.access.certificates import CA
    from scheduler.core.names import NAME_RULE, is_name

    if not is_name(name) or name == CA:
        raise InputError(Problem(option, NAME_RULE if name != CA else "is the CA's"))


def _this_machine() -> list[str]:
    import socket

    return list(dict.fromkeys(["localhost", "127.0.0.1", socket.getfqdn() or "localhost"]))
