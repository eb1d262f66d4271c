"""Where `muster twin` gets its cluster: a backup, a store, or a running server.

The one file of the simulator that asks any of these.
"""

from __future__ import annotations

import msgspec

from placement import BadInput
from scheduler.cli.calls import connected
from scheduler.core import Job, SchedulingOptions
from scheduler.eventlog import snapshots
from scheduler.eventlog.ended_jobs import job_in, job_of
from scheduler.eventlog.recovery import replayed
from scheduler.eventlog.store import NotRead, Store, StoreError, look_at
from scheduler.files.errors import InputError, Problem
from scheduler.server.config import ServerKeys, load_server_file, scheduling_options
from simulator.twin.fork import ClusterFork


def fork_of_store(source: str, options: SchedulingOptions) -> ClusterFork:
    """Return the cluster at the end of a log: a backup by its path, or a store by its URL.

    Raises: InputError when it cannot be read.
    """
    url = source if "://" in source else f"sqlite:///{source}"
    try:
        store = look_at(url)
        try:
            recovered = replayed(store)
            jobs, (_, dropped) = _ended(store), store.ended_counts()
        finally:
            store.close()
    except (StoreError, BadInput) as error:
        raise InputError(Problem("--from", str(error))) from None
    if recovered.state.fabric is None:
        raise InputError(Problem("--from", f"{source} is empty: it has no fabric"))
    return ClusterFork(recovered.state, recovered.last_ns, jobs, dropped, options, source)


def fork_of_server(address: str) -> ClusterFork:
    """Return the cluster as its server knows it now; for operators.

    Raises: InputError when the server is of another release; typer.Exit with what it refuses.
    """
    body, ended, first = bytearray(), list[bytes](), None
    with connected(address) as client:
        for part in client.export_state():
            first = first or part
            body += part.snapshot
            ended += part.ended_jobs
    try:
        if first is None:
            raise ValueError("nothing came")
        state, _ = snapshots.decode(bytes(body))
        options = msgspec.json.decode(first.options, type=SchedulingOptions)
        jobs = tuple(map(job_of, ended))
    except (ValueError, msgspec.DecodeError) as error:
        message = f"{address} is not of this release of muster: its state cannot be read ({error})"
        raise InputError(Problem("--address", message)) from None
    now_ns = max(first.create_time.ToNanoseconds(), state.seen_ns)
    return ClusterFork(state, now_ns, jobs, first.dropped_jobs, options, address)


def limits_of_server(config: str | None) -> SchedulingOptions:
    """Return the options of a server with this file; None: without a file. Raises: InputError."""
    return scheduling_options(load_server_file(config) if config is not None else ServerKeys())


def _ended(store: Store) -> tuple[Job, ...]:
    """Raises: StoreError when one of them is of another release."""
    try:
        return tuple(job_in(row) for row in store.ended_log())
    except NotRead as error:
        raise StoreError(str(error)) from None
