"""A cluster at one moment: where every run of a twin begins."""

from __future__ import annotations

from collections.abc import Mapping

from muster.structs import replace, struct
from placement.workload.request import AUTO
from scheduler.core import Job, SchedulingOptions, State
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.job import JobSpec


@struct(frozen=True, slots=True)
class ClusterFork:
    """The cluster that a twin begins with. `state` is that of the cluster at `now_ns`. `ended`: the
    jobs that ended before, as far as they are kept; `dropped`: how many are not. `options`: by
    which its server schedules. `source`: where it comes from, for people."""

    state: State
    now_ns: int
    ended: tuple[Job, ...]
    dropped: int
    options: SchedulingOptions
    source: str


def unwatched(state: State) -> State:
    """Return the state without what agents start and report; in a twin gangs behave by the rule of
    costs."""
    changed = {}
    for name, job in state.jobs.items():
        if job.spec.run is not None:
            gang = job.gang and replace(job.gang, launched_ns=None)
            changed[name] = replace(job, spec=replace(job.spec, run=None), gang=gang, saved=None)
    return _with_jobs(state, changed)


def with_auto_spares(state: State) -> State:
    """Return the state in which every live job leaves its spares to the cluster."""
    changed = {}
    for name, job in state.jobs.items():
        if not job.spec.request.spares.is_auto:
            changed[name] = replace(job, spec=auto_spares(job.spec), needed=job.gang_hosts)
    after = _with_jobs(state, changed)
    special = tuple(name for name in after.index.running if after.jobs[name].is_special)
    return replace(after, index=replace(after.index, special=special))


def auto_spares(spec: JobSpec) -> JobSpec:
    """Return the specification with `spares: auto`."""
    return replace(spec, request=replace(spec.request, spares=AUTO))


def _with_jobs(state: State, changed: Mapping[str, Job]) -> State:
    """Return all jobs in their order, these as they are here."""
    if not changed:
        return state
    return replace(state, jobs=PersistentMap({**dict(state.jobs.items()), **changed}))
