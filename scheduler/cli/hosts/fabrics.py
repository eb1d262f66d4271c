"""`muster fabric apply` and `muster fabric get`: the fabric of a server that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.calls import (
    DEFAULT_ADDRESS,
    Address,
    AskedServer,
    DryRun,
    Etag,
    asks_server,
    before_call,
    checked_only,
    connected,
    end,
)
from scheduler.cli.exit_codes import BAD_INPUT, FAILED
from scheduler.cli.parameters import OutFile

if TYPE_CHECKING:
    from scheduler.client import ServiceError
    from scheduler.files.yaml12 import Document


@asks_server
def apply_command(
    server: AskedServer,
    file: Annotated[str, typer.Argument(help="The fabric file (YAML).", show_default=False)],
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            help="OLD=NEW: a host or domain, or a range of them, that has another name in the file;"
            " may be repeated.",
        ),
    ] = None,
    etag: Etag = "",
    dry_run: DryRun = False,
) -> None:
    """Replace the fabric of the server by that of a file, while everything runs.

    Shows what is added, removed, moved and renamed, or all that is in the way: hosts that must be
    drained first, jobs, reservations and guarantees that would not fit.

    Exit code: 0 applied (with --dry-run: could be), 1 refused, 2 bad input.
    """
    from scheduler.cli.render.fabric import change_text
    from scheduler.client import Client, ServiceError
    from scheduler.files.yaml12 import parse, read_text

    text = read_text(file)
    document, renames = parse(text, file), [_rename(each) for each in rename or ()]
    before_call(server.address)
    with Client(server.address) as client:
        try:
            answer = client.apply_fabric(text.encode(), renames, etag=etag, dry_run=True)
            if not dry_run and not answer.refusals:
                answer = client.apply_fabric(text.encode(), renames, etag=etag)
        except ServiceError as error:
            raise _refused(error, document) from None
    server.write(answer, change_text)
    if answer.refusals:
        raise end("the fabric stays as it is", FAILED)
    checked_only(dry_run)


def get_command(output: OutFile = None, address: Address = DEFAULT_ADDRESS) -> None:
    """Write the fabric of the server as a file, with hosts that have joined."""
    with connected(address) as client:
        content = client.get_fabric(with_file=True).file.decode()
    if output is None:
        typer.echo(content, nl=False)
    else:
        from scheduler.files.atomic_file import write as write_file

        write_file(output, content, "--output")


def _rename(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise typer.BadParameter(f"must be OLD=NEW, not {text!r}", param_hint="--rename")
    return old, new


def _refused(error: ServiceError, document: Document) -> Exception:
    """Return the error to raise; faults of the fabric file name its lines."""
    in_file = [
        (field.removeprefix("file").removeprefix("."), text)
        for field, text in error.violations
        if field.partition(".")[0] == "file"
    ]
    if in_file:
        return document.error(*in_file)
    faults = [
        f"--rename: {text}" if field.startswith("renames") else f"{field}: {text}"
        for field, text in error.violations
    ]
    return end("; ".join(faults) or error.message, BAD_INPUT if faults else FAILED)
