"""What commands that print lists share: `-o wide`, --columns, --sort, --no-headers, --watch."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.structs import struct
from scheduler.cli.calls import AnswerFormat, write

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from scheduler.cli.render.tables import ListTable, View

WATCH_S = 2.0  # from one answer to the next


class ListFormat(StrEnum):
    """What a list is written as."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


ListOutput = Annotated[
    ListFormat,
    typer.Option(
        "--format",
        "-o",
        help="Output format; `wide`: all columns, uncut; `name`: names alone, one on a line.",
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        help="Columns of the table, with commas, such as name,state,reason; `-o wide` has all.",
    ),
]
Sort = Annotated[
    str, typer.Option("--sort", help="Sort by these columns, with commas; -NAME: downwards.")
]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Leave out the line of headers.")]
WatchList = Annotated[
    bool, typer.Option("--watch", help="Print the list again when it changes, until Ctrl-C.")
]


@struct(frozen=True, slots=True)
class ListOptions:
    """As they were given."""

    output: ListFormat
    columns: str = ""
    sort: str = ""
    no_headers: bool = False
    watch: bool = False


def write_list(
    fetch: Callable[[], Message],
    things: str,
    table: Callable[[Sequence[Any]], ListTable],
    options: ListOptions,
    rows: Callable[[Sequence[Any]], Sequence[Any]] = list,
) -> None:
    """Print the answer that `fetch` has, whose field `things` is the list; once, or again after
    every change. `table`: for such things; `rows`: what it shows of them.

    Raises: typer.BadParameter on an option that does not fit.
    """
    is_table = options.output in (ListFormat.TABLE, ListFormat.WIDE)
    for given, option in ((options.columns, "--columns"), (options.no_headers, "--no-headers")):
        if given and not is_table:
            raise typer.BadParameter("is for tables", param_hint=option)
    view, keys = _view(options, table(())), _named(options.sort, table(()), "--sort")
    if not options.watch:
        _write(fetch(), things, table, rows, keys, view, options.output)
        return
    before: Message | None = None
    while True:
        answer = fetch()
        if answer != before:
            if sys.stdout.isatty() and is_table:
                typer.echo("\x1b[2J\x1b[H", nl=False)  # clears the screen
            elif before is not None and is_table:
                typer.echo()
            before = type(answer)()
            before.CopyFrom(answer)
            _write(answer, things, table, rows, keys, view, options.output)
            sys.stdout.flush()
        time.sleep(WATCH_S)


def _write(
    answer: Message,
    things: str,
    table: Callable[[Sequence[Any]], ListTable],
    rows: Callable[[Sequence[Any]], Sequence[Any]],
    keys: list[str],
    view: View,
    output: ListFormat,
) -> None:
    if keys:
        from scheduler.cli.render.names import as_typed

        answer = as_typed(answer)
        repeated: Any = getattr(answer, things)
        ordered = table(repeated).order(repeated, keys)
        del repeated[:]
        repeated.extend(ordered)
    is_table = output in (ListFormat.TABLE, ListFormat.WIDE)

    def text(message: Message) -> str:
        listed = rows(getattr(message, things))
        return table(listed).text(listed, view)

    write(answer, text, AnswerFormat.TABLE if is_table else AnswerFormat(output.value))


def _view(options: ListOptions, table: ListTable) -> View:
    from scheduler.cli.render.tables import View

    is_wide, is_terminal = options.output is ListFormat.WIDE, sys.stdout.isatty()
    return View(
        tuple(_named(options.columns, table, "--columns")),
        is_wide,
        not options.no_headers,
        shutil.get_terminal_size().columns if is_terminal and not is_wide else None,
        is_terminal and not os.environ.get("NO_COLOR"),
    )


def _named(text: str, table: ListTable, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        try:
            table.column(name.removeprefix("-") if option == "--sort" else name)
        except KeyError as error:
            raise typer.BadParameter(str(error.args[0]), param_hint=option) from None
    return names
