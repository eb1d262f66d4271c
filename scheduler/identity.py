"""Who asks. It travels with the task that answers, so that every layer can look it up."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from enum import IntEnum
from typing import Final

from muster.structs import struct
from scheduler.core import Job, State, Tenants
from scheduler.core.model.window import Booking
from scheduler.core.names import HIDDEN

SCHEDULER: Final = ""  # acts by itself: starts, swaps, requeues
SERVER: Final = "server"  # what the server does at its operator's word: files that it loads
ANYBODY_NAME: Final = "anonymous"
EVERY_USER: Final = "*"

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PATTERN = r"[A-Za-z0-9*?\[\]!._-]*[A-Za-z0-9*?\]]"  # of names, as windows are held for
_JOB = re.compile(
    r"(?<![A-Za-z0-9._/-])"
    rf"(?:tenants/(?P<of>{_NAME})/jobs/{_PATTERN}|(?P<tenant>{_NAME})/(?P<name>{_PATTERN}))"
    r"(?![A-Za-z0-9_/])"
)


class Role(IntEnum):
    """Role of a caller; each may do what those before it may."""

    VIEWER = 1  # look at the jobs of its tenant, at hosts and quotas
    LAUNCHER = 2  # report the ends of gangs of its tenant that no agent starts
    SUBMITTER = 3  # submit jobs in its tenant; change, cancel and finish its own
    COORDINATOR = 4  # the same with all jobs of its tenant
    OPERATOR = 5  # look after hosts, and the jobs of everybody
    ADMIN = 6  # everything


@struct(frozen=True, slots=True)
class Caller:
    """The user behind a call. `name`: the user of the jobs that it submits. `tenant` is empty for
    somebody who is not bound to one. `run_as`: users of the hosts whom ranks of its jobs may be,
    besides that of its name."""

    name: str
    role: Role
    tenant: str = ""
    run_as: tuple[str, ...] = ()

    def sees(self, tenants: Tenants, tenant: str) -> bool:
        """Return whether the caller may see jobs of `tenant`: it is the caller's own, or one
        below."""
        if not self.tenant or tenant == self.tenant:
            return True
        return tenant in tenants.by_name and self.tenant in tenants.path(tenant)

    def may_run_as(self, user: str) -> bool:
        """Return whether ranks of jobs that the caller submits may run as this user of their hosts;
        "" is the default user of each host."""
        known = ("", self.name, *self.run_as)
        return self.role >= Role.OPERATOR or user in known or EVERY_USER in self.run_as

    def own_tenants(self, tenants: Tenants) -> frozenset[str] | None:
        """The tenants whose jobs are this caller's own; None: all."""
        if not self.tenant:
            return None
        return frozenset({self.tenant, *(t for t in tenants.by_name if self.sees(tenants, t))})

    def knows(self, tenants: Tenants, tenant: str) -> bool:
        """Whether the quota of `tenant` concerns this caller: its own, above or below."""
        above = self.tenant in tenants.by_name and tenant in tenants.path(self.tenant)
        return above or self.sees(tenants, tenant)


ANYBODY: Final = Caller(ANYBODY_NAME, Role.ADMIN)  # when nobody is asked who they are

_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


def caller() -> Caller:
    """Return the caller that this task acts for."""
    return _CALLER.get() or ANYBODY


def own_jobs(state: State) -> Callable[[Job], bool]:
    """Return a test of whether the caller may see a job."""
    who = caller()
    return lambda job: who.sees(state.tenants, job.tenant)


def own_windows(state: State) -> Callable[[Booking], bool]:
    """Return a test of whether the caller may see a window: not one that is held for another
    tenant."""
    who = caller()
    return lambda b: not b.window.tenant or who.sees(state.tenants, b.window.tenant)


def redact_for_caller(state: State) -> Callable[[str, int], str]:
    """Return the function by which the caller is shown a text that was written at a time. A text
    from before callers were asked who they are may name any job by its bare name, so that a caller
    who is bound to a tenant is not shown it."""
    who = caller()

    def shown(text: str, said_ns: int) -> str:
        is_of_before = who.tenant and state.qualified_version and said_ns <= state.qualified_ns
        return HIDDEN if text and is_of_before else redact_foreign_jobs(state, who, text)

    return shown


def redact_foreign_jobs(state: State, who: Caller, text: str) -> str:
    """Return `text` without names of jobs of other tenants; the caller's own jobs are named as the
    caller names them."""
    if not who.tenant or "/" not in text:
        return text

    def shown(match: re.Match[str]) -> str:
        tenant = match["of"] or match["tenant"]
        is_tenant = tenant in state.tenants.by_name or tenant in state.index.ended_counts
        if match["tenant"] and not is_tenant:
            return match[0]  # a slash between other words
        if not who.sees(state.tenants, tenant):
            return HIDDEN
        return match["name"] if match["name"] and tenant == who.tenant else match[0]

    return _JOB.sub(shown, text)


def actor() -> str:
    """Return the name that the log gives to what this task does."""
    caller = _CALLER.get()
    return caller.name if caller else SCHEDULER


def user() -> str:
    """Return the owner of jobs that this task submits; "" where callers are not asked for names."""
    who = caller()
    return "" if who is ANYBODY else who.name


def act_for(who: Caller) -> None:
    """Act for the caller `who` in this task, and in tasks that it begins."""
    _CALLER.set(who)
