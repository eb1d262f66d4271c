"""`muster audit`: who asked for what, from the log itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.cli.calls import AnswerFormat, AskedServer, asks_server, formatted
from scheduler.cli.contexts import quoted
from scheduler.cli.numbers import past_ns
from scheduler.files.errors import one_line

if TYPE_CHECKING:
    from scheduler.v1.service_pb2 import AuditRecord


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


@asks_server
def audit(
    server: AskedServer,
    since: Annotated[
        str, typer.Option(help="From this time on: 90m, 2h or 7d ago, or 2026-11-20T08:00Z.")
    ] = "",
    actor: Annotated[str, typer.Option(help="Only commands of this caller.")] = "",
) -> None:
    """List the commands in the log and their callers; needs the role operator.

    `server`: files that the server loaded. `anonymous`: callers of a server without an auth
    file. Decisions of the scheduler are left out. JSON output has one object a line.
    """
    since_ns = past_ns(since, "--since") if since else 0
    filter = f"actor = {quoted(actor)}" if actor else ""
    with server.connected() as client:
        for record in client.audit_records(since_ns, filter):
            _write(record, server.output)


def _write(record: AuditRecord, output: AnswerFormat) -> None:
    if output is AnswerFormat.TABLE:
        words = (_iso(record), record.actor, record.event, record.subject, record.reason)
        typer.echo(one_line("  ".join(filter(None, words))))
    else:
        mark = "---\n" if output is AnswerFormat.YAML else ""
        typer.echo(mark + formatted(_mapping(record), output, is_line=True))


def _mapping(record: AuditRecord) -> dict[str, Any]:
    return {
        "version": record.version,
        "time": _iso(record),
        "actor": record.actor,
        "event": record.event,
        "body": json.loads(record.body),
    }


def _iso(record: AuditRecord) -> str:
    from scheduler.files.timeparse import written

    return written(datetime.fromtimestamp(record.create_time.ToNanoseconds() / 1e9, UTC))
