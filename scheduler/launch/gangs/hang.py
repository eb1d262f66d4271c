"""Gangs whose steps have stopped coming: how that is noticed and said."""

from __future__ import annotations

import math

from placement.fabric.tree import Fabric
from scheduler.core.model.commands import RequeueJob
from scheduler.core.names import short_name
from scheduler.core.policies.job_terms import StopCause
from scheduler.launch.gangs.gang import LaunchedGang, RankFailure
from scheduler.v1 import agent_pb2

ANSWER_S = 1.0  # for which agents may say how far their ranks are, before a hang is told
STACKS_S = 5.0  # for which agents may take stacks before a gang that hangs is stopped


def is_overdue(gang: LaunchedGang, now_s: float) -> bool:
    """Return whether a gang that runs hangs, by the terms of its owner."""
    terms = gang.placed.job.spec.hang
    first_s, start_s = terms.first_step_s, gang.since_s
    return gang.watch.is_overdue(terms.after_s, now_s, first_s=first_s, start_s=start_s)


def ask_owner(gang: LaunchedGang, now_s: float, fabric: Fabric) -> RequeueJob:
    """Return the command that holds the job until its owner says how it goes on; once."""
    text, name = gang.hang_text(now_s, fabric), short_name(gang.name)
    gang.hung_s = math.inf
    text = (
        f"hangs: {text}; `muster release {name}` starts it again,"
        f" `muster cancel {name}` ends it, `muster logs {name} --attempt"
        f" {gang.attempt} --stacks` says where it stood"
    )
    return RequeueJob(gang.name, text, hold=True, uid=gang.uid)


def hang_failure(gang: LaunchedGang, now_s: float, fabric: Fabric) -> RankFailure:
    """Return the hang as a failure of the rank that is furthest behind."""
    rank = next((r for r in gang.watch.lagging() if r not in gang.done), None)
    rank = min(set(gang.watch.steps) - gang.done, default=0) if rank is None else rank
    text = f"made no step: {gang.hang_text(now_s, fabric)}"
    return RankFailure(now_s, rank, gang.host_of(rank), text, StopCause.HANG)


def note_progress(gang: LaunchedGang, word: agent_pb2.Progress, host: str, now_s: float) -> bool:
    """Note how far the ranks of a host are; return whether a hang that was reported is over."""
    gang.step = max(gang.step, word.step)
    watch = gang.watch
    before = watch.step
    watch.take(word.step, now_s)
    if host in gang.by_host:
        watch.take_ranks(gang.ranks_of(host).first_rank, word.rank_steps)
        watch.take_busy(host, word.busy, now_s)
        if word.computed_steps:
            first_rank = gang.ranks_of(host).first_rank
            watch.computed.update(enumerate(word.computed_steps, first_rank))
    if word.step >= watch.step:
        watch.total = word.total_steps or watch.total
        watch.loss = word.loss if word.HasField("loss") else watch.loss
    if watch.step == before or gang.hung_s is None:
        return False
    was_told, gang.hung_s, gang.is_hang_told = gang.is_hang_told, None, False
    return was_told
