"""What would become of a job if something were different: the same functions, on a copy.

The state is a value, so nothing that is tried here touches the real one.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.structs import struct
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.decide import decide
from scheduler.core.explain.conditions import supposed
from scheduler.core.explain.dryrun import MOST_DECISIONS
from scheduler.core.explain.explain import domains_of, explain
from scheduler.core.explain.reason import Reason
from scheduler.core.fold.apply import replay
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.queue.verdict import WaitReason
from scheduler.core.wording import duration, hosts_text, listed


@struct(frozen=True, slots=True)
class WhatIf:
    """Effect of supposed conditions on a job. `job`: as it would be once everything that can start
    now has; `before`: why it waits as things are. `after`: why it would wait then.

    `starts`, `stops`: other jobs that would start now, or lose their hosts or the wait.
    """

    sentence: str
    before: Reason
    after: Reason
    job: Job
    starts: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()


def what_if(
    state: State, name: str, conditions: Sequence[str], now_ns: int, options: SchedulingOptions
) -> WhatIf:
    """Decide on a copy what would change for `name`. Cost: the decisions that follow.

    Raises: KeyError when no such job is at hand; BadInput, field `suppose[i]`, for a
    condition that cannot be read or cannot be.
    """
    before = explain(state, name, now_ns, options)
    changed = run_to_rest(supposed(state, name, conditions, now_ns), now_ns, options)
    job = changed.find(name)
    assert job is not None  # it is at least among the ended
    after = explain(changed, name, now_ns, options)
    holding, then = set(state.index.running), set(changed.index.running)
    starts = tuple(n for n in changed.index.running if n not in holding and n != name)
    stops = tuple(n for n in state.index.running if n not in then and n != name)
    is_running = name in state.index.running
    sentence = _sentence(changed, job, before, after, is_running, now_ns)
    return WhatIf(sentence, before, after, job, starts, stops)


def run_to_rest(state: State, now_ns: int, options: SchedulingOptions) -> State:
    """Return the state once nothing more can start at this moment."""
    for _ in range(MOST_DECISIONS):
        events = commit(state, decide(state, now_ns, options), now_ns)
        if isinstance(events, Conflict) or not events:
            break
        state = replay(events, state)
    return state


def _sentence(
    state: State, job: Job, before: Reason, after: Reason, was_running: bool, now_ns: int
) -> str:
    if job.state is JobState.RUNNING:
        return _running(state, job, before, was_running)
    if job.state is not JobState.QUEUED:
        return f"would be {job.state}"
    if was_running:
        return f"would lose its hosts and wait: {job.reason}"
    earlier = _compared(before.start_ns, after.start_ns, now_ns)
    return f"would still wait{earlier}: {after.sentence}"


def _running(state: State, job: Job, before: Reason, was_running: bool) -> str:
    where = listed(domains_of(state.loaded_fabric, job.allocation))
    held = hosts_text(len(job.hosts)) + (f" in {where}" if where else "")
    if was_running:
        return f"would run on {held}, attempt {job.attempt}"
    was_due = ", as it does anyway" if before.cause is WaitReason.DUE else ""
    return f"would start now on {held}{was_due}"


def _compared(before_ns: int | None, after_ns: int | None, now_ns: int) -> str:
    """How its earliest start would change."""
    if before_ns == after_ns:
        return ""
    if after_ns is None:
        return ", until a time that cannot be foreseen"
    wait = duration(max(0, after_ns - now_ns) // SECOND_NS)
    if before_ns is None:
        return f", for at most {wait}"
    change = duration(abs(after_ns - before_ns) // SECOND_NS)
    return f", {change} {'longer' if after_ns > before_ns else 'less'}"
