"""`muster config`: list the contexts of this user, choose one, write one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from scheduler.cli.calls import AnswerFormat, Output, formatted
from scheduler.cli.contexts import KEYS, load_contexts, unknown

Name = Annotated[str, typer.Argument(help="Name of the context.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    config = typer.Typer(
        no_args_is_help=True, help="Keep contexts: which server to talk to, and as whom."
    )
    config.command("list")(list_contexts)
    config.command("use")(use)
    config.command("set")(set_context)
    app.add_typer(config, name="config")


def list_contexts(output: Output = AnswerFormat.TABLE) -> None:
    """List the contexts; the current one is marked.

    Example: muster config list
    """
    from scheduler.cli.render.text import columns

    contexts = load_contexts()
    if output is not AnswerFormat.TABLE:
        named = sorted(contexts.by_name.items())
        each = [{"name": name, **keys, "current": name == contexts.current} for name, keys in named]
        typer.echo(formatted({"contexts": each}, output))
        return
    rows = [
        (
            f"{'>' if name == contexts.current else ' '} {name}",
            keys.get("address", "-"),
            keys.get("ca", "-"),
            keys.get("token_file") or keys.get("cert") or "-",
        )
        for name, keys in sorted(contexts.by_name.items())
    ]
    head = ("  NAME", "ADDRESS", "CA", "CREDENTIAL")
    typer.echo(columns([head, *rows]) if rows else f"no contexts in {contexts.path}")


def use(name: Name) -> None:
    """Make a context the current one.

    Example: muster config use prod
    """
    contexts = load_contexts()
    if name not in contexts.by_name:
        raise unknown(contexts, name)
    _write(contexts.path, {("current",): name})


def set_context(
    name: Name,
    address: Annotated[str, typer.Option(help="Address, HOST:PORT; several with commas.")] = "",
    ca: Annotated[str, typer.Option(help="CA certificates, a PEM file, or `system`.")] = "",
    cert: Annotated[str, typer.Option(help="A client certificate, a PEM file.")] = "",
    key: Annotated[str, typer.Option(help="Key of the client certificate.")] = "",
    token_file: Annotated[str, typer.Option(help="File with the token.")] = "",
) -> None:
    """Add a context or change the keys that are given; the first one becomes the current one.

    Example: muster config set prod --address muster.example:7443 --ca ~/.config/muster/ca.pem
    """
    given = dict(zip(KEYS, (address, ca, cert, key, token_file), strict=True))
    contexts = load_contexts(may_be_new=True)
    if name not in contexts.by_name and not any(given.values()):
        raise typer.BadParameter("is needed for a new context", param_hint="--address")
    changes: dict[tuple[str, ...], str] = {} if contexts.current else {("current",): name}
    for key, text in given.items():
        if text:
            is_path = key != "address" and text != "system"
            value = str(Path(text).expanduser().resolve()) if is_path else text
            changes["contexts", name, key] = value
    _write(contexts.path, changes)


def _write(path: Path, changes: Mapping[tuple[str, ...], str]) -> None:
    """Change these values of the file, which `load_contexts` has read."""
    import yaml

    from scheduler.files.atomic_file import written

    value = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
    value = value or {}
    for (*above, key), text in changes.items():
        inside = value
        for name in above:
            inside[name] = inside.get(name) or {}
            inside = inside[name]
        inside[key] = text
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path, "MUSTER_CONFIG") as file:
        file.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode())
