"""Reasons, what-ifs, slots and moves as messages; reasons kept for as long as nothing changes."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from threading import Lock
from typing import assert_never

from google.protobuf.duration_pb2 import Duration

from scheduler.core import Job, JobState, Reason, SchedulingOptions, State
from scheduler.core.defrag.proposal import DefragProposal, Relocation
from scheduler.core.explain.explain import Reasons
from scheduler.core.explain.forecast import Forecast, assumption
from scheduler.core.explain.reason import Basis, Obstacle, ObstacleKind
from scheduler.core.explain.slots import Slots
from scheduler.core.explain.whatif import WhatIf
from scheduler.core.model.job import SECOND_NS
from scheduler.core.names import HIDDEN
from scheduler.core.queue.verdict import WaitReason
from scheduler.core.rules.network.neighbours import SharedUplink
from scheduler.identity import caller, own_windows
from scheduler.v1 import advice_pb2, job_pb2, service_pb2
from scheduler.wire.durations import duration
from scheduler.wire.jobs import JOB_STATES, cut_to_proto, job_placement, timestamp
from scheduler.wire.names import job_resource, resource_of, resources
from scheduler.wire.specs import numbers

FAR = 5_000  # jobs of a queue that are looked at for lists: a tenth of a second
FRESH_NS = 5 * SECOND_NS  # reasons speak of minutes

_WAIT_REASONS = numbers(advice_pb2.WaitReason, "WAIT_REASON", WaitReason)
_KINDS = numbers(advice_pb2.ObstacleKind, "OBSTACLE_KIND", ObstacleKind)
_BASES = numbers(advice_pb2.EndBasis, "END_BASIS", Basis)


class ReasonCache:
    """The reasons of the newest version, so that the queue is walked once for all callers. They are
    computed anew when the version changes, or after five seconds, for ends of jobs come nearer. Use
    from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._as_of: tuple[int, SchedulingOptions, int] | None = None
        self._reasons: Reasons | None = None

    def explain(self, state: State, name: str, now_ns: int, options: SchedulingOptions) -> Reason:
        """Return why this job waits. Raises: KeyError when it does not exist any more."""
        with self._lock:
            return self._newest(state, now_ns, options).of(name)

    def sentences(
        self, state: State, names: Collection[str], now_ns: int, options: SchedulingOptions
    ) -> dict[str, str]:
        """Say why these jobs wait, by name; of those far behind in the queue only that they are.
        Raises: KeyError as `explain`."""
        if not names:
            return {}
        with self._lock:
            reasons = self._newest(state, now_ns, options)
            return {name: reasons.sentence(name, FAR) for name in names}

    def _newest(self, state: State, now_ns: int, options: SchedulingOptions) -> Reasons:
        as_of = (state.version, options, now_ns // FRESH_NS)
        if self._reasons is None or self._as_of != as_of:
            self._reasons, self._as_of = Reasons(state, now_ns, options), as_of
        return self._reasons


def explained(state: State, reason: Reason, job: Job) -> service_pb2.ExplainJobResponse:
    return service_pb2.ExplainJobResponse(
        name=job_resource(job),
        state=JOB_STATES[job.state],
        reason=reason_to_proto(state, reason),
        version=state.version,
    )


def start_estimate(
    state: State, forecast: Forecast, name: str, assumed_limit_s: int, *, with_chain: bool
) -> job_pb2.StartEstimate | None:
    """Return when the waiting job `name` starts; None where it came after the forecast."""
    if name not in forecast.waiting:
        return None
    start, tenants = forecast.starts.get(name), state.tenants
    estimate = job_pb2.StartEstimate(assumption=assumption(assumed_limit_s))
    if start is not None:
        estimate.start_time.CopyFrom(timestamp(start.start_ns))
    elif forecast.until_ns is not None:
        estimate.not_before_time.CopyFrom(timestamp(forecast.until_ns))
    for link in forecast.chain(name) if with_chain else ():
        estimate.chain.add(
            job=resource_of(tenants, link.name),
            start_time=timestamp(link.start_ns),
            end_time=timestamp(link.end_ns),
            after=resources(tenants, link.after),
        )
    return estimate


def what_if_to_proto(state: State, answer: WhatIf) -> advice_pb2.WhatIf:
    job, tenants = answer.job, state.tenants
    return advice_pb2.WhatIf(
        sentence=answer.sentence,
        state=JOB_STATES[job.state],
        reason=reason_to_proto(state, answer.after),
        placement=(
            job_placement(state.loaded_fabric, job) if job.state is JobState.RUNNING else None
        ),
        starts=resources(tenants, answer.starts),
        stops=resources(tenants, answer.stops),
    )


def reason_to_proto(state: State, reason: Reason) -> advice_pb2.Reason:
    tenants = state.tenants
    return advice_pb2.Reason(
        cause=_WAIT_REASONS[reason.cause],
        sentence=reason.sentence,
        needed_hosts=reason.needed,
        free_hosts=reason.free,
        missing_hosts=reason.missing,
        rooms=[
            advice_pb2.DomainRoom(
                domain=room.domain, free_hosts=room.free, usable_hosts=room.usable
            )
            for room in reason.rooms
        ],
        start_time=None if reason.start_ns is None else timestamp(reason.start_ns),
        waits_for=resources(tenants, reason.waits_for),
        reserved_in=reason.reserved_in,
        obstacles=[_obstacle(state, obstacle) for obstacle in reason.obstacles],
        passing_time_limit=duration(reason.passes_s) if reason.passes_s else None,
        preempts=resources(tenants, reason.preempts),
        preempt_time=None if reason.preempt_ns is None else timestamp(reason.preempt_ns),
        shrinks=[
            advice_pb2.Shrink(job=resource_of(tenants, shrink.name), dp=shrink.dp)
            for shrink in reason.shrinks
        ],
    )


def _obstacle(state: State, obstacle: Obstacle) -> advice_pb2.Obstacle:
    return advice_pb2.Obstacle(
        kind=_KINDS[obstacle.kind],
        name=_visible_name(state, obstacle),
        hosts=obstacle.hosts,
        clear_time=None if obstacle.clear_ns is None else timestamp(obstacle.clear_ns),
        basis=_BASES[obstacle.basis] if obstacle.basis else advice_pb2.END_BASIS_UNSPECIFIED,
    )


def _visible_name(state: State, obstacle: Obstacle) -> str:
    """Tenants and windows that do not concern the caller are not named; of jobs the name says
    itself whose they are."""
    who, name = caller(), obstacle.name
    match obstacle.kind:
        case ObstacleKind.RUNNING | ObstacleKind.AHEAD:
            return resource_of(state.tenants, name)
        case ObstacleKind.LIMIT | ObstacleKind.GUARANTEE:
            return name if not who.tenant or who.knows(state.tenants, name) else HIDDEN
        case ObstacleKind.WINDOW:
            return name if own_windows(state)(state.windows[name]) else HIDDEN
        case ObstacleKind.OUT_OF_SERVICE:
            return name
    assert_never(obstacle.kind)


def slots_to_proto(slots: Slots, gpus_per_host: int, version: int) -> service_pb2.ListSlotsResponse:
    return service_pb2.ListSlotsResponse(
        tenant=slots.tenant,
        largest_gpus=slots.room * gpus_per_host,
        slots=[
            advice_pb2.SlotCount(gpus=c.gpus, hosts=c.hosts, in_all=c.in_all, inside=c.inside)
            for c in slots.counts
        ],
        domains=[
            advice_pb2.DomainSlots(
                domain=domain,
                free_hosts=slots.free[at],
                usable_hosts=slots.usable[at],
                slots=[count.by_domain[at] for count in slots.counts],
            )
            for at, domain in enumerate(slots.domains)
        ],
        version=version,
        free_hosts=slots.free_hosts,
        usable_hosts=slots.usable_hosts,
    )


def shared_to_proto(shared: SharedUplink) -> advice_pb2.SharedUplink:
    return advice_pb2.SharedUplink(
        link=shared.link, job=job_resource(shared.job), busy_share=shared.busy
    )


def proposal_to_proto(
    state: State, proposal: DefragProposal, etag: str, *, applied: bool
) -> service_pb2.DefragmentResponse:
    return service_pb2.DefragmentResponse(
        sentence=proposal.sentence,
        domain=proposal.domain,
        wanted_hosts=proposal.wanted,
        free_before=proposal.free_before,
        free_after=proposal.free_after,
        moves=[_relocation(state, move) for move in proposal.moves],
        lost_gpu_hours=proposal.lost_gpu_s / 3600,
        applied=applied,
        version=proposal.version,
        etag=etag,
    )


def _relocation(state: State, move: Relocation) -> advice_pb2.Relocation:
    fabric = state.loaded_fabric
    blocks = [
        advice_pb2.BlockMove(
            block=block_move.block,
            left=fabric.hosts[block_move.left],
            joined=fabric.hosts[block_move.joined],
        )
        for block_move in move.swap.moves
    ]
    return advice_pb2.Relocation(
        job=resource_of(state.tenants, move.swap.name),
        blocks=blocks,
        lost_gpu_hours=move.lost_gpu_s / 3600,
        cuts_before=map(cut_to_proto, move.before),
        cuts_after=map(cut_to_proto, move.swap.cuts),
        saved_gpu_hours=move.saved_gpu_s / 3600,
        step_time_before=_step(move.step_s),
        step_time_after=_step(move.then_s),
    )


def _step(seconds: float) -> Duration | None:
    """None: there is none, or it never ends."""
    return duration(seconds) if seconds and isfinite(seconds) else None
