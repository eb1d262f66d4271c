"""The `muster` command. Everything is in program.py, which takes half a second to load."""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130  # as shells report SIGINT


def main() -> None:
    """Run one command, which Ctrl-C ends without a traceback also while it still loads."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not one that was told to ignore it
        signal.signal(signal.SIGINT, _leave)
    from scheduler.cli.program import main as run

    signal.signal(signal.SIGINT, before)
    run()


def _leave(number: int, frame: object) -> None:
    """At once: nothing has begun, and an exception would go through half-loaded libraries."""
    os._exit(INTERRUPTED)
