"""The cluster on one screen, as messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from muster.structs import struct
from scheduler.core import HostState, Job, JobState, State
from scheduler.core.model.lifecycle import IN_SERVICE
from scheduler.identity import redact_for_caller
from scheduler.observe import census
from scheduler.observe.census import SHARED, Domain, Queue, Use
from scheduler.observe.incidents import Incident, IncidentKind
from scheduler.observe.proof import gap, gap_of
from scheduler.release import release
from scheduler.v1 import service_pb2, status_pb2
from scheduler.wire.cluster.links import link_names, link_to_proto
from scheduler.wire.jobs import JOB_STATES, OBJECTIVES, cut_to_proto, timestamp
from scheduler.wire.names import job_resource, resource_of
from scheduler.wire.specs import numbers

INCIDENT_KINDS = numbers(status_pb2.IncidentKind, "INCIDENT_KIND", IncidentKind)


@struct(frozen=True, slots=True)
class ServerFacts:
    """Facts of a server. Times in ns; `last_ns` is of the newest event."""

    started_ns: int
    last_ns: int
    now_ns: int
    is_leader: bool = True


def status(
    state: State,
    server: ServerFacts,
    queues: Mapping[str, Queue],
    reasons: Mapping[str, str],
    incidents: list[Incident],
    gangs: int,
    is_own: Callable[[Job], bool],
) -> service_pb2.GetStatusResponse:
    """Return the status. `queues`: by tenant; `reasons`: why the oldest waiting job of each
    waits, by its name. `gangs`: at most so many. `is_own`: which jobs the caller may see."""
    gpus = state.loaded_fabric.gpus_per_host
    seen = [job for job in census.gangs(state) if is_own(job)]
    return service_pb2.GetStatusResponse(
        server=status_pb2.ServerStatus(
            release=release(),
            start_time=timestamp(server.started_ns),
            leader=server.is_leader,
            fabric=state.loaded_fabric.name,
            last_event_time=timestamp(server.last_ns),
            time=timestamp(server.now_ns),
        ),
        domains=[_domain(domain, gpus) for domain in census.domains(state)],
        tenants=[_tenant(*item, reasons) for item in queues.items()],
        gangs=[_gang(job) for job in seen[:gangs]],
        gang_count=len(seen),
        incidents=[_incident(state, incident) for incident in incidents],
        links=[link_to_proto(state, name, is_own) for name in link_names(state)],
        version=state.version,
    )


def _domain(domain: Domain, gpus: int) -> status_pb2.DomainStatus:
    states, held = domain.by_state, domain.gpus(gpus)
    healthy = sum(states[each] for each in IN_SERVICE)
    draining = states[HostState.DRAINING] + states[HostState.RETIRING]
    cordoned, failed = states[HostState.CORDONED], states[HostState.FAILED]
    return status_pb2.DomainStatus(
        domain=domain.name,
        healthy_hosts=healthy,
        cordoned_hosts=cordoned,
        draining_hosts=draining,
        failed_hosts=failed,
        other_hosts=sum(states.values()) - healthy - cordoned - draining - failed,
        running_gpus=held[Use.RUNNING],
        shared_free_gpus=held[SHARED],
        stopped_gpus=held[Use.STOPPED],
        spare_gpus=held[Use.SPARE],
        free_gpus=held[Use.FREE],
        out_gpus=held[Use.OUT],
        spare_hosts=domain.by_use[Use.SPARE],
    )


def _tenant(name: str, queue: Queue, reasons: Mapping[str, str]) -> status_pb2.TenantStatus:
    oldest = queue.oldest
    return status_pb2.TenantStatus(
        tenant=name,
        queued_jobs=queue.jobs[JobState.QUEUED],
        running_jobs=queue.jobs[JobState.RUNNING],
        interrupted_jobs=queue.jobs[JobState.INTERRUPTED],
        queued_gpus=queue.queued_gpus,
        held_gpus=queue.held_gpus,
        oldest_job=job_resource(oldest) if oldest else "",
        oldest_create_time=timestamp(oldest.submit_ns) if oldest else None,
        oldest_reason=reasons[oldest.name] if oldest else "",
    )


def _gang(job: Job) -> status_pb2.GangStatus:
    return status_pb2.GangStatus(
        job=job_resource(job),
        tenant=job.tenant,
        state=JOB_STATES[job.state],
        attempt=job.attempt,
        start_time=timestamp(job.present.start_ns),
        hosts=len(job.hosts),
        spares=len(job.spares),
        cuts=map(cut_to_proto, job.present.cuts),
        lower_bound_bytes_per_step=job.present.lower_bound,
        gap=gap(job.present.cuts, job.present.lower_bound),
        objective=OBJECTIVES[job.request.objective],
        objective_gap=gap_of(job),
    )


def _incident(state: State, incident: Incident) -> status_pb2.Incident:
    return status_pb2.Incident(
        version=incident.version,
        time=timestamp(incident.time_ns),
        kind=INCIDENT_KINDS[incident.kind],
        subject=resource_of(state.tenants, job) if (job := incident.job) else incident.subject,
        detail=redact_for_caller(state)(incident.detail, incident.time_ns),
    )
