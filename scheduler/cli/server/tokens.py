"""`muster token`: makes, lists and revokes the tokens of an auth file, on the server's machine."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from scheduler.cli.calls import AnswerFormat, Output, end, write_rows
from scheduler.cli.exit_codes import FAILED

if TYPE_CHECKING:
    from scheduler.access.auth_file.reading import TokenKeys

AuthFile = Annotated[
    str, typer.Option("--auth-file", envvar="MUSTER_AUTH_FILE", help="The server's auth file.")
]
DEFAULT_FILE = "auth.yaml"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Create, list and revoke tokens of an auth file."
    )
    group.command("new")(new)
    group.command("list")(list_tokens)
    group.command("revoke")(revoke)
    app.add_typer(group, name="token")


def new(
    name: Annotated[str, typer.Argument(help="Owner of the token, the name that the log records.")],
    role: Annotated[
        Literal["viewer", "launcher", "submitter", "coordinator", "operator", "admin"],
        typer.Option(help="Each role includes the roles before it."),
    ],
    tenant: Annotated[
        str,
        typer.Option(help="For all but operators and admins: their tenant; `*` for all tenants."),
    ] = "",
    run_as: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER",
            help="User of the hosts whom ranks of its jobs may run as, besides NAME; `*` for all"
            " users; may be given several times.",
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(min=1, max=36_500, help="Days until it expires. (default: never)"),
    ] = None,
    auth_file: AuthFile = DEFAULT_FILE,
) -> None:
    """Create a token and print it; the file keeps only its hash."""
    from scheduler.access.auth_file.editing import add_token
    from scheduler.identity import Role

    now = datetime.now(UTC).replace(microsecond=0)
    expires = now + timedelta(days=days) if days else None
    minted = add_token(auth_file, name, Role[role.upper()], tenant, now, expires, run_as or ())
    typer.echo(minted.text)
    typer.echo(f"muster: token {minted.id} of {name}: {role}, in {auth_file}", err=True)


def list_tokens(output: Output = AnswerFormat.TABLE, auth_file: AuthFile = DEFAULT_FILE) -> None:
    """List the tokens of an auth file."""
    from scheduler.access.auth_file.reading import load_auth

    write_rows([_row(token) for token in load_auth(auth_file).tokens], output, "no tokens")


def revoke(
    which: Annotated[str, typer.Argument(help="Id of a token, or name of an owner.")],
    auth_file: AuthFile = DEFAULT_FILE,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove the last administrator's token without asking.")
    ] = False,
) -> None:
    """Remove tokens; a running server refuses them within a second. Asks before no administrator
    is left. Exit code 1: nothing was removed."""
    from scheduler.access.auth_file.editing import revoke as revoke_in

    def may_lock_out() -> bool:
        text = f"{which} is the last administrator of {auth_file}; revoke it all the same?"
        if not yes and not sys.stdin.isatty():
            raise end(f"{which} is the last administrator of {auth_file}; --yes revokes it", FAILED)
        return yes or typer.confirm(text)

    revoked = revoke_in(auth_file, which, may_lock_out)
    if not revoked:
        raise end("nothing was revoked", FAILED)
    for token in revoked:
        typer.echo(f"revoked {token.id} of {token.name}")


def _row(token: TokenKeys) -> dict[str, Any]:
    from scheduler.files.timeparse import written

    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.name.lower(),
        "tenant": token.tenant,
        "run_as": ", ".join(token.run_as),
        "created": written(token.created) if token.created else None,
        "expires": written(token.expires) if token.expires else None,
    }
