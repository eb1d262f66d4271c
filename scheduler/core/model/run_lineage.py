"""Run lineages: the checkpoints of jobs that continue each other, so that a run outlives its job.

A run is named by its owner, by default after the job: to submit the same file again, or the next
task of a chain, goes on where the last one had come to. Names are those of one user in one
tenant: nobody goes on from what somebody else has written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from scheduler.core.model.job import Job
from scheduler.core.names import short_name
from scheduler.core.policies.job_terms import RunSpec, SavedCheckpoint, parse_checkpoint

KEPT_CHECKPOINTS: Final = 8  # of one run
KEPT_RUNS: Final = 1_000  # of one tenant


class RunCheckpoint(Struct, frozen=True):
    """A checkpoint of a run, and the job that saved it."""

    job: str
    uid: str
    saved: SavedCheckpoint


class RunLineage(Struct, frozen=True):
    """Checkpoints that the jobs of one run have saved, newest last."""

    tenant: str
    checkpoints: tuple[RunCheckpoint, ...]


class ResumePoint(Struct, frozen=True):
    """The checkpoint from which an attempt goes on. `uid`: of the job that saved it; "" where that
    is not known."""

    step: int
    where: str
    uid: str = ""
    job: str = ""


def run_name(job: Job) -> str:
    """The name of the run that the job continues."""
    run = job.spec.run
    return (run.lineage if run is not None else "") or short_name(job.name)


def lineage_key(job: Job, name: str = "") -> str:
    """Return the key in State.lineages of a job's run, or of another run of its user."""
    return f"{job.tenant}/{name or run_name(job)}/{job.user}"


def with_checkpoint(
    lineages: Mapping[str, RunLineage], job: Job, saved: SavedCheckpoint
) -> RunLineage:
    """Return the lineage of a job's run with what it has saved. The first checkpoint of a job that
    began anew takes the place of all before it."""
    before = lineages.get(lineage_key(job))
    known = before.checkpoints if before is not None else ()
    if job.spec.run is not None and job.spec.run.new_run:
        known = tuple(each for each in known if each.uid == job.uid)
    kept = (*known, RunCheckpoint(job.name, job.uid, saved))[-KEPT_CHECKPOINTS:]
    return RunLineage(job.tenant, kept)


def resume_point(lineages: Mapping[str, RunLineage], job: Job) -> ResumePoint | None:
    """Return where the next attempt of the job goes on: from what it has saved itself, else from
    what its specification names, else from the newest of its run. None: at the beginning."""
    if job.saved is not None:
        return ResumePoint(job.saved.step, job.saved.where, job.uid, job.name)
    run = job.spec.run or RunSpec(())
    if run.resume_from.startswith("/"):
        return ResumePoint(*parse_checkpoint(run.resume_from))
    if run.new_run:
        return None
    lineage = lineages.get(lineage_key(job, run.resume_from))
    if lineage is None:
        return None
    newest = lineage.checkpoints[-1]
    return ResumePoint(newest.saved.step, newest.saved.where, newest.uid, newest.job)
