"""`muster config`: list the contexts of this user, choose one, write one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scheduler.cli.contexts import KEYS, load_contexts, unknown

Name = Annotated[str, typer.Argument(help="Name of the context.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    config = typer.Typer(
        no_args_is_help=True, help="Contexts: which server to talk to, and as whom."
    )
    config.command("list")(list_contexts)
    config.command("use")(use)
    config.command("set")(set_context)
    app.add_typer(config, name="config")


def list_contexts() -> None:
    """List the contexts; the current one is marked.

    Example: muster config list
    """
    from scheduler.cli.render.text import columns

    contexts = load_contexts()
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
    value = _value(contexts.path)
    _write(contexts.path, {**value, "current": name})


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
    value = _value(contexts.path)
    every = dict(value.get("contexts") or {})
    paths = {
        key: text
        if key == "address" or text == "system"
        else str(Path(text).expanduser().resolve())
        for key, text in given.items()
        if text
    }
    every[name] = {**every.get(name, {}), **paths}
    current = value.get("current") or name
    _write(contexts.path, {"current": current, "contexts": every})


def _value(path: Path) -> dict[str, Any]:
    from scheduler.files.yaml12 import load

    return load(path).mapping() if path.exists() else {}


def _write(path: Path, value: dict[str, Any]) -> None:
    import yaml

    from scheduler.files.atomic_file import written

    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path, "MUSTER_CONFIG") as file:
        file.write(yaml.safe_dump(value, sort_keys=False).encode())
