"""Jobs: what the user asked for, and what became of it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from muster.structs import derived_from, replace, struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.replicas import sized
from placement.workload.request import Request, StepBound, TierCut
from scheduler.core.model.dependency import Dependency, DependencyTerm
from scheduler.core.model.job_array import JobArray
from scheduler.core.model.lifecycle import Hold, JobState
from scheduler.core.model.records.goodput import UNCOUNTED, Goodput
from scheduler.core.model.restart_option import WeighedOptions
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.affinity import ANYBODY, Affinity
from scheduler.core.policies.costs import Costs, Observed
from scheduler.core.policies.job_terms import (
    AS_TENANTS,
    AS_USUAL,
    AS_WARNED,
    CheckpointTerms,
    DatasetTerms,
    HangTerms,
    Holders,
    Requeueing,
    RestartRule,
    RunSpec,
    SavedCheckpoint,
    StopCause,
)

SECOND_NS = 1_000_000_000
MOST_LABELS = 64  # of one job


@struct(frozen=True, slots=True)
class JobSpec:
    """A user's request for one gang.

    `name`: its full name (core.names). `priority`: larger goes first. `time_limit_s`: how long the
    gang runs at most, as far as its owner knows; backfill relies on it. None = not stated.
    `affinity`: which jobs it lies beside, by full names. `labels`: (key, value), its owner's own
    words, sorted by key. `min_dp`: with how many replicas it can run at least, of the replicas that
    the request asks for; 0 = all of them. `checkpoint`: how it saves its state. `run`: what agents
    start on its hosts; None: somebody else does, and reports its end. `hold`: it is held when it is
    submitted. `begin_ns`: it does not start before, 0 = at once. `dependencies`: what it waits for;
    `cancel_unmet`: it is cancelled when that can never be, and does not wait on. `array`: of which
    it is a task, or that it is submitted as. `restarts`: after which failures it is started again.
    `requeue`: whether it waits again when others need its hosts. `hang`: when its steps are taken
    to have stopped, and what is done then. `dataset`: what it reads from storage, None: not stated.
    `power_cap_w`: that its GPUs may be held to where power caps leave it no room otherwise; 0:
    they may not.
    """

    name: str
    request: Request
    priority: int = 0
    time_limit_s: int | None = None
    tenant: str = ""
    priority_class: str = ""
    affinity: Affinity = ANYBODY
    labels: tuple[tuple[str, str], ...] = ()
    min_dp: int = 0
    checkpoint: CheckpointTerms = AS_USUAL
    run: RunSpec | None = None
    hold: bool = False
    begin_ns: int = 0
    dependencies: tuple[DependencyTerm, ...] = ()
    cancel_unmet: bool = False
    array: JobArray | None = None
    restarts: RestartRule = AS_TENANTS
    requeue: Requeueing = Requeueing.ALWAYS
    hang: HangTerms = AS_WARNED
    dataset: DatasetTerms | None = None
    power_cap_w: int = 0


class Strike(Struct, frozen=True):
    """Count of failures of one host that stopped the gang of a job, and the time of the last
    one."""

    host: int
    count: int
    at_ns: int


class Release(NamedTuple):
    """A gang that is expected to end at `end_ns`, and the hosts that it leaves then. `hosts`:
    healthy hosts that it leaves; `borrowed`: how many of those held are spares of others.
    `part_gpus`: of one that held only a part of its host. Order: first end first, then by name."""

    end_ns: int
    name: str
    tenant: str
    held: int
    hosts: HostSet
    borrowed: int = 0
    part_gpus: int = 0


class HostNames(Struct, frozen=True):
    """Hosts that an ended job had, by name, as the fabric may be another by now."""

    hosts: tuple[str, ...]
    spares: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()


@struct(frozen=True, slots=True)
class Attempt:
    """All that a job has only while its gang holds hosts, which are fabric indices: `hosts[i]`
    carries block i.

    `start_dp`: with how many replicas the gang started; what it grew beyond that is on loan.
    `lent`: spares of it that others run on, or have just left. `gpus`: those that it has of its
    only host, where others may have the rest. `copies`: of each block, the blocks that have its
    state in memory. `step`: of a gang whose compute is known. `stop_ns`: when a failure stopped
    it, None = none has.

    Of a job that agents start: `launched_ns`, when all ranks had started, None = not yet; `hang`:
    in a sentence, that its steps have stopped coming, "" = they have not; `role_restarts`: how
    often each role has begun again alone, of those that have; `renewed_ns`: when copies of its
    state in memory were complete last, None = never.

    `placed`: the names of its hosts, once it is over and the fabric has changed, so that its
    indices mean nothing any more; else None.
    """

    start_ns: int = 0
    hosts: tuple[int, ...] = ()
    spares: tuple[int, ...] = ()
    lent: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    start_dp: int = 0
    cuts: tuple[TierCut, ...] = ()
    lower_bound: int = 0
    notes: tuple[str, ...] = ()
    copies: Holders = ()
    step: StepBound | None = None
    stop_ns: int | None = None
    launched_ns: int | None = None
    hang: str = ""
    role_restarts: tuple[tuple[str, int], ...] = ()
    renewed_ns: int | None = None
    placed: HostNames | None = None


NOTHING_HELD = Attempt()


@struct(frozen=True)
class Job:
    """One job in one state.

    `outcome`: how it ended, None: it lives. `attempt` counts runs of the gang from 1; 0 = never
    started. `gang`: the present one, of an ended job that held hosts the last; None: it holds none.
    `state_ns` is the time of the last change of state, `update_ns` that of the last change by its
    owner.
    `needed`: free hosts without which it cannot start, the required spares among them.
    `user`: who submitted it, "" where that is not known.
    `tenant`, `priority` and `is_preemptible` are what the tenants file makes of the spec.

    `sizes`: legal numbers of replicas, ascending, of an elastic job, else none. `dp`: how
    many of them it has; while it waits the fewest, which `gang_hosts` and `needed` are for.

    `strikes`: the hosts that stopped it; `failed_attempts`: attempts in a row that failed before
    anything was saved.
    `failure`, `exit_code`: what stopped the last attempt that failed, None = not known.
    `early_ends`: attempts in a row whose ranks ended by themselves right after they had started.
    `restart_options`: what was weighed at the last restart. `goodput`: what its time went
    to, up to its last change. `saved`: its newest checkpoint, of a job that agents start.

    `hold`: who holds it, None = nobody. `dependencies`: the jobs that it depends on. `awaits_turn`:
    as many tasks of its array run as may.
    `eligible_ns`: since when it has been considered without a break; None: it is deferred.

    `part_gpus`: how many GPUs it takes of one host, which has `host_gpus`, and leaves the others
    to other jobs; 0 of a gang of whole hosts. `gpu_watts`: that each of its GPUs is held to while
    it runs; 0: to none.
    """

    spec: JobSpec
    uid: str
    gang_hosts: int
    needed: int
    submit_ns: int
    sequence: int
    tenant: str = DEFAULT_TENANT
    priority: int = 0
    is_preemptible: bool = False
    outcome: JobState | None = None
    attempt: int = 0
    gang: Attempt | None = None
    state_ns: int = 0
    reason: str = ""
    request_id: str = ""
    update_ns: int = 0
    sizes: tuple[int, ...] = ()
    dp: int = 0
    strikes: tuple[Strike, ...] = ()
    failed_attempts: int = 0
    restart_options: WeighedOptions = ()
    goodput: Goodput = UNCOUNTED
    saved: SavedCheckpoint | None = None
    user: str = ""
    hold: Hold | None = None
    dependencies: tuple[Dependency, ...] = ()
    awaits_turn: bool = False
    eligible_ns: int | None = 0
    part_gpus: int = 0
    host_gpus: int = 0
    failure: StopCause | None = None
    exit_code: int = 0
    early_ends: int = 0
    gpu_watts: int = 0

    def host_names(self, fabric: Fabric) -> HostNames:
        """Return its hosts by name. `fabric`: the present one."""
        present = self.present
        held = (present.hosts, present.spares, present.lent)
        return present.placed or HostNames(*map(fabric.names, held))

    @derived_from("gang", "outcome")
    def state(self) -> JobState:
        """State in the job's life; a live job without a gang waits."""
        if self.outcome is not None:
            return self.outcome
        if self.gang is None:
            return JobState.QUEUED
        return JobState.RUNNING if self.gang.stop_ns is None else JobState.INTERRUPTED

    @property
    def present(self) -> Attempt:
        """Attempt of the job's gang; an empty one where it has none."""
        return self.gang or NOTHING_HELD

    @property
    def hosts(self) -> tuple[int, ...]:
        return self.gang.hosts if self.gang else ()

    @property
    def cpu_ranks(self) -> int:
        """Ranks of each of its hosts where they are on CPUs alone, else 0."""
        return self.spec.run.cpu_ranks if self.spec.run else 0

    @property
    def ranks(self) -> Parallelism:
        """Axes of the ranks that are launched on its hosts."""
        if self.cpu_ranks:
            return Parallelism(dp=max(1, len(self.hosts)) * self.cpu_ranks)
        return self.request.parallelism

    def ranks_per_host(self, gpus_per_host: int) -> int:
        """Return how many ranks each host has but for the last one of few."""
        return self.cpu_ranks or gpus_per_host

    @property
    def spares(self) -> tuple[int, ...]:
        return self.gang.spares if self.gang else ()

    @property
    def request(self) -> Request:
        """The gang at its present size."""
        present = sized(self.spec.request, self.dp) if self.sizes else self.spec.request
        return present.with_power_limit(self.gpu_watts) if self.gpu_watts else present

    def with_power_limit(self, gpu_watts: int) -> Job:
        """Return this job with each of its GPUs held to so many watts; 0: to none."""
        return self if gpu_watts == self.gpu_watts else replace(self, gpu_watts=gpu_watts)

    def at(self, dp: int) -> Job:
        """Return this job at another of its sizes."""
        if dp == self.dp:
            return self
        hosts = self.hosts_at(dp)
        needed = hosts + self.spec.request.spares.required(hosts)
        return replace(self, dp=dp, gang_hosts=hosts, needed=needed)

    def on(self, hosts: int) -> Job:
        """Return this job at the size that fills so many hosts; unchanged when none does."""
        dp = self.dp
        if hosts != self.gang_hosts:
            resized = self.gang_hosts - self.hosts_at(0)
            dp, odd = divmod(self.dp * (resized + hosts - self.gang_hosts), resized)
            dp = 0 if odd else dp
        return self.at(dp) if dp in self.sizes else self

    def hosts_at(self, dp: int) -> int:
        """Return the hosts of the gang with so many replicas; with none, those of other roles."""
        request = self.request
        ranks = request.parallelism.world_size
        resized = request.resized_part.parallelism.world_size
        others = self.gang_hosts * (ranks - resized) // ranks
        return others + (self.gang_hosts - others) * dp // self.dp

    @property
    def least(self) -> Job:
        """Return the job at its smallest size, as it waits."""
        return self.at(self.sizes[0]) if self.sizes else self

    def costs(self, usual: Costs) -> Costs:
        """Return what an interruption costs it; `usual` where it states nothing."""
        return self.spec.checkpoint.costs(usual)

    @property
    def observed(self) -> Observed | None:
        """Progress of the present attempt as agents reported it; None: none run it."""
        if self.spec.run is None:
            return None
        start_ns, launched_ns = self.present.start_ns, self.present.launched_ns
        launch_ns = None if launched_ns is None else max(0, launched_ns - start_ns)
        if self.saved is None:
            return Observed(launch_ns, None)
        is_present = self.saved.attempt == self.attempt
        return Observed(launch_ns, max(0, self.saved.at_ns - start_ns) if is_present else 0)

    def loss_ns(self, at_ns: int, usual: Costs) -> int:
        """Return the ns that each host loses when the present attempt is interrupted at `at_ns`:
        work since its last checkpoint, and a restart."""
        ran_ns = max(0, at_ns - self.present.start_ns)
        return self.costs(usual).loss_ns(self.attempt, ran_ns, self.observed)

    def next_save_ns(self, after_ns: int, usual: Costs) -> int:
        """Return the first checkpoint after that time: one that its ranks have reported, or the
        next after it, or from its start, by its interval."""
        costs = self.costs(usual)
        interval_ns = costs.checkpoint_s * SECOND_NS
        if not interval_ns:
            return after_ns  # at every step
        first_ns = self.present.start_ns + costs.overhead_ns(self.attempt) + interval_ns
        if self.saved is not None and self.saved.attempt == self.attempt:
            first_ns = self.saved.at_ns
        return first_ns + max(0, (after_ns - first_ns) // interval_ns + 1) * interval_ns

    @property
    def is_special(self) -> bool:
        """Whether decisions need an extra pass for it, as for sizes, spares or affinity. Most jobs
        of most clusters need none."""
        spec = self.spec
        return bool(self.sizes) or spec.request.spares.hosts != 0 or spec.affinity != ANYBODY

    @property
    def name(self) -> str:
        return self.spec.name

    @derived_from("gang")
    def allocation(self) -> HostSet:
        return hostset.of(self.hosts + self.spares)

    @derived_from("gang")
    def lent_hosts(self) -> HostSet:
        return hostset.of(self.present.lent)

    @property
    def owned(self) -> HostSet:
        """All that it holds, or has lent."""
        return self.allocation | self.lent_hosts

    @property
    def all_spares(self) -> tuple[int, ...]:
        """Spares of the job, lent ones too."""
        return self.spares + self.present.lent

    @derived_from("spec", "sizes", "dp")
    def limit_ns(self) -> int | None:
        """How long it runs at most at its present size, where its owner says that."""
        stated_s = self.spec.time_limit_s
        return None if stated_s is None else self.lasting(stated_s)

    @derived_from("spec", "sizes", "dp", "gang", "tenant", "part_gpus")
    def release(self) -> Release:
        """Hosts that it leaves at its time limit, if all are its own and healthy; in the past where
        its owner states no limit."""
        end_ns = 0 if self.limit_ns is None else self.present.start_ns + self.limit_ns
        count = len(self.hosts) + len(self.all_spares)
        return Release(
            end_ns, self.spec.name, self.tenant, count, self.owned, part_gpus=self.part_gpus
        )

    def lasting(self, limit_s: int) -> int:
        """Convert a time limit into nanoseconds at the present size. It is meant for all the
        replicas that an elastic job asks for: with fewer the same work takes longer, in
        proportion."""
        limit_ns = limit_s * SECOND_NS
        return limit_ns * self.spec.request.replicas // self.dp if self.sizes else limit_ns

    @derived_from("tenant", "priority", "is_preemptible", "strikes", "part_gpus")
    def likeness(self) -> tuple[object, ...]:
        """Key that is equal for jobs that a decision tells apart only by size and time limit."""
        return (self.tenant, self.priority, self.is_preemptible, self.strikes, self.part_gpus)

    @property
    def has_choice(self) -> bool:
        """Whether the job may start at several sizes, so that each such job is placed for
        itself."""
        return len(self.sizes) > 1

    @property
    def has_grown(self) -> bool:
        """Whether the job has grown onto hosts that no job waited for at that time."""
        return bool(self.sizes) and self.dp > self.present.start_dp > 0

    @property
    def changed_ns(self) -> int:
        """When it last changed its state, or was changed by its owner."""
        return max(self.state_ns, self.update_ns)

    @property
    def order(self) -> tuple[int, int]:
        """Sort key of the queue: priority, then arrival."""
        return (-self.priority, self.sequence)
