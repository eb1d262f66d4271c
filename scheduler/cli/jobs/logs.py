"""Logs of all ranks of a gang at once: a line each, after the number of its rank."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from scheduler.cli.calls import end
from scheduler.cli.exit_codes import FAILED

if TYPE_CHECKING:
    from scheduler.client import Client

MOST_FOLLOWED: Final = 64  # ranks, each by a stream of its own
_lock = threading.Lock()


def write_all_ranks(
    client: Client, job: str, pieces: Callable[[int], Iterator[bytes]], *, follow: bool
) -> None:
    """Write the logs of all ranks, rank by rank, or with `follow` as they are written. Raises:
    ServiceError."""
    from scheduler.cli.jobs.ranks import ranks_by_role
    from scheduler.client import ServiceError

    message = client.get_job(job)
    roles = ranks_by_role(message)
    on_host = max(1, roles[-1][1].stop // max(1, message.placement.host_count))
    is_shared = message.spec.run.per_host
    numbers = [
        rank
        for run, ranks in roles
        for rank in ranks[:: on_host if run.per_host or is_shared else 1]
    ]
    if not follow:
        for rank in numbers:
            _write(rank, pieces(rank))
        return
    if len(numbers) > MOST_FOLLOWED:
        raise end(f"{len(numbers):,} logs are too many to follow; {MOST_FOLLOWED} are not", FAILED)
    failures: list[ServiceError] = []

    def follow_rank(rank: int) -> None:
        try:
            _write(rank, pieces(rank))
        except ServiceError as error:
            failures.append(error)

    threads = [threading.Thread(target=follow_rank, args=(n,), daemon=True) for n in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _write(rank: int, pieces: Iterator[bytes]) -> None:
    """Whole lines; the last one also where it has no end."""
    begun = b""
    for data in pieces:
        *lines, begun = (begun + data).split(b"\n")
        _write_lines(rank, lines)
    if begun:
        _write_lines(rank, [begun])


def _write_lines(rank: int, lines: list[bytes]) -> None:
    with _lock:
        for line in lines:
            sys.stdout.buffer.write(b"%d: %s\n" % (rank, line))
        sys.stdout.buffer.flush()
