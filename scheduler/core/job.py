"""Jobs: what the user asked for, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from placement import hostset
from placement.hostset import HostSet
from placement.request import Request, TierCut
from scheduler.core.lifecycle import JobState
from scheduler.core.neighbours import ANYBODY, Neighbours
from scheduler.core.tenants import DEFAULT

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A user's request for one gang.

    `priority`: larger goes first. `time_limit_s`: how long the gang runs at most, as
    far as its owner knows; backfill relies on it. None = not stated. `neighbours`: which
    jobs it lies beside. `labels`: (key, value), its owner's own words, sorted by key.
    """

    name: str
    request: Request
    priority: int = 0
    time_limit_s: int | None = None
    tenant: str = ""
    priority_class: str = ""
    neighbours: Neighbours = ANYBODY
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One job in one state. Hosts are fabric indices: `hosts[i]` carries block i.

    `attempt` counts runs of the gang from 1; 0 = never started. `start_ns` is the
    start of the current attempt, `state_ns` the time of the last change of state,
    `update_ns` that of the last change by its owner.
    `needed`: free hosts without which it cannot start, the required spares among them.
    `tenant`, `priority` and `is_preemptible` are what the tenants file makes of the spec.
    """

    spec: JobSpec
    uid: str
    gang_hosts: int
    needed: int
    submit_ns: int
    sequence: int
    tenant: str = DEFAULT
    priority: int = 0
    is_preemptible: bool = False
    state: JobState = JobState.QUEUED
    attempt: int = 0
    start_ns: int = 0
    state_ns: int = 0
    hosts: tuple[int, ...] = ()
    spares: tuple[int, ...] = ()
    cuts: tuple[TierCut, ...] = ()
    lower_bound: int = 0
    notes: tuple[str, ...] = ()
    reason: str = ""
    request_id: str = ""
    update_ns: int = 0

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def held(self) -> HostSet:
        return hostset.of(self.hosts + self.spares)

    @property
    def order(self) -> tuple[int, int]:
        """Sort key of the queue: priority, then arrival."""
        return (-self.priority, self.sequence)
