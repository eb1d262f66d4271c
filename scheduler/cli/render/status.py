"""The status of a cluster as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from scheduler.cli.render.link_tables import LINKS
from scheduler.cli.render.messages import time_text
from scheduler.cli.render.tables import Column, ListTable, enum_column, number_column, terminal_view
from scheduler.cli.render.text import NEGLIGIBLE, bytes_text, counted, enum_word, percent_text
from scheduler.core.wording import duration
from scheduler.v1 import placement_pb2, service_pb2, status_pb2

MOST_DOMAINS = 32  # lines on one screen


def status_text(answer: service_pb2.GetStatusResponse) -> str:
    """Write the status: the server's line, then a table for each subject; empty tables are left
    out."""
    tenants = _tenants(answer.server).text(answer.tenants, terminal_view())
    parts = [_server_text(answer), _domains_text(answer.domains), tenants]
    if answer.gangs:
        parts.append(_gangs_text(answer))
    if answer.links:
        parts.append(LINKS.text(answer.links, terminal_view()))
    if answer.incidents:
        parts.append(_INCIDENTS.text(answer.incidents, terminal_view()))
    return "\n\n".join(parts)


def _server_text(answer: service_pb2.GetStatusResponse) -> str:
    server = answer.server
    return (
        f"{server.fabric}: muster {server.release}, {'leader' if server.leader else 'follower'},"
        f" log at version {answer.version:,}, newest event {_ago(server.last_event_time, server)}"
        f" ago, up {_ago(server.start_time, server)}"
    )


def _domains_text(domains: Sequence[status_pb2.DomainStatus]) -> str:
    rows = list(domains[:MOST_DOMAINS])
    if len(domains) > 1:
        rows.append(_together(domains))
    table = _DOMAINS.text(rows, terminal_view())
    more = len(domains) - MOST_DOMAINS
    return f"{table}\nand {counted(more, 'more domain')}, counted in `all`" if more > 0 else table


def _together(domains: Sequence[status_pb2.DomainStatus]) -> status_pb2.DomainStatus:
    total = status_pb2.DomainStatus(domain="all")
    for name in _COUNTS.values():
        setattr(total, name, sum(getattr(domain, name) for domain in domains))
    return total


_COUNTS = {
    "HEALTHY": "healthy_hosts",
    "CORDONED": "cordoned_hosts",
    "DRAINING": "draining_hosts",
    "FAILED": "failed_hosts",
    "OTHER": "other_hosts",
    "GPUS RUNNING": "running_gpus",
    "STOPPED": "stopped_gpus",
    "SPARE": "spare_gpus",
    "FREE": "free_gpus",
    "OUT": "out_gpus",
    "FREE OF SHARED": "shared_free_gpus",
    "SPARE HOSTS": "spare_hosts",
}
_DOMAINS = ListTable(
    (
        Column("DOMAIN", lambda domain: domain.domain),
        *(
            number_column(head, field, is_minor=head in ("FREE OF SHARED", "SPARE HOSTS"))
            for head, field in _COUNTS.items()
        ),
    ),
    "no domains",
)


def _tenants(server: status_pb2.ServerStatus) -> ListTable:
    def waits(tenant: status_pb2.TenantStatus) -> str:
        return _ago(tenant.oldest_create_time, server) if tenant.oldest_job else "-"

    return ListTable(
        (
            Column("TENANT", lambda tenant: tenant.tenant),
            number_column("QUEUED", "queued_jobs"),
            number_column("RUNNING", "running_jobs"),
            number_column("STOPPED", "interrupted_jobs"),
            number_column("GPUS QUEUED", "queued_gpus", is_minor=True),
            number_column("HELD", "held_gpus"),
            Column("OLDEST JOB", lambda tenant: tenant.oldest_job or "-"),
            Column("WAITS", waits, is_right=True),
            Column("REASON", lambda tenant: tenant.oldest_reason, is_text=True),
        ),
        "no tenants",
    )


def _gangs_text(answer: service_pb2.GetStatusResponse) -> str:
    table = _gangs(answer.server).text(answer.gangs, terminal_view())
    more = answer.gang_count - len(answer.gangs)
    return f"{table}\nand {counted(more, 'smaller gang')}" if more else table


def _gangs(server: status_pb2.ServerStatus) -> ListTable:
    return ListTable(
        (
            Column("GANG", lambda gang: gang.job),
            Column("TENANT", lambda gang: gang.tenant, is_minor=True),
            enum_column("STATE", "state"),
            number_column("ATTEMPT", "attempt", is_minor=True),
            Column("SINCE", lambda gang: _ago(gang.start_time, server), is_right=True),
            number_column("HOSTS", "hosts"),
            number_column("SPARES", "spares"),
            Column("GAP", _gap),
            Column("CROSSES", lambda gang: gang.cuts[0].tier if gang.cuts else "-", is_minor=True),
            Column("PER STEP", _cut, is_right=True, is_minor=True),
            Column("BOUND, ALL LAYOUTS", _bound, is_right=True, is_minor=True),
        ),
        "no gangs",
    )


def _gap(gang: status_pb2.GangStatus) -> str:
    if not gang.HasField("objective_gap"):
        return "-"
    is_step = gang.objective == placement_pb2.OBJECTIVE_TIME
    share = gang.objective_gap
    gap = "optimal" if share <= NEGLIGIBLE * is_step else percent_text(share)
    return f"{'step' if is_step else 'cut'} {gap}"


def _cut(gang: status_pb2.GangStatus) -> str:
    """The bytes over the outermost tier: the one whose links are narrow, and that is bounded."""
    return bytes_text(gang.cuts[0].bytes_per_step) if gang.cuts else "-"


def _bound(gang: status_pb2.GangStatus) -> str:
    if not gang.cuts:
        return "-"
    if gang.cuts[0].bytes_per_step and not gang.lower_bound_bytes_per_step:
        return "unknown"  # as after a swap
    return bytes_text(gang.lower_bound_bytes_per_step)


_INCIDENTS = ListTable(
    (
        Column("TIME", lambda incident: time_text(incident.time)),
        Column("INCIDENT", lambda incident: _incident_kind(incident)),
        Column("SUBJECT", lambda incident: incident.subject),
        Column("DETAIL", lambda incident: incident.detail, is_text=True),
    ),
    "no incidents",
)


def _incident_kind(incident: status_pb2.Incident) -> str:
    return enum_word(incident, "kind").replace("_", " ")


def incidents_text(answer: service_pb2.ListIncidentsResponse) -> str:
    """Return the sums by week, and a line for each failure."""
    failures = _FAILURES.text(answer.incidents, terminal_view())
    if not answer.incidents:
        return f"{failures} since {time_text(answer.start_time)}"
    more = "\nthere are more: --limit" if answer.next_page_token else ""
    return f"{_WEEKS.text(answer.weeks, terminal_view())}\n\n{failures}{more}"


def _outcome(incident: status_pb2.Incident) -> str:
    if not incident.job:
        return "no gang stopped"
    word = enum_word(incident, "outcome")
    word = {"open": "undecided"}.get(word, word.replace("_", " "))
    return f"{word}: {incident.outcome_detail}" if incident.outcome_detail else word


def _stood(incident: status_pb2.Incident) -> str:
    if not incident.HasField("step_time"):
        return "still" if incident.job else "-"
    return _about(incident, duration(max(0, incident.step_time.seconds - incident.time.seconds)))


def _cost_text(incident: status_pb2.Incident) -> str:
    return _about(incident, f"{incident.lost_gpu_hours:,.1f}") if incident.job else "-"


def _about(incident: status_pb2.Incident, text: str) -> str:
    return text if incident.measured else f"~{text}"


_FAILURES = ListTable(
    (
        Column("TIME", lambda incident: time_text(incident.time)),
        Column("FAILED", lambda incident: " ".join(incident.hosts)),
        Column("REASON", lambda incident: incident.detail, is_text=True),
        Column("GANG", lambda incident: incident.job or "-"),
        Column("GPUS", lambda incident: f"{incident.gpus:,}", is_right=True, is_minor=True),
        Column("STOOD", _stood, is_right=True),
        Column("LOST GPU-H", _cost_text, is_right=True),
        Column("WENT ON", _outcome, is_text=True, is_minor=True),
    ),
    "no failures",
)
_WEEKS = ListTable(
    (
        Column("WEEK OF", lambda week: time_text(week.start_time)[:10]),
        number_column("FAILURES", "incidents"),
        number_column("GANGS STOPPED", "stopped_gangs"),
        Column("LOST GPU-H", lambda week: f"{week.lost_gpu_hours:,.1f}", is_right=True),
        Column(
            "LONGEST STOP", lambda week: duration(week.longest_stop.seconds) or "-", is_right=True
        ),
    ),
    "no failures",
)


def _ago(moment: Timestamp, server: status_pb2.ServerStatus) -> str:
    """How long ago by the server's clock."""
    return duration(max(0, server.time.seconds - moment.seconds))
