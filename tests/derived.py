"""What the index of a state says, found anew from what the state says once."""

from collections import Counter
from dataclasses import replace  # finds all anew
from functools import reduce
from operator import or_
from typing import Any

from placement.fabric import hostset
from scheduler.core import JobState, State
from scheduler.core.model.index import Index
from scheduler.core.model.lifecycle import ALLOWS, Allows
from scheduler.core.model.requests import parse_request_id
from scheduler.core.rules.eligibility import wake_ns


def check_derived(state: State) -> None:
    """Fail unless the whole index is what the facts make of it, field by field.

    Of names of gangs that run, or stand still, and of jobs that share a host, the order is a fact.
    """
    jobs, index = state.jobs.values(), state.index
    holding = {job.name: job for job in jobs if job.gang is not None}
    assert set(holding) == {j.name for j in jobs if j.state is not JobState.QUEUED}
    stopped = {name for name, job in holding.items() if job.present.stop_ns is not None}
    assert stopped == {n for n, job in holding.items() if job.state is JobState.INTERRUPTED}
    sharing: dict[int, set[str]] = {}
    for job in holding.values():
        for host in job.hosts if job.part_gpus else ():
            sharing.setdefault(host, set()).add(job.name)
    waiting = [job for job in jobs if job.gang is None]
    queued = sorted((job for job in waiting if job.eligible_ns is not None), key=lambda j: j.order)
    awaited: dict[str, set[str]] = {}
    for job in waiting:
        for each in job.dependencies:
            if each.outcome is None:
                awaited.setdefault(each.uid, set()).add(job.name)
    anew: dict[str, Any] = {
        "queue": [job.name for job in queued],
        "deferred": {job.name: wake_ns(job) for job in waiting if job.eligible_ns is None},
        "dependants": awaited,
        "running": set(holding),
        "interrupted": stopped,
        "special": tuple(name for name in index.running if holding[name].is_special),
        "held": reduce(or_, (job.allocation for job in holding.values()), 0),
        "lent": hostset.of(host for job in holding.values() for host in job.present.lent),
        "shared": sharing,
        "unhealthy": _allowing(state, Allows.NOTHING),
        "probation": _allowing(state, Allows.PREEMPTIBLE),
        "golden": _allowing(state, Allows.LARGE_FIRST),
        "closed": reduce(or_, (b.hosts for b in state.windows.values() if b.is_closing), 0),
        "ended_counts": Counter(job.tenant for job in state.ended.values()),
        "request_counts": Counter(parse_request_id(key).tenant for key in state.requests),
        "lineage_counts": Counter(each.tenant for each in state.lineages.values()),
    }
    kept = {name: getattr(index, name) for name in Index.__struct_fields__}
    for name in ("running", "interrupted"):
        assert len(kept[name]) == len(set(kept[name])), name
        kept[name] = set(kept[name])
    for name in ("dependants", "shared"):
        kept[name] = {key: set(names) for key, names in kept[name].items()}
    kept["queue"] = list(index.queue)
    wrong = {name: (kept[name], anew.get(name)) for name in kept if kept[name] != anew.get(name)}
    assert not wrong, wrong
    assert sorted(job.release for job in holding.values()) == list(state.releases)
    assert {name for *_, name in state.waiting_sizes} == set(index.queue)
    assert state.free == replace(state).free
    assert index.first_deferred_ns == replace(index).first_deferred_ns
    _check_turns(state)


def _check_turns(state: State) -> None:
    """Fail unless the turns of arrays are those of their live tasks."""
    tasks: dict[str, list[bool]] = {}
    for job in state.jobs.values():
        if job.spec.array is not None:
            tasks.setdefault(job.spec.array.uid, []).append(job.awaits_turn)
    assert tasks.keys() == state.arrays.keys()
    for uid, turns in state.arrays.items():
        assert (turns.let_in, len(turns.waiting)) == (tasks[uid].count(False), sum(tasks[uid]))


def _allowing(state: State, what: Allows) -> int:
    return hostset.of(i for i, host in state.hosts.items() if ALLOWS[host.state] is what)
