"""What agents report of gangs that they start: the facts that it makes true, or why not.

A report names the job by uid and the attempt. One of an attempt that is over is answered by
PRECONDITION and changes nothing: whatever comes late cannot touch its successor.
"""

from __future__ import annotations

from scheduler.core.model.commands import OpenChannel
from scheduler.core.model.events import (
    ChannelOpened,
    CheckpointSaved,
    Event,
    GangHung,
    GangLaunched,
    JobEnded,
    LaunchFailed,
    RankFailed,
    RoleRestarted,
)
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.rejected import Code, Rejected, invalid, no_job
from scheduler.core.model.state import State
from scheduler.core.policies.job_terms import StopCause

MOST_COMMAND = 16_384  # characters of a command that is run beside a rank

Answer = tuple[Event, ...] | Rejected


def launched(state: State, name: str, uid: str, attempt: int, now_ns: int) -> Answer:
    """Note that all ranks of an attempt have started."""
    job = _running(state, name, uid, attempt)
    if isinstance(job, Rejected):
        return job
    return () if job.present.launched_ns is not None else (GangLaunched(now_ns, name, attempt),)


def launch_failed(
    state: State,
    name: str,
    uid: str,
    attempt: int,
    host: str,
    reason: str,
    now_ns: int,
    *,
    is_final: bool = False,
) -> Answer:
    """Record that the ranks of `host` could not be started. `is_final`: they could not be started
    on other hosts either."""
    job = _running(state, name, uid, attempt)
    if isinstance(job, Rejected):
        return job
    failed = LaunchFailed(now_ns, name, attempt, host, reason)
    if not is_final:
        return (failed,)
    text = f"could not be started on {host}: {reason}"
    return (failed, JobEnded(now_ns, name, JobState.FAILED, text))


def rank_failed(
    state: State,
    name: str,
    uid: str,
    attempt: int,
    rank: int,
    host: str,
    reason: str,
    now_ns: int,
    cause: StopCause | None = None,
    code: int = 0,
    step: int = 0,
) -> Answer:
    """Record that `rank` ended with an error before any other did, after `step`."""
    job = _running(state, name, uid, attempt)
    if isinstance(job, Rejected):
        return job
    return (RankFailed(now_ns, name, attempt, rank, host, reason, cause, code, step),)


def role_restarted(
    state: State,
    name: str,
    uid: str,
    attempt: int,
    role: str,
    rank: int,
    host: str,
    reason: str,
    now_ns: int,
    cause: StopCause | None = None,
    code: int = 0,
) -> Answer:
    """Record that `role` begins again alone, because its `rank` ended with an error."""
    job = _running(state, name, uid, attempt)
    if isinstance(job, Rejected):
        return job
    return (RoleRestarted(now_ns, name, attempt, role, rank, host, reason, cause, code),)


def hung(state: State, name: str, uid: str, attempt: int, reason: str, now_ns: int) -> Answer:
    """Record that steps have stopped coming, as `reason` says; with "", that they come again."""
    job = _running(state, name, uid, attempt)
    if isinstance(job, Rejected):
        return job
    return () if job.present.hang == reason else (GangHung(now_ns, name, attempt, reason),)


def checkpoint_saved(
    state: State, name: str, uid: str, attempt: int, step: int, where: str, now_ns: int
) -> Answer:
    """Record a complete checkpoint. The attempt before the present one may still report what it
    saved when it was asked to leave, until the present one has been launched; and the last one of a
    job that has ended, what it saved when it was stopped."""
    job = state.jobs.get(name)
    if job is None or job.uid != uid:
        over = state.ended.get(uid)
        if over is None or over.attempt != attempt:
            return no_job(name, uid)
        if over.saved is not None and (over.saved.attempt, over.saved.step) >= (attempt, step):
            return ()
        return (CheckpointSaved(now_ns, over.name, attempt, step, where, uid),)
    is_last = attempt == job.attempt - 1 and job.present.launched_ns is None
    is_last |= job.state is JobState.QUEUED and attempt == job.attempt
    is_present = attempt == job.attempt and job.state is not JobState.QUEUED
    if not is_present and not is_last:
        return _late(job, attempt)
    if (saved := job.saved) is not None and (saved.attempt, saved.step) >= (attempt, step):
        return ()
    return (CheckpointSaved(now_ns, name, attempt, step, where),)


def copies_renewed(
    state: State, name: str, uid: str, attempt: int, step: int, now_ns: int
) -> Answer:
    """All copies of a step are in the memory of the gang's hosts."""
    job = _running(state, name, uid, attempt)
    if isinstance(job, Rejected):
        return job
    return (CheckpointSaved(now_ns, name, attempt, step, ""),)


def open_channel(state: State, command: OpenChannel, now_ns: int) -> Answer:
    """Check a command beside a rank: the ranks of its attempt must have started."""
    job = _running(state, command.name, command.uid, command.attempt)
    if isinstance(job, Rejected):
        return job
    if job.present.launched_ns is None:
        return Rejected(Code.PRECONDITION, f"the ranks of job {job.name} have not started yet")
    if not 0 <= command.port < 1 << 16:
        return invalid("port", f"must be 1 to {(1 << 16) - 1}, not {command.port}")
    if command.port and command.command:
        return invalid("command", "nothing is run where a port is connected to")
    if sum(map(len, command.command)) > MOST_COMMAND or any("\0" in t for t in command.command):
        return invalid("command", f"must be at most {MOST_COMMAND:,} characters, none of them NUL")
    opened = ChannelOpened(
        now_ns,
        job.name,
        job.attempt,
        command.rank,
        command.host,
        command.command,
        command.port,
    )
    return (opened,)


def _running(state: State, name: str, uid: str, attempt: int) -> Job | Rejected:
    job = state.jobs.get(name)
    if job is None or job.uid != uid:
        return no_job(name, uid)
    if job.state is not JobState.RUNNING or job.attempt != attempt:
        return _late(job, attempt)
    return job


def _late(job: Job, attempt: int) -> Rejected:
    message = f"attempt {attempt} of job {job.name} is over: it is {job.state}"
    return Rejected(Code.PRECONDITION, f"{message}, at attempt {job.attempt}")
