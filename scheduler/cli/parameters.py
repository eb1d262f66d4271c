"""Parameters that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scheduler.cli import complete

JobPath = Annotated[Path, typer.Argument(help="The job file (YAML).", show_default=False)]
OptionalJobPath = Annotated[
    Path | None, typer.Argument(help="The job file (YAML).", show_default=False)
]
FabricName = Annotated[
    str,
    typer.Option(
        "--fabric",
        help="A preset or a fabric file.",
        autocompletion=complete.fabrics,
        show_default=False,
    ),
]
OutFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="File to write. (default: standard output)"),
]
Timeout = Annotated[
    str, typer.Option(help="Wait no longer than this, such as 2h30m. (default: for ever)")
]
