"""The `muster` command: program.py loads the module of the command that is named.

Inside: the commands by subject: jobs, hosts (with links and windows), server (agents, stores and
tokens too) and offline, which need no server; what calls of a server share (calls, contexts);
answers as text (render) and as pictures (plot).
Enters: a command line. Leaves: text on stdout, messages on stderr, an exit code.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys

from scheduler.cli.exit_codes import INTERRUPTED

_YOUNG = 100_000  # objects among which Python looks for cycles; most are of modules, and stay


def main() -> None:
    """Run one command, which Ctrl-C ends without a traceback also while it still loads."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # unless the signal is ignored
        signal.signal(signal.SIGINT, _leave)
    _open_streams()
    gc.set_threshold(_YOUNG)
    from scheduler.cli.program import main as run

    signal.signal(signal.SIGINT, before)
    try:
        run()
    finally:
        gc.freeze()  # else the end of the interpreter looks through all modules for cycles


def _open_streams() -> None:
    """Who starts a command without some of its three streams (`>&-`) gets the null device for
    them: else the next file that is opened, a store say, would take their place. What a
    terminal's encoding cannot show is escaped."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _leave(number: int, frame: object) -> None:
    """At once: nothing has begun, and an exception would go through half-loaded libraries."""
    os._exit(INTERRUPTED)
