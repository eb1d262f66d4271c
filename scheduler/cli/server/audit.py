"""`muster audit`: who asked for what, from the log itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.cli.calls import BAD_INPUT, AnswerFormat, Output, end, formatted
from scheduler.files.defaults import STORE
from scheduler.files.errors import one_line

if TYPE_CHECKING:
    from scheduler.core.model.events import Event
    from scheduler.eventlog.store import Asked, Store

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


def audit(
    since: Annotated[
        str, typer.Option(help="From this time on: 90m, 2h or 7d ago, or 2026-11-20T08:00Z.")
    ] = "",
    actor: Annotated[str, typer.Option(help="Only commands of this caller.")] = "",
    store: Annotated[
        str, typer.Option(help="The store, sqlite:///FILE or postgresql://...")
    ] = STORE,
    output: Output = AnswerFormat.TABLE,
) -> None:
    """List the commands in the log and their callers; the server may keep running.

    `server`: files that the server loaded. `anonymous`: callers of a server without an auth
    file. Decisions of the scheduler are left out. JSON output has one object a line.
    """
    from scheduler.eventlog.store import StoreError

    since_ns = _time_ns(since) if since else 0
    try:
        for record in _asked(_opened(store), since_ns):
            if actor in ("", record.actor):
                if output is AnswerFormat.TABLE:
                    typer.echo(_text(record))
                else:
                    mark = "---\n" if output is AnswerFormat.YAML else ""
                    typer.echo(mark + formatted(_mapping(record), output, is_line=True))
    except StoreError as error:
        raise end(str(error), BAD_INPUT) from None


def _opened(url: str) -> Store:
    """The store to read from, whoever else has it."""
    from scheduler.eventlog.store import look_at

    return look_at(url)


def _asked(store: Store, since_ns: int) -> Iterator[Asked]:
    # Events of one append share their time, so the first one of that time is where to begin.
    after = max(store.version_at(since_ns), store.first_version()) - 1
    return (record for record in store.asked(max(0, after)) if record.event.time_ns >= since_ns)


def _time_ns(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isdecimal() and len(number) < 7:
        when = datetime.now(UTC) - timedelta(**{_UNITS[unit]: int(number)})
        return int(when.timestamp()) * 10**9
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither 90m, 2h or 7d nor a time", param_hint="--since"
        ) from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()) * 10**9


def _mapping(record: Asked) -> dict[str, Any]:
    from scheduler.eventlog.codec import encode

    kind, body = encode(record.event)
    return {
        "version": record.version,
        "time": _iso(record.event.time_ns),
        "actor": record.actor,
        "event": kind,
        "body": json.loads(body),
    }


def _text(record: Asked) -> str:
    event = record.event
    said = next((text for key in ("reason", "detail") if (text := getattr(event, key, ""))), "")
    words = (_iso(event.time_ns), record.actor, type(event).__name__, subject(event), said)
    return one_line("  ".join(filter(None, words)))


def subject(event: Event) -> str:
    """The job, host or window that it is about."""
    about = getattr(event, "spec", getattr(event, "window", event))
    subject = next((getattr(about, key) for key in ("name", "host") if hasattr(about, key)), "")
    move = getattr(event, "move", None) or getattr(event, "signal", None)
    return f"{subject} {move}" if move else str(subject)


def _iso(time_ns: int) -> str:
    from scheduler.files.timeparse import written

    return written(datetime.fromtimestamp(time_ns / 1e9, UTC))
