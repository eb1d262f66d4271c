"""What commands that print lists share: `-o wide`, --columns, --sort, --no-headers, --watch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.structs import replace, struct
from scheduler.cli.calls import DEFAULT_ADDRESS, Address, AnswerFormat, connected, write
from scheduler.cli.signatures import SharedOptions, with_shared

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from scheduler.cli.render.tables import ListTable, View
    from scheduler.client import Client

WATCH_S = 2.0  # from one answer to the next
CLEARED = "\x1b[2J\x1b[H"  # the screen of a terminal


class ListFormat(StrEnum):
    """Format of a list."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


OPTIONS = {
    "output": (
        Annotated[
            ListFormat,
            typer.Option(
                "--format",
                "-o",
                help="Output format; `wide`: all columns, uncut; `name`: names alone, one on a"
                " line.",
            ),
        ],
        ListFormat.TABLE,
    ),
    "columns": (
        Annotated[
            str,
            typer.Option(
                "--columns",
                help="Columns of the table, with commas, such as name,state,reason; `-o wide` has"
                " all.",
            ),
        ],
        "",
    ),
    "sort": (
        Annotated[
            str,
            typer.Option("--sort", help="Sort by these columns, with commas; -NAME: downwards."),
        ],
        "",
    ),
    "no_headers": (
        Annotated[bool, typer.Option("--no-headers", help="Leave out the line of headers.")],
        False,
    ),
    "watch": (
        Annotated[
            bool,
            typer.Option("--watch", help="Print the list again when it changes, until Ctrl-C."),
        ],
        False,
    ),
    "address": (Address, DEFAULT_ADDRESS),
}


def asks_list(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `(listing, ...)` the options of lists, after its own."""
    return with_shared(command, SharedOptions(Listing, OPTIONS))


@struct(frozen=True, slots=True)
class Listing:
    """The server that a command asks for a list, and how the list is shown."""

    output: ListFormat
    columns: str
    sort: str
    no_headers: bool
    watch: bool
    address: str

    @property
    def is_table(self) -> bool:
        return self.output in (ListFormat.TABLE, ListFormat.WIDE)

    def write(
        self,
        fetch: Callable[[Client], Message],
        things: str,
        table: Callable[[Sequence[Any]], ListTable],
        rows: Callable[[Sequence[Any]], Sequence[Any]] = list,
    ) -> None:
        """Print the answer that `fetch` has, whose field `things` is the list; once, or again
        after every change. `table`: for such things; `rows`: what it shows of them.

        Raises: typer.BadParameter on an option that does not fit.
        """
        for given, option in ((self.columns, "--columns"), (self.no_headers, "--no-headers")):
            if given and not self.is_table:
                raise typer.BadParameter("is for tables", param_hint=option)
        view, keys = self._view(table(())), _named(self.sort, table(()), "--sort")
        before: Message | None = None
        with connected(self.address) as client:
            while True:
                answer = fetch(client)
                if answer != before:
                    if before is not None or self.watch:
                        self._part(is_first=before is None)
                    before = type(answer)()
                    before.CopyFrom(answer)
                    self._write(answer, things, table, rows, keys, view)
                    sys.stdout.flush()
                if not self.watch:
                    return
                time.sleep(WATCH_S)

    def _part(self, *, is_first: bool) -> None:
        """Part a list from the one before it: clear the screen of a terminal."""
        if sys.stdout.isatty() and self.is_table:
            typer.echo(CLEARED, nl=False)
        elif not is_first and self.is_table:
            typer.echo()

    def _write(
        self,
        answer: Message,
        things: str,
        table: Callable[[Sequence[Any]], ListTable],
        rows: Callable[[Sequence[Any]], Sequence[Any]],
        keys: list[str],
        view: View,
    ) -> None:
        if keys:
            from scheduler.cli.render.names import as_typed

            answer = as_typed(answer)
            repeated: Any = getattr(answer, things)
            ordered = table(repeated).order(repeated, keys)
            del repeated[:]
            repeated.extend(ordered)

        def text(message: Message) -> str:
            listed = rows(getattr(message, things))
            return table(listed).text(listed, view)

        write(answer, text, AnswerFormat("table" if self.is_table else self.output.value))

    def _view(self, table: ListTable) -> View:
        from scheduler.cli.render.tables import terminal_view

        names = tuple(_named(self.columns, table, "--columns"))
        view = terminal_view(is_wide=self.output is ListFormat.WIDE)
        return replace(view, names=names, has_heads=not self.no_headers)


def _named(text: str, table: ListTable, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        try:
            table.column(name.removeprefix("-") if option == "--sort" else name)
        except KeyError as error:
            raise typer.BadParameter(str(error.args[0]), param_hint=option) from None
    return names
