"""What a state says twice, found anew from what it says once: jobs, hosts and windows."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from placement.fabric import hostset
from scheduler.core import JobState, State
from scheduler.core.model.lifecycle import ALLOWS, Allows
from scheduler.core.rules.eligibility import wake_ns


def check_derived(state: State) -> None:
    """Fail unless all that `State` keeps beside its facts is what these facts make of it.

    Of names of gangs that run, or stand still, and of jobs that share a host, the order is a fact.
    """
    jobs = state.jobs.values()
    holding = {job.name: job for job in jobs if job.gang is not None}
    assert set(holding) == {j.name for j in jobs if j.state is not JobState.QUEUED}
    stopped = {name for name, job in holding.items() if job.state is JobState.INTERRUPTED}
    assert stopped == {n for n, job in holding.items() if job.present.stop_ns is not None}
    sharing: dict[int, set[str]] = {}
    for job in holding.values():
        for host in job.hosts if job.part_gpus else ():
            sharing.setdefault(host, set()).add(job.name)
    waiting = [job for job in jobs if job.name not in holding]
    queued = sorted((j for j in waiting if j.name not in state.deferred), key=lambda j: j.order)
    awaited: dict[str, set[str]] = {}
    for job in waiting:
        for each in job.dependencies:
            if each.outcome is None:
                awaited.setdefault(each.uid, set()).add(job.name)
    found: dict[str, Any] = {
        "queue": [job.name for job in queued],
        "deferred": {j.name: wake_ns(j) for j in waiting if j.name in state.deferred},
        "dependants": awaited,
        "running": set(holding),
        "interrupted": stopped,
        "special": tuple(name for name in state.running if holding[name].is_special),
        "held": reduce(or_, (job.held for job in holding.values()), 0),
        "lent": hostset.of(host for job in holding.values() for host in job.present.lent),
        "shared": sharing,
        "closed": reduce(or_, (b.hosts for b in state.windows.values() if b.is_closing), 0),
        "unhealthy": _allowing(state, Allows.NOTHING),
        "probation": _allowing(state, Allows.PREEMPTIBLE),
        "golden": _allowing(state, Allows.LARGE_FIRST),
        "releases": sorted(job.release for job in holding.values()),
    }
    kept = {name: getattr(state, name) for name in found}
    for name in ("running", "interrupted"):
        assert len(kept[name]) == len(set(kept[name])), name
        kept[name] = set(kept[name])
    for name in ("dependants", "shared"):
        kept[name] = {key: set(names) for key, names in kept[name].items()}
    kept |= {"queue": list(state.queue), "releases": list(state.releases)}
    wrong = {name: (kept[name], found[name]) for name in found if kept[name] != found[name]}
    assert not wrong, wrong


def _allowing(state: State, what: Allows) -> int:
    return hostset.of(i for i, host in state.hosts.items() if ALLOWS[host.state] is what)
