"""The call for spares, zone by zone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.core import Job, State
from scheduler.core.policies.spares import DAY_S
from scheduler.core.spares.outlook import SparesOutlook, ZoneOutlook, spares_outlook
from scheduler.identity import own_jobs
from scheduler.service.backend import Context, Servicer
from scheduler.service.pagination import make_page
from scheduler.v1 import service_pb2, spares_pb2
from scheduler.wire.durations import duration
from scheduler.wire.lists.paging import Page
from scheduler.wire.names import job_resource


class SpareServicer(Servicer):
    async def ListSpares(
        self, request: service_pb2.ListSparesRequest, context: Context
    ) -> service_pb2.ListSparesResponse:
        writer, state = self._backend.writer, self._backend.writer.state
        outlook = await self._backend.questions.ask_on(
            state, spares_outlook, writer.now_ns(), writer.options
        )
        zones = make_page("spares", state.loaded_fabric.digest, outlook.zones, request)
        return _answer(state, outlook, zones, own_jobs(state))


def _answer(
    state: State, outlook: SparesOutlook, zones: Page[ZoneOutlook], is_own: Callable[[Job], bool]
) -> service_pb2.ListSparesResponse:
    """Jobs of other tenants are not named to those who are bound to one."""
    sizing = outlook.sizing
    return service_pb2.ListSparesResponse(
        zones=[_zone(state, zone, is_own) for zone in zones.items],
        next_page_token=zones.next_token,
        failures_per_1000_host_days=sizing.failures_per_host_day * 1000,
        mean_repair_duration=duration(sizing.repair_days * DAY_S),
        epsilon=sizing.epsilon,
        failures=outlook.failures,
        repairs=outlook.repairs,
        pooled=outlook.pooled,
        version=state.version,
    )


def _zone(state: State, zone: ZoneOutlook, is_own: Callable[[Job], bool]) -> spares_pb2.ZoneSpares:
    return spares_pb2.ZoneSpares(
        domain=zone.domain,
        gang_hosts=zone.gang_hosts,
        held=zone.held,
        own=zone.own,
        holders=_named(state, zone.holders, is_own),
        lent=zone.lent,
        borrowers=_named(state, zone.borrowers, is_own),
        free=zone.free,
        down=zone.down,
        target=zone.wish,
        whole_racks=zone.whole_racks,
        short_share=zone.short,
        short_share_next=zone.short_next,
        saved_gpu_hours_per_year=zone.saved_gpu_hours,
    )


def _named(
    state: State, counts: Iterable[tuple[str, int]], is_own: Callable[[Job], bool]
) -> list[spares_pb2.SpareHolder]:
    return [
        spares_pb2.SpareHolder(job=job_resource(state.jobs[name]), spares=count)
        for name, count in counts
        if is_own(state.jobs[name])
    ]
