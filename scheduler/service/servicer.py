"""The gRPC face: messages in, commands to the writer, messages out. It decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from placement import BadInput
from scheduler.core import Job, JobState, Reason, Rejected, State
from scheduler.core.model.commands import CancelJob, Command, EndJob, MoveHost, SubmitJob, UpdateJob
from scheduler.core.model.goodput import shown
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.restart.prospect import prospect
from scheduler.engine.writer import Writer
from scheduler.files.errors import InputError
from scheduler.service.errors import error_boundary, invalid, invalid_input, rejected, starting
from scheduler.service.queries import (
    checked,
    counted_slots,
    described,
    host_message,
    job_of,
    listed_jobs,
    status_now,
    supposed,
    tried,
)
from scheduler.service.rpc.defrag import DefragCalls
from scheduler.service.rpc.health import HealthCalls
from scheduler.service.rpc.hosts import HostCalls
from scheduler.service.rpc.spares import SpareCalls
from scheduler.service.rpc.watch import WatchCalls
from scheduler.service.rpc.windows import WindowCalls
from scheduler.v1 import host_pb2, job_pb2, service_pb2, service_pb2_grpc
from scheduler.wire import reasons
from scheduler.wire.jobs import fill_job, goodput_to_proto, job_state, restart_outlook
from scheduler.wire.specs import spec_from_proto
from scheduler.wire.status import Server
from scheduler.wire.update_mask import update_from_proto

Context = grpc.aio.ServicerContext[Any, Any]
JobChange = UpdateJob | CancelJob | EndJob
HostRequest = (
    service_pb2.CordonHostRequest | service_pb2.UncordonHostRequest | service_pb2.DrainHostRequest
)

# Finding out why a job waits walks the queue: not for every one of many submits.
_SHORT_QUEUE = 100
_FRESH = "was just submitted; the next decision looks at it"


class SchedulerServicer(
    HostCalls,
    SpareCalls,
    DefragCalls,
    WatchCalls,
    WindowCalls,
    HealthCalls,
    service_pb2_grpc.SchedulerServiceServicer,
):
    """Answers UNAVAILABLE until `attach` gives it a writer: the log is being replayed."""

    def __init__(self, new_uid: Callable[[], str], started_ns: int = 0) -> None:
        self._new_uid = new_uid
        self._started_ns = started_ns
        self._attached: Writer | None = None
        self._reasons = reasons.ReasonCache()

    def attach(self, writer: Writer) -> None:
        self._attached = writer

    @property
    def state(self) -> State | None:
        """The newest durable one; None before `attach`."""
        return self._attached.state if self._attached else None

    @property
    def _writer(self) -> Writer:
        if self._attached is None:
            raise starting("the server is starting: it is replaying its log")
        return self._attached

    async def CreateJob(
        self, request: service_pb2.CreateJobRequest, context: Context
    ) -> service_pb2.CreateJobResponse:
        async with error_boundary(context):
            writer = self._writer
            try:
                spec = spec_from_proto(request.spec)
            except InputError as error:
                raise invalid_input(error, "spec.") from None
            command = SubmitJob(spec, self._new_uid(), request.request_id)
            if request.validate_only:
                answer = await asyncio.to_thread(tried, writer, command)
                return service_pb2.CreateJobResponse(answer=answer)
            state = await self._done(command, "spec.")
            made = state.by_request(request.request_id) if request.request_id else None
            job = made or job_of(state, spec.name)
            is_long = writer.is_busy or len(state.queue) > _SHORT_QUEUE
            if is_long and job.uid == command.uid:  # else an earlier call made it
                fresh = service_pb2.CreateJobResponse()
                fill_job(fresh.job, state.loaded_fabric, job, state.version, _FRESH)
                return fresh
            return service_pb2.CreateJobResponse(job=await self._message(state, job))

    async def GetJob(
        self, request: service_pb2.GetJobRequest, context: Context
    ) -> service_pb2.GetJobResponse:
        async with error_boundary(context):
            state = self._writer.state
            job = job_of(state, request.name)
            spent = shown(job, self._writer.now_ns(), state.tenants.preemption.costs)
            return service_pb2.GetJobResponse(
                job=await self._message(state, job),
                goodput=goodput_to_proto(spent, state.loaded_fabric.gpus_per_host),
            )

    async def ListJobs(
        self, request: service_pb2.ListJobsRequest, context: Context
    ) -> service_pb2.ListJobsResponse:
        async with error_boundary(context):
            return await asyncio.to_thread(listed_jobs, self._writer, self._reasons, request)

    async def UpdateJob(
        self, request: service_pb2.UpdateJobRequest, context: Context
    ) -> service_pb2.UpdateJobResponse:
        async with error_boundary(context):
            try:
                command = update_from_proto(request)
            except BadInput as error:
                raise invalid(error.field, error.message) from None
            job = await self._changed(command, "job.spec.", only_checked=request.validate_only)
            return service_pb2.UpdateJobResponse(job=job)

    async def CancelJob(
        self, request: service_pb2.CancelJobRequest, context: Context
    ) -> service_pb2.CancelJobResponse:
        async with error_boundary(context):
            command = CancelJob(request.name, request.reason, request.etag, request.request_id)
            job = await self._changed(command, only_checked=request.validate_only)
            return service_pb2.CancelJobResponse(job=job)

    async def EndJob(
        self, request: service_pb2.EndJobRequest, context: Context
    ) -> service_pb2.EndJobResponse:
        async with error_boundary(context):
            outcome = job_state(request.outcome)
            if outcome not in (JobState.COMPLETED, JobState.FAILED):
                raise invalid("outcome", "must be JOB_STATE_COMPLETED or JOB_STATE_FAILED")
            command = EndJob(
                *(request.name, outcome, request.attempt, request.reason),
                *(request.etag, request.request_id),
            )
            job = await self._changed(command, only_checked=request.validate_only)
            return service_pb2.EndJobResponse(job=job)

    async def ExplainJob(
        self, request: service_pb2.ExplainJobRequest, context: Context
    ) -> service_pb2.ExplainJobResponse:
        async with error_boundary(context):
            writer, state = self._writer, self._writer.state
            job = job_of(state, request.name)
            reason = await asyncio.to_thread(self._reason, writer, state, job.name)
            answer = reasons.explained(reason, job, state.version)
            ahead = await asyncio.to_thread(
                prospect, state, job.name, writer.now_ns(), writer.limits
            )
            if ahead is not None:
                answer.restart.CopyFrom(restart_outlook(ahead))
            if request.suppose:
                found = await asyncio.to_thread(supposed, writer, state, request)
                answer.what_if.CopyFrom(found)
            return answer

    async def ListSlots(
        self, request: service_pb2.ListSlotsRequest, context: Context
    ) -> service_pb2.ListSlotsResponse:
        async with error_boundary(context):
            return await asyncio.to_thread(counted_slots, self._writer, request)

    async def CordonHost(
        self, request: service_pb2.CordonHostRequest, context: Context
    ) -> service_pb2.CordonHostResponse:
        async with error_boundary(context):
            host = await self._moved(request, HostMove.CORDON)
            return service_pb2.CordonHostResponse(host=host)

    async def UncordonHost(
        self, request: service_pb2.UncordonHostRequest, context: Context
    ) -> service_pb2.UncordonHostResponse:
        async with error_boundary(context):
            host = await self._moved(request, HostMove.UNCORDON)
            return service_pb2.UncordonHostResponse(host=host)

    async def DrainHost(
        self, request: service_pb2.DrainHostRequest, context: Context
    ) -> service_pb2.DrainHostResponse:
        async with error_boundary(context):
            host = await self._moved(request, HostMove.DRAIN)
            return service_pb2.DrainHostResponse(host=host)

    async def GetStatus(
        self, request: service_pb2.GetStatusRequest, context: Context
    ) -> service_pb2.GetStatusResponse:
        async with error_boundary(context):
            writer = self._writer
            server = Server(self._started_ns, writer.last_ns, writer.now_ns(), writer.is_leading)
            return await asyncio.to_thread(status_now, writer, self._reasons, request, server)

    def _reason(self, writer: Writer, state: State, name: str) -> Reason:
        return self._reasons.explain(state, [name], writer.now_ns(), writer.limits)[name]

    async def _message(self, state: State, job: Job) -> job_pb2.Job:
        """The job with its hosts, or with the reason why it waits."""
        # A state that only might be must not be taken for the one of its version.
        cache = self._reasons if state is self._writer.state else reasons.ReasonCache()
        found = await asyncio.to_thread(
            described, self._writer, cache, state, [job], with_hosts=True
        )
        return found[0]

    async def _changed(
        self, command: JobChange, prefix: str = "", *, only_checked: bool
    ) -> job_pb2.Job:
        """The job after `command`."""
        state = await self._done(command, prefix, only_checked=only_checked)
        job = job_of(state, command.name)
        if isinstance(command, CancelJob | EndJob):  # another may have the name by now
            job = state.last_ended(command.name) or job
        return await self._message(state, job)

    async def _moved(self, request: HostRequest, move: HostMove) -> host_pb2.Host:
        command = MoveHost(request.name, move, request.reason, request.etag, request.request_id)
        state = await self._done(command, only_checked=request.validate_only)
        return host_message(state, request.name, self._writer.now_ns())

    async def _done(
        self, command: Command, prefix: str = "", *, only_checked: bool = False
    ) -> State:
        """The state after `command`, which is written unless `only_checked`.

        `prefix`: where the command's fields lie in the request. Raises: Refused.
        """
        writer = self._writer
        after = checked(writer, command) if only_checked else await writer.submit(command)
        if isinstance(after, Rejected):
            raise rejected(after, prefix)
        return after
