"""Accounting as messages: what jobs have used, by tenant, user and day."""

from __future__ import annotations

from collections.abc import Sequence

from placement import BadInput
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.records.goodput import Goodput
from scheduler.core.tenancy.usage_sums import UsageKey, UsageSum, UsageSums
from scheduler.v1 import service_pb2
from scheduler.wire.jobs import HOUR_NS, goodput_to_proto, timestamp

_PREFIX = "USAGE_KEY_"


def usage_keys(numbers: Sequence[int]) -> tuple[UsageKey, ...]:
    """Each once. Raises: BadInput."""
    names = {int(number): name for name, number in service_pb2.UsageKey.items() if number}
    if unknown := [number for number in numbers if number not in names]:
        raise BadInput("group_by", f"has {unknown[0]}, which is not a key of usage")
    return tuple(dict.fromkeys(UsageKey[names[n].removeprefix(_PREFIX)] for n in numbers))


def usage_to_proto(
    sums: UsageSums, keys: Sequence[UsageKey], start_ns: int, end_ns: int, version: int
) -> service_pb2.SumUsageResponse:
    """Rows in the order of their keys."""
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
