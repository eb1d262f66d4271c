"""Tenants as messages."""

from __future__ import annotations

from scheduler.core import State
from scheduler.core.admission.etag import tenant_etag
from scheduler.core.tenancy.standing import TenantStanding
from scheduler.v1 import tenant_pb2
from scheduler.wire.jobs import timestamp
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
    )
