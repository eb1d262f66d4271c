"""Accounting: what jobs have used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from placement import BadInput
from scheduler.core import Job
from scheduler.core.model.job import SECOND_NS
from scheduler.core.tenancy.usage_sums import UsageSums
from scheduler.eventlog.ended_jobs import PAGE, EndedJobs
from scheduler.eventlog.store.base import EndedQuery
from scheduler.identity import caller, own_jobs
from scheduler.service.backend import Context, Servicer
from scheduler.service.errors import invalid
from scheduler.v1 import service_pb2
from scheduler.wire.cluster.tenants import usage_keys, usage_to_proto
from scheduler.wire.durations import nanoseconds
from scheduler.wire.lists.listing import job_filter

USUAL_NS = 30 * 86_400 * SECOND_NS
_MOST_NS = 2**63 - 1


class UsageServicer(Servicer):
    async def SumUsage(
        self, request: service_pb2.SumUsageRequest, context: Context
    ) -> service_pb2.SumUsageResponse:
        writer, state = self._backend.writer, self._backend.writer.state
        now_ns = writer.now_ns()
        try:
            keys = usage_keys(request.group_by)
            start_ns, end_ns = _period(request, now_ns)
        except BadInput as error:
            raise invalid(error.field, error.message) from None
        passes, is_own = job_filter(request.filter), own_jobs(state)

        def is_wanted(job: Job) -> bool:
            return is_own(job) and passes(job)

        costs = state.tenants.preemption.costs
        sums = UsageSums(keys, state.loaded_fabric, now_ns, costs)
        if not request.HasField("end_time"):
            for job in filter(is_wanted, state.jobs.values()):
                sums.add(job)
        rest: EndedQuery | None = EndedQuery(
            state.version,
            PAGE,
            tenants=caller().own_tenants(state.tenants),
            from_ns=start_ns,
            until_ns=end_ns if request.HasField("end_time") else _MOST_NS,
        )
        while rest is not None:  # a page at a time: other calls are answered in between
            rest = await self._backend.reads.make(_add_page, sums, writer.ended, rest, is_wanted)
        return usage_to_proto(sums, keys, start_ns, end_ns, state.version)


def _add_page(
    sums: UsageSums, ended: EndedJobs, query: EndedQuery, is_wanted: Callable[[Job], bool]
) -> EndedQuery | None:
    jobs, rest = ended.some(query)
    for job in filter(is_wanted, jobs):
        sums.add(job)
    return rest


def _period(request: service_pb2.SumUsageRequest, now_ns: int) -> tuple[int, int]:
    """Raises: BadInput."""
    end_ns = now_ns
    if request.HasField("end_time"):
        end_ns = _time("end_time", request.end_time)
    start_ns = max(0, end_ns - USUAL_NS)
    if request.HasField("start_time"):
        start_ns = _time("start_time", request.start_time)
    if start_ns >= end_ns:
        raise BadInput("start_time", "must be before end_time, or before now where none is given")
    return start_ns, end_ns


def _time(field: str, stated: Any) -> int:
    time_ns = nanoseconds(field, stated)
    if not 0 <= time_ns <= _MOST_NS:
        raise BadInput(field, "must be between 1970 and 2262")
    return time_ns
