"""The state of a cluster: one immutable value per version of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import chain

from msgspec import Struct

from muster.structs import derived_from, replace, struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.links import FULL, with_links
from placement.fabric.tree import Fabric
from scheduler.core.collections.persistent_map import PersistentMap, with_entry
from scheduler.core.collections.sorted_values import SortedValues
from scheduler.core.model.index import Index
from scheduler.core.model.job import Job, Release
from scheduler.core.model.job_array import ArrayTurns
from scheduler.core.model.lifecycle import HOLDING, IN_SERVICE, HostState, JobState, LinkUse
from scheduler.core.model.records.failure_rates import DOWN, NO_FAULTS, FailureRates
from scheduler.core.model.records.goodput import NOTHING, Parts
from scheduler.core.model.records.host import BLANK, HostRecord
from scheduler.core.model.records.tenant import TenantMark, UsageAccount
from scheduler.core.model.requests import CompletedRequest, parse_request_id
from scheduler.core.model.run_lineage import RunLineage
from scheduler.core.model.window import Booking, Shares
from scheduler.core.names import full_name
from scheduler.core.policies.health import AS_STATED, HealthPolicy
from scheduler.core.policies.health_signals import AGENT_AWAITED
from scheduler.core.policies.tenants import OPEN, Tenants

Arrival = tuple[int, int, str]  # when a job was submitted, its sequence and its name
NO_LIMIT_NS = 1 << 62  # stands for the time limit of a job that states none
# Hosts that a waiting job needs, its time limit, its sequence and its name. 0 hosts: whether it may
# start depends on more than the hosts and the time that it needs, as for an elastic job.
WaitingSize = tuple[int, int, int, str]

RETAINED = 1_000  # ended jobs of one tenant kept at hand; older ones are in the log alone


class Host(Struct, frozen=True):
    """Record of a host that is not plainly healthy. `cordon`: the words of the operator who
    cordoned or drained it, which outlast a failure; None when nobody did. `signal`: the report that
    put it in its state, where one did. `said_ns`, `cordon_ns`: when `reason` and `cordon` were
    said."""

    state: HostState
    since_ns: int
    reason: str = ""
    cordon: str | None = None
    signal: str = ""
    said_ns: int = 0
    cordon_ns: int = 0

    @property
    def awaits_agent(self) -> bool:
        """Whether it is out until its agent comes in for the first time."""
        return self.state is HostState.FAILED and self.signal == AGENT_AWAITED

    @property
    def shown_state(self) -> HostState:
        """The state as an operator sees it, but for maintenance."""
        return HostState.UNKNOWN if self.awaits_agent else self.state

    @property
    def is_down(self) -> bool:
        """Whether it is out by a failure."""
        return self.state in DOWN and not self.awaits_agent


class LinkRecord(Struct, frozen=True):
    """Record of an uplink that is not plainly up and open to all gangs.

    `share`: what it carries of what it was built for, as last reported at `share_ns` with
    `detail`. `use`: who may cross it, by an operator's word of `use_ns` with `reason`."""

    share: float = FULL
    share_ns: int = 0
    detail: str = ""
    use: LinkUse = LinkUse.OPEN
    use_ns: int = 0
    reason: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether the uplink is plainly up and open to all gangs."""
        return self.share == FULL and self.use is LinkUse.OPEN


PLAIN_LINK = LinkRecord()


@struct(frozen=True)
class State:
    """The facts that the log has made true, and `index`, which follows from them.

    `version` is the number of the last event applied. `fabric_version`: that of the last one
    that made another fabric; `fabric_ns`: when that was; `origin`: the digest of the first fabric,
    which names the log. `qualified_version`, `qualified_ns`: of the event that gave jobs their full
    names once callers said who they are; what was said before may call a job by its bare name.

    `jobs`: live jobs by name. `arrays`: arrays with live tasks, by uid. `ended`: the newest ended
    jobs of each tenant by uid, oldest first. `hosts`: hosts that are not plainly healthy, by index.
    `early`: hosts that large gangs take last. `slow`: hosts that all take last.
    `records`: hosts of which anything is known.
    `judge_ns`: when the policy next looks at the hosts, 0 = not foreseen. `accounts`: what each
    tenant holds and has used. `marks`: when those came and changed that a tenants file named.
    `reserved`: latest start of waiting jobs in ns, under the policy *conservative*, and where gangs
    that outran their limits keep the first from starting; `shares`: on how many hosts of which
    kind, where windows tell hosts apart; `slips`: how often that start was put off. `requests`:
    what the newest requests of each tenant did, by the key of their request_id, oldest first.
    `windows`: those not over, by name. `links`: uplinks that are not plainly up, by domain.
    `links_ns`: when links or the fabric last came to carry something else.
    `lineages`: what runs have saved that outlive their jobs, by core.model.run_lineage's key, least
    recently begun first.
    `defragmented_ns`: when defragmentation by policy was last due, 0 = never. `faults`: failures
    and repairs so far. `seen_ns`: the time of the newest event. `spent`: host time of all ended
    jobs, by what it went to.
    """

    version: int = 0
    fabric: Fabric | None = None
    fabric_version: int = 0
    fabric_ns: int = 0
    origin: str = ""
    index: Index = Index()
    jobs: Mapping[str, Job] = field(default_factory=PersistentMap)
    ended: Mapping[str, Job] = field(default_factory=PersistentMap)
    hosts: Mapping[int, Host] = field(default_factory=PersistentMap)
    early: HostSet = 0
    slow: HostSet = 0
    records: Mapping[int, HostRecord] = field(default_factory=PersistentMap)
    health: HealthPolicy = AS_STATED
    judge_ns: int = 0
    tenants: Tenants = OPEN
    accounts: Mapping[str, UsageAccount] = field(default_factory=PersistentMap)
    marks: Mapping[str, TenantMark] = field(default_factory=PersistentMap)
    reserved: Mapping[str, int] = field(default_factory=PersistentMap)
    shares: Mapping[str, Shares] = field(default_factory=PersistentMap)
    slips: Mapping[str, int] = field(default_factory=PersistentMap)
    requests: Mapping[str, CompletedRequest] = field(default_factory=PersistentMap)
    windows: Mapping[str, Booking] = field(default_factory=PersistentMap)
    links: Mapping[str, LinkRecord] = field(default_factory=PersistentMap)
    links_ns: int = 0
    defragmented_ns: int = 0
    faults: FailureRates = NO_FAULTS
    seen_ns: int = 0
    spent: Parts = NOTHING
    arrays: Mapping[str, ArrayTurns] = field(default_factory=PersistentMap)
    qualified_version: int = 0
    qualified_ns: int = 0
    lineages: Mapping[str, RunLineage] = field(default_factory=PersistentMap)

    @staticmethod
    def empty() -> State:
        return State()

    @derived_from("fabric", "links", "windows")
    def loaded_fabric(self) -> Fabric:
        """The fabric with its links as they are now, by reports, operators and open windows.

        Raises: RuntimeError before FabricLoaded, the first event of every log.
        """
        open_now = (b for b in self.windows.values() if b.is_closing and b.window.links)
        return with_links(self.built_fabric, *self.links_with(open_now))

    @property
    def built_fabric(self) -> Fabric:
        """The fabric with all links up. Raises: RuntimeError as `loaded_fabric`."""
        if self.fabric is None:
            raise RuntimeError("no fabric loaded")
        return self.fabric

    def links_with(self, bookings: Iterable[Booking]) -> tuple[dict[str, float], set[str]]:
        """Return the share of its bandwidth that each uplink has during the windows of these
        bookings, by domain, and the uplinks that no gang may begin to cross."""
        shares = {name: record.share for name, record in self.links.items()}
        barred = {n for n, record in self.links.items() if record.use is not LinkUse.OPEN}
        for booking in bookings:
            for name in booking.window.links:
                if booking.window.share:
                    shares[name] = min(shares.get(name, FULL), booking.window.share)
                else:
                    barred.add(name)
        return shares, barred

    def link(self, name: str) -> LinkRecord:
        """Return the record of this domain's uplink."""
        return self.links.get(name, PLAIN_LINK)

    @derived_from("fabric", "index")
    def free(self) -> HostSet:
        """Hosts in service that nobody holds or has lent."""
        return hostset.full(self.built_fabric.host_count) & ~self.index.taken

    def host(self, index: int) -> Host:
        """Return the record of a host by people and monitors; see `shown` for windows."""
        return self.hosts.get(index, _HEALTHY)

    def record(self, index: int) -> HostRecord:
        return self.records.get(index, BLANK)

    def shown(self, index: int, runs_gang: bool | None = None) -> Host:
        """Return the host as an operator sees it: one in service under maintenance is drained, one
        that awaits its agent is unknown.

        `runs_gang`: whether it does, where that is known; None: look.
        """
        host = self.host(index)
        if host.awaits_agent:
            return replace(host, state=HostState.UNKNOWN)
        if host.state not in IN_SERVICE or not hostset.has(self.index.closed, index):
            return host
        blocking = (
            b for b in self.windows.values() if b.is_closing and hostset.has(b.hosts, index)
        )
        booking = min(blocking, key=lambda b: b.since_ns)
        is_used = self.runs_gang(index) if runs_gang is None else runs_gang
        now = HostState.DRAINING if is_used else HostState.CORDONED
        return Host(now, booking.since_ns, booking.window.title, said_ns=booking.change_ns)

    def runs_gang(self, index: int) -> bool:
        """Whether the host carries a block of a gang, and is not a spare or free."""
        return any(index in job.hosts for job in self.holders(index))

    def account(self, tenant: str) -> UsageAccount:
        return self.accounts.get(tenant, _UNUSED)

    def mark(self, tenant: str) -> TenantMark:
        """Return when a tenant came and changed. A tenant that no file has named yet counts as
        there since the fabric was loaded."""
        return self.marks.get(tenant) or TenantMark(self.faults.since_ns, self.faults.since_ns)

    def find(self, name: str, uid: str = "") -> Job | None:
        """Return the live job of this name, else the newest ended one that the state still has."""
        if not uid:
            return self.jobs.get(name) or self.last_ended(name)
        live = self.jobs.get(name)
        job = live if live is not None and live.uid == uid else self.ended.get(uid)
        return job if job is not None and job.name == name else None

    def called(self, tenant: str, name: str) -> Job | None:
        """Return the live job that this tenant calls by this name, else the newest ended one that
        the state still has."""
        names = (full_name(tenant, name), name)
        live = (job for full in names if (job := self.jobs.get(full)) is not None)
        ended = (job for job in reversed(tuple(self.ended.values())) if job.name in names)
        return next((job for job in chain(live, ended) if job.tenant == tenant), None)

    def last_ended(self, name: str) -> Job | None:
        """Return the newest ended job of this name that the state still has."""
        return next((j for j in reversed(tuple(self.ended.values())) if j.name == name), None)

    def with_ended(self, job: Job) -> State:
        """Return the state as if it still had this ended job."""
        return replace(self, ended=with_entry(self.ended, job.uid, job))

    def request(self, request_id: str) -> CompletedRequest | None:
        """Return the completed request with this id; None: there was none, or it is forgotten."""
        return self.requests.get(parse_request_id(request_id).key) if request_id else None

    @property
    def holding(self) -> Iterator[Job]:
        """Jobs that hold hosts, in order of start."""
        return map(self.jobs.__getitem__, self.index.running)

    @derived_from("jobs")
    def _ranked_jobs(self) -> PersistentMap[str, Job]:
        return self.jobs if isinstance(self.jobs, PersistentMap) else PersistentMap(self.jobs)

    @property
    def releases(self) -> SortedValues[Release]:
        """Hosts that running gangs leave at their time limits, first end first. Cost: O(jobs) once,
        O(1) for next versions."""
        return self._ranked_jobs.ranks(_release)

    @property
    def waiting_sizes(self) -> SortedValues[WaitingSize]:
        """Jobs of the queue by the hosts and the time that they need. Cost: as of `releases`."""
        return self._ranked_jobs.ranks(waiting_size)

    @property
    def arrivals(self) -> SortedValues[Arrival]:
        """Live jobs in order of arrival. Cost: as of `releases`."""
        return self._ranked_jobs.ranks(_arrival)

    def in_state(self, *states: JobState) -> Iterator[Job]:
        """Jobs in these states, in order of start; of submission when QUEUED is among them."""
        # Few run and many wait: those that run are found without looking at the queue.
        names = self.jobs if JobState.QUEUED in states else self.index.running
        return (job for job in map(self.jobs.__getitem__, names) if job.state in states)

    def holders(self, index: int) -> tuple[Job, ...]:
        """Return the job that holds this host, as a gang member or as a spare, or the jobs that
        share it."""
        if not hostset.has(self.index.held, index):
            return ()
        if names := self.index.shared.get(index):
            return tuple(map(self.jobs.__getitem__, names))
        held = self.in_state(JobState.RUNNING, JobState.INTERRUPTED)
        return (next(job for job in held if index in job.hosts or index in job.spares),)

    def gpus_taken(self, index: int) -> tuple[int, ...]:
        """GPUs of a shared host that jobs have; none of a host that nobody shares."""
        return tuple(
            gpu for name in self.index.shared.get(index, ()) for gpu in self.jobs[name].present.gpus
        )


def _arrival(job: Job) -> Arrival:
    return job.submit_ns, job.sequence, job.name


def waiting_size(job: Job) -> WaitingSize | None:
    """Return the place of a job among the sizes of those that wait, None: it is not in the
    queue."""
    if job.gang is not None or job.eligible_ns is None:
        return None
    is_odd = job.has_choice or job.part_gpus or job.strikes or job.is_preemptible
    limit_ns = NO_LIMIT_NS if job.limit_ns is None else job.limit_ns
    return (0 if is_odd else job.needed), limit_ns, job.sequence, job.spec.name


def _release(job: Job) -> Release | None:
    """None: it holds no hosts."""
    return job.release if job.state in HOLDING else None


_HEALTHY = Host(HostState.HEALTHY, 0)
_UNUSED = UsageAccount()
