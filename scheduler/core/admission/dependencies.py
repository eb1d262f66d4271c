"""Which jobs a specification depends on: names become uids, and what can never be is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.core.job_name import short_name
from scheduler.core.model.commands import LongEnded
from scheduler.core.model.dependency import (
    MOST_DEPENDENCIES,
    Dependency,
    DependencyKind,
    DependencyTerm,
)
from scheduler.core.model.job import Job, JobSpec
from scheduler.core.model.lifecycle import LIVE
from scheduler.core.model.rejected import Code, Rejected, invalid
from scheduler.core.model.state import State
from scheduler.core.rules.eligibility import UNMET
from scheduler.core.tenancy.ownership import tenant_of

_NUMBER: Final = re.compile(r"[-_.]?\d+$")


def resolved(
    state: State,
    spec: JobSpec,
    user: str,
    long_ended: Sequence[LongEnded],
    own: Job | None = None,
) -> tuple[Dependency, ...] | Rejected:
    """The jobs that `spec` of `user` depends on. `long_ended`: those that the state has no more;
    `own`: the job itself, where it is there already."""
    dependencies: list[Dependency] = []
    for place, term in enumerate(spec.dependencies):
        if term.kind is DependencyKind.SINGLETON:
            dependencies += _namesakes(state, spec, user, own)
            continue
        field = f"dependencies[{place}].job"
        dependency = _one(state, term, long_ended)
        if dependency is None:
            return invalid(field, f"there is and was no job {term.job!r}")
        if own is not None and dependency.uid == own.uid:
            return invalid(field, "is the job itself")
        if dependency.is_never_met:
            return Rejected(Code.INFEASIBLE, f"{UNMET}: {dependency.text}")
        dependencies.append(dependency)
    if len(dependencies) > MOST_DEPENDENCIES:
        most = f"are {len(dependencies):,}, more than {MOST_DEPENDENCIES}"
        return invalid("dependencies", most)
    if own is not None and (cycle := _cycle(state, own, dependencies)):
        return invalid("dependencies", f"go round in a circle: {' waits for '.join(cycle)}")
    return tuple(dependencies)


def _one(state: State, term: DependencyTerm, long_ended: Sequence[LongEnded]) -> Dependency | None:
    job = state.find(term.job)
    if job is not None:
        outcome = None if job.state in LIVE else job.state
        return Dependency(term.kind, term.job, job.uid, outcome)
    for name, uid, outcome in long_ended:
        if name == term.job:
            return Dependency(term.kind, term.job, uid, outcome)
    return None


def stem(name: str) -> str:
    """What jobs share that take turns: `nightly` of `nightly-7`."""
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


def _cycle(state: State, own: Job, dependencies: Sequence[Dependency]) -> list[str]:
    """The way from the job back to itself along what waits for what; empty when there is none.
    Only a change makes one: a new job depends on jobs that were there before it."""
    by_uid = {job.uid: job for job in state.jobs.values() if job.dependencies}
    ways = [(own.name, each) for each in dependencies if each.outcome is None]
    open_ways = [[own.name, each.job] for _, each in ways]
    ends = [each.uid for _, each in ways]
    seen = set[str]()
    while ends:
        uid, way = ends.pop(), open_ways.pop()
        if uid == own.uid:
            return way
        if uid in seen or uid not in by_uid:
            continue
        seen.add(uid)
        for each in by_uid[uid].dependencies:
            if each.outcome is None:
                ends.append(each.uid)
                open_ways.append([*way, each.job])
    return []
