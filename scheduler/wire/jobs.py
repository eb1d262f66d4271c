"""Between messages and core values; the only module that sees both."""

from __future__ import annotations

import json
from math import isfinite, isnan
from typing import Protocol, assert_never
from uuid import UUID, uuid5

from google.protobuf.timestamp_pb2 import Timestamp

from placement.fabric import hostset
from placement.fabric.hostlist import fold
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.request import (
    Answer,
    Infeasible,
    Insufficient,
    Objective,
    Placement,
    Request,
    TierCut,
    Undecided,
)
from scheduler.core import HostState, Job, JobState, State
from scheduler.core.admission.etag import host_etag, job_etag
from scheduler.core.explain.decision import Decision, DecisionKind
from scheduler.core.fold.effects import JobChange, JobChangeKind
from scheduler.core.model.lifecycle import Hold
from scheduler.core.model.records.goodput import PARTS, Goodput
from scheduler.core.model.restart_option import RestartOption, WeighedOption
from scheduler.core.model.run_lineage import lineage_key, resume_point, run_name
from scheduler.core.names import short_name
from scheduler.core.policies.job_terms import SavedCheckpoint
from scheduler.core.restart.prospect import Prospect
from scheduler.core.rules.network.gang_step import LikelyStep
from scheduler.core.rules.network.slow_gangs import SlowGang
from scheduler.core.spares.outlook import SpareShortage
from scheduler.identity import redact_for_caller
from scheduler.observe.proof import objective_gap
from scheduler.v1 import host_pb2, job_pb2, placement_pb2, service_pb2, spares_pb2
from scheduler.wire.cluster.host_records import record_to_proto
from scheduler.wire.durations import duration, duration_of_ns
from scheduler.wire.lists import listing
from scheduler.wire.names import job_resource
from scheduler.wire.specs import fill_spec, numbers

HOUR_NS = 3_600 * 10**9
_HOSTS = UUID("0c5f5a3e-5d0e-4a5c-9d3a-3f4b8f6d2a71")  # names of hosts, below their fabric


JOB_STATES = numbers(job_pb2.JobState, "JOB_STATE", JobState)
OBJECTIVES = numbers(placement_pb2.Objective, "OBJECTIVE", Objective)
_HOST_STATES = numbers(host_pb2.HostState, "HOST_STATE", HostState)
_CHANGES = numbers(service_pb2.JobChange, "JOB_CHANGE", JobChangeKind)
_DECISIONS = numbers(placement_pb2.DecisionKind, "DECISION_KIND", DecisionKind)
_HOLDS = numbers(job_pb2.Hold, "HOLD", Hold)
_RESTART_OPTIONS = numbers(spares_pb2.RestartOption, "RESTART_OPTION", RestartOption)
JOB_STATE_BY_NUMBER: dict[int, JobState] = {n: state for state, n in JOB_STATES.items()}
HOST_STATE_BY_NUMBER: dict[int, HostState] = {n: state for state, n in _HOST_STATES.items()}


# --- jobs ----------------------------------------------------------------------


def job_to_proto(
    fabric: Fabric,
    job: Job,
    version: int,
    reason: str,
    *,
    with_hosts: bool = True,
    slow: SlowGang | None = None,
    stragglers: HostSet = 0,
) -> job_pb2.Job:
    """Convert a job to its message. `reason`: why it waits, or what the job itself says. `slow`:
    what links make of its step. `stragglers`: hosts of any gang that are slower than others."""
    message = job_pb2.Job()
    fill_job(message, fabric, job, version, reason, with_hosts=with_hosts)
    if stragglers and job.state is JobState.RUNNING:
        slow_hosts = [host for host in job.hosts if hostset.has(stragglers, host)]
        message.straggler_hosts.extend(fabric.names(slow_hosts))
    if slow is not None:
        message.slowdown.links.extend(name for name, _ in slow.links)
        if isfinite(slow.slower):
            message.slowdown.slower = slow.slower
    return message


def fill_job(
    message: job_pb2.Job,
    fabric: Fabric,
    job: Job,
    version: int,
    reason: str,
    *,
    with_hosts: bool = True,
) -> None:
    """Write a job into an empty message inside an answer, which saves copying a message that was
    made by itself."""
    message.name = job_resource(job)
    message.uid = job.uid
    _set_time(message.create_time, job.submit_ns)
    _set_time(message.update_time, job.changed_ns)
    message.state = JOB_STATES[job.state]
    message.reason = reason
    message.attempt = job.attempt
    if job.hosts:
        message.placement.CopyFrom(job_placement(fabric, job, with_hosts=with_hosts))
    message.version = version
    fill_spec(message.spec, job.spec)
    message.tenant = job.tenant
    message.user = job.user
    message.priority = job.priority
    message.preemptible = job.is_preemptible
    message.etag = job_etag(job)
    message.hold = _HOLDS[job.hold] if job.hold is not None else job_pb2.HOLD_UNSPECIFIED
    if job.eligible_ns:
        _set_time(message.eligible_time, job.eligible_ns)
    if (array := job.spec.array) is not None and array.task is not None:
        message.array, message.array_task = short_name(array.name), array.task
    message.dp = job.dp
    message.legal_dp.extend(job.sizes)
    message.restart_options.extend(
        _step(s) for s in job.restart_options if with_hosts or s.is_taken
    )
    message.hang = job.present.hang
    message.role_restarts.update(job.present.role_restarts)
    if job.present.launched_ns is not None:
        _set_time(message.launch_time, job.present.launched_ns)
    if job.saved is not None:
        _fill_checkpoint(message.saved_checkpoint, job.saved)


def fill_lineage(message: job_pb2.Job, state: State, job: Job) -> None:
    """Write the run that a job continues, and where it goes on, into its message."""
    if job.spec.run is None:
        return
    message.lineage.name = run_name(job)
    known = state.lineages.get(lineage_key(job))
    for each in reversed(known.checkpoints if known is not None else ()):
        _fill_checkpoint(message.lineage.checkpoints.add(), each.saved, each.job, each.uid)
    point = resume_point(state.lineages, job)
    if point is None:
        return
    resume = message.lineage.resume
    resume.step, resume.where, resume.job_uid = point.step, point.where, point.uid
    resume.job = short_name(point.job)


class StepProgress(Protocol):
    """How far the ranks of an attempt report to be. `busy`: with what, by host. `copied_step`: of
    which all copies are in memory."""

    step: int
    total: int
    loss: float
    busy: dict[str, str]
    copied_step: int

    @property
    def step_s(self) -> float | None:
        """Usual seconds of a step; None while they are not known."""


def fill_progress(
    message: job_pb2.TrainingProgress,
    now: StepProgress,
    age_s: float,
    likely: LikelyStep | None = None,
) -> None:
    """Write how far ranks are into an empty message. `age_s`: since they said so, in seconds.
    `likely`: how long a step takes by the model."""
    if likely is not None:
        message.model_step_time.CopyFrom(duration(likely.seconds))
        message.model_step_time_low.CopyFrom(duration(likely.low_s))
        message.model_step_time_high.CopyFrom(duration(likely.high_s))
        message.slower_than_model = now.step_s is not None and now.step_s > likely.high_s
    message.step, message.total_steps = now.step, now.total
    message.copied_step = now.copied_step
    message.busy = next(iter(now.busy.values()), "")
    message.age.FromMilliseconds(round(age_s * 1_000))
    if now.step_s is not None:
        message.step_time.FromMicroseconds(round(now.step_s * 1e6))
    if not isnan(now.loss):
        message.loss = now.loss


def _fill_checkpoint(
    message: job_pb2.SavedCheckpoint, saved: SavedCheckpoint, job: str = "", uid: str = ""
) -> None:
    message.attempt, message.step, message.where = saved.attempt, saved.step, saved.where
    message.job, message.job_uid = short_name(job), uid
    _set_time(message.create_time, saved.at_ns)


def restart_outlook(prospect: Prospect) -> spares_pb2.RestartOutlook:
    return spares_pb2.RestartOutlook(
        host=prospect.host, restart_options=map(_step, prospect.restart_options)
    )


def _step(step: WeighedOption) -> spares_pb2.WeighedOption:
    return spares_pb2.WeighedOption(
        option=_RESTART_OPTIONS[step.option],
        possible=step.gpu_s is not None,
        taken=step.is_taken,
        gpu_hours=(step.gpu_s or 0) / 3600,
        cut_rise_bytes_per_step=step.cut_rise_bytes,
        slower=step.slower,
        moved_blocks=step.moved,
        note=step.note,
    )


def goodput_to_proto(account: Goodput, gpus_per_host: int) -> job_pb2.Goodput:
    whole_ns = account.time.total
    return job_pb2.Goodput(
        count_time=timestamp(account.counted_ns),
        parts=[
            job_pb2.GoodputShare(
                part=job_pb2.GoodputPart.Value(f"GOODPUT_PART_{part.upper()}"),
                duration=duration_of_ns(time_ns := getattr(account.time, part)),
                gpu_hours=getattr(account.hosts, part) * gpus_per_host / HOUR_NS,
                share=time_ns / whole_ns if whole_ns else 0.0,
            )
            for part in PARTS
        ],
        ettr=account.ettr,
        goodput=account.share,
    )


def job_placement(fabric: Fabric, job: Job, *, with_hosts: bool = True) -> placement_pb2.Placement:
    """Convert the hosts and spares that a job holds."""
    cut = job.present.cuts[0].bytes_per_step if job.present.cuts else 0
    held = Placement(
        job.hosts,
        job.spares,
        job.present.cuts,
        job.present.lower_bound,
        cut == job.present.lower_bound,
        job.present.notes,
        step=job.present.step,
        gpus=job.present.gpus,
    )
    message = placement_to_proto(fabric, job.request, held, with_hosts=False)
    if with_hosts:
        names = job.host_names(fabric)
        message.hosts.extend(names.hosts)
        message.spares.extend(names.spares)
        message.lent.extend(names.lent)
        for blocks in job.present.copies:
            message.copies.add(hosts=[names.hosts[block] for block in blocks])
    return message


def placement_to_proto(
    fabric: Fabric, request: Request, placement: Placement, *, with_hosts: bool = True
) -> placement_pb2.Placement:
    step, objective = placement.step, request.objective
    return placement_pb2.Placement(
        hosts=fabric.names(placement.hosts) if with_hosts else (),
        spares=fabric.names(placement.spares) if with_hosts else (),
        cuts=[cut_to_proto(cut) for cut in placement.cuts],
        lower_bound_bytes_per_step=placement.lower_bound,
        gap=placement.gap,
        optimal=placement.is_optimal,
        notes=placement.notes,
        host_count=len(placement.hosts),
        spare_count=len(placement.spares),
        gpus=placement.gpus,
        step_time=duration(step.seconds) if step else None,
        step_time_lower_bound=duration(step.least_seconds) if step and step.least_seconds else None,
        objective=OBJECTIVES[objective],
        objective_gap=objective_gap(objective, placement.cuts, placement.lower_bound, step),
    )


def shortage_to_proto(shortage: SpareShortage) -> spares_pb2.SpareShortage:
    return spares_pb2.SpareShortage(
        domain=shortage.domain,
        spares=shortage.spares,
        target=shortage.target,
        missed=shortage.missed,
        gpu_hours=shortage.gpu_hours,
    )


def cut_to_proto(cut: TierCut) -> placement_pb2.TierCut:
    return placement_pb2.TierCut(
        tier=cut.tier, bytes_per_step=cut.bytes_per_step, by_axis=dict(cut.by_axis)
    )


def answer_to_proto(fabric: Fabric, request: Request, answer: Answer) -> placement_pb2.Answer:
    """Convert an answer to a dry run: one of four kinds."""
    match answer:
        case Placement():
            placed = placement_to_proto(fabric, request, answer)
            return placement_pb2.Answer(outcome=placement_pb2.OUTCOME_PLACED, placement=placed)
        case Insufficient():
            return placement_pb2.Answer(
                outcome=placement_pb2.OUTCOME_INSUFFICIENT,
                reason=answer.reason,
                needed_hosts=answer.needed,
                free_hosts=answer.free,
                free_hosts_by_domain=dict(answer.free_by_domain),
            )
        case Infeasible():
            return placement_pb2.Answer(
                outcome=placement_pb2.OUTCOME_INFEASIBLE, reason=answer.reason
            )
        case Undecided():
            return placement_pb2.Answer(
                outcome=placement_pb2.OUTCOME_UNDECIDED, reason=answer.reason
            )
    assert_never(answer)


def decision_to_proto(made: Decision) -> placement_pb2.Decision:
    """Convert the inputs of a decision. Cost: O(hosts of the fabric)."""
    job, fabric = made.job, made.fabric
    is_real = made.kind is not DecisionKind.DRY_RUN
    return placement_pb2.Decision(
        kind=_DECISIONS[made.kind],
        attempt=job.attempt if is_real else 0,
        decide_time=timestamp(made.time_ns),
        version=made.version,
        fabric_file=json.dumps(fabric.spec).encode(),
        hosts=fold(fabric.names(job.hosts)),
        spares=fold(fabric.names(job.spares)),
        free_hosts=fold(fabric.names(hostset.members(made.free))),
        closed_uplinks=[fabric.tiers[depth].domains[number] for depth, number in fabric.barred],
        dp=job.request.replicas,
    )


def change_to_proto(change: JobChange) -> service_pb2.WatchJobsResponse:
    message = service_pb2.WatchJobsResponse(version=change.version, change=_CHANGES[change.kind])
    _set_time(message.change_time, change.time_ns)
    fill_job(message.job, change.fabric, change.job, change.version, change.job.reason)
    return message


def listed_job(state: State, job: Job) -> service_pb2.WatchJobsResponse:
    """Return the message of an existing job with which a watch begins; its reason is its own, as in
    changes."""
    change = service_pb2.JOB_CHANGE_LISTED
    message = service_pb2.WatchJobsResponse(version=state.version, change=change)
    fill_job(message.job, state.loaded_fabric, job, state.version, job.reason)
    return message


# --- hosts ---------------------------------------------------------------------


def host_to_proto(state: State, held: listing.HeldHost, now_ns: int) -> host_pb2.Host:
    """Convert a host with who holds it."""
    index, holder, block = held.index, held.holder, held.block
    itself, shown = state.host(index), redact_for_caller(state)
    fabric, host = state.loaded_fabric, state.shown(index, True if block is not None else None)
    return host_pb2.Host(
        name=fabric.hosts[index],
        state=_HOST_STATES[host.state],
        update_time=timestamp(host.since_ns) if host.since_ns else None,
        reason=shown(host.reason, host.said_ns),
        domains=listing.domains(fabric, index),
        job=job_resource(holder) if holder else "",
        block=block,
        version=state.version,
        etag=host_etag(fabric.hosts[index], itself, held.holders),
        uid=str(uuid5(_HOSTS, f"{state.origin}/{fabric.hosts[index]}")),
        cordoned=itself.cordon is not None,
        cordon_reason=shown(itself.cordon or "", itself.cordon_ns),
        record=record_to_proto(state, index, now_ns, timestamp),
        create_time=timestamp(state.faults.since_ns),
        parts=[host_pb2.HostPart(job=job_resource(j), gpus=j.present.gpus) for j in held.sharers],
        gpu_count=int(fabric.by_host.gpus[index]),
    )


def timestamp(time_ns: int) -> Timestamp:
    moment = Timestamp()
    moment.FromNanoseconds(time_ns)
    return moment


def _set_time(moment: Timestamp, time_ns: int) -> None:
    """As `timestamp`, into a message that has one; times of a log are of this century."""
    moment.seconds, moment.nanos = divmod(time_ns, 10**9)
