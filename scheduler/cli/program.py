"""The `muster` command.

Commands are plug-ins: each is a `register(app)` function, those of other packages
found by the entry-point group `muster.commands`. What a command needs it imports
when it runs, so that `muster --help` costs no more than the parser.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated

import typer

from placement import BadInput
from scheduler.cli import INTERRUPTED
from scheduler.cli.hosts import hosts, links, spares, status, windows
from scheduler.cli.jobs import capacity, jobs, quotas
from scheduler.cli.offline import checkpoint, estimate, fabric, place
from scheduler.cli.server import agents, audit, health, serve, stores, tokens
from scheduler.files.errors import WRONG_PATHS, InputError

__all__ = ["app", "load_commands", "main"]

BAD_INPUT = 2
BROKEN = 70  # EX_SOFTWARE

app = typer.Typer(
    name="muster",
    help="A gang scheduler for large-model training: minimum-cut placements with a proof.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from scheduler.release import release

        typer.echo(f"muster {release()}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    ca: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_CA",
            help="CA certificates for TLS, a PEM file; `system` for those of the machine.",
        ),
    ] = "",
    cert: Annotated[
        str, typer.Option(envvar="MUSTER_CERT", help="A client certificate, a PEM file.")
    ] = "",
    key: Annotated[
        str, typer.Option(envvar="MUSTER_KEY", help="Key of the client certificate, a PEM file.")
    ] = "",
    token_file: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_TOKEN_FILE",
            help="File with the token; MUSTER_TOKEN holds the token itself.",
        ),
    ] = "",
) -> None:
    # The client reads the environment, so what is given here goes there.
    given = {"CA": ca, "CERT": cert, "KEY": key, "TOKEN_FILE": token_file}
    os.environ.update({f"MUSTER_{name}": value for name, value in given.items() if value})


# The panels of `muster --help`, in their order.
_PANELS = {
    "Jobs": (jobs, capacity, quotas),
    "Hosts, links and spares": (status, hosts, links, spares, windows),
    "Without a server": (place, estimate, checkpoint, fabric),
    "Servers and agents": (serve, agents, stores, tokens, audit, health),
}


def _register(panel: str, register: Callable[[typer.Typer], None]) -> None:
    """Add commands, under a heading of the help."""
    commands, groups = len(app.registered_commands), len(app.registered_groups)
    register(app)
    for command in app.registered_commands[commands:]:
        command.rich_help_panel = panel
    for group in app.registered_groups[groups:]:
        group.rich_help_panel = panel


for _panel, _rooms in _PANELS.items():
    for _room in _rooms:
        _register(_panel, _room.register)

_COMMANDS = frozenset(
    {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback
    }
    | {str(group.name) for group in app.registered_groups}
)
_GLOBAL_OPTIONS = ("--ca", "--cert", "--key", "--token-file")


def is_builtin(words: Sequence[str]) -> bool:
    """Whether the command line names a command of this package: it needs no plug-in, and
    looking for those takes a fifth of the time of a short call."""
    rest = iter(words)
    for word in rest:
        if word in _GLOBAL_OPTIONS:
            next(rest, None)
        elif not word.startswith("-"):
            return word in _COMMANDS
    return False


@cache
def load_commands() -> None:
    """Add the commands of every installed plug-in, once."""
    from importlib.metadata import entry_points

    for plugin in sorted(
        entry_points(group="muster.commands"), key=lambda entry_point: entry_point.name
    ):
        try:
            _register("Simulator and plug-ins", plugin.load())
        except Exception as error:  # one broken plug-in leaves the other commands usable
            typer.echo(f"muster: command {plugin.name} does not load: {error}", err=True)


def main() -> None:
    """Run one command. What a user can correct ends in a message and exit code 2."""
    try:
        code = _run()
        sys.stdout.flush()
    except OSError as error:
        code = _give_up(error)
    sys.exit(code)


def _give_up(error: OSError) -> int:
    """The system refuses: a full disk, say, or a reader gone (`muster ... | head`)."""
    # What is left in the buffer must not fail once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        text = ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
        typer.echo(f"muster: {text}", err=True)
    return BAD_INPUT if isinstance(error, WRONG_PATHS) else 1


def _run() -> int:
    try:
        if not is_builtin(sys.argv[1:]):
            load_commands()
        app()
    except SystemExit as finished:
        return finished.code if isinstance(finished.code, int) else 1
    except (InputError, BadInput) as error:
        typer.echo(str(error), err=True)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError:
        raise
    except ModuleNotFoundError as error:
        return _not_installed(error)
    except Exception as error:
        _report(error)
        return BROKEN
    return 0


def _not_installed(error: ModuleNotFoundError) -> int:
    """A command of the server, in an installation that has the client alone."""
    from scheduler.release import missing_extra

    hint = missing_extra(error)
    if hint is None:
        _report(error)
        return BROKEN
    typer.echo(f"muster: {hint}", err=True)
    return BAD_INPUT


def _report(error: Exception) -> None:
    """A fault of muster itself: one line, and the traceback for those who ask."""
    if os.environ.get("MUSTER_DEBUG"):
        traceback.print_exc()
    kind = type(error).__name__
    hint = "set MUSTER_DEBUG=1 to see where"
    typer.echo(f"muster: internal error: {kind}: {error} ({hint})", err=True)
