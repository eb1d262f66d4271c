"""Failures, what came of them, and samples of the cluster, as messages."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core import State
from scheduler.identity import redact_for_caller
from scheduler.observe.history import Failure, Outcome, Sample
from scheduler.v1 import status_pb2
from scheduler.wire.cluster.status import INCIDENT_KINDS
from scheduler.wire.durations import duration_of_ns
from scheduler.wire.jobs import timestamp
from scheduler.wire.names import resource_of
from scheduler.wire.specs import numbers

_DAY_NS = 24 * 3_600 * 10**9
_WEEK_NS, _MONDAY_NS = 7 * _DAY_NS, 4 * _DAY_NS  # 1970 began with a Thursday
_OUTCOMES = numbers(status_pb2.IncidentOutcome, "INCIDENT_OUTCOME", Outcome)


def failure_to_proto(state: State, failure: Failure) -> status_pb2.Incident:
    """Return the failure with what came of it, its texts as the caller may read them."""
    redact = redact_for_caller(state)
    message = status_pb2.Incident(
        version=failure.version,
        time=timestamp(failure.time_ns),
        kind=INCIDENT_KINDS[failure.kind],
        subject=failure.subject,
        detail=redact(failure.detail, failure.time_ns),
        job=resource_of(state.tenants, failure.job) if failure.job else "",
        gpus=failure.gpus,
        hosts=failure.hosts,
        outcome_detail=redact(failure.outcome_detail, failure.outcome_ns or 0),
        lost_gpu_hours=failure.lost_gpu_hours,
        measured=failure.is_measured,
    )
    if failure.outcome is not None:
        message.outcome = _OUTCOMES[failure.outcome]
    if failure.outcome_ns is not None:
        message.outcome_time.CopyFrom(timestamp(failure.outcome_ns))
    if failure.step_ns is not None:
        message.step_time.CopyFrom(timestamp(failure.step_ns))
    return message


def weeks_to_proto(failures: Iterable[Failure]) -> list[status_pb2.IncidentWeek]:
    """Return the sums by week, newest first, of failures that stand newest first."""
    weeks: dict[int, status_pb2.IncidentWeek] = {}
    for failure in failures:
        at_ns = (failure.time_ns - _MONDAY_NS) // _WEEK_NS * _WEEK_NS + _MONDAY_NS
        week = weeks.setdefault(at_ns, status_pb2.IncidentWeek(start_time=timestamp(at_ns)))
        week.incidents += 1
        week.stopped_gangs += bool(failure.gpus)
        week.lost_gpu_hours += failure.lost_gpu_hours
        if failure.step_ns is not None:
            stop_ns = failure.step_ns - failure.time_ns
            stop_ns = max(stop_ns, week.longest_stop.ToNanoseconds())
            week.longest_stop.CopyFrom(duration_of_ns(stop_ns))
    return list(weeks.values())


def sample_to_proto(sample: Sample, *, has_goodput: bool) -> status_pb2.TrendSample:
    """Convert a sample. `has_goodput`: whether the caller may know what all jobs did."""
    message = status_pb2.TrendSample(
        time=timestamp(sample.time_ns),
        queued_jobs=sample.waiting,
        held_hosts=sample.held,
        out_hosts=sample.out,
        failures=sample.failures,
    )
    if has_goodput and sample.holding:
        message.goodput = sample.productive / sample.holding
    return message
