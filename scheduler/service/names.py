"""Which job a request means by a name: a bare one is of the caller's own tenant.

Callers who are bound to no tenant mean the default one. Names are turned into full names here,
for the state and for commands; who may act on the job is checked where the command is carried
out (engine.authorisation).
"""

from __future__ import annotations

import asyncio
from itertools import islice

from placement import BadInput
from scheduler.core import Job, State
from scheduler.core.names import full_name, short_name
from scheduler.engine.writer import Writer
from scheduler.identity import ANYBODY, caller, own_jobs
from scheduler.service.errors import ApiError, invalid, not_found
from scheduler.wire.names import parse_job_name

_MOST_NAMESAKES = 3


def home(state: State) -> str:
    """Return the tenant whose jobs the caller names by their bare names."""
    return caller().tenant or state.tenants.default


def stated_home(state: State) -> str:
    """Return the tenant of jobs that the caller makes without naming a tenant. Where callers are
    not asked who they are it is "", and the tenants file decides."""
    return "" if caller() is ANYBODY else home(state)


def parse_job_reference(state: State, text: str, field: str = "name") -> tuple[str, str]:
    """Split a reference to a job into tenant and short name. Raises: ApiError."""
    try:
        tenant, name = parse_job_name(text, field)
    except BadInput as error:
        raise invalid(error.field, error.message) from None
    return tenant or home(state), name


def full_name_of(state: State, text: str, uid: str = "", field: str = "name") -> str:
    """Return the full name of the job that is meant, whether or not it exists. Raises: ApiError."""
    tenant, name = parse_job_reference(state, text, field)
    job = state.called(tenant, name)
    if uid and (job is None or job.uid != uid):
        ended = state.ended.get(uid)
        is_meant = ended and (ended.tenant, short_name(ended.name)) == (tenant, name)
        job = ended if is_meant else job
    if job is not None:
        return job.name
    return text if text == name and not stated_home(state) else full_name(tenant, name)


def pattern_of(state: State, text: str, field: str) -> str:
    """Return a name, or a pattern of names of one tenant, in full. Raises: ApiError."""
    try:
        tenant, pattern = parse_job_name(text, field)
    except BadInput as error:
        raise invalid(error.field, error.message) from None
    return full_name(tenant or stated_home(state), pattern)


def job_of(state: State, text: str, uid: str = "", field: str = "name") -> Job:
    """Return the job, if this task's caller may see it. Raises: ApiError."""
    job = state.find(full_name_of(state, text, uid, field), uid)
    if job is None or not own_jobs(state)(job):
        raise no_job(state, text)
    return job


async def any_job_of(writer: Writer, text: str, uid: str = "") -> Job:
    """Return `job_of`, or a job that ended so long ago that the state has dropped it. Raises:
    ApiError, StoreError."""
    state = writer.state
    try:
        return job_of(state, text, uid)
    except ApiError as refusal:
        job = await long_ended(writer, state, text, uid)
        if job is None:
            raise refusal from None
        return job


async def long_ended(
    writer: Writer, state: State, text: str, uid: str = "", field: str = "name"
) -> Job | None:
    """Return the newest job of this name that had ended by `state`, from the store, if this task's
    caller may see it. Raises: ApiError, StoreError."""
    tenant, name = parse_job_reference(state, text, field)
    job = await asyncio.to_thread(writer.ended.find, state.version, uid, tenant, name)
    return job if job is not None and own_jobs(state)(job) else None


def no_job(state: State, text: str, uid: str = "") -> ApiError:
    """Make the error of a job that does not exist. To callers who see every tenant it says where
    there are jobs of that name."""
    refusal = not_found("job", text)
    if uid:
        refusal.message += f" with uid {uid!r}"
    if caller().tenant or "/" in text:
        return refusal
    namesakes = (job.name for job in state.jobs.values() if short_name(job.name) == text)
    known = list(islice(namesakes, _MOST_NAMESAKES))
    if known:
        refusal.message += f" of tenant {home(state)}; there is {', '.join(known)}"
    return refusal
