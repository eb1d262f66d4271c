"""Folds SQLite's WAL into the file beside the appends.

Left to itself SQLite does so within an append, which then waits for two more fsyncs and
for a thousand pages to be copied. A thread with a connection of its own does nearly all
of it while appends go on; they never wait for it (`wal_checkpoint(PASSIVE)`).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

MOST_PAGES = (
    8_000  # of the WAL, 32 MB: from then on an append folds what is left, and it starts anew
)
_PAGES = 1_000  # between two folds
_PASSES = 3  # each leaves what was appended meanwhile, which is less each time
_FOLD = "PRAGMA wal_checkpoint(PASSIVE)"
_PAGES_OF_APPEND = 4  # those of the tables that every append touches
_ROWS_OF_PAGE = 8

log = logging.getLogger("muster.store")


class Folding:
    """Folds the WAL of SQLite into its file, in a thread. Use from the thread that appends.
    `connect` opens a connection to the same file."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._pages = 0
        self._thread = ThreadPoolExecutor(1, "muster-fold")
        self._running: Future[None] | None = None

    def count_append(self, rows: int) -> None:
        """Count an append, roughly; fold when enough has gathered."""
        self._pages += _PAGES_OF_APPEND + rows // _ROWS_OF_PAGE
        if self._pages >= _PAGES and (self._running is None or self._running.done()):
            self._pages = 0
            self._running = self._thread.submit(self._fold)

    def close(self) -> None:
        """Wait for what is under way."""
        self._thread.shutdown()

    def _fold(self) -> None:
        """Fold the WAL into the file. What cannot be folded stays in the WAL, as durable."""
        try:
            with closing(self._connect()) as connection:
                for _ in range(_PASSES):
                    _, pages, folded = connection.execute(_FOLD).fetchone()
                    if folded == pages:  # the next append begins the WAL anew
                        return
        except sqlite3.Error as error:
            log.warning("the WAL is not folded into the file: %s", error)
