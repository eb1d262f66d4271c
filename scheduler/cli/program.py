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
from itertools import islice
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from placement import BadInput
from scheduler.cli.contexts import use_context
from scheduler.cli.exit_codes import BAD_INPUT, BROKEN, FAILED, INTERRUPTED
from scheduler.files.errors import WRONG_PATHS, InputError

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


_GLOBAL_OPTIONS = ("--context", "--address", "--ca", "--cert", "--key", "--token-file")


class _Commands(TyperGroup):
    """The commands of this package and of plug-ins. One is loaded when it is named, for all of them
    together take longer than a short call."""

    loaded: ClassVar[dict[str, Any]] = {}  # by name, of all groups of this kind

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands = self.loaded

    def list_commands(self, ctx: Any) -> list[str]:
        load_commands()
        return list(self.loaded)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _MODULES:
            self.load(*_MODULES[cmd_name])
        elif cmd_name not in self.loaded:
            load_commands()
        return self.loaded.get(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `--ca` and the like wherever they stand, but for options that the command has."""
        return super().parse_args(ctx, self._with_global_options_first(ctx, args))

    def _with_global_options_first(self, ctx: Any, words: list[str]) -> list[str]:
        at, name = _place_of_command(words)
        if name is None:
            return words
        command = self.get_command(ctx, name)
        parts = [command, *getattr(command, "commands", {}).values()]
        own = {text for part in parts if part is not None for p in part.params for text in p.opts}
        first, rest, tail = words[:at], [name], iter(words[at + 1 :])
        for word in tail:
            option = word.partition("=")[0]
            if word == "--":
                rest += [word, *tail]
            elif option not in _GLOBAL_OPTIONS or option in own or option == "--address":
                rest.append(word)
            else:
                first += [word] if "=" in word else [word, *islice(tail, 1)]
        return [*first, *rest]

    @classmethod
    def load(cls, panel: str, module: str) -> None:
        """Load the commands of a module of this package, once."""
        if not all(name in cls.loaded for name in COMMANDS[panel][module].split()):
            cls.add(panel, import_module(f"scheduler.cli.{module}").register)

    @classmethod
    def add(cls, panel: str, register: Callable[[typer.Typer], Any]) -> None:
        """Add commands, under a heading of the help."""
        part = typer.Typer()
        part.callback()(lambda: None)
        register(part)
        group: Any = typer.main.get_command(part)
        for name, command in group.commands.items():
            command.rich_help_panel = panel
            cls.loaded.setdefault(name, command)


def _place_of_command(words: Sequence[str]) -> tuple[int, str | None]:
    """Where a command line names a command, and which; None where it names none."""
    rest = iter(enumerate(words))
    for at, word in rest:
        if word in _GLOBAL_OPTIONS:
            next(rest, None)
        elif not word.startswith("-"):
            return at, word
    return len(words), None


app = typer.Typer(
    name="muster",
    cls=_Commands,
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


@app.callback()
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
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A command, such as `job import`.", show_default=False),
    ] = None,
) -> None:
    """Show the help of a command, as COMMAND --help does."""
    named: Any = context.find_root().command
    path = "muster"
    for word in command or ():
        below = named.get_command(context, word) if hasattr(named, "commands") else None
        if below is None:
            raise typer.BadParameter(f"{path} has no command {word!r}")
        named, path = below, f"{path} {word}"
    with typer.Context(named, info_name=path) as shown:
        typer.echo(named.get_help(shown))


@cache
def load_commands() -> None:
    """Load all commands, in the order of the help, those of installed plug-ins too; once."""
    from importlib.metadata import entry_points

    for panel, module in dict.fromkeys(_MODULES.values()):
        _Commands.load(panel, module)
    _Commands.add("Without a server", lambda part: part.command("help")(_help))
    for plugin in sorted(entry_points(group="muster.commands"), key=attrgetter("name")):
        try:
            _Commands.add("Simulator and plug-ins", plugin.load())
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


def _run() -> int:
    try:
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
