"""Job arrays on the command line: a name for all tasks, and one row for tasks that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from placement.fabric import hostlist
from scheduler.cli.calls import expanded
from scheduler.cli.contexts import quoted

if TYPE_CHECKING:
    from scheduler.client import Client
    from scheduler.v1 import job_pb2


def with_tasks(client: Client, texts: Sequence[str], *, live_only: bool = True) -> list[str]:
    """Names of jobs, with ranges written out; where no job has a name, but an array, those of its
    tasks, the waiting ones first: they are not to start while others are cancelled. Raises:
    BadInput, ServiceError."""
    plain = [text for text in texts if "[" not in text]
    tasks = {text: names for text in plain if (names := _tasks(client, text, live_only=live_only))}
    each = (tasks.get(text) or expanded([text]) for text in texts)
    return list(dict.fromkeys(name for some in each for name in some))


def _tasks(client: Client, text: str, *, live_only: bool) -> list[str]:
    """Tasks of arrays of this name; empty where it is the name of a job, or of nothing."""
    tasks = tasks_of(client, text, live_only=live_only)
    if not tasks or is_job(client, text):
        return []
    return [task.name for task in sorted(tasks, key=_by_state)]


def _by_state(job: job_pb2.Job) -> int:
    from scheduler.v1 import job_pb2

    return 0 if job.state == job_pb2.JOB_STATE_QUEUED else 1


def tasks_of(client: Client, text: str, *, live_only: bool = False) -> list[job_pb2.Job]:
    """Return the tasks of the newest array of this name, or all that live, by number. Raises:
    ServiceError."""
    from scheduler.v1 import job_pb2

    tenant, _, name = text.rpartition("/")
    live = (job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_INTERRUPTED)
    wanted = f"array = {quoted(name)}"
    if tenant:
        wanted += f" AND tenant = {quoted(tenant.removeprefix('tenants/').removesuffix('/jobs'))}"
    jobs = list(client.jobs_answer(live if live_only else (), wanted, recent_only=True).jobs)
    newest = max((job.create_time.ToNanoseconds() for job in jobs), default=0)
    if not live_only:
        jobs = [job for job in jobs if job.create_time.ToNanoseconds() == newest]
    return sorted(jobs, key=lambda job: job.array_task)


def failed_tasks(client: Client, text: str) -> list[str]:
    """Return the names of the failed tasks of the newest array that is called so. Raises:
    ServiceError."""
    from scheduler.v1 import job_pb2

    tasks = tasks_of(client, text)
    return [task.name for task in tasks if task.state == job_pb2.JOB_STATE_FAILED]


def is_job(client: Client, name: str) -> bool:
    """Return whether a job of this name lives or has ended. Raises: ServiceError."""
    from scheduler.client import ServiceError

    try:
        client.get_job(name)
    except ServiceError as error:
        if error.code != "NOT_FOUND":
            raise
        return False
    return True


def collapsed(jobs: Sequence[job_pb2.Job]) -> list[job_pb2.Job]:
    """Merge the tasks of an array that wait for the same reason: `sweep-[4-15]`."""
    from scheduler.v1 import job_pb2

    rows: list[job_pb2.Job] = []
    groups: dict[tuple[str, ...], tuple[int, list[str]]] = {}
    for job in jobs:
        if not job.array or job.state != job_pb2.JOB_STATE_QUEUED:
            rows.append(job)
            continue
        key = (job.tenant, job.array, job.create_time.ToJsonString(), job.reason)
        if key in groups:
            groups[key][1].append(job.name)
        else:
            groups[key] = (len(rows), [job.name])
            rows.append(job)
    for at, names in groups.values():
        if len(names) > 1:
            row = job_pb2.Job()
            row.CopyFrom(rows[at])
            row.name = hostlist.fold(names)
            rows[at] = row
    return rows
