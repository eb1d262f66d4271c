"""One attempt of one job on its hosts, as the server sees it: how far each host is, and what the
words of their agents come to.

    WAITING     hosts are still being left by others          (launcher)
    PREPARING   Prepare sent; each host answers Prepared or Refused
    STARTING    Launch sent; each host answers Started
    RUNNING     all have started
    FAILING     a rank failed or a host refused: the rest is being stopped, so that it is known
                who was first before anything is decided
    OVER        reported; nothing more comes of it

Nothing here sends or waits: the launcher asks and acts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from scheduler.core.policies.run import RunSpec

FOLLOWERS_S = 2.0  # failures that come so much later than the first may still be its cause


class HostPhase(StrEnum):
    UNKNOWN = "unknown"  # its agent is not there, or has not been asked
    PREPARED = "prepared"
    REFUSED = "refused"
    LAUNCHED = "launched"  # told to start its ranks
    STARTED = "started"
    STOPPED = "stopped"


class GangPhase(StrEnum):
    WAITING = "waiting"
    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    FAILING = "failing"
    OVER = "over"


class RankFailure(NamedTuple):
    """Order: the earliest first."""

    at_s: float
    rank: int
    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class RankRange:
    """What one host carries."""

    node: int
    first_rank: int
    ranks: int


@dataclass(slots=True, eq=False)
class LaunchedGang:
    """`hosts`: in block order. `processes`: how many are to end well. `since_s`: of its phase.
    `saved`: (step, where) of the newest checkpoint of this attempt, `logged`: of the newest one
    that the log has."""

    name: str
    uid: str
    attempt: int
    hosts: tuple[str, ...]
    run: RunSpec
    world_size: int
    gpus_per_host: int
    since_s: float
    phase: GangPhase = GangPhase.WAITING
    by_host: dict[str, HostPhase] = field(default_factory=dict)
    master: tuple[str, int] | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)  # ranks that ended well
    failures: list[RankFailure] = field(default_factory=list)
    step: int = 0
    can_save: bool = False
    saved: tuple[int, str] | None = None
    logged: tuple[int, str] | None = None

    def __post_init__(self) -> None:
        self.by_host = dict.fromkeys(self.hosts, HostPhase.UNKNOWN)

    @property
    def processes(self) -> int:
        return len(self.hosts) if self.run.per_host else self.world_size

    @property
    def is_live(self) -> bool:
        return self.phase is not GangPhase.OVER

    def ranks_of(self, host: str) -> RankRange:
        node = self.hosts.index(host)
        first = node * self.gpus_per_host
        return RankRange(node, first, min(self.gpus_per_host, self.world_size - first))

    def enter(self, phase: GangPhase, now_s: float) -> None:
        self.phase, self.since_s = phase, now_s

    def all_are(self, *phases: HostPhase) -> bool:
        return all(phase in phases for phase in self.by_host.values())

    def not_yet(self, *phases: HostPhase) -> list[str]:
        """Hosts that are in none of these."""
        return [host for host, phase in self.by_host.items() if phase not in phases]

    @property
    def is_complete(self) -> bool:
        return len(self.done) == self.processes

    def exited(self, host: str, rank: int, code: int, number: int, at_s: float, tail: str) -> None:
        """A rank has ended. What is killed once the gang fails is its end, not its cause; only
        what ended by itself before counts."""
        if code == 0 and number == 0:
            self.done.add(rank)
        elif all(failure.rank != rank for failure in self.failures):
            reason = f"was killed by signal {number}" if number else f"exited with code {code}"
            last = next((row for row in reversed(tail.splitlines()) if row.strip()), "")
            text = f"{reason}: {last.strip()[:200]}" if last else reason
            self.failures.append(RankFailure(at_s, rank, host, text))

    def first_failure(self) -> RankFailure:
        return min(self.failures)

    def suspects(self, lost_hosts: Iterable[str]) -> list[str]:
        """Of hosts whose agents are gone those that the failure is laid to: their ranks died with
        them, and the others for their sake. When many are gone at once it is more likely that the
        server is cut off: nobody is suspected then."""
        silent = [host for host in lost_hosts if host in self.by_host]
        return silent if len(silent) <= max(1, len(self.hosts) // 4) else []
