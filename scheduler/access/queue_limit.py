"""How many jobs of one tenant may wait: a limit of this server, not of the cluster."""

from __future__ import annotations

from itertools import chain

from scheduler.core import Code, Rejected, State, admit
from scheduler.core.model.commands import Command, SubmitJob
from scheduler.core.model.events import Event, JobSubmitted
from scheduler.core.tenancy.ownership import tenant_of
from scheduler.engine.writer import Admit


def at_most(waiting_jobs: int) -> Admit:
    """admit, except that a tenant with so many waiting jobs gets no more.

    Cost: counts the queue only when that many wait in all.
    """

    def check(state: State, command: Command, now_ns: int) -> tuple[Event, ...] | Rejected:
        answer = admit(state, command, now_ns)
        if not isinstance(command, SubmitJob) or isinstance(answer, Rejected):
            return answer
        new = [event for event in answer if isinstance(event, JobSubmitted)]
        if new and _all(state) + len(new) > waiting_jobs:
            tenant = tenant_of(new[0].spec, state.tenants)
            waiting = _waiting(state, tenant)
            if waiting + len(new) > waiting_jobs:
                more = f", and {len(new):,} more are too many" if waiting < waiting_jobs else ""
                message = f"{min(waiting, waiting_jobs):,} jobs of tenant {tenant} wait already"
                return Rejected(Code.EXHAUSTED, f"{message}{more}")
        return answer

    return check


def _waiting(state: State, tenant: str) -> int:
    names = chain(state.queue, state.deferred)
    return sum(state.jobs[name].tenant == tenant for name in names)


def _all(state: State) -> int:
    return len(state.queue) + len(state.deferred)
