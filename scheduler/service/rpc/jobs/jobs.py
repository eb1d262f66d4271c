"""Calls about jobs: submit, read, change, end, explain, and what would start now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from muster.structs import replace
from placement import BadInput
from placement.fabric.constraints import gpus_wanted
from placement.workload.request import Infeasible
from scheduler.core import (
    Conflict,
    Job,
    JobSpec,
    JobState,
    Reason,
    Rejected,
    SchedulingOptions,
    State,
    dry_run,
    replay,
)
from scheduler.core.capacity.grow import is_smaller, size_text
from scheduler.core.explain.decision import supposed_decision
from scheduler.core.explain.forecast import Forecast
from scheduler.core.explain.slots import Asker, slots
from scheduler.core.explain.whatif import JOB_CONDITIONS, what_if
from scheduler.core.model.commands import (
    CancelJob,
    EndJob,
    HoldJob,
    JobCommand,
    LongEnded,
    ReleaseJob,
    RequeueJob,
    ResizeJob,
    SubmitJob,
)
from scheduler.core.model.dependency import DependencyTerm
from scheduler.core.model.events import Event
from scheduler.core.model.job_account import shown
from scheduler.core.model.lifecycle import LIVE, Hold
from scheduler.core.model.plan import Start
from scheduler.core.model.rejected import Code
from scheduler.core.model.requests import CompletedRequest, parse_request_id
from scheduler.core.names import full_name, short_name, stated_tenant
from scheduler.core.queue.requested_size import carried_out, plan_resize
from scheduler.core.restart.prospect import prospect
from scheduler.core.rules.crash_loop import resting_text
from scheduler.core.rules.hosts.evaluation import straggler_hosts
from scheduler.core.rules.network.gang_step import at_present, likely_step
from scheduler.core.rules.network.neighbours import shared_uplinks
from scheduler.core.rules.network.slow_gangs import slow_gangs
from scheduler.core.spares.outlook import spare_shortages
from scheduler.core.tenancy.ownership import tenant_of
from scheduler.engine.authorisation import unauthorised
from scheduler.engine.writer import Writer
from scheduler.eventlog.attempts import decision_of
from scheduler.eventlog.ended_jobs import EndedJobs
from scheduler.eventlog.store import Compacted, NotRead, StoreError
from scheduler.files.errors import InputError
from scheduler.identity import Role, caller, own_windows, redact_for_caller, user
from scheduler.service.backend import Backend, Context
from scheduler.service.errors import (
    ApiError,
    compacted,
    invalid,
    invalid_input,
    rejected,
    wrong_state,
)
from scheduler.service.forecasts import bounded_forecast
from scheduler.service.names import (
    any_job_of,
    full_name_of,
    job_of,
    long_ended,
    no_job,
    stated_home,
)
from scheduler.service.pagination import jobs_page
from scheduler.v1 import advice_pb2, error_pb2, job_pb2, placement_pb2, service_pb2
from scheduler.wire import reasons
from scheduler.wire.durations import whole_seconds
from scheduler.wire.jobs import (
    JOB_STATE_BY_NUMBER,
    answer_to_proto,
    decision_to_proto,
    fill_lineage,
    fill_progress,
    goodput_to_proto,
    job_to_proto,
    restart_outlook,
    shortage_to_proto,
)
from scheduler.wire.names import resource_name
from scheduler.wire.specs import SpecReader, fill_spec
from scheduler.wire.update_mask import update_from_proto

# Finding out why a job waits walks the queue: not for every one of many submits.
_NO_AGENTS = (
    "this server has no agents to run it: serve with --agents or --launcher, or leave run out"
)
_NO_RUN = "its file has no `run`: no agent starts it, and `muster finish` reports its end"
_SHORT_QUEUE = 100
_FRESH = "was just submitted; the next decision looks at it"


class JobMessages:
    """Makes messages of jobs: a waiting job says why it waits, and what put it back into the queue.
    `reasons`: shared with other calls that ask why."""

    def __init__(self, backend: Backend, reasons: reasons.ReasonCache) -> None:
        self._backend = backend
        self._reasons = reasons

    async def of(self, state: State, job: Job) -> job_pb2.Job:
        """Return the message of a job with its hosts."""
        messages = await asyncio.to_thread(self.of_all, state, [job], with_hosts=True)
        fill_lineage(messages[0], state, job)
        if self._backend.has_agents and job.spec.run is None and job.state in LIVE:
            before = f"{messages[0].reason}; " if messages[0].reason else ""
            messages[0].reason = f"{before}{_NO_RUN}"
        return messages[0]

    def of_all(self, state: State, jobs: Sequence[Job], *, with_hosts: bool) -> list[job_pb2.Job]:
        writer = self._backend.writer
        queued = {job.name for job in jobs if job.state is JobState.QUEUED}
        now_ns, options = writer.now_ns(), writer.options
        why = self._cache(state).sentences(state, queued, now_ns, options)

        slow = {gang.job.name: gang for gang in slow_gangs(state, writer.options)}
        stragglers = straggler_hosts(state, writer.now_ns())

        def sentence(job: Job) -> str:
            held_up = f"; {slow[job.name].text}" if job.name in slow else ""
            return (stated(job) + held_up).removeprefix("; ")

        def stated(job: Job) -> str:
            if job.state is JobState.RUNNING and is_smaller(job):
                size = f"runs {size_text(job, writer.options)}"
                return f"{size}; was resized: {job.reason}" if job.reason else size
            if job.state is JobState.INTERRUPTED:
                terms, now_ns = state.tenants.restarts, writer.now_ns()
                return job.reason + resting_text(state.loaded_fabric, job, terms, now_ns)
            if job.state is JobState.RUNNING and job.present.hang:
                return f"hangs: {job.present.hang}"
            if job.state is not JobState.QUEUED:
                return job.reason
            waits = why[job.name]
            return f"{waits}; was requeued: {job.reason}" if job.reason else waits

        fabric, version = state.loaded_fabric, state.version
        return [
            job_to_proto(
                fabric,
                at_present(state, job),
                version,
                sentence(job),
                with_hosts=with_hosts,
                slow=slow.get(job.name),
                stragglers=stragglers,
            )
            for job in [_redact_job(state, job) for job in jobs]
        ]

    def _cache(self, state: State) -> reasons.ReasonCache:
        """A state that only might be must not be taken for the one of its version."""
        return self._reasons if state is self._backend.writer.state else reasons.ReasonCache()

    def forecast(self) -> Forecast:
        """Return the forecast of when waiting jobs start. Cost: seconds where the queue is long."""
        writer = self._backend.writer
        return self._backend.forecasts.of(writer.state, writer.now_ns(), writer.options)

    def estimate(
        self, state: State, ahead: Forecast, job: Job, *, with_chain: bool = False
    ) -> job_pb2.StartEstimate | None:
        """Return when a job starts; None where it does not wait, or came after the forecast."""
        if job.state is not JobState.QUEUED:
            return None
        assumed_s = self._backend.writer.options.assumed_limit_s
        return reasons.start_estimate(state, ahead, job.name, assumed_s, with_chain=with_chain)

    def reason(self, state: State, name: str) -> Reason:
        writer = self._backend.writer
        return self._cache(state).explain(state, name, writer.now_ns(), writer.options)


def _redact_job(state: State, job: Job) -> Job:
    """The job with the words that the caller is shown. The state gave full names to the jobs that
    it had when callers first said who they are; one that the store alone has kept its old words."""
    if job.state in LIVE or job.uid in state.ended or not caller().tenant:
        return job
    shown = redact_for_caller(state)
    notes = tuple(shown(note, job.state_ns) for note in job.present.notes)
    return replace(
        job,
        reason=shown(job.reason, job.state_ns),
        gang=job.gang and replace(job.gang, notes=notes),
        restart_options=(),
    )


class JobServicer:
    """Answers calls about jobs. `new_uid`: makes the id of a submitted job."""

    def __init__(self, backend: Backend, messages: JobMessages, new_uid: Callable[[], str]) -> None:
        self._backend = backend
        self._messages = messages
        self._new_uid = new_uid
        self._specs = SpecReader()

    async def CreateJob(
        self, request: service_pb2.CreateJobRequest, context: Context
    ) -> job_pb2.Job:
        writer = self._backend.writer
        request.spec.tenant = request.spec.tenant or stated_home(writer.state)
        try:
            spec = self._specs.read(request.spec)
        except InputError as error:
            raise invalid_input(error, "spec.") from None
        if request.validate_only and (done := writer.state.request(request.request_id)):
            return await self._done_before(done, spec, request.request_id)
        if spec.run is not None and not self._backend.has_agents:
            raise invalid("spec.run", _NO_AGENTS)
        container = spec.run.container if spec.run else None
        agents = self._backend.agents
        if container and agents and (refusal := agents.container_refusal(container)):
            raise invalid("spec.run.container", refusal)
        known = await self._long_ended(spec.dependencies)
        command = SubmitJob(spec, self._new_uid(), request.request_id, user(), known)
        if request.validate_only:
            tenant = tenant_of(spec, writer.state.tenants)
            supposed = job_pb2.Job(name=resource_name(tenant, spec.name), tenant=tenant)
            answer = await self._backend.questions.ask_on(
                writer.state,
                _dry_run,
                writer.now_ns(),
                writer.options,
                command,
                request.with_decision,
                request.estimate_start,
            )
            supposed.MergeFrom(answer)
            fill_spec(supposed.spec, spec)
            return supposed
        state = await self._backend.run(command, "spec.")
        job = await self._answered(state, _first_name(spec), "", request.request_id)
        is_long = writer.is_busy or len(state.index.queue) > _SHORT_QUEUE
        if (
            is_long and spec.array is None and job.uid == command.uid
        ):  # else an earlier call made it
            message = job_to_proto(state.loaded_fabric, job, state.version, _FRESH)
            fill_lineage(message, state, job)
            return message
        return await self._messages.of(state, job)

    async def _done_before(
        self, done: CompletedRequest, spec: JobSpec, request_id: str
    ) -> job_pb2.Job:
        """Return the job that an earlier request of this id made, for one that is only checked.
        Raises: ApiError where it made no job."""
        state, identifier = self._backend.writer.state, parse_request_id(request_id)
        if done.digest != identifier.digest or not done.uid:
            message = f"{identifier.id!r} was used for another request: {done.action}"
            raise invalid("request_id", message)
        job = await self._answered(state, _first_name(spec), done.uid, request_id)
        return await self._messages.of(state, job)

    async def GetJob(self, request: service_pb2.GetJobRequest, context: Context) -> job_pb2.Job:
        writer, state = self._backend.writer, self._backend.writer.state
        job = await any_job_of(writer, request.name, request.uid)
        message = await self._messages.of(state, job)
        self._fill_progress(state, job, message)
        if request.with_decision:
            decided = await self._backend.questions.ask(_decision, writer, job)
            message.decision.CopyFrom(decided)
        message.goodput.CopyFrom(self._goodput(state, job))
        return message

    async def ListJobs(
        self, request: service_pb2.ListJobsRequest, context: Context
    ) -> service_pb2.ListJobsResponse:
        writer, ahead = self._backend.writer, None
        if request.estimate_starts:
            ahead = await self._backend.questions.ask(self._messages.forecast)
        return await self._backend.reads.make(
            self._list, writer.state, request, writer.ended, ahead
        )

    async def UpdateJob(
        self, request: service_pb2.UpdateJobRequest, context: Context
    ) -> job_pb2.Job:
        try:
            command = update_from_proto(request)
        except BadInput as error:
            raise invalid(error.field, error.message) from None
        state = self._backend.writer.state
        full = full_name_of(state, command.name, command.uid, "job.name")
        terms = tuple(
            replace(term, job=full_name(stated_tenant(full), term.job))
            if term.job and not stated_tenant(term.job)
            else term
            for term in command.dependencies
        )
        known = await self._long_ended(terms)
        command = replace(command, by=_by(), dependencies=terms, long_ended=known)
        return await self._changed(
            command, "job.name", "job.spec.", only_checked=request.validate_only
        )

    async def HoldJob(self, request: service_pb2.HoldJobRequest, context: Context) -> job_pb2.Job:
        return await self._change(HoldJob, request, by=_by())

    async def ReleaseJob(
        self, request: service_pb2.ReleaseJobRequest, context: Context
    ) -> job_pb2.Job:
        return await self._change(ReleaseJob, request, by=_by())

    async def RequeueJob(
        self, request: service_pb2.RequeueJobRequest, context: Context
    ) -> job_pb2.Job:
        return await self._change(RequeueJob, request, by=_by(), new_uid=self._new_uid())

    async def ResizeJob(
        self, request: service_pb2.ResizeJobRequest, context: Context
    ) -> job_pb2.Job:
        writer, state, who = self._backend.writer, self._backend.writer.state, caller()
        name = full_name_of(state, request.name, request.uid)
        of_one = {"etag": request.etag, "request_id": request.request_id, "uid": request.uid}
        wanted = ResizeJob(name, request.role, request.dp, **of_one)
        if refusal := unauthorised(state, wanted, who):
            raise rejected(refusal)
        planned = await self._backend.questions.ask_on(
            state, plan_resize, wanted, writer.now_ns(), writer.options
        )

        def resize(newest: State, now_ns: int) -> tuple[Event, ...] | Rejected | Conflict:
            refusal = unauthorised(newest, wanted, who)
            return refusal or carried_out(planned, wanted, state.version, newest, now_ns)

        events = await self._backend.carry_out(resize, only_checked=request.validate_only)
        after = replay(events, writer.state) if request.validate_only else writer.state
        job = await self._answered(after, wanted.name, wanted.uid, wanted.request_id)
        return await self._messages.of(after, job)

    async def CancelJob(
        self, request: service_pb2.CancelJobRequest, context: Context
    ) -> job_pb2.Job:
        return await self._change(CancelJob, request)

    async def EndJob(self, request: service_pb2.EndJobRequest, context: Context) -> job_pb2.Job:
        outcome = JOB_STATE_BY_NUMBER.get(request.outcome)
        if outcome not in (JobState.COMPLETED, JobState.FAILED):
            raise invalid("outcome", "must be JOB_STATE_COMPLETED or JOB_STATE_FAILED")
        return await self._change(EndJob, request, outcome=outcome)

    async def ExplainJob(
        self, request: service_pb2.ExplainJobRequest, context: Context
    ) -> service_pb2.ExplainJobResponse:
        writer, state = self._backend.writer, self._backend.writer.state
        job = await any_job_of(writer, request.name)
        if state.find(job.name) is None:
            state = state.with_ended(job)
        reason = await self._backend.questions.ask(self._messages.reason, state, job.name)
        answer = reasons.explained(state, reason, job)
        ahead = await self._backend.questions.ask_on(
            state, prospect, job.name, writer.now_ns(), writer.options
        )
        if ahead is not None:
            answer.restart.CopyFrom(restart_outlook(ahead))
        if job.state is JobState.QUEUED:
            starts = await self._backend.questions.ask(self._messages.forecast)
            estimate = self._messages.estimate(state, starts, job, with_chain=True)
            if estimate is not None:
                answer.start_estimate.CopyFrom(estimate)
        if job.state is JobState.RUNNING:
            shared = await self._backend.questions.ask(shared_uplinks, state, job)
            answer.shared_uplinks.extend(map(reasons.shared_to_proto, shared))
            lacking = await self._backend.questions.ask_on(
                state, spare_shortages, job.name, writer.now_ns(), writer.options
            )
            answer.spare_shortages.extend(map(shortage_to_proto, lacking))
        if request.suppose:
            supposed = await self._backend.questions.ask_on(
                state,
                _what_if,
                writer.now_ns(),
                writer.options,
                job.name,
                tuple(request.suppose),
            )
            answer.what_if.CopyFrom(supposed)
        return answer

    async def ListSlots(
        self, request: service_pb2.ListSlotsRequest, context: Context
    ) -> service_pb2.ListSlotsResponse:
        writer = self._backend.writer
        return await self._backend.questions.ask_on(
            writer.state, _slots, writer.now_ns(), writer.options, request
        )

    def _list(
        self,
        state: State,
        request: service_pb2.ListJobsRequest,
        ended: EndedJobs,
        ahead: Forecast | None,
    ) -> service_pb2.ListJobsResponse:
        page = jobs_page(state, request, ended)
        messages = self._messages.of_all(state, page.items, with_hosts=False)
        for message, job in zip(messages, page.items, strict=True):
            if ahead is not None and (estimate := self._messages.estimate(state, ahead, job)):
                message.start_estimate.CopyFrom(estimate)
            self._fill_progress(state, job, message)
        return service_pb2.ListJobsResponse(
            jobs=messages, next_page_token=page.next_token, version=state.version
        )

    async def _long_ended(self, terms: Sequence[DependencyTerm]) -> tuple[LongEnded, ...]:
        """Jobs that others depend on and that the state no longer has, read from the store.
        Raises: StoreError."""
        writer, state = self._backend.writer, self._backend.writer.state
        known: list[LongEnded] = []
        for name in {term.job for term in terms if term.job}:
            if state.find(name) is None:
                tenant = stated_tenant(name) or state.tenants.default
                job = await asyncio.to_thread(
                    writer.ended.find, state.version, tenant=tenant, name=short_name(name)
                )
                known += [(name, job.uid, job.state, job.attempt > 0)] if job is not None else []
        return tuple(sorted(known))

    async def _change(self, kind: type[JobCommand], request: Any, **more: Any) -> job_pb2.Job:
        """Run a command that has the fields of the request by their names, and `more`."""
        known = request.DESCRIPTOR.fields_by_name
        given = {f.name: getattr(request, f.name) for f in fields(kind) if f.name in known}
        command = kind(**given | more)
        return await self._changed(command, "name", only_checked=request.validate_only)

    async def _changed(
        self, change: JobCommand, field: str, prefix: str = "", *, only_checked: bool
    ) -> job_pb2.Job:
        """The job after `change` of the job in `field` of the request."""
        now = self._backend.writer.state
        command = replace(change, name=full_name_of(now, change.name, change.uid, field))
        try:
            state = await self._backend.run(command, prefix, only_checked=only_checked)
        except ApiError as refusal:
            if refusal.reason != error_pb2.ERROR_REASON_NOT_FOUND:
                raise
            # It may have ended so long ago that the state does not have it.
            # Not any job of that name: since the refusal there may be a new one, which runs.
            writer = self._backend.writer
            job = await long_ended(writer, now, change.name, change.uid, field)
            if job is None:
                raise no_job(now, change.name, change.uid) from None
            raise wrong_state(f"job {job.name} is already {job.state}") from None
        job = await self._answered(state, command.name, command.uid, command.request_id)
        message = await self._messages.of(state, job)
        if only_checked:  # what it would cost
            message.goodput.CopyFrom(self._goodput(state, job))
        return message

    def _fill_progress(self, state: State, job: Job, message: job_pb2.Job) -> None:
        agents = self._backend.agents
        if agents and (now := agents.progress(job.uid, job.attempt)):
            fill_progress(message.progress, *now, likely_step(state, job))

    def _goodput(self, state: State, job: Job) -> job_pb2.Goodput:
        now_ns = self._backend.writer.now_ns()
        spent = shown(job, now_ns, state.tenants.preemption.costs)
        return goodput_to_proto(spent, gpus_wanted(state.loaded_fabric, job.request.where))

    async def _answered(self, state: State, name: str, uid: str, request_id: str) -> Job:
        """The job that a change was about: the same one again when its request is repeated, whoever
        has the name by now. Raises: ApiError when there is none, StoreError."""
        done = state.request(request_id)
        uid = done.uid if done is not None and done.uid else uid
        job = state.find(name, uid)
        if job is None and uid:
            job = await asyncio.to_thread(self._backend.writer.ended.find, state.version, uid)
        if job is None or job.name != name:
            raise no_job(state, name, uid)
        return job


def _first_name(spec: JobSpec) -> str:
    """The job that an answer to a submit has: of an array its first task."""
    return spec.name if spec.array is None else f"{spec.name}-{spec.array.numbers[0]}"


def _by() -> Hold:
    """Return whether the owner or an operator holds or releases a job."""
    return Hold.OPERATOR if caller().role >= Role.OPERATOR else Hold.OWNER


def _dry_run(
    state: State,
    now_ns: int,
    options: SchedulingOptions,
    command: SubmitJob,
    with_decision: bool,
    estimate_start: bool,
) -> job_pb2.Job:
    """Return what the job would get if it were submitted now, and when it would start.

    Raises: ApiError.
    """
    supposed, fabric = job_pb2.Job(), state.loaded_fabric
    if refusal := unauthorised(state, command, caller()):
        raise rejected(refusal, "spec.")
    outcome = dry_run(state, command, options, now_ns)
    if isinstance(outcome, Rejected):
        if outcome.code is not Code.INFEASIBLE:
            raise rejected(outcome, "spec.")
        never = Infeasible(outcome.message)
        supposed.answer.CopyFrom(answer_to_proto(fabric, command.spec.request, never))
        return supposed
    supposed.answer.CopyFrom(answer_to_proto(fabric, outcome.job.request, outcome.answer))
    if isinstance(outcome.outcome, Start):
        supposed.answer.preempted_jobs = len(outcome.outcome.victims)
        supposed.answer.shrunk_jobs = len(outcome.outcome.shrinks)
        if (started := outcome.started(now_ns)) is not None:
            lacking = spare_shortages(started, outcome.job.name, now_ns, options)
            supposed.answer.spare_shortages.extend(map(shortage_to_proto, lacking))
        if with_decision and not outcome.outcome.placement.gpus:
            decided = supposed_decision(outcome, now_ns, options, state.version)
            if decided is not None:
                supposed.decision.CopyFrom(decision_to_proto(decided))
    elif estimate_start:
        ahead = bounded_forecast(outcome.state, now_ns, options)
        estimate = reasons.start_estimate(
            outcome.state,
            ahead,
            outcome.job.name,
            options.assumed_limit_s,
            with_chain=False,
        )
        if estimate is not None:
            supposed.start_estimate.CopyFrom(estimate)
    return supposed


def _decision(writer: Writer, job: Job) -> placement_pb2.Decision:
    """Return the decision that began the present attempt of a job. Raises: ApiError, NotRead."""
    if job.state not in (JobState.RUNNING, JobState.INTERRUPTED):
        raise wrong_state(f"job {job.name} is {job.state}: it holds no hosts that were decided on")
    if job.part_gpus:
        raise wrong_state(
            f"job {job.name} takes a part of a host: nothing that it sends leaves the host, and"
            " there is nothing to certify"
        )
    try:
        return decision_to_proto(decision_of(writer.store, job, writer.options))
    except Compacted as error:
        raise compacted(
            f"what job {job.name} was placed on is not at hand any more: {error}"
        ) from None
    except StoreError as error:
        raise NotRead(str(error)) from error


def _what_if(
    state: State, now_ns: int, options: SchedulingOptions, name: str, suppose: Sequence[str]
) -> advice_pb2.WhatIf:
    """Raises: ApiError."""
    conditions = [
        _condition(state, condition, f"suppose[{at}]") for at, condition in enumerate(suppose)
    ]
    try:
        answer = what_if(state, name, conditions, now_ns, options)
    except BadInput as error:
        raise invalid(error.field, error.message) from None
    return reasons.what_if_to_proto(state, answer)


def _condition(state: State, condition: str, field: str) -> str:
    """The condition with the full name of the job that it is about. Raises: ApiError."""
    verb, _, rest = condition.strip().partition(" ")
    name = rest.strip()
    if verb in JOB_CONDITIONS and name:
        try:
            return f"{verb} {job_of(state, name, field=field).name}"
        except ApiError as refusal:
            raise invalid(field, f"{condition!r}: {refusal.message}") from None
    booking = state.windows.get(name) if verb == "without-window" else None
    if booking is not None and not own_windows(state)(booking):
        raise invalid(field, f"{condition!r}: no window {name!r}")
    return condition


def _slots(
    state: State, now_ns: int, options: SchedulingOptions, request: service_pb2.ListSlotsRequest
) -> service_pb2.ListSlotsResponse:
    """Raises: ApiError."""
    try:
        limit_s = None
        if request.HasField("time_limit"):
            limit_s = whole_seconds("time_limit", request.time_limit)
        asker = Asker(request.tenant, request.priority_class, limit_s)
        counts = slots(state, now_ns, options, asker, request.sizes)
    except BadInput as error:
        raise invalid(error.field, error.message) from None
    return reasons.slots_to_proto(counts, state.loaded_fabric.gpus_per_host, state.version)
