"""`muster verify`: check a certificate, without the engine that wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler.cli.calls import AnswerFormat, Output, formatted
from scheduler.cli.exit_codes import FAILED
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from muster.verify import Report


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify_command)


def verify_command(
    certificate: Annotated[
        Path,
        typer.Argument(
            help="A file of `--certificate`, of place, submit or job.", show_default=False
        ),
    ],
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Check a certificate: its placement, its cuts, its step and their bounds.

    The checker shares no code with the engine that wrote the certificate; docs/verify.md has what
    it checks and what it takes on trust. Exit code: 0 confirmed, 1 refused, 2 no certificate.
    Example: muster verify c.json -o json
    """
    from muster.certificate import Malformed
    from muster.verify import Refused, verify
    from scheduler.files.yaml12 import JsonFile

    content = JsonFile.load(str(certificate)).value
    try:
        report = verify(content)
    except Malformed as error:
        raise InputError(Problem(error.field, error.message, str(certificate))) from None
    except Refused as error:
        name = content["job"]["name"]
        body = {"outcome": "refused", "job": name, "reason": str(error)}
        is_text = output is AnswerFormat.TABLE
        typer.echo(f"refused: {name}: {error}" if is_text else formatted(body, output))
        raise typer.Exit(FAILED) from None
    typer.echo(_text(report) if output is AnswerFormat.TABLE else formatted(_body(report), output))


def _body(report: Report) -> dict[str, Any]:
    step = dict(zip(STEP_KEYS, report.step, strict=True)) if report.step else None
    return {
        "outcome": "confirmed",
        "job": report.name,
        "is_whole": report.is_whole,
        "bounds": {
            tier: {"confirmed_bytes_per_step": confirmed, "claimed_bytes_per_step": claimed}
            for tier, (confirmed, claimed) in report.bounds.items()
        },
        "step": step,
        "checked": report.checked,
        "trusted": report.trusted,
        "unproved": report.unproved,
    }


STEP_KEYS = ("seconds", "confirmed_lower_bound_seconds", "claimed_lower_bound_seconds")


def _text(report: Report) -> str:
    return "\n".join([f"confirmed: {report.name}", "", *report.lines])
