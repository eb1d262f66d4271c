"""What has gone wrong recently: a fold over events that keeps the newest few."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import assert_never

from muster.structs import struct
from scheduler.core import JobState
from scheduler.core.model import events
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.health_signals import AGENT_AWAITED, LEMON, PROBED
from scheduler.core.wording import share_text
from scheduler.eventlog.store import Compacted, Store

KEPT = 100
LOOKED_BACK = 2_000  # events read at the start for those that went before


class IncidentKind(StrEnum):
    """Kind of incident, or of its end."""

    HOST_FAILED = "host_failed"
    GANG_SWAPPED = "gang_swapped"
    GANG_REQUEUED = "gang_requeued"
    JOB_FAILED = "job_failed"
    GANG_PREEMPTED = "gang_preempted"
    GANG_RESIZED = "gang_resized"
    RANK_FAILED = "rank_failed"
    ROLE_RESTARTED = "role_restarted"
    LAUNCH_FAILED = "launch_failed"
    LINK_CHANGED = "link_changed"
    HOST_SUSPECTED = "host_suspected"


_OF_NO_JOB = frozenset(
    {IncidentKind.HOST_FAILED, IncidentKind.LINK_CHANGED, IncidentKind.HOST_SUSPECTED}
)


@struct(frozen=True, slots=True)
class Incident:
    """Something that went wrong, or the end of it. `subject`: the host, the job, or the domain of
    the uplink."""

    version: int
    time_ns: int
    kind: IncidentKind
    subject: str
    detail: str

    @property
    def job(self) -> str:
        """The full name of the job that the incident is about, "" where it is about none."""
        return "" if self.kind in _OF_NO_JOB else self.subject


class Incidents:
    """The newest incidents, made from events in their order. Read it from any thread."""

    def __init__(self) -> None:
        self._kept: deque[Incident] = deque(maxlen=KEPT)

    def feed(self, version: int, event: events.Event) -> None:
        incident = incident_of(version, event)
        if incident is not None:
            self._kept.append(incident)

    def newest(self) -> list[Incident]:
        """Return the incidents, newest first."""
        return list(self._kept)[::-1]


def look_back(store: Store, version: int) -> Incidents:
    """Read recent incidents from the last events before `version`, for a restart.

    Raises: StoreError.
    """
    incidents, after = Incidents(), max(0, version - LOOKED_BACK)
    try:
        for number, event in store.read(max(after, store.first_version() - 1)):
            incidents.feed(number, event)
    except Compacted:  # pragma: no cover - only when the log is compacted in this moment
        return Incidents()
    return incidents


def incident_of(version: int, event: events.Event) -> Incident | None:
    """Return the incident that an event tells of; None: none."""
    described = _classify(event)
    return None if described is None else Incident(version, event.time_ns, *described)


def _classify(event: events.Event) -> tuple[IncidentKind, str, str] | None:
    match event:
        case events.HostMoved(move=HostMove.FAIL, signal=signal) if signal != AGENT_AWAITED:
            return IncidentKind.HOST_FAILED, event.host, event.reason
        case events.HostSignalled(signal=signal, detail=detail) if detail and signal in (
            PROBED,
            LEMON,
        ):
            return IncidentKind.HOST_SUSPECTED, event.host, detail
        case events.GangSwapped():
            swaps = (f"{swap.left} by {swap.joined}" for swap in event.swaps)
            return IncidentKind.GANG_SWAPPED, event.name, ", ".join(swaps) or "started again"
        case events.JobRequeued():
            return IncidentKind.GANG_REQUEUED, event.name, event.reason
        case events.GangResized():
            size = f"{event.dp} replicas on {len(event.hosts):,} hosts"
            detail = f"{size}: {event.reason}" if event.reason else size
            return IncidentKind.GANG_RESIZED, event.name, detail
        case events.LinkReported():
            detail = share_text(event.share)
            detail = f"{detail}: {event.detail}" if event.detail else detail
            return IncidentKind.LINK_CHANGED, event.link, detail
        case events.JobPreempted():
            return IncidentKind.GANG_PREEMPTED, event.name, f"for {event.preempted_by}"
        case events.RankFailed():
            detail = f"rank {event.rank} on {event.host} {event.reason}"
            return IncidentKind.RANK_FAILED, event.name, detail
        case events.RoleRestarted():
            return IncidentKind.ROLE_RESTARTED, event.name, event.text
        case events.LaunchFailed():
            return IncidentKind.LAUNCH_FAILED, event.name, f"{event.host}: {event.reason}"
        case events.JobEnded(outcome=JobState.FAILED):
            return IncidentKind.JOB_FAILED, event.name, event.reason
        case (
            events.FabricLoaded()
            | events.FabricChanged()
            | events.TenantsLoaded()
            | events.NamesQualified()
            | events.JobSubmitted()
            | events.JobUpdated()
            | events.JobHeld()
            | events.JobReleased()
            | events.JobEligible()
            | events.JobsReserved()
            | events.JobStarted()
            | events.SparesChanged()
            | events.GangLaunched()
            | events.GangHung()
            | events.ChannelOpened()
            | events.CheckpointSaved()
            | events.JobEnded()
            | events.Defragmented()
            | events.HostMoved()
            | events.HostSignalled()
            | events.HealthLoaded()
            | events.HostsJudged()
            | events.LinkMoved()
            | events.WindowSet()
            | events.WindowOpened()
            | events.WindowClosed()
            | events.WindowRemoved()
            | events.RequestAnswered()
        ):
            return None
        case _:
            assert_never(event)
