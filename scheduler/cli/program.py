"""The `muster` command.

Commands are plug-ins: each is a `register(app)` function; other packages register theirs through
the entry-point group `muster.commands`. Of this package only the module of the command that is
named is loaded, and what a command needs it imports when it runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from itertools import islice
from typing import Annotated, Any

import typer
from typer.models import CommandInfo

from placement import BadInput
from scheduler.cli.contexts import use_context
from scheduler.cli.exit_codes import BAD_INPUT, BROKEN, FAILED, INTERRUPTED
from scheduler.files.errors import WRONG_PATHS, InputError

_app = typer.Typer(
    name="muster",
    help="A gang scheduler for large-model training: topology-aware placements with proved bounds.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from scheduler.release import release

        typer.echo(f"muster {release()}")
        raise typer.Exit


@_app.callback()
def _options(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    name: Annotated[
        str,
        typer.Option(
            "--context",
            envvar="MUSTER_CONTEXT",
            help="A context of `muster config`, for this call.",
        ),
    ] = "",
    address: Annotated[
        str, typer.Option(help="Address of the server, HOST:PORT; several with commas.")
    ] = "",
    ca: Annotated[
        str,
        typer.Option(
            envvar="MUSTER_CA",
            help="CA certificates for TLS, a PEM file; `system` for the machine's certificates.",
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
    given = {"ADDRESS": address, "CA": ca, "CERT": cert, "KEY": key, "TOKEN_FILE": token_file}
    os.environ.update({f"MUSTER_{key}": value for key, value in given.items() if value})
    if (asking := _asks_a_server(context)) is not False:
        use_context(name, may_be_unused=asking is None)


def _asks_a_server(context: typer.Context) -> bool | None:
    """Whether the command that follows talks to a server; None: some of those below it do."""
    group: Any = context.command
    command = group.get_command(context, context.invoked_subcommand or "")
    commands = [*getattr(command, "commands", {}).values()] or [command]
    asking = {
        any(getattr(param, "envvar", None) == "MUSTER_ADDRESS" for param in each.params)
        for each in commands
        if each is not None
    }
    return asking.pop() if len(asking) == 1 else None


def _help(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A command, such as `job import`.", show_default=False),
    ] = None,
) -> None:
    """Show the help of a command, as COMMAND --help does."""
    load_commands()
    named: Any = typer.main.get_command(_app)
    path = "muster"
    for word in command or ():
        below = getattr(named, "commands", {}).get(word)
        if below is None:
            raise typer.BadParameter(f"{path} has no command {word!r}")
        named, path = below, f"{path} {word}"
    with typer.Context(named, info_name=path) as context:
        typer.echo(named.get_help(context))


# The panels of `muster --help`, in their order: modules and the commands that each of them adds.
COMMANDS = {
    "Jobs": {
        "jobs.jobs": "submit run alloc jobs explain watch wait update resize hold release requeue"
        " cancel finish job",
        "jobs.channels": "exec shell port-forward attach",
        "jobs.route": "route",
        "jobs.stragglers": "stragglers",
        "jobs.rendezvous": "rendezvous",
        "jobs.capacity": "slots defrag tenants tenant accounting",
    },
    "Hosts, links and spares": {
        "hosts.status": "status incidents",
        "hosts.hosts": "hosts host cordon drain uncordon report",
        "hosts.burn_in": "burn-in",
        "hosts.links": "links",
        "hosts.spares": "spares",
        "hosts.windows": "window",
    },
    "Without a server": {
        "offline.place": "place",
        "offline.verify": "verify",
        "offline.job_files": "launch",
        "offline.estimate": "estimate",
        "offline.calibrate": "calibrate",
        "offline.gpus": "gpus",
        "offline.checkpoint": "checkpoint",
        "offline.hall": "hall",
        "offline.fabric": "fabric",
        "config": "config",
    },
    "Servers and agents": {
        "server.serve": "serve",
        "server.console": "console",
        "server.agents": "agent agent-token logs",
        "server.stores": "store",
        "server.tokens": "token",
        "server.certs": "certs",
        "server.audit": "audit",
        "server.health": "health",
    },
}
_MODULES = {
    command: (panel, module)
    for panel, modules in COMMANDS.items()
    for module, commands in modules.items()
    for command in commands.split()
}


def _register(panel: str, register: Callable[[typer.Typer], None]) -> None:
    """Add commands, under a heading of the help."""
    commands, groups = len(_app.registered_commands), len(_app.registered_groups)
    register(_app)
    for command in _app.registered_commands[commands:]:
        command.rich_help_panel = panel
    for group in _app.registered_groups[groups:]:
        group.rich_help_panel = panel


@cache
def _load(panel: str, module: str) -> None:
    """Import a module and add its commands, once."""
    _register(panel, import_module(f"scheduler.cli.{module}").register)


@cache
def _load_help() -> None:
    """After the other commands: their panels come in the order of the table."""
    _app.command("help", rich_help_panel="Without a server")(_help)


def _load_all() -> None:
    for panel, module in dict.fromkeys(_MODULES.values()):
        _load(panel, module)
    _load_help()


def __getattr__(name: str) -> typer.Typer:
    """`app`: with all commands of this package."""
    if name != "app":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    _load_all()
    return _app


def _own_options(name: str) -> frozenset[str]:
    """The parameters of a command, or of those in a group."""
    for group in _app.registered_groups:
        if group.name == name and group.typer_instance:
            return _parameters(group.typer_instance.registered_commands)
    commands = [
        command
        for command in _app.registered_commands
        if command.callback and (command.name or command.callback.__name__) == name
    ]
    return _parameters(commands)


def _parameters(commands: Sequence[CommandInfo]) -> frozenset[str]:
    callbacks = [command.callback for command in commands if command.callback]
    return frozenset(name for callback in callbacks for name in signature(callback).parameters)


_GLOBAL_OPTIONS = ("--context", "--address", "--ca", "--cert", "--key", "--token-file")


def with_global_options_first(words: Sequence[str]) -> list[str]:
    """Return the command line with `--ca` and the like moved before the command, wherever they
    stand, but for options that the command has itself."""
    name, at = _command_of(words)
    if name is None:
        return list(words)
    if name in _MODULES:
        _load(*_MODULES[name])
    own = _own_options(name)
    first, rest = list(words[:at]), [name]
    tail = iter(words[at + 1 :])
    for word in tail:
        option = word.partition("=")[0]
        is_own = option.removeprefix("--").replace("-", "_") in own or option == "--address"
        if word == "--":
            rest += [word, *tail]
        elif option not in _GLOBAL_OPTIONS or is_own:
            rest.append(word)
        else:
            first += [word] if "=" in word else [word, *islice(tail, 1)]
    return [*first, *rest]


def _command_of(words: Sequence[str]) -> tuple[str | None, int]:
    """The command that a command line names, and where; None: it names none."""
    rest = iter(enumerate(words))
    for at, word in rest:
        if word in _GLOBAL_OPTIONS:
            next(rest, None)
        elif not word.startswith("-"):
            return word, at
    return None, len(words)


def is_builtin(words: Sequence[str]) -> bool:
    """Whether the command line names a command of this package: it needs no other module and no
    plug-in, and loading them all takes longer than a short call."""
    return _command_of(words)[0] in _MODULES


@cache
def load_commands() -> None:
    """Add all commands, those of installed plug-ins too, once."""
    from importlib.metadata import entry_points

    _load_all()
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
    return BAD_INPUT if isinstance(error, WRONG_PATHS) else FAILED


def half_typed() -> list[str]:
    """Return the words before the one that a shell wants completed, if they name a command of this
    package; else none, and all commands have to be loaded."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = line.split()[1:-1] if "_MUSTER_COMPLETE" in os.environ else []
    return words if is_builtin(words) else []


def _run() -> int:
    try:
        if words := half_typed():
            with_global_options_first(words)  # loads the command
        elif not is_builtin(sys.argv[1:]):
            load_commands()
        sys.argv[1:] = with_global_options_first(sys.argv[1:])
        _app()
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
