"""Which jobs a specification depends on: names become uids, and what can never be is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from scheduler.core.model.commands import LongEnded
from scheduler.core.model.dependency import (
    MOST_AWAITED,
    MOST_DEPENDENCIES,
    Dependency,
    DependencyKind,
    DependencyTerm,
)
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.job_array import MOST_TASKS
from scheduler.core.model.lifecycle import LIVE, Hold
from scheduler.core.model.rejected import Code, Rejected, invalid
from scheduler.core.model.state import State
from scheduler.core.names import short_name
from scheduler.core.rules.eligibility import UNMET
from scheduler.core.tenancy.ownership import tenant_of

_NUMBER: Final = re.compile(r"[-_.]?\d+$")


def resolved(
    state: State,
    spec: JobSpec,
    user: str,
    long_ended: Sequence[LongEnded],
    own: Job | None = None,
    by: Hold = Hold.OWNER,
) -> tuple[Dependency, ...] | Rejected:
    """Look up the jobs that the specification `spec` of `user` depends on. `long_ended`: jobs that
    the state has no more; `own`: the job itself, where it is there already; `by`: who changes
    it."""
    dependencies: list[Dependency] = []
    arrays = 0  # tasks of arrays beyond the first
    task = spec.array.task if spec.array else None
    corresponding = paired(corresponding_tasks(state, spec), task)
    if isinstance(corresponding, Rejected):
        return corresponding
    if own is not None and any(each.uid == own.uid for each in corresponding):
        return invalid("dependencies", "aftercorr is of the job's own array")
    dependencies += corresponding
    for place, term in enumerate(spec.dependencies):
        if term.kind is DependencyKind.SINGLETON:
            dependencies += _namesakes(state, spec, user, own)
            continue
        field = f"dependencies[{place}].job"
        if term.kind is DependencyKind.AFTERCORR:
            continue
        meant = _resolve_term(state, term, long_ended)
        if not meant:
            return invalid(field, f"there is and was no job {term.job!r}")
        for dependency in meant:
            if own is not None and dependency.uid == own.uid:
                return invalid(field, "is the job itself")
            if dependency.is_never_met:
                return Rejected(Code.INFEASIBLE, f"{UNMET}: {dependency.text}")
        arrays += len(meant) - 1
        dependencies += meant
    if len(dependencies) - arrays > MOST_DEPENDENCIES or arrays > MOST_TASKS:
        most = f"are {len(dependencies):,}, more than {MOST_DEPENDENCIES}"
        return invalid("dependencies", most)
    if len(dependencies) > MOST_DEPENDENCIES and (refusal := _too_many(state, spec, dependencies)):
        return refusal
    if own is not None and (cycle := _cycle(state, own, dependencies)):
        names = [_shown(state, own, job, by) for job in cycle]
        return invalid("dependencies", f"go round in a circle: {' waits for '.join(names)}")
    return tuple(dependencies)


def _too_many(state: State, spec: JobSpec, dependencies: Sequence[Dependency]) -> Rejected | None:
    """The refusal of a job that waits for a large array beside many that do: with every task that
    ends, all of them are looked at."""
    tenant = tenant_of(spec, state.tenants)
    waiting = (job for name in state.index.deferred if (job := state.jobs[name]).tenant == tenant)
    awaited = sum(len(job.dependencies) for job in waiting)
    if awaited + len(dependencies) <= MOST_AWAITED:
        return None
    message = f"waiting jobs of tenant {tenant} wait for {awaited:,} ends of others already"
    return Rejected(Code.EXHAUSTED, f"{message}: let one job wait for the array, others for that")


def _resolve_term(
    state: State, term: DependencyTerm, long_ended: Sequence[LongEnded]
) -> list[Dependency]:
    """The job of that name, or all tasks of the newest array that is called so."""

    job = state.find(term.job)
    if job is not None:
        return [_dependency_on(job, term.kind)]
    if tasks := _tasks(state, term.job):
        return [_dependency_on(task, term.kind) for task in tasks]
    for name, uid, outcome, has_started in long_ended:
        if name == term.job:
            return [Dependency(term.kind, term.job, uid, outcome, has_started)]
    return []


def _dependency_on(job: Job, kind: DependencyKind) -> Dependency:
    outcome = None if job.state in LIVE else job.state
    return Dependency(kind, job.name, job.uid, outcome, outcome is None or job.attempt > 0)


TasksByArray = Mapping[str, Mapping[int, Job]]  # of arrays that are awaited, by number


def corresponding_tasks(state: State, spec: JobSpec) -> TasksByArray:
    """Return the tasks of the arrays that `spec` names by `aftercorr`: its task n waits for their
    task n. Cost: O(jobs) for each of them."""
    names = [t.job for t in spec.dependencies if t.kind is DependencyKind.AFTERCORR]
    return {
        name: {
            job.spec.array.task: job
            for job in _tasks(state, name)
            if job.spec.array is not None and job.spec.array.task is not None
        }
        for name in names
    }


def paired(
    tasks_by_array: TasksByArray, number: int | None, others: Sequence[Dependency] = ()
) -> tuple[Dependency, ...] | Rejected:
    """Return the dependencies of the task of that number by `aftercorr`, and of `others` those of
    other kinds. None: it is no task."""
    awaited = [each for each in others if each.kind is not DependencyKind.AFTERCORR]
    for name, tasks in tasks_by_array.items():
        if number is None:
            return invalid("dependencies", f"aftercorr of {name} is for the tasks of an array")
        if (task := tasks.get(number)) is None:
            fault = f"has no task {number}" if tasks else "is no array that is known"
            return invalid("dependencies", f"aftercorr: {name} {fault}")
        dependency = _dependency_on(task, DependencyKind.AFTERCORR)
        if dependency.is_never_met:
            return Rejected(Code.INFEASIBLE, f"{UNMET}: {dependency.text}")
        awaited.append(dependency)
    return tuple(awaited)


def _tasks(state: State, name: str) -> list[Job]:
    """Tasks of the newest array of this name that live, or are still known."""
    known = chain(state.ended.values(), state.jobs.values())
    tasks = [job for job in known if (array := job.spec.array) and array.name == name]
    newest = max(tasks, key=lambda job: job.sequence, default=None)
    if newest is None or newest.spec.array is None:
        return []
    uid = newest.spec.array.uid
    return [job for job in tasks if job.spec.array is not None and job.spec.array.uid == uid]


def stem(name: str) -> str:
    """Return the name without its number, which jobs that take turns share: `nightly`."""
    return _NUMBER.sub("", short_name(name)) or short_name(name)


def _namesakes(state: State, spec: JobSpec, user: str, own: Job | None) -> Iterator[Dependency]:
    """The live jobs of the user and tenant that came before, newest first, up to one that takes
    turns itself: it waits for all that came before it."""
    tenant = tenant_of(spec, state.tenants)
    before = sorted(state.jobs.values(), key=lambda job: -job.sequence)
    for job in before:
        if (job.tenant, job.user) != (tenant, user) or stem(job.name) != stem(spec.name):
            continue
        if own is not None and job.sequence >= own.sequence:
            continue
        yield Dependency(DependencyKind.SINGLETON, job.name, job.uid)
        if any(term.kind is DependencyKind.SINGLETON for term in job.spec.dependencies):
            return


def _shown(state: State, own: Job, job: Job, by: Hold) -> str:
    """How a job is called to somebody who may change `own`: owners see those of its tenant and of
    tenants below, operators all."""
    is_known = job.tenant in state.tenants.by_name
    above = state.tenants.path(job.tenant) if is_known else (job.tenant,)
    return job.name if by is Hold.OPERATOR or own.tenant in above else "a job of another tenant"


def _cycle(state: State, own: Job, dependencies: Sequence[Dependency]) -> list[Job]:
    """The way from the job back to itself along what waits for what; empty when there is none.
    Only a change makes one: a new job depends on jobs that were there before it."""
    by_uid = {job.uid: job for job in state.jobs.values() if job.dependencies}
    by_uid[own.uid] = own
    open_ways = [[own, job] for job in _awaited(by_uid, dependencies)]
    seen = set[str]()
    while open_ways:
        way = open_ways.pop()
        last = way[-1]
        if last.uid == own.uid:
            return way
        if last.uid not in seen:
            seen.add(last.uid)
            open_ways += [[*way, job] for job in _awaited(by_uid, last.dependencies)]
    return []


def _awaited(by_uid: Mapping[str, Job], dependencies: Sequence[Dependency]) -> list[Job]:
    """The jobs among these that have not ended and depend on others, or are the first."""
    return [by_uid[each.uid] for each in dependencies if not each.outcome and each.uid in by_uid]
