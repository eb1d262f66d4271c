"""Many replays at once: on the cores of this machine, or on a Dask cluster.

A piece of work is a function of plain values that returns plain values. Results come as
they are ready, each with the number of its piece.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

from scheduler.files.errors import InputError, Problem

Piece = TypeVar("Piece")
Result = TypeVar("Result")

CONNECT_S = 20


def cores() -> int:
    """Return how many processes this one may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    function: Callable[[Piece], Result],
    pieces: Sequence[Piece],
    processes: int,
    dask: str | None = None,
) -> Iterator[tuple[int, Result]]:
    """Run every piece in processes, and yield (number, result) in the order in which they end.

    `processes`: at once; with one of them, or one piece, all runs right here. `dask`: the address
    of a scheduler that is already there, which has its own; the positional arguments of a `partial`
    are sent to its workers once.

    Raises: InputError as a piece does, or when there is no such scheduler.
    """
    if dask is not None:
        return _on_dask(function, pieces, dask)
    if min(processes, len(pieces)) <= 1:
        return ((i, function(piece)) for i, piece in enumerate(pieces))
    return _on_processes(function, pieces, processes)


def _on_processes(
    function: Callable[[Piece], Result], pieces: Sequence[Piece], processes: int
) -> Iterator[tuple[int, Result]]:
    # Spawned, not forked: a fork of a process with threads may hang, and every piece
    # starts from the same clean state.
    context = get_context("spawn")
    count = min(processes, len(pieces))
    with ProcessPoolExecutor(count, context, initializer=_end_with_parent) as pool:
        is_whole = False
        try:
            with ctrl_c_deferred():  # which is heard as this block ends
                number = {pool.submit(function, piece): i for i, piece in enumerate(pieces)}
            for future in as_completed(number):
                yield number[future], future.result()
            is_whole = True
        except BrokenProcessPool:
            message = "a process was ended from outside, perhaps for want of memory; try fewer"
            raise InputError(Problem("--processes", message)) from None
        finally:
            if not is_whole:  # nobody waits for what still runs
                for process in active_children():
                    process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def ctrl_c_deferred() -> Iterator[None]:
    """Return a context in which Ctrl-C waits for the end of the block, and which processes that are
    started in it never hear.

    A signal that this thread blocks comes to another one, such as those of a library of linear
    algebra, and Python would raise it here all the same: so the handler waits too.
    """
    heard: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _end_with_parent() -> None:
    """In a worker: a parent that is killed takes its workers along."""

    def wait() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _on_dask(
    function: Callable[[Piece], Result], pieces: Sequence[Piece], address: str
) -> Iterator[tuple[int, Result]]:
    need_dask()
    dask: Any = importlib.import_module("distributed")
    try:
        client = dask.Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        message = f"no scheduler answers at {address}: {error}"
        raise InputError(Problem("--dask", message)) from None
    with client:
        if isinstance(function, partial):  # what all pieces have in common goes out once
            common = client.scatter(list(function.args), broadcast=True, hash=False)
            futures = [client.submit(function.func, *common, p, pure=False) for p in pieces]
        else:
            futures = client.map(function, list(pieces), pure=False)
        number: dict[Any, int] = {future.key: i for i, future in enumerate(futures)}
        for future in dask.as_completed(futures):
            yield number[future.key], future.result()
            future.release()


def need_dask() -> None:
    """Fail unless Dask is installed. Raises: InputError."""
    if importlib.util.find_spec("distributed") is None:
        message = "needs Dask, which is not installed: pip install 'muster-scheduler[dask]'"
        raise InputError(Problem("--dask", message))
