"""What the service answers without changing anything: reads, dry runs, what-ifs."""

from __future__ import annotations

from collections.abc import Sequence

from placement import BadInput
from placement.workload.request import Infeasible
from scheduler.core import Job, JobState, Rejected, State, admit, dry_run, replay
from scheduler.core.admission.admit import Code
from scheduler.core.capacity.grow import is_smaller, size_text
from scheduler.core.explain.slots import Asker, slots
from scheduler.core.explain.whatif import what_if
from scheduler.core.model.commands import Command, SubmitJob
from scheduler.engine.authorisation import unauthorised
from scheduler.engine.writer import Writer
from scheduler.identity import caller
from scheduler.observe import census
from scheduler.observe.incidents import KEPT
from scheduler.service import pagination
from scheduler.service.errors import invalid, not_found, rejected
from scheduler.v1 import advice_pb2, host_pb2, job_pb2, placement_pb2, service_pb2
from scheduler.wire import listing, reasons
from scheduler.wire.jobs import answer_to_proto, host_to_proto, job_to_proto
from scheduler.wire.status import Server, status

GANGS, INCIDENTS = 20, 10


def checked(writer: Writer, command: Command) -> State | Rejected:
    """The state that `command` would leave."""
    state = writer.state
    if refusal := unauthorised(state, command, caller()):
        return refusal
    answer = admit(state, command, writer.now_ns())
    return answer if isinstance(answer, Rejected) else replay(answer, state)


def tried(writer: Writer, command: SubmitJob) -> placement_pb2.Answer:
    """What the job would get if it were submitted now."""
    state = writer.state
    found = dry_run(state, command, writer.limits, writer.now_ns())
    if not isinstance(found, Rejected):
        return answer_to_proto(state.loaded_fabric, found.answer)
    if found.code is not Code.INFEASIBLE:
        raise rejected(found, "spec.")
    return answer_to_proto(state.loaded_fabric, Infeasible(found.message))


def supposed(
    writer: Writer, state: State, request: service_pb2.ExplainJobRequest
) -> advice_pb2.WhatIf:
    try:
        answer = what_if(state, request.name, request.suppose, writer.now_ns(), writer.limits)
    except BadInput as error:
        raise invalid(error.field, error.message) from None
    return reasons.what_if_to_proto(state.loaded_fabric, answer)


def counted_slots(
    writer: Writer, request: service_pb2.ListSlotsRequest
) -> service_pb2.ListSlotsResponse:
    state = writer.state
    limit_s = request.time_limit_s if request.HasField("time_limit_s") else None
    asker = Asker(request.tenant, request.priority_class, limit_s)
    try:
        found = slots(state, writer.now_ns(), writer.limits, asker, request.sizes)
    except BadInput as error:
        raise invalid(error.field, error.message) from None
    return reasons.slots_to_proto(found, state.loaded_fabric.gpus_per_host, state.version)


def job_of(state: State, name: str) -> Job:
    job = state.find(name)
    if job is None:
        raise not_found("job", name)
    return job


def described(
    writer: Writer,
    reasons: reasons.ReasonCache,
    state: State,
    jobs: Sequence[Job],
    *,
    with_hosts: bool,
) -> list[job_pb2.Job]:
    """A waiting job says why it waits, and what put it back into the queue."""
    queued = {job.name for job in jobs if job.state is JobState.QUEUED}
    why = reasons.explain(state, queued, writer.now_ns(), writer.limits) if queued else {}

    def reason(job: Job) -> str:
        if job.state is JobState.RUNNING and is_smaller(job):
            told = f"runs {size_text(job, writer.limits)}"
            return f"{told}; was resized: {job.reason}" if job.reason else told
        if job.state is not JobState.QUEUED:
            return job.reason
        sentence = why[job.name].sentence
        return f"{sentence}; was requeued: {job.reason}" if job.reason else sentence

    fabric, version = state.loaded_fabric, state.version
    return [job_to_proto(fabric, job, version, reason(job), with_hosts=with_hosts) for job in jobs]


def host_message(state: State, name: str, now_ns: int) -> host_pb2.Host:
    index = state.loaded_fabric.index_by_name[name]
    held = listing.held(state, index)
    return host_to_proto(state, index, held.holder, held.block, now_ns)


def listed_jobs(
    writer: Writer, reasons: reasons.ReasonCache, request: service_pb2.ListJobsRequest
) -> service_pb2.ListJobsResponse:
    state = writer.state
    page = pagination.jobs_page(state, request)
    return service_pb2.ListJobsResponse(
        jobs=described(writer, reasons, state, page.items, with_hosts=False),
        next_page_token=page.next_token,
        version=state.version,
    )


def status_now(
    writer: Writer,
    reasons: reasons.ReasonCache,
    request: service_pb2.GetStatusRequest,
    server: Server,
) -> service_pb2.GetStatusResponse:
    state = writer.state
    gangs = pagination.size(request.gangs, GANGS, pagination.MOST_JOBS, "gangs")
    incidents = pagination.size(request.incidents, INCIDENTS, KEPT, "incidents")
    oldest = [queue.oldest.name for queue in census.queues(state).values() if queue.oldest]
    why = reasons.explain(state, oldest, writer.now_ns(), writer.limits)
    return status(state, server, why, writer.instruments.incidents.newest(incidents), gangs)
