"""Roles of a gang that begin again by themselves, in the attempt and on the hosts that they have.

    STOPPING    the hosts of the role end what is left of its ranks
    PAUSING     its job wants a pause after a failure
    PREPARING   Prepare sent, for the same attempt again
    STARTING    Launch sent, from the newest checkpoint of the gang
    STARTED     all its ranks run

The others of the gang run on meanwhile. What cannot be mended so is a failure of the gang: a host
that is gone, a failure after which the job is not to be started again, or a role that fails over
and over soon after it has started.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from scheduler.core.policies.job_terms import StopCause
from scheduler.core.policies.tenants import Restarts
from scheduler.core.rules.crash_loop import pause_s
from scheduler.launch.gangs.gang import (
    LaunchedGang,
    LaunchedRole,
    RankFailure,
    RoleRestarts,
    RoleStage,
)

# Restarts of a role, each within a minute of its start, where its job does not say how many.
MOST_IN_A_ROW = 3
_SOON_S = 60.0
_NO_MORE = 1 << 30
_NEXT = {
    RoleStage.STOPPING: RoleStage.PAUSING,
    RoleStage.PREPARING: RoleStage.STARTING,
    RoleStage.STARTING: RoleStage.STARTED,
}

log = logging.getLogger("muster.launch")


def begin(
    gang: LaunchedGang, now_s: float, terms: Restarts
) -> Iterator[tuple[LaunchedRole, RankFailure]]:
    """Take failures that restart only a role out of the gang's failures, and yield these roles,
    each with its first failure."""
    rule = gang.placed.job.spec.restarts
    most = MOST_IN_A_ROW if rule.most is None else rule.most
    for failure in sorted(gang.failures.values()):
        role = gang.role_of(failure.host)
        if failure.rank not in gang.failures or not role.may_restart:
            continue
        if rule.refusal(failure.cause, failure.code):
            continue
        before = gang.restarts.get(role.name)
        count = 1
        if before is not None:
            is_late = before.stage is RoleStage.STARTED and now_s - before.since_s > _SOON_S
            count = 1 if is_late else before.count + 1
        if count > most:
            continue
        words = "attempt %d of %s: role %s begins again, for rank %d on %s %s"
        cause = (role.name, failure.rank, failure.host, failure.reason)
        log.warning(words, gang.attempt, gang.name, *cause)
        stage = RoleStage.STOPPING
        pause = pause_s(rule, terms, count)
        gang.restarts[role.name] = RoleRestarts(stage, set(role.hosts), now_s, count, pause)
        gang.forget_ranks(role)
        yield role, failure


def resize(gang: LaunchedGang, now_s: float) -> LaunchedRole:
    """Restart the last role, which has been resized, and return it. Hosts that joined report, as
    the others do, that nothing of the role runs there."""
    role = gang.roles[-1]
    before = gang.restarts.get(role.name)
    count = 0 if before is None else before.count
    gang.restarts[role.name] = RoleRestarts(RoleStage.STOPPING, set(role.hosts), now_s, count)
    return role


def awaits(gang: LaunchedGang, host: str) -> bool:
    """Return whether a host has yet to be told that its role begins again, or to say that it is
    ready."""
    restart = gang.restarts.get(gang.role_of(host).name)
    return restart is not None and restart.stage is not RoleStage.STARTED and gang.is_live


def is_ending(gang: LaunchedGang, host: str) -> bool:
    """Return whether a host's report is about ranks that are being ended so that their role begins
    again. Hosts report that twice: when it happens, and when they are told to."""
    restart = gang.restarts.get(gang.role_of(host).name)
    if restart is None or not gang.is_live:
        return False
    is_told = restart.stage is RoleStage.PREPARING and host in restart.awaited
    return is_told or restart.stage in (RoleStage.STOPPING, RoleStage.PAUSING)


def to_prepare(
    gang: LaunchedGang, host: str, now_s: float, busy: Collection[str] = ()
) -> tuple[str, ...]:
    """Note that ranks have ended on a host; return the hosts that begin again now: all hosts of its
    role, or only this one, which may have missed the order. `busy`: hosts that other attempts have
    yet to leave."""
    role = gang.role_of(host)
    if note(gang, host, RoleStage.STOPPING, now_s):
        return end_pauses(gang, now_s, busy)
    return (host,) if gang.restarts[role.name].stage is RoleStage.PREPARING else ()


def end_pauses(gang: LaunchedGang, now_s: float, busy: Collection[str] = ()) -> tuple[str, ...]:
    """End the pauses that are over, of roles whose hosts other attempts have left (`busy`: not
    yet); return the hosts of these roles, which begin again now."""
    hosts: tuple[str, ...] = ()
    for role in gang.roles:
        restart = gang.restarts.get(role.name)
        if restart is None or restart.stage is not RoleStage.PAUSING:
            continue
        is_clear = set(role.hosts).isdisjoint(busy)
        if is_clear and now_s - restart.since_s >= restart.pause_s:
            restart.stage, restart.since_s = RoleStage.PREPARING, now_s
            hosts += role.hosts
    return hosts


def note(gang: LaunchedGang, host: str, stage: RoleStage, now_s: float) -> bool:
    """Note that a host has come through a stage; return whether its role has."""
    role = gang.role_of(host)
    restart = gang.restarts.get(role.name)
    if restart is None or restart.stage is not stage or host not in restart.awaited:
        return False
    restart.awaited.discard(host)
    if restart.awaited:
        return False
    restart.stage, restart.since_s = _NEXT[stage], now_s
    if restart.stage is not RoleStage.STARTED:
        restart.awaited = set(role.hosts)
    return True


def give_up(gang: LaunchedGang, host: str, reason: str, now_s: float) -> None:
    """Turn a role that cannot begin again on a host into a failure of the gang."""
    role = gang.role_of(host)
    if role.name in gang.restarts:
        gang.restarts[role.name].count = _NO_MORE
        rank = gang.ranks_of(host).first_rank
        text = f"could not start again: {reason}"
        gang.failures[rank] = RankFailure(now_s, rank, host, text, StopCause.EXIT)


def has_overdue(gang: LaunchedGang, now_s: float, most_s: float) -> bool:
    """Return whether a role has taken so long to begin again that the gang counts as failed."""
    for restart in gang.restarts.values():
        is_due = restart.stage not in (RoleStage.PAUSING, RoleStage.STARTED)
        if is_due and now_s - restart.since_s > most_s:
            host = min(restart.awaited)
            give_up(gang, host, f"did not answer for {now_s - restart.since_s:.0f} s", now_s)
            restart.since_s = now_s
            return True
    return False
