"""The status of a cluster as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from google.protobuf.timestamp_pb2 import Timestamp

from scheduler.cli.render.link_tables import links_text
from scheduler.cli.render.messages import plain, time_text
from scheduler.cli.render.text import NEGLIGIBLE, bytes_text, columns, counted, percent_text
from scheduler.core.wording import duration
from scheduler.v1 import job_pb2, placement_pb2, service_pb2, status_pb2

MOST_DOMAINS = 32  # lines on one screen

_COUNTS = (
    *("healthy_hosts", "cordoned_hosts", "draining_hosts", "failed_hosts"),
    *("running_gpus", "stopped_gpus", "spare_gpus", "free_gpus", "out_gpus"),
    *("shared_free_gpus", "spare_hosts"),
)
_DOMAINS = (
    *("DOMAIN", "HEALTHY", "CORDONED", "DRAINING", "FAILED"),
    *("GPUS RUNNING", "STOPPED", "SPARE", "FREE", "OUT", "FREE OF SHARED"),
    *("SPARE HOSTS",),
)
_TENANTS = (
    *("TENANT", "QUEUED", "RUNNING", "STOPPED", "GPUS QUEUED", "HELD"),
    *("OLDEST JOB", "WAITS", "REASON"),
)
_GANGS = (
    *("GANG", "TENANT", "STATE", "ATTEMPT", "SINCE", "HOSTS", "SPARES"),
    *("GAP", "CROSSES", "PER STEP", "BOUND, ALL LAYOUTS"),
)


def status_text(answer: service_pb2.GetStatusResponse) -> str:
    """The server's line, then a table each; empty tables are left out."""
    parts = [_server_text(answer), _domains_text(answer.domains), _tenants_text(answer)]
    if answer.gangs:
        parts.append(_gangs_text(answer))
    if answer.links:
        parts.append(links_text(answer.links))
    if answer.incidents:
        parts.append(_incidents_text(answer))
    return "\n\n".join(parts)


def _server_text(answer: service_pb2.GetStatusResponse) -> str:
    server = answer.server
    return (
        f"{server.fabric}: muster {server.release}, {'leader' if server.leader else 'follower'},"
        f" log at version {answer.version:,}, newest event {_ago(server.last_event_time, server)}"
        f" ago, up {_ago(server.start_time, server)}"
    )


def _domains_text(domains: Sequence[status_pb2.DomainStatus]) -> str:
    rows = [_domain_row(domain) for domain in domains[:MOST_DOMAINS]]
    if len(domains) > 1:
        rows.append(_domain_row(_together(domains)))
    table = columns([_DOMAINS, *rows], right=set(range(1, len(_DOMAINS))))
    more = len(domains) - MOST_DOMAINS
    return f"{table}\nand {more} more domains, counted in `all`" if more > 0 else table


def _together(domains: Sequence[status_pb2.DomainStatus]) -> status_pb2.DomainStatus:
    total = status_pb2.DomainStatus(domain="all")
    for name in _COUNTS:
        setattr(total, name, sum(getattr(domain, name) for domain in domains))
    return total


def _domain_row(domain: status_pb2.DomainStatus) -> tuple[str, ...]:
    return (domain.domain, *(f"{getattr(domain, name):,}" for name in _COUNTS))


def _tenants_text(answer: service_pb2.GetStatusResponse) -> str:
    rows = [_tenant_row(tenant, answer.server) for tenant in answer.tenants]
    return columns([_TENANTS, *rows], right={1, 2, 3, 4, 5, 7})


def _tenant_row(
    tenant: status_pb2.TenantStatus, server: status_pb2.ServerStatus
) -> tuple[str, ...]:
    waits = bool(tenant.oldest_job)
    return (
        tenant.tenant,
        f"{tenant.queued_jobs:,}",
        f"{tenant.running_jobs:,}",
        f"{tenant.interrupted_jobs:,}",
        f"{tenant.queued_gpus:,}",
        f"{tenant.held_gpus:,}",
        tenant.oldest_job or "-",
        _ago(tenant.oldest_create_time, server) if waits else "-",
        tenant.oldest_reason,
    )


def _gangs_text(answer: service_pb2.GetStatusResponse) -> str:
    rows = map(partial(_gang_row, server=answer.server), answer.gangs)
    table = columns([_GANGS, *rows], right={3, 4, 5, 6, 9, 10})
    more = answer.gang_count - len(answer.gangs)
    return f"{table}\nand {counted(more, 'smaller gang')}" if more else table


def _gang_row(gang: status_pb2.GangStatus, server: status_pb2.ServerStatus) -> tuple[str, ...]:
    """The gap of the objective, and the outermost tier: the one whose links are narrow, and the
    one that is bounded."""
    tier, cut, bound, gap = "-", "-", "-", "-"
    if gang.HasField("objective_gap"):
        is_step = gang.objective == placement_pb2.OBJECTIVE_TIME
        share = gang.objective_gap
        gap = "optimal" if share <= NEGLIGIBLE * is_step else percent_text(share)
        gap = f"{'step' if is_step else 'cut'} {gap}"
    if gang.cuts:
        tier, crossing = gang.cuts[0].tier, gang.cuts[0].bytes_per_step
        cut, bound = bytes_text(crossing), bytes_text(gang.lower_bound_bytes_per_step)
        if crossing and not gang.lower_bound_bytes_per_step:
            bound = "unknown"  # as after a swap
    return (
        gang.job,
        gang.tenant,
        plain(job_pb2.JobState.Name(gang.state), "JOB_STATE_"),
        str(gang.attempt),
        _ago(gang.start_time, server),
        f"{gang.hosts:,}",
        f"{gang.spares:,}",
        *(gap, tier, cut, bound),
    )


def _incidents_text(answer: service_pb2.GetStatusResponse) -> str:
    head = ("TIME", "INCIDENT", "SUBJECT", "DETAIL")
    rows = [
        (
            time_text(incident.time),
            plain(status_pb2.IncidentKind.Name(incident.kind), "INCIDENT_KIND_").replace("_", " "),
            incident.subject,
            incident.detail,
        )
        for incident in answer.incidents
    ]
    return columns([head, *rows])


def _ago(moment: Timestamp, server: status_pb2.ServerStatus) -> str:
    """How long ago by the server's clock."""
    return duration(max(0, server.time.seconds - moment.seconds))
