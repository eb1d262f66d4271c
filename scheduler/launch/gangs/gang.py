"""One attempt of one job on its hosts, as the server sees it: how far each host is, and what the
words of their agents come to.

    WAITING     hosts are still being left by others          (launcher)
    PREPARING   Prepare sent; each host answers Prepared or Refused
    STARTING    Launch sent; each host answers Started
    RUNNING     all have started
    FAILING     a rank failed or a host refused: the rest is being stopped, so that it is known
                who was first before anything is decided
    OVER        reported; nothing more comes of it

Nothing here sends or waits: the launcher asks and acts. A word of one agent costs the same whether
a gang has two hosts or two thousand: phases of hosts are counted, and failures known by rank.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from muster.structs import struct
from placement.fabric.tree import Fabric
from placement.workload.roles import ranks_of_roles
from scheduler.core.fold.attempts import PlacedGang
from scheduler.core.policies.job_terms import RoleRestart, RunSpec, StopCause
from scheduler.core.wording import duration
from scheduler.launch.gangs.step_watch import StepWatch

MOST_STEPS = 64  # of which it is kept how long ranks computed
_COLLECTIVE_TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout|Timed out waiting \d+ms for (?:recv|send)"
)
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|(?:CUDA|HIP) out of memory|RESOURCE_EXHAUSTED")
_SHOWN_RANKS = 4
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
    """A failure of a rank. Failures sort by time."""

    at_s: float
    rank: int
    host: str
    reason: str
    cause: StopCause = StopCause.EXIT
    code: int = 0


@struct(frozen=True, slots=True)
class RankRange:
    """The ranks of one host."""

    node: int
    first_rank: int
    ranks: int


@struct(frozen=True, slots=True)
class LaunchedRole:
    """A role on its hosts, and its ranks in the gang; "" is the only one of a gang that names none.
    `may_restart`: whether it begins again by itself."""

    name: str
    run: RunSpec
    hosts: tuple[str, ...]
    ranks: range
    may_restart: bool = False


class RoleStage(StrEnum):
    STOPPING = "stopping"
    PAUSING = "pausing"
    PREPARING = "preparing"
    STARTING = "starting"
    STARTED = "started"


@dataclass(slots=True)
class RoleRestarts:
    """How far the restart of a role is. `awaited`: hosts that have not reached the present stage.
    `count`: how often in a row it has failed soon after its start. `since_s`: of the stage.
    `pause_s`: between the end of its ranks and their next start."""

    stage: RoleStage
    awaited: set[str]
    since_s: float
    count: int = 1
    pause_s: float = 0.0


@dataclass(slots=True, eq=False)
class LaunchedGang:
    """A gang as the launcher sees it. `placed`: the attempt as the log has it. `processes`: how
    many are to end well. `since_s`: of its phase. `left`: hosts that have not stopped. `saved`:
    (step, where) of the newest checkpoint of this attempt, `logged`: of the newest one that the log
    has. `lineage`: key of the run of its job."""

    placed: PlacedGang
    run: RunSpec
    world_size: int
    gpus_per_host: int
    since_s: float
    phase: GangPhase = GangPhase.WAITING
    masters: dict[str, tuple[str, int]] = field(default_factory=dict)  # by role
    restarts: dict[str, RoleRestarts] = field(default_factory=dict)  # by role
    refusals: dict[str, str] = field(default_factory=dict)
    may_fit_elsewhere: bool = False  # for a host that refused it would start other jobs
    unfit: set[str] = field(default_factory=set)  # hosts that have failed the site's gate
    done: set[int] = field(default_factory=set)  # ranks that ended well
    failures: dict[int, RankFailure] = field(default_factory=dict)  # by rank
    step: int = 0
    can_save: bool = False
    saved: tuple[int, str] | None = None
    logged: tuple[int, str] | None = None
    renewal_logged_s: float = -math.inf  # when the log had a renewal of its copies last
    lineage: str = ""
    watch: StepWatch = field(default_factory=StepWatch)
    hung_s: float | None = None  # since when it is known that its steps have stopped
    is_hang_told: bool = False
    is_warned: bool = False  # its ranks have been asked to save before its time limit
    times: dict[int, array[float]] = field(default_factory=dict)  # by step, of each rank
    left: set[str] = field(init=False)
    _by_host: dict[str, HostPhase] = field(init=False)
    _counts: Counter[HostPhase] = field(init=False)
    _nodes: dict[str, int] = field(init=False)
    _copies_of: dict[int, list[int]] = field(init=False)
    roles: tuple[LaunchedRole, ...] = field(init=False)
    _role_by_host: dict[str, LaunchedRole] = field(init=False)
    _unfinished: int = field(init=False)  # processes that have to end well yet

    def __post_init__(self) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        """Know nothing of its hosts but the roles that they have."""
        self.roles = tuple(self._launched_roles())
        self._role_by_host = {host: role for role in self.roles for host in role.hosts}
        awaited = [role for role in self.roles if self._is_awaited(role)]
        self._unfinished = sum(map(_processes, awaited))
        self.left = set(self.hosts)
        self._by_host = dict.fromkeys(self.hosts, HostPhase.UNKNOWN)
        self._counts = Counter({HostPhase.UNKNOWN: len(self.hosts)})
        self._nodes = {host: node for node, host in enumerate(self.hosts)}
        self._copies_of = {}
        for node, holders in enumerate(self.placed.job.present.copies):
            for holder in holders:
                self._copies_of.setdefault(holder, []).append(node)

    def resize(self, placed: PlacedGang) -> list[str]:
        """Take over another size of its last role in the same attempt, of whose ranks nothing is
        known from here on. Return the hosts that it leaves."""
        before = self._by_host
        self.forget_ranks(self.roles[-1])
        self.placed, self.world_size = placed, placed.job.ranks.world_size
        self._lay_out()
        for host in self._by_host.keys() & before.keys():
            self.mark(host, before[host])
        self._unfinished -= sum(self._is_awaited(self.role_of(self.host_of(r))) for r in self.done)
        self.times.clear()
        self.watch.forget_ranks(self.roles[-1].ranks.start)
        return [host for host in before if host not in self._by_host]

    @property
    def name(self) -> str:
        return self.placed.name

    @property
    def uid(self) -> str:
        return self.placed.job.uid

    @property
    def attempt(self) -> int:
        return self.placed.attempt

    @property
    def key(self) -> tuple[str, int]:
        """Uid and attempt, as agents name it."""
        return (self.placed.job.uid, self.placed.attempt)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts in block order."""
        return self.placed.hosts

    @property
    def gpus(self) -> frozenset[int]:
        """GPUs of its only host that it has, where other jobs have the rest; else empty."""
        return frozenset(self.placed.gpus)

    @property
    def has_started(self) -> bool:
        """Whether the log says that all ranks of this attempt had started."""
        return self.placed.job.present.launched_ns is not None

    @property
    def by_host(self) -> Mapping[str, HostPhase]:
        return self._by_host

    def mark(self, host: str, phase: HostPhase) -> None:
        """Record the phase that a host has reached."""
        self._counts[self._by_host[host]] -= 1
        self._counts[phase] += 1
        self._by_host[host] = phase
        if phase is HostPhase.STOPPED:
            self.left.discard(host)
        else:
            self.left.add(host)

    def meets(self, gpus: frozenset[int]) -> bool:
        """Return whether the gang has one of these GPUs, on the same host; none stands for all GPUs
        of the host."""
        return not self.gpus or not gpus or bool(self.gpus & gpus)

    def _launched_roles(self) -> Iterator[LaunchedRole]:
        if not self.run.roles:
            yield LaunchedRole("", self.run, self.hosts, range(self.world_size))
            return
        each = zip(self.run.roles, ranks_of_roles(self.placed.job.request), strict=True)
        for role, ranks in each:
            blocks = slice(ranks.start // self.gpus_per_host, ranks.stop // self.gpus_per_host)
            may_restart = role.restart is RoleRestart.ROLE
            run, hosts = self.run.of_role(role), self.hosts[blocks]
            yield LaunchedRole(role.name, run, hosts, ranks, may_restart)

    def _is_awaited(self, role: LaunchedRole) -> bool:
        """Whether the job is not complete before the role is: a role that begins again by itself
        serves the others, where there are any."""
        return not role.may_restart or all(each.may_restart for each in self.roles)

    def role_of(self, host: str) -> LaunchedRole:
        return self._role_by_host.get(host, self.roles[0])

    @property
    def processes(self) -> int:
        return sum(map(_processes, self.roles))

    @property
    def is_live(self) -> bool:
        return self.phase is not GangPhase.OVER

    def ranks_of(self, host: str) -> RankRange:
        node = self._nodes[host]
        first = node * self.gpus_per_host
        return RankRange(node, first, min(self.gpus_per_host, self.world_size - first))

    def copies(self, host: str) -> tuple[Sequence[int], Sequence[int]]:
        """The nodes that keep copies of a host's state in memory, and those whose copies it keeps;
        none of a job without peers."""
        node, holders = self._nodes[host], self.placed.job.present.copies
        return (holders[node], self._copies_of.get(node, ())) if holders else ((), ())

    def measured(self, host: str, step: int, seconds: Sequence[float]) -> None:
        """Note how long the ranks of a host computed in a step; the newest MOST_STEPS are kept."""
        ranks = self.ranks_of(host)
        if step not in self.times:
            if len(self.times) >= MOST_STEPS and step < min(self.times):
                return
            self.times[step] = array("f", bytes(4 * self.world_size))
            if len(self.times) > MOST_STEPS:
                del self.times[min(self.times)]
        some = array("f", seconds[: ranks.ranks])
        self.times[step][ranks.first_rank : ranks.first_rank + len(some)] = some

    def enter(self, phase: GangPhase, now_s: float) -> None:
        self.phase, self.since_s = phase, now_s

    def numbers_of(self, host: str) -> range:
        """Return the rank of each process of the host: of all, or where one runs all, the first."""
        ranks = self.ranks_of(host)
        is_one = self.role_of(host).run.per_host
        return range(ranks.first_rank, ranks.first_rank + (1 if is_one else ranks.ranks))

    def all_are(self, *phases: HostPhase) -> bool:
        return sum(self._counts[phase] for phase in phases) == len(self.hosts)

    def not_yet(self, *phases: HostPhase) -> list[str]:
        """Return the hosts that are in none of these phases."""
        return [host for host, phase in self.by_host.items() if phase not in phases]

    @property
    def is_complete(self) -> bool:
        return not self._unfinished

    def exited(
        self,
        host: str,
        rank: int,
        code: int,
        number: int,
        at_s: float,
        tail: str,
        *,
        is_oom: bool = False,
    ) -> None:
        """Note that a rank has ended. Only what ended by itself, before the gang failed, counts as
        a cause; what is killed after that does not. `is_oom`: the kernel killed it for its
        memory."""
        if code == 0 and number == 0:
            self._unfinished -= rank not in self.done and self._is_awaited(self.role_of(host))
            self.done.add(rank)
        elif rank not in self.failures:
            reason = f"was killed by signal {number}" if number else f"exited with code {code}"
            last = next((row for row in reversed(tail.splitlines()) if row.strip()), "")
            text = f"{reason}: {last.strip()[:200]}" if last else reason
            cause = StopCause.SIGNAL if number else StopCause.EXIT
            if is_oom or _OUT_OF_MEMORY.search(tail):
                cause = StopCause.OOM
            elif _COLLECTIVE_TIMEOUT.search(tail):
                cause = StopCause.HANG
            self.failures[rank] = RankFailure(at_s, rank, host, text, cause, code)

    def hang_text(self, now_s: float, fabric: Fabric) -> str:
        """Describe a hang: `no step for 31 min after step 20, where one took 0.5 s; rank 1 on h1
        has ended; ...`"""
        watch = self.watch
        since_s = self.since_s if watch.since_s is None else watch.since_s
        text = f"no step for {duration(round(now_s - since_s))}"
        pace = f", where one took {watch.step_s:.3g} s" if watch.step_s else ""
        text += f" after step {watch.step:,}{pace}" if watch.step else " after its ranks started"
        if watch.busy:
            text += f" and ranks have been {next(iter(watch.busy.values()))}"
        lagging = [rank for rank in watch.lagging() if rank not in self.done]
        ended = sorted(self.done)
        if lagging and (step := watch.awaited_step):
            text += f"; in step {step:,} others wait for {self._named(lagging)}"
        elif lagging:
            steps = {watch.steps[rank] for rank in lagging}
            text += f"; at step {min(steps):,}: {self._named(lagging)}"
        if domain := self._domain_of(lagging, fabric):
            text += f"; that is all it has in {domain}, whose uplink may be the cause"
        if ended:
            text += f"; ended well: {self._named(ended)}"
        if not lagging and not ended:
            text += "; no rank lags behind the others"
        return text

    def _domain_of(self, ranks: Sequence[int], fabric: Fabric) -> str:
        """Return the innermost domain of several hosts that has exactly those of the gang that
        have these ranks, "" where none does."""
        some = {fabric.index_by_name[self.host_of(rank)] for rank in ranks}
        among = {fabric.index_by_name[host] for host in self.hosts}
        if len(some) < 2 or some == among:
            return ""
        first = min(some)
        for place in reversed(range(len(fabric.tiers))):
            domain = fabric.tiers[place].domain_by_host
            if {host for host in among if domain[host] == domain[first]} == some:
                return f"{fabric.tiers[place].name} {fabric.domain(first, place)}"
        return ""

    def forget_ranks(self, role: LaunchedRole) -> None:
        """Forget what became of the ranks of a role, which begins again."""
        ended = self.done.intersection(role.ranks)
        self.done -= ended
        self._unfinished += len(ended) if self._is_awaited(role) else 0
        for rank in self.failures.keys() & set(role.ranks):
            del self.failures[rank]

    def host_of(self, rank: int) -> str:
        return self.hosts[min(rank // self.gpus_per_host, len(self.hosts) - 1)]

    def _named(self, ranks: Sequence[int]) -> str:
        """`rank 1 on h1, rank 9 on h2 and 6 more`."""
        shown = [f"rank {rank} on {self.host_of(rank)}" for rank in ranks[:_SHOWN_RANKS]]
        more = len(ranks) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")

    def is_known(self, rank: int) -> bool:
        """Whether it has ended, well or not."""
        return rank in self.done or rank in self.failures

    def first_failure(self) -> RankFailure:
        return min(self.failures.values())

    def suspects(self, lost_hosts: Iterable[str]) -> list[str]:
        """Return which of the hosts whose agents are gone are taken to have failed: their ranks
        died with them, and the others because of them. When many are gone at once it is more likely
        that the server is cut off: then none is suspected."""
        silent = [host for host in lost_hosts if host in self.by_host]
        return silent if len(silent) <= max(1, len(self.hosts) // 4) else []


def _processes(role: LaunchedRole) -> int:
    return len(role.hosts) if role.run.per_host else len(role.ranks)
