"""Tenants as messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from placement import BadInput
from scheduler.core import State
from scheduler.core.admission.etag import tenant_etag
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records.goodput import Goodput
from scheduler.core.tenancy.standing import TenantStanding
from scheduler.core.tenancy.usage_sums import UsageKey, UsageSum, UsageSums
from scheduler.eventlog.audit import reason, subject
from scheduler.eventlog.codec import encode
from scheduler.eventlog.store import LoggedRequest
from scheduler.v1 import service_pb2, tenant_pb2
from scheduler.wire.jobs import HOUR_NS, goodput_to_proto, timestamp
from scheduler.wire.lists import filters
from scheduler.wire.lists.listing import tenant_uid


def tenant_to_proto(state: State, standing: TenantStanding) -> tenant_pb2.Tenant:
    tenant = standing.tenant
    mark = state.mark(tenant.name)
    return tenant_pb2.Tenant(
        name=tenant.name,
        parent=tenant.parent,
        guaranteed_gpus=standing.guaranteed_gpus,
        limit_gpus=tenant.limit_gpus,
        weight=tenant.weight,
        cells=[tenant_pb2.Cell(tier=c.tier, count=c.count, hosts=c.hosts) for c in tenant.cells],
        held_gpus=standing.held_gpus,
        queued_gpus=standing.queued_gpus,
        used_gpu_hours=standing.used_gpu_s / 3600,
        share=standing.share,
        kept_hosts=standing.kept_hosts,
        uid=tenant_uid(state, tenant.name),
        create_time=timestamp(mark.create_ns),
        update_time=timestamp(mark.update_ns),
        etag=tenant_etag(tenant, mark),
        version=state.version,
        kinds=[
            tenant_pb2.KindQuota(
                hosts=dict(kind.labels),
                guaranteed_gpus=kind.guaranteed_gpus,
                limit_gpus=kind.limit_gpus,
                held_gpus=held,
            )
            for kind, held in zip(tenant.kinds, standing.held_by_kind, strict=True)
        ],
    )


_PREFIX = "USAGE_KEY_"


def usage_keys(numbers: Sequence[int]) -> tuple[UsageKey, ...]:
    """Return the keys by which usage is summed, each once. Raises: BadInput."""
    names = {int(number): name for name, number in service_pb2.UsageKey.items() if number}
    if unknown := [number for number in numbers if number not in names]:
        raise BadInput("group_by", f"has {unknown[0]}, which is not a key of usage")
    return tuple(dict.fromkeys(UsageKey[names[n].removeprefix(_PREFIX)] for n in numbers))


def usage_to_proto(
    sums: UsageSums, keys: Sequence[UsageKey], start_ns: int, end_ns: int, version: int
) -> service_pb2.SumUsageResponse:
    """Convert sums of usage to rows in the order of their keys."""
    answer = service_pb2.SumUsageResponse(
        total=_row(sums.total, end_ns),
        start_time=timestamp(start_ns),
        end_time=timestamp(end_ns),
        version=version,
    )
    for values, row in sorted(sums.rows.items(), key=lambda item: item[0]):
        message = _row(row, end_ns)
        for key, value in zip(keys, values, strict=True):
            setattr(message, key.value, value)
        answer.rows.append(message)
    return answer


def _row(row: UsageSum, end_ns: int) -> service_pb2.UsageRow:
    return service_pb2.UsageRow(
        jobs=row.jobs.total(),
        completed=row.jobs[JobState.COMPLETED],
        failed=row.jobs[JobState.FAILED],
        cancelled=row.jobs[JobState.CANCELLED],
        restarts=row.restarts,
        goodput=goodput_to_proto(Goodput(end_ns, 0, row.time, row.gpus), 1),
        held_gpu_hours=row.gpus.holding / HOUR_NS,
    )


FILTERED = filters.fields_of(
    tenant_pb2.Tenant.DESCRIPTOR,
    "name uid parent weight guaranteed_gpus held_gpus queued_gpus create_time update_time",
)
_FIELDS: Final[dict[str, filters.Field]] = {
    "actor": filters.TextField(lambda record: record.actor),
    "event": filters.TextField(lambda record: type(record.event).__name__),
    "subject": filters.TextField(lambda record: subject(record.event)),
    "reason": filters.TextField(lambda record: reason(record.event)),
    "create_time": filters.TimeField(lambda record: record.event.time_ns),
}


def audit_filter(text: str) -> Callable[[LoggedRequest], bool]:
    """Return a test of audit records. Raises: BadFilter."""
    return filters.parse(text, _FIELDS)


def audit_record_to_proto(record: LoggedRequest) -> service_pb2.AuditRecord:
    event, body = encode(record.event)
    return service_pb2.AuditRecord(
        version=record.version,
        create_time=timestamp(record.event.time_ns),
        actor=record.actor,
        event=event,
        subject=subject(record.event),
        reason=reason(record.event),
        body=body,
    )
