"""One pass along the queue: which hosts a decision has given away, and which are left.

The stages that every job passes are those of `decide`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from functools import partial
from itertools import islice, takewhile
from operator import gt

from muster.structs import replace
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.workload.request import Placement
from scheduler.core.capacity.eviction import parted
from scheduler.core.capacity.placer import Placer, on_part
from scheduler.core.capacity.shrink_options import Victims
from scheduler.core.capacity.victims import freed, unneeded
from scheduler.core.collections.name_list import Chunk
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.plan import Action, BackfillReservation, Start
from scheduler.core.model.scheduling_options import (
    SchedulingOptions,
    expected_end_ns,
    time_limit_ns,
)
from scheduler.core.model.state import NO_LIMIT_NS, State
from scheduler.core.preemption.stage import PreemptionStage, note_evictions
from scheduler.core.queue.backfill import Backfill, LimitReservations, draws_alike
from scheduler.core.queue.equivalence import EquivalenceCache, outermost
from scheduler.core.queue.idle_spares import QueueLoans
from scheduler.core.queue.policies import queue_policy, reserves_by_size
from scheduler.core.queue.policy import QueueOrder, ask_all
from scheduler.core.queue.shared_hosts import SharedHosts
from scheduler.core.queue.verdict import QueueVerdict, WaitReason
from scheduler.core.rules.crash_loop import avoided, clear_ns
from scheduler.core.tenancy.guarantees import highest
from scheduler.core.tenancy.quota import UNLIMITED
from scheduler.core.tenancy.quota_check import Allowance

# Beside a reservation fewer jobs than these are asked without a walk along the queue: all that need
# no more hosts than are free, or, where these are as many as the first number, `_startable`.
FEW_STARTABLE, MOST_STARTABLE = 6, 32
BACKFILLED = "backfilled: it started before an earlier job, which waits for hosts"


def backfilled(placement: Placement) -> Placement:
    """Return the placement with the note that its job passes others."""
    return replace(placement, notes=(*placement.notes, BACKFILLED))


class SchedulingCycle:
    """One pass along the queue, which decides on one job after the other.

    `free`: hosts not yet given away. `place_evicting`: places jobs that evict others.
    """

    def __init__(
        self,
        state: State,
        now_ns: int,
        options: SchedulingOptions,
        free: HostSet,
        find: Placer,
        place_evicting: Placer,
    ) -> None:
        self.free = free
        policy = queue_policy(options.policy)
        context = policy.context(state, now_ns, options, free)
        self.quotas, self.affinity = context.quotas, context.affinity
        self._outlook = context.outlook
        self.calendar = self._outlook.calendar
        self._has_windows, self._is_open = bool(self.calendar), self.quotas.is_open
        self._has_kind_limits = state.tenants.has_kind_limits
        self.backfill: Backfill = policy.backfill(context)
        self.limit_reservations = LimitReservations(self._outlook, self.quotas)
        self.order: QueueOrder = policy.order(context)
        self.preempting = PreemptionStage(
            state,
            now_ns,
            options,
            self.quotas,
            self._outlook,
            self.affinity,
            place_evicting,
            may_preempt=policy.may_preempt,
            is_by_priority=self.order.is_by_priority,
        )
        self._shared = SharedHosts(state, self._outlook)
        self._loans = QueueLoans(state, now_ns, options, self.calendar, policy.may_borrow)
        self.evicted: dict[str, Victims] = {}
        self.clear_ns: int | None = None  # when somebody who waits may use a host again
        self._restarts = state.tenants.restarts
        self._held_to = dict[str, int]()  # watts of the GPUs of jobs that power caps leave no more
        self._counted = set[str]()  # jobs that evicted gangs for want of hosts alone
        self._state, self._jobs = state, state.jobs
        self._now_ns, self._options, self._find = now_ns, options, find
        self._fabric = state.loaded_fabric
        self._everything = hostset.full(state.loaded_fabric.host_count)
        self._started_hosts = 0
        self._is_anybody_blocked = False  # whether a job that comes first waits
        self.is_through = False  # nobody is left in the queue who was not asked, and might start
        self._free_count = free.bit_count()
        # What is found for jobs of one kind, until somebody takes hosts.
        self._opened: dict[Hashable, Allowance] = {}
        self._waiting = EquivalenceCache()
        # Whether free hosts and the reservation alone say who may start.
        self._is_by_size = (
            reserves_by_size(policy)
            and self._is_open
            and not self._has_windows
            and self.preempting.is_idle
            and not (policy.may_borrow and state.tenants.has_preemptible)
            and not self.affinity.has_reads
        )
        self._may_start: dict[int, Job] = {}  # one of neighbours in the queue, by which these are

    def starts(self) -> Iterator[tuple[Job, Placement]]:
        """Yield starts in queue order, until no later job can start or enough have."""
        for job in self._jobs_to_ask():
            # Until somebody waits no job can be known to wait for the same reason.
            is_first = self._is_by_size and not self._is_anybody_blocked
            outcome = None if not is_first and self._waits_again(job) else self._outcome(job)
            if isinstance(outcome, Placement):
                yield job, backfilled(outcome) if self._is_anybody_blocked else outcome
            elif outcome not in (None, WaitReason.LIMIT):  # a limit holds back its tenant alone
                self._is_anybody_blocked = True
            self.is_through = self._is_done(job)
            if self._started_hosts >= self._options.batch_hosts or self.is_through:
                return
        self.is_through = True

    def _jobs_to_ask(self) -> Iterator[Job]:
        """Yield the jobs in order without those that are known to wait."""
        key, place = self.order.key, tuple[int, ...]()
        if self._is_by_size and key is not None:
            queue = self.order.jobs(ask_all)
            for job in queue:
                yield job
                if self._is_anybody_blocked:
                    place = key(job)
                    break
            if next(queue, None) is None:
                return
            behind = None if self._first() is None else self._few_startable()
            if behind is not None:
                yield from sorted((job for job in behind if key(job) > place), key=key)
                return
        # Windows may part jobs by their time limits in more than two, and limits on kinds of hosts
        # by the labels that they want.
        is_parted = self._has_windows or self._has_kind_limits
        for job in self.order.jobs(ask_all if is_parted else self._all_wait):
            if key is None or key(job) > place:
                yield job

    def _few_startable(self) -> list[Job] | None:
        """Return the jobs that may start beside the reservation, in any order; None: too many."""
        sizes = self._state.waiting_sizes.before((self._free_count + 1,))
        few = [self._jobs[size[-1]] for size in islice(sizes, FEW_STARTABLE)]
        if len(few) == FEW_STARTABLE:
            few = [*islice(self._startable(), MOST_STARTABLE)]
        return few if len(few) < MOST_STARTABLE else None

    def _startable(self) -> Iterator[Job]:
        """Yield the jobs that may start beside the reservation, in any order.

        Of the jobs that end before it begins, one that waits holds back all that need more hosts;
        so it is among those that end later. Cost: O(log jobs) for each size that is looked at, and
        for each job.
        """
        first, sizes = self._first(), self._state.waiting_sizes
        assert first is not None
        parted_ns = first.start_ns - self._now_ns
        assumed_ns = self._options.assumed_limit_s * SECOND_NS
        spans = [
            (0, parted_ns + 1, False),
            (parted_ns + 1, NO_LIMIT_NS, True),
            (NO_LIMIT_NS, NO_LIMIT_NS + 1, assumed_ns > parted_ns),
        ]
        needed = 0
        while spans and (least := next(sizes.since((needed,)), None)) is not None:
            needed = least[0]
            for low_ns, high_ns, outlasts in spans if needed else [(0, NO_LIMIT_NS + 1, False)]:
                alike = takewhile(partial(gt, (needed, high_ns)), sizes.since((needed, low_ns)))
                for at, size in enumerate(alike):
                    job = self._jobs[size[-1]]
                    if needed and not at and self._waits_again(job):
                        spans = [span for span in spans if span[-1] is not outlasts]
                        break
                    yield job
            needed += 1

    def start(self, job: Job, placement: Placement) -> Start:
        """Return the action of one of `starts`."""
        name = job.name
        victims, is_counted = self.evicted.get(name, ()), name in self._counted
        lenders = self._loans.by_name.get(name, ())
        names, shrinks = parted(victims)
        end_ns = self.end_ns(job.on(len(placement.hosts)))
        watts = self._held_to.get(name, 0)
        return Start(name, placement, names, shrinks, is_counted, end_ns, lenders, watts)

    def _is_done(self, job: Job) -> bool:
        """Whether nobody behind `job` can start."""
        free = self.free | self._shared.with_room(1)  # somebody may take a part of these
        is_over = self.backfill.is_done(free) and self.preempting.is_over(job)
        return is_over and not self._loans.is_open(self.free)

    def _waits_again(self, job: Job) -> bool:
        """Whether `job` waits as others before it do."""
        if job.has_choice:
            return False
        end_ns = self._now_ns + time_limit_ns(job, self._options)
        kind = self._kind(job, end_ns)
        if self._waiting.has(job.needed, kind):
            return True
        most = self._waits_up_to(job, end_ns, kind)
        if job.needed <= most:
            self._waiting.add(kind, job.needed, most)
        return job.needed <= most

    def _all_wait(self, part: Chunk, head: Job) -> bool:
        """Whether they wait, as far as can be told without asking any of them. `head`: the next
        one, which is asked first, and after it who was in the way before: who might start tells as
        much as all."""
        known = self._may_start.get(id(part), head)
        if not (self._waits_again(head) and self._waits_again(known)):
            return False
        first = self._first()
        parted_ns = None if first is None else first.start_ns - self._now_ns
        for job in outermost(part, self._jobs, parted_ns):
            if not self._waits_again(job):
                self._may_start[id(part)] = job
                return False
        return True

    def _kind(self, job: Job, end_ns: int) -> Hashable:
        """Return a key that is equal for jobs to which a decision leaves the same hosts. Tenant and
        priority do not count where no tenant is promised or denied anything and no gang can be
        evicted."""
        first = self.backfill.first
        outlasts = first is not None and end_ns > first.start_ns
        windows = self.calendar.kind(job, end_ns) if self._has_windows else None
        if self._is_open and self.preempting.is_idle:
            return (job.is_preemptible, job.strikes, job.part_gpus, outlasts, windows)
        return (job.likeness, self.quotas.allowance_key(job), outlasts, windows)

    def _waits_up_to(self, job: Job, end_ns: int, kind: Hashable) -> int:
        """How large a job like `job` may be to wait without being asked further: quotas and
        reservations leave it too little, and all that could come of it has been tried for
        others. Less than it needs if it is to be asked."""
        if job.part_gpus and self._shared.with_room(job.part_gpus):
            return 0
        allowed = self._open(job, end_ns)
        room = self.backfill.room(job, end_ns, allowed)
        if room is None or job.needed <= min(allowed.limit, room):
            return 0
        if not self.preempting.is_in_vain(job, end_ns):
            return 0
        if self._loans.may(job, self.free, kind):
            return 0
        if self.limit_reservations.has_waiting(allowed):
            return UNLIMITED if job.needed > allowed.limit or self.backfill.is_settled(job) else 0
        return allowed.limit if self.backfill.is_settled(job) else 0

    def verdicts(self) -> Iterator[QueueVerdict]:
        """Yield the verdict on each queued job, if all were decided at once."""
        for job in self.order.jobs(ask_all):
            free, first = self._free_count, self._first()
            allowed = self._allowed(job)
            outcome = self._outcome(job)
            if isinstance(outcome, Placement):
                yield QueueVerdict(
                    job, outcome, None, allowed, free, evicted=self.evicted.get(job.name, ())
                )
                continue
            passes_ns = None
            if outcome is WaitReason.BEHIND:
                passes_ns = self._passes_ns(job, first)
                first = self.limit_reservations.before(job, self.end_ns(job)) or first
            yield QueueVerdict(job, None, outcome, allowed, free, first, passes_ns)

    def may_start(self, job: Job) -> bool:
        """Whether quotas, limits and reservations let `job` start, behind all so far."""
        return job.needed <= self._permitted(job)[1]

    def allowance(self, job: Job) -> Allowance:
        """Return what quotas, constraints and reservations of places leave `job`."""
        return self.backfill.permitted(job, self.end_ns(job), self._allowed(job))

    def _passes_ns(self, job: Job, first: BackfillReservation | None) -> int | None:
        """The first moment at which somebody is promised hosts that `job` may need."""
        if not self.backfill.lets_shorter_pass:
            return None
        held_back = self.limit_reservations.first_blocked(job) + (
            [first] if first is not None else []
        )
        return min((reservation.start_ns for reservation in held_back), default=None)

    @property
    def is_anybody_late(self) -> bool:
        """Whether a running gang has outrun the limit that it states."""
        return self._outlook.is_anybody_late

    def promises(self) -> tuple[Action, ...]:
        """Reservations that have to be kept beyond this decision."""
        return self.backfill.actions()

    def end_ns(self, job: Job) -> int:
        """When `job` ends if it starts now, as far as anybody knows."""
        return self._now_ns + time_limit_ns(job, self._options)

    def _outcome(self, job: Job) -> Placement | WaitReason:
        """The stages, one after the other. What starts has its hosts from here on."""
        job = self._within_power(job)
        if (placement := self._above_least(job)) is not None:
            return placement
        needed, end_ns = job.needed, self.end_ns(job)
        if job.part_gpus and (placement := self._by_sharing(job, end_ns)) is not None:
            return placement
        by_quota = self.quotas.allowance(job, self.free)
        allowed = self._allowed(job)
        if needed > allowed.limit:
            if (placement := self._by_preempting(job, end_ns)) is not None:
                return placement
            self.limit_reservations.reserve_blocked(job, allowed)
            return WaitReason.LIMIT
        allowed = self.backfill.permitted(job, end_ns, allowed)
        room = min(allowed.pool, allowed.limit)
        below_cap = self.limit_reservations.room(job, end_ns, room)
        if below_cap < needed <= room:
            return WaitReason.BEHIND
        if needed <= below_cap:
            placement = self._placed(job, allowed, below_cap, end_ns)
            if placement is not None:
                self._take(job, placement.allocation, end_ns)
                return placement
        if (placement := self._by_borrowing(job, allowed, below_cap, end_ns)) is not None:
            return placement
        if (placement := self._by_preempting(job, end_ns)) is not None:
            return placement
        self.backfill.reserve_blocked(job, self.free)
        if (reads := self._outlook.read_reservation(job)) is not None and reads.from_ns:
            self.affinity.reserve_reads(job, reads, self.end_ns)
        if needed > self._free_count:
            return WaitReason.HOSTS
        if needed > by_quota.pool:
            return WaitReason.PROMISES
        if needed > self._unclosed(job).reach.bit_count():
            is_shy = avoided(job, self._restarts, self._now_ns) & by_quota.reach
            return WaitReason.AVOIDS if is_shy else WaitReason.WINDOW
        return (
            WaitReason.CONSTRAINTS
            if needed > self._allowed(job).reach.bit_count()
            else WaitReason.BEHIND
        )

    def _within_power(self, job: Job) -> Job:
        """Return the job with its GPUs held to the watts that its file allows, where power caps
        leave it room with that alone."""
        if not job.spec.power_cap_w:
            return job
        self._held_to.pop(job.name, None)
        held, reach = job.with_power_limit(job.spec.power_cap_w), self._unclosed(job).reach
        has_room = [
            self.affinity.room(each, reach).bit_count() >= job.needed for each in (job, held)
        ]
        if has_room != [False, True]:
            return job
        self._held_to[job.name] = held.gpu_watts
        return held

    def _by_sharing(self, job: Job, end_ns: int) -> Placement | None:
        """Where `job` starts beside others on a host that is shared already, which is entered."""
        hosts = self._shared.with_room(job.part_gpus)
        if not hosts or not self._may_share(job, end_ns):
            return None
        hosts &= ~self.calendar.closed(job, self._now_ns, end_ns)
        hosts &= ~avoided(job, self._restarts, self._now_ns)
        hosts = self.affinity.room(job, hosts)
        for host in self._shared.fullest_first(job, hosts):
            until_ns = self._shared.until_ns(host)
            if not self.backfill.may_share(job, end_ns, until_ns):
                continue
            self.backfill.record_shared(job, 1 << host, end_ns, until_ns)
            gpus = self._shared.gpus_for(job, host)
            self._count(job, 1 << host, end_ns)
            return on_part(self._fabric, host, gpus)
        return None

    def _may_share(self, job: Job, end_ns: int) -> bool:
        """Whether limits leave its tenant the part of a host."""
        if self.quotas.allowance(job, self.free).limit < 1:
            return False
        counted = self.quotas.counted(job, 1)
        return self.limit_reservations.room(job, end_ns, counted) >= counted

    def _above_least(self, job: Job) -> Placement | None:
        """An elastic job starts as large as it can now; as it waits, it is at its least."""
        if not job.has_choice:
            return None
        allowed = self.quotas.allowance(job, self.free)
        bound, least = min(allowed.pool, allowed.limit), None
        while (size := self._largest(job, allowed.reach, bound)) is not None:
            permitted, room = self._permitted(size)
            if size.needed <= room:
                end_ns = self.end_ns(size)
                placement = self._placed(size, permitted, room, end_ns)
                if placement is not None:
                    self._take(size, placement.allocation, end_ns)
                return placement
            least = self._permitted(job)[1] if least is None else least
            bound = min(max(room, least), size.needed - 1)
        return None

    def _permitted(self, job: Job) -> tuple[Allowance, int]:
        """Return what earlier jobs leave `job`, and how many of those hosts it may take."""
        end_ns = self.end_ns(job)
        permitted = self.backfill.permitted(job, end_ns, self._allowed(job))
        return permitted, self.limit_reservations.room(
            job, end_ns, min(permitted.pool, permitted.limit)
        )

    def _largest(self, job: Job, reach: HostSet, bound: int) -> Job | None:
        """The job at its largest size on at most `bound` hosts, if that is not its least.

        No host is placed to find it. Cost: O(log sizes).
        """

        def is_too_large(dp: int) -> bool:
            size = job.at(dp)
            return bound < size.needed or self.affinity.room(size, reach).bit_count() < size.needed

        at = bisect_left(job.sizes, True, key=is_too_large)
        return job.at(job.sizes[at - 1]) if at > 1 else None

    def spare_room(self, job: Job, end_ns: int) -> tuple[HostSet, int]:
        """Return the hosts that a running gang may take until `end_ns`, behind all jobs that wait,
        and how many of them. It gets none that a job with a foreseeable start needs, and none at
        all where that job counts on hosts that the gang has and would then keep for longer."""
        allowed, first = self.quotas.allowance(job, self.free), self._first()
        hosts = allowed.reach & ~self.calendar.closed(job, self._now_ns, end_ns)
        hosts &= ~avoided(job, self._restarts, self._now_ns)
        hosts &= ~self.affinity.closed(job.name, job.spec.affinity)
        hosts = self.affinity.powered(job, hosts)
        most = UNLIMITED
        if first is not None and end_ns > first.start_ns:
            ends_ns = expected_end_ns(job, self._now_ns, self._options)
            if not self._now_ns < first.start_ns < ends_ns:
                return 0, 0
            apart = hosts & ~first.hosts
            hosts = apart if apart.bit_count() >= first.extra else hosts
            most = first.own if draws_alike(first, job, self.quotas) else most
        permitted = self.backfill.permitted(replace(job, needed=1), end_ns, allowed.on(hosts))
        room = min(permitted.pool, permitted.limit, most)
        return permitted.reach, self.limit_reservations.room(job, end_ns, room)

    def record_growth(self, job: Job, more: HostSet, end_ns: int) -> None:
        """Record that a running gang grows by `more` hosts."""
        self.backfill.record_allocation(job, more, end_ns)
        self.limit_reservations.record_allocation(job, more, end_ns)
        self.quotas.record_allocation(job, more)
        self.affinity.record_allocation(job, job.allocation | more)
        self._gives(more)

    def _allowed(self, job: Job) -> Allowance:
        """The hosts that quotas, windows, its constraints and affinity leave."""
        allowed = self._unclosed(job)
        return allowed.on(self.affinity.room(job, allowed.reach))

    def _unclosed(self, job: Job) -> Allowance:
        """Return hosts open to `job` if it starts now, less those that stopped it recently."""
        allowed = self._open(job, self.end_ns(job))
        if not job.strikes or not (barred := avoided(job, self._restarts, self._now_ns)):
            return allowed
        self._await(clear_ns(job, self._restarts, self._now_ns))
        return allowed.on(allowed.reach & ~barred)

    def _open(self, job: Job, end_ns: int) -> Allowance:
        """The hosts that quotas leave and no window closes to `job` until then: the same for all
        jobs of one kind, until somebody takes hosts."""
        if not self._has_windows:
            return self.quotas.allowance(job, self.free)
        key = (self.quotas.allowance_key(job), self.calendar.kind(job, end_ns))
        if (opened := self._opened.get(key)) is None:
            allowed = self.quotas.allowance(job, self.free)
            closed = self.calendar.closed(job, self._now_ns, end_ns)
            opened = self._opened[key] = allowed.on(allowed.reach & ~closed)
        return opened

    def _await(self, at_ns: int | None) -> None:
        self.clear_ns = min((at for at in (at_ns, self.clear_ns) if at is not None), default=None)

    def _by_borrowing(
        self, job: Job, allowed: Allowance, below_cap: int, end_ns: int
    ) -> Placement | None:
        """Where a preemptible `job` starts on what it may take and on idle spares of others."""
        kind, first = self._kind(job, end_ns), self._first()
        if not (
            self._loans.may(job, self.free, kind)
            and self.limit_reservations.leaves_room(job, end_ns, first)
        ):
            return None
        reach = self._permitted_beside_loan(job, allowed.capped(below_cap), end_ns)
        within = self._off_first_reservation(job, end_ns)
        room = self._loans.room(job, reach, within, end_ns, first, self.affinity)
        borrowed = self._noted(job, self._find(job, room, job.needed), end_ns) if room else None
        placement = self._loans.record_allocation(job, borrowed, self.free)
        if placement is not None:
            self._take(job, hostset.of(placement.hosts), end_ns)
            self.preempting.lend(self._loans.by_name[job.name])
        else:
            self._loans.failed(job, kind)
        return placement

    def _off_first_reservation(self, job: Job, end_ns: int) -> HostSet:
        """Hosts, whosever they are, on which `job` is not in the way of the reservation."""
        everywhere = Allowance(UNLIMITED, "", self._everything, 0, UNLIMITED)
        return self.backfill.without_first(replace(job, needed=1), end_ns, everywhere).reach

    def _permitted_beside_loan(self, job: Job, allowed: Allowance, end_ns: int) -> HostSet:
        """Return the free hosts that a job may take when it borrows the rest."""
        part = replace(job, needed=min(job.needed, allowed.pool))
        permitted = self.backfill.permitted(part, end_ns, allowed)
        return highest(permitted.reach, max(0, permitted.pool))

    def _by_preempting(self, job: Job, end_ns: int) -> Placement | None:
        """Where `job` starts once others are evicted for it, which is entered."""
        if self.limit_reservations.room(job, end_ns, job.needed) < job.needed:
            return None
        first = self._first()
        choice = self.preempting.choice(job, self.free, end_ns, first)
        if choice is None:
            return None
        if unneeded(job, choice.victims, self.free, self.quotas) is None:
            self._counted.add(job.name)
        self.evicted[job.name] = choice.victims
        self.preempting.evict_gangs(choice.victims)
        self._loans.remove_gangs({v.name for v in choice.victims})
        self.free |= freed(choice.victims)
        self._free_count = self.free.bit_count()
        placement = note_evictions(choice)
        self._take(job, placement.allocation, end_ns)
        if first is not None:
            self.backfill.record_evictions(self.free)
        return placement

    def _first(self) -> BackfillReservation | None:
        return self.backfill.first

    def _placed(self, job: Job, allowed: Allowance, most: int, end_ns: int) -> Placement | None:
        """Where `job` runs: in its tenant's own cells if they hold it, off the hosts of a
        reservation if it outlasts that, else anywhere."""
        first = self._first()
        outlasts = first is not None and end_ns > first.start_ns
        permitted = allowed.reach & ~first.hosts if first is not None and outlasts else 0
        near = self.affinity.near_zones(job.spec.affinity)
        held = (
            self.calendar.own(job, self._now_ns, end_ns) & allowed.reach if self._has_windows else 0
        )
        preferred = [held, allowed.own, permitted]
        preferred[:0] = [hosts & near for hosts in (*preferred, allowed.reach)] if near else []
        for hosts in (self.affinity.fitting(job, hosts) for hosts in preferred if hosts):
            if hosts.bit_count() >= job.needed:
                placement = self._find(job, hosts, min(most, hosts.bit_count()))
                return self._noted(job, placement, end_ns)
        return self._noted(job, self._find(job, allowed.reach, most), end_ns)

    def _noted(self, job: Job, placement: Placement | None, end_ns: int) -> Placement | None:
        """With what there is to say of it; None also where the reservation would not stand."""
        first, free = self._first(), self.free
        if placement is None or not self.preempting.keeps_promise(
            first, job, placement, free, end_ns
        ):
            return None
        placement = self.affinity.note_nearness(job.spec.affinity, placement)
        if not job.gpu_watts:
            return placement
        note = f"power caps leave it no room otherwise: each GPU is held to {job.gpu_watts} W"
        return replace(placement, notes=(*placement.notes, note))

    def _take(self, job: Job, hosts: HostSet, end_ns: int) -> None:
        """Hosts of `free`, and spares of others, which nobody foresees anything for."""
        borrowed = hosts & ~self.free
        self.backfill.record_allocation(job, hosts, end_ns, borrowed)
        self._count(job, hosts, end_ns, borrowed)

    def _count(self, job: Job, hosts: HostSet, end_ns: int, borrowed: HostSet = 0) -> None:
        """Record the start of `job` for all jobs after it."""
        for host in hostset.members(hosts) if job.part_gpus else ():
            self._shared.record_allocation(host, self._shared.gpus_for(job, host), end_ns)
        self.limit_reservations.record_allocation(job, hosts, end_ns)
        self._outlook.record_allocation(job, hosts, end_ns, borrowed)
        self.quotas.record_allocation(job, hosts, borrowed)
        self.preempting.forget_failures()
        self.affinity.record_allocation(job, hosts)
        self.order.record_allocation(job, hosts.bit_count())
        self._started_hosts += hosts.bit_count()
        self._gives(hosts)

    def _gives(self, hosts: HostSet) -> None:
        self.free &= ~hosts
        self._free_count = self.free.bit_count()
        self._opened.clear()
        self._waiting.clear()
        self._loans.starts()
