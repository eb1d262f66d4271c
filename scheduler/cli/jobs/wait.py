"""`muster wait`: until jobs have started, or have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.calls import AskedServer, asks_server
from scheduler.cli.contexts import quoted
from scheduler.cli.exit_codes import FAILED, TIMED_OUT
from scheduler.cli.jobs.holds import JobNames
from scheduler.cli.numbers import some_seconds
from scheduler.cli.parameters import Timeout

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1 import job_pb2


class Awaited(StrEnum):
    """Event to wait for."""

    START = "start"
    END = "end"


@asks_server
def wait(
    server: AskedServer,
    names: JobNames,
    awaited: Annotated[
        Awaited, typer.Option("--for", help="`start`: until their gangs run, or they have ended.")
    ] = Awaited.END,
    timeout: Timeout = "",
) -> None:
    """Wait until jobs have ended, and show how.

    Exit code: 0 all completed (with --for start: all run or completed), 1 some failed or were
    cancelled, 124 the timeout came first.
    Example: muster wait prepare 'sweep-[0-15]' --timeout 6h && muster submit train.yaml
    """
    from scheduler.cli.jobs.arrays import with_tasks
    from scheduler.cli.render import messages
    from scheduler.v1 import job_pb2, service_pb2

    timeout_s = some_seconds(timeout) if timeout else None
    with server.connected() as client:
        jobs = _awaited(client, with_tasks(client, names, live_only=False), awaited, timeout_s)
    if len(jobs) == 1:
        server.write(jobs[0], messages.job_text)
    else:
        server.write(service_pb2.ListJobsResponse(jobs=jobs), messages.listed_jobs_text)
    ill = (job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED)
    if any(job.state in ill for job in jobs):
        raise typer.Exit(FAILED)
    if not all(is_there(job, awaited) for job in jobs):
        raise typer.Exit(TIMED_OUT)


def is_there(job: job_pb2.Job, awaited: Awaited) -> bool:
    """Return whether the awaited event has come."""
    from scheduler.v1 import job_pb2

    if awaited is Awaited.START and job.state == job_pb2.JOB_STATE_RUNNING:
        return job.HasField("launch_time") or not job.spec.HasField("run")
    return job.state in (
        job_pb2.JOB_STATE_COMPLETED,
        job_pb2.JOB_STATE_FAILED,
        job_pb2.JOB_STATE_CANCELLED,
    )


def _awaited(
    client: Client, names: Sequence[str], awaited: Awaited, timeout_s: float | None
) -> list[job_pb2.Job]:
    """The jobs as they are when all are there, or when the time is over."""
    jobs = {job.uid: job for job in map(client.get_job, names)}
    changes = changes_of(client, names, jobs, timeout_s)
    while not all(is_there(job, awaited) for job in jobs.values()):
        job = next(changes, None)
        if job is None:
            break
        jobs[job.uid] = job
    return list(jobs.values())


def changes_of(
    client: Client, names: Sequence[str], jobs: dict[str, job_pb2.Job], timeout_s: float | None
) -> Iterator[job_pb2.Job]:
    """Yield each of the jobs as it is now, and after every change."""
    from scheduler.v1 import service_pb2

    wanted = " OR ".join(f"name = {quoted(name.rpartition('/')[2])}" for name in names)
    listed = set[str]()
    for change in client.watch_jobs(filter=wanted, initial_list=True, timeout_s=timeout_s):
        if change.change == service_pb2.JOB_CHANGE_BOOKMARK:
            # Who ended before the watch began may be no longer at hand.
            for job in [job for job in jobs.values() if job.uid not in listed]:
                yield client.get_job(job.name, job.uid)
        elif change.job.uid in jobs:
            listed.add(change.job.uid)
            yield change.job
