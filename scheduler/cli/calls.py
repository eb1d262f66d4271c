"""What every command that talks to a server shares: its options, its errors, its output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from muster.structs import struct
from scheduler.cli import complete
from scheduler.cli.contexts import DEFAULT_ADDRESS as DEFAULT_ADDRESS
from scheduler.cli.contexts import keep_secrets_from, quiet_grpc
from scheduler.cli.exit_codes import BAD_INPUT, FAILED, INFEASIBLE
from scheduler.cli.signatures import SharedOptions, with_shared

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from scheduler.client import Client, ServiceError
    from scheduler.files.inputs import JobFile

# What a field of a request is on the command line.
TYPED = {
    "after_version": "--after",
    "begin_time": "--begin",
    "dependencies": "--dependency",
    "detail": "--detail",
    "end_time": "--end",
    "etag": "--etag",
    "filter": "--filter",
    "gpu": "--gpu",
    "host_count": "--count",
    "hosts": "--hosts",
    "kind": "--kind",
    "labels": "--label",
    "leave": "--leave",
    "link_share": "--share",
    "links": "--links",
    "order_by": "--order-by",
    "parallelism": "--ranks",
    "priority": "--priority",
    "priority_class": "--class",
    "reason": "--reason",
    "request_id": "--request-id",
    "signal": "--signal",
    "sizes": "--sizes",
    "start_time": "--start",
    "suppose": "--if",
    "tenant": "--tenant",
    "time_limit": "--limit",
    "value": "--value",
    "xid": "--xid",
}


class AnswerFormat(StrEnum):
    """Format of an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Output = Annotated[
    AnswerFormat,
    typer.Option("--format", "-o", help="Output format; `name`: names alone, one on a line."),
]
Address = Annotated[
    str,
    typer.Option(
        envvar="MUSTER_ADDRESS", help="Address of the server, HOST:PORT; several with commas."
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", help="Only this state; may be repeated.", autocompletion=complete.states
    ),
]
Why = Annotated[str, typer.Option("--reason", help="A reason, kept in the log.")]
Filter = Annotated[
    str, typer.Option(help='Only matches of this filter: `tenant = "a" AND name = "eval-*"`.')
]
Etag = Annotated[
    str, typer.Option(help="Refuse if the etag has changed (`--format json` shows it).")
]
Uid = Annotated[
    str, typer.Option(help="Only the job with this uid; refuse if another job has the name.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check and show the result; change nothing.")
]
After = Annotated[
    int | None,
    typer.Option(
        help="Start after this version of the log; 0 is its beginning. (default: now)",
        min=0,
        max=2**63 - 1,
    ),
]
SomeMessage = TypeVar("SomeMessage", bound="Message")
Thing = TypeVar("Thing")
Result = TypeVar("Result")


def state_numbers(enum: Any, prefix: str, words: Sequence[str] | None) -> list[Any]:
    """Return the wire numbers of states given on the command line. `prefix`: of the enum's
    names."""
    known = [name.removeprefix(prefix).lower() for name in enum.keys()[1:]]
    for word in words or ():
        if word not in known:
            raise typer.BadParameter(
                f"{word!r} is not one of {', '.join(known)}", param_hint="--state"
            )
    return [enum.Value(prefix + word.upper()) for word in words or ()]


def write(message: SomeMessage, text: Callable[[SomeMessage], str], output: AnswerFormat) -> None:
    from scheduler.cli.render import messages
    from scheduler.cli.render.names import as_typed

    message = as_typed(message)
    if output is AnswerFormat.TABLE:
        typer.echo(text(message))
    elif answer := formatted(messages.to_mapping(message), output):
        typer.echo(answer)


def formatted(body: Any, output: AnswerFormat, *, is_line: bool = False) -> str:
    """Write JSON values in a format for programs: JSON (`is_line`: on one line), YAML, or names.
    Raises: typer.Exit where names are wanted and there are none."""
    if output is AnswerFormat.JSON:
        return json.dumps(body, indent=None if is_line else 2)
    if output is AnswerFormat.YAML:
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text: str = yaml.dump(body, Dumper=dumper, sort_keys=False, allow_unicode=True)
        return text.removesuffix("\n")
    names = _names(body)
    if names is None:
        raise end("this answer has no names: take another --format", BAD_INPUT)
    return "\n".join(names)


def write_rows(rows: Sequence[Mapping[str, Any]], output: AnswerFormat, empty: str) -> None:
    """Print mappings with the same keys as a table or in a format for programs. `empty`: the
    words where there are none."""
    from scheduler.cli.render.text import columns

    if output is not AnswerFormat.TABLE:
        typer.echo(formatted(rows, output))
    elif rows:
        lines = ([str("-" if v in (None, "") else v) for v in row.values()] for row in rows)
        typer.echo(columns([list(rows[0]), *lines]))
    else:
        typer.echo(empty)


def _names(body: Any) -> list[str] | None:
    """The name of a thing, or those of the things in a list; None: neither is there."""
    if isinstance(body, dict):
        if isinstance(body.get("name"), str):
            return [body["name"]]
        lists = [value for value in body.values() if isinstance(value, list)]
        inner = [value for value in body.values() if isinstance(value, dict) and "name" in value]
        things = lists[0] if len(lists) == 1 else inner
    else:
        things = body
    if not isinstance(things, list) or any(not isinstance(thing, dict) for thing in things):
        return None
    if not all(isinstance(thing.get("name"), str) for thing in things):
        return None
    return [thing["name"] for thing in things]


def checked_only(dry_run: bool) -> None:
    """Say on stderr that nothing was changed, for a dry run."""
    if dry_run:
        typer.echo("muster: dry run: nothing was changed", err=True)


def before_call(address: str) -> None:
    """Prepare gRPC and its secrets before a command connects to `address`."""
    quiet_grpc()
    if kept := keep_secrets_from(address):
        typer.echo(f"muster: {kept}", err=True)


@contextmanager
def connected(address: str, file: JobFile | None = None) -> Iterator[Client]:
    """Connect to a server; an error ends the command with one sentence."""
    before_call(address)
    from scheduler.client import Client, ServiceError

    with Client(address) as client:
        try:
            yield client
        except ServiceError as error:
            raise _refused(error, file) from None


def _refused(error: ServiceError, file: JobFile | None) -> Exception:
    """Return the error to raise; faults of the job file name its lines."""
    if error.code == "INVALID_ARGUMENT" and file and error.violations:
        from scheduler.wire.specs import file_key

        problems = [
            (file_key(field.removeprefix("spec.")), text) for field, text in error.violations
        ]
        return file.document.error(*problems)
    return refusal(error)


@struct(frozen=True, slots=True)
class AskedServer:
    """The server that a command asks, and the format of its output."""

    output: AnswerFormat
    address: str

    def connected(self, file: JobFile | None = None) -> AbstractContextManager[Client]:
        return connected(self.address, file)

    def write(self, message: SomeMessage, text: Callable[[SomeMessage], str]) -> None:
        write(message, text, self.output)

    def show(
        self, call: Callable[[Client], SomeMessage], text: Callable[[SomeMessage], str]
    ) -> None:
        """Print the answer of the server to one call."""
        with self.connected() as client:
            self.write(call(client), text)

    def follow(self, changes: Iterator[SomeMessage], text: Callable[[SomeMessage], str]) -> None:
        """Print each change as it comes: as JSON one on a line, as YAML a document each."""
        from scheduler.cli.render import messages
        from scheduler.cli.render.names import as_typed

        for change in map(as_typed, changes):
            if self.output is AnswerFormat.TABLE:
                typer.echo(text(change))
            else:
                mapping = messages.to_mapping(change)
                mark = "---\n" if self.output is AnswerFormat.YAML else ""
                typer.echo(mark + formatted(mapping, self.output, is_line=True))
            sys.stdout.flush()


def asks_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `(server, ...)` the options --format and --address, after its own."""
    options = {"output": (Output, AnswerFormat.TABLE), "address": (Address, DEFAULT_ADDRESS)}
    return with_shared(command, SharedOptions(AskedServer, options))


def expanded(texts: Sequence[str]) -> list[str]:
    """Return names of jobs, hosts or domains with ranges written out, each once. Raises:
    BadInput."""
    from placement.fabric import hostlist

    return list(dict.fromkeys(name for text in texts for name in hostlist.expand(text)))


def each_done(
    client: Client, things: Sequence[Thing], act: Callable[[Client, Thing], Result]
) -> tuple[list[Result], int]:
    """Call a function for each name. Report refusals, and go on with the others.

    Returns: the results, and the exit code: that of the refusals where they are alike.
    """
    from scheduler.client import ServiceError

    results, codes = list[Result](), set[int]()
    for thing in things:
        try:
            results.append(act(client, thing))
        except ServiceError as error:
            if not error.reason:
                raise
            codes.add(refusal(error).exit_code)
    return results, (codes or {0}).pop() if len(codes) < 2 else FAILED


def refusal(error: ServiceError) -> typer.Exit:
    """Return the end of a command that says what was refused, with the option at fault where there
    is one."""
    if error.code != "INVALID_ARGUMENT":
        return end(error.message, INFEASIBLE if error.reason == "INFEASIBLE" else FAILED)
    faults = [f"{_typed(field)}: {text}" for field, text in error.violations]
    return end("; ".join(faults) or error.message, BAD_INPUT)


def _typed(field: str) -> str:
    """`job.spec.priority` or `suppose[0]` as the caller gave it."""
    if re.fullmatch(r".*\bdependencies\[\d+\]\.\w+", field):
        return TYPED["dependencies"]
    leaf = re.sub(r"(\[\d+\]|\.\d+)$", "", field).rpartition(".")[2]
    return TYPED.get(leaf, field)


def end(message: str, code: int) -> typer.Exit:
    typer.echo(f"muster: {message}", err=True)
    return typer.Exit(code)
