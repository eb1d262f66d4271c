"""Why a job waits: an answer that changes nothing."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from math import inf

from muster.structs import replace, struct
from placement.fabric import hostset
from placement.fabric.constraints import wish_text
from placement.fabric.hostset import HostSet
from placement.fabric.links import barred_links
from placement.fabric.tree import Fabric
from placement.workload.request import Placement
from scheduler.core.capacity.eviction import parted, yielding
from scheduler.core.capacity.grow import dp_text, is_smaller, size_text
from scheduler.core.capacity.placer import make_placer
from scheduler.core.explain.obstacles import Obstacles
from scheduler.core.explain.reason import Basis, Obstacle, Reason, Shrink
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import BackfillReservation, Resize
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.model.window import Window, WindowKind
from scheduler.core.names import stated_tenant
from scheduler.core.policies.storage_use import (
    StorageCost,
    StorageUse,
    storage_cost,
    storage_use,
)
from scheduler.core.preemption.stage import PreemptionStage
from scheduler.core.queue.backfill import Backfill
from scheduler.core.queue.cycle import SchedulingCycle
from scheduler.core.queue.policies import queue_policy
from scheduler.core.queue.verdict import QueueVerdict, WaitReason
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.crash_loop import avoided_text, resting_text
from scheduler.core.rules.eligibility import deferral, deferral_text
from scheduler.core.rules.network.gang_step import present_step
from scheduler.core.rules.network.slow_gangs import slow_gang
from scheduler.core.tenancy.guarantees import highest
from scheduler.core.tenancy.quota import outer_domains
from scheduler.core.wording import duration, ending, hosts_text, jobs_text, step_text

DOING = ("preempting", "shrinking")
UNDECIDED = "would fit, but no placement was found within the limits of the search"


def explain(state: State, name: str, now_ns: int, options: SchedulingOptions) -> Reason:
    """Return why the job waits. Raises: KeyError when no such job is at hand."""
    return Reasons(state, now_ns, options).of(name)


class Reasons:
    """The reasons of one version at one moment, each computed when it is first read.

    The stages are those of a decision, except that hosts are counted and not placed.
    The queue is walked once, and only as far as the jobs that are read. Cost: about 15 us
    for each job of the queue, and 1 ms for each reason. Not for several threads at once.
    """

    def __init__(self, state: State, now_ns: int, options: SchedulingOptions) -> None:
        self._state, self._now_ns, self._options = state, now_ns, options
        aim = make_placer(state, options, now_ns=now_ns)
        cycle = SchedulingCycle(state, now_ns, options, state.free, _counted, aim)
        self._explainer = _Explainer(state, now_ns, options, cycle.backfill)
        self._walk = cycle.verdicts()
        self._turns: dict[str, _Turn] = {}
        self._reasons: dict[str, Reason] = {}

    def of(self, name: str) -> Reason:
        """Return why the job of this name waits. Raises: KeyError when no such job is at hand."""
        if name not in self._reasons:
            self._reasons[name] = self._reason(name)
        return self._reasons[name]

    def sentence(self, name: str, most: int) -> str:
        """Say why a waiting job waits; of one behind the first `most` of the queue only that it is,
        so that no queue is too long for lists. Raises: KeyError as `of`."""
        is_in_queue = self._state.jobs[name].gang is None and name not in self._state.index.deferred
        if is_in_queue and not self._is_reached(name, most):
            return f"stands behind the first {most:,} of the queue"
        return self.of(name).sentence

    def _reason(self, name: str) -> Reason:
        job = self._state.find(name)
        if job is None:
            raise KeyError(name)
        if job.state is not JobState.QUEUED:
            smaller = is_smaller(job) and job.state is JobState.RUNNING
            size = f" {size_text(job, self._options)}" if smaller else ""
            size += step_text(present_step(self._state, job))
            slow = slow_gang(self._state, job) if job.state is JobState.RUNNING else None
            size += f"; {slow.text}" if slow and slow.slower > 0 else ""
            cost = self._storage_cost(job) if job.state is JobState.RUNNING else None
            size += f"; {cost.text}" if cost and cost.text else ""
            watts = job.gpu_watts if job.state is JobState.RUNNING else 0
            size += f"; each of its GPUs is held to {watts} W" if watts else ""
            terms, fabric = self._state.tenants.restarts, self._state.loaded_fabric
            size += resting_text(fabric, job, terms, self._now_ns)
            return Reason(name, WaitReason.NOT_WAITING, f"{name} is {job.state}{size}")
        if name in self._state.index.deferred:
            return self._deferred(job)
        self._is_reached(name)
        return self._explainer.reason(self._turns[name])

    def _is_reached(self, name: str, most: float = inf) -> bool:
        """Walk the queue up to a job, past at most so many; return whether it was among them."""
        while name not in self._turns and len(self._turns) < most:
            turn = self._explainer.next_turn(next(self._walk))
            self._turns[turn.verdict.job.name] = turn
        return name in self._turns

    def _storage_cost(self, job: Job) -> StorageCost | None:
        """Return what storage costs a running gang; None where the fabric file states none."""
        if not self._state.loaded_fabric.stores:
            return None
        others = [use for name, use in self._storage_uses.items() if name != job.name]
        return storage_cost(self._storage_uses[job.name], others)

    @cached_property
    def _storage_uses(self) -> dict[str, StorageUse]:
        """Reads and writes of each gang that holds hosts, by name."""
        state = self._state
        uses = {}
        for job in state.holding:
            terms, usual = (job.spec.dataset, job.spec.checkpoint), state.tenants.preemption.costs
            use = storage_use(state.loaded_fabric, job.request, *terms, usual)
            use = use.on(state.loaded_fabric, job.hosts)
            step = present_step(state, job)
            uses[job.name] = use.at_step(step.seconds) if step and step.seconds else use
        return uses

    def _deferred(self, job: Job) -> Reason:
        """The reason of a job that is not considered yet."""
        cause = deferral(job, self._now_ns)
        free = self._state.free.bit_count()
        if not cause:
            text = "is considered with the next decision"
            return Reason(job.name, WaitReason.DUE, text, job.needed, free)
        waits_for = tuple(each.job for each in job.dependencies if each.outcome is None)
        text = deferral_text(job, self._now_ns)
        return Reason(job.name, WaitReason(cause), text, job.needed, free, waits_for=waits_for)


def _counted(job: Job, free: HostSet, most: int) -> Placement:
    """Any hosts, as many as the job needs."""
    return Placement(tuple(hostset.members(highest(free, job.needed))))


@struct(frozen=True, slots=True)
class _Turn:
    """A job's turn in the queue. `ahead`: jobs before it; `due`: those that start now;
    `blocker`: the first that waits for more than its own limit."""

    verdict: QueueVerdict
    ahead: int
    due: int
    blocker: Job | None


class _Explainer:
    """Puts verdicts into words."""

    def __init__(
        self, state: State, now_ns: int, options: SchedulingOptions, backfill: Backfill
    ) -> None:
        self._state, self._now_ns, self._options = state, now_ns, options
        self._backfill = backfill
        policy = queue_policy(options.policy)
        context = policy.context(state, now_ns, options, state.free)
        self._quotas, self._outlook = context.quotas, context.outlook
        self._obstacles = Obstacles(state, now_ns, options, self._quotas, self._outlook)
        self._preempting = PreemptionStage(
            state,
            now_ns,
            options,
            self._quotas,
            self._outlook,
            context.affinity,
            make_placer(state, options, now_ns=now_ns),
            may_preempt=policy.may_preempt,
            is_by_priority=False,
        )
        self._free = state.free.bit_count()
        self._ahead = self._due = 0
        self._blocker: Job | None = None

    def next_turn(self, verdict: QueueVerdict) -> _Turn:
        """The next job of the queue, and how many jobs before it wait or are due."""
        turn = _Turn(verdict, self._ahead, self._due, self._blocker)
        self._ahead += 1
        self._due += verdict.placement is not None
        if verdict.reason not in (None, WaitReason.LIMIT) and self._blocker is None:
            self._blocker = verdict.job
        return turn

    def reason(self, turn: _Turn) -> Reason:
        """One sentence, and what stands in the way."""
        reason = self._plain(turn)
        if turn.verdict.placement is not None:
            evicted, shrinks = parted(turn.verdict.evicted)
            return replace(reason, preempts=evicted, shrinks=_sizes(shrinks))
        return self._with_others(reason, turn.verdict.job)

    def _with_others(self, reason: Reason, job: Job) -> Reason:
        """`reason`, and the gangs that the job may evict once their minimum run time is over."""
        end_ns = self._now_ns + time_limit_ns(job, self._options)
        choice = self._preempting.find_future_victims(job, self._state.free, end_ns)
        when_ns = max((v.ripe_ns for v in choice.victims), default=0) if choice else 0
        if choice is None or when_ns <= self._now_ns:
            return reason
        evicted, shrinks = parted(choice.victims)
        wait = duration(-(-(when_ns - self._now_ns) // SECOND_NS))
        sentence = f"{reason.sentence}; or by {yielding(DOING, evicted, shrinks)} in {wait}"
        sizes = _sizes(shrinks)
        return replace(
            reason, sentence=sentence, preempts=evicted, shrinks=sizes, preempt_ns=when_ns
        )

    def _plain(self, turn: _Turn) -> Reason:
        """Without gangs that may be evicted."""
        verdict, job = turn.verdict, turn.verdict.job
        if verdict.placement is not None:
            room = hosts_text(verdict.free)
            sentence = f"fits on {job.needed:,} of {room} free; starts with the next decision"
            if job.part_gpus:
                are = "is" if job.part_gpus == 1 else "are"
                sentence = f"{needs_text(job)} {are} free; starts with the next decision"
            if verdict.evicted:
                evictions = yielding(DOING, *parted(verdict.evicted))
                sentence = f"starts with the next decision, by {evictions}"
            return self._base(turn, WaitReason.DUE, sentence)
        if verdict.reason is WaitReason.LIMIT:
            return self._limited(turn)
        if job.needed > self._free:
            return self._short(turn)
        if verdict.reason is WaitReason.HOSTS:
            ahead, room = jobs_text(turn.due), hosts_text(verdict.free)
            sentence = (
                f"would fit, but the next decision starts {ahead} ahead of it and leaves {room}"
            )
            return self._base(turn, WaitReason.BEHIND, sentence)
        if verdict.reason is WaitReason.PROMISES:
            return self._promised(turn)
        if verdict.reason is WaitReason.AVOIDS:
            room = f"needs {needs_text(job)}; {verdict.free:,} are free"
            terms = self._state.tenants.restarts
            avoids = avoided_text(self._state.loaded_fabric, job, terms, self._now_ns)
            return self._base(turn, WaitReason.AVOIDS, f"{room}, {avoids}")
        if verdict.reason is WaitReason.WINDOW:
            return self._closed_by_windows(turn)
        if verdict.reason is WaitReason.CONSTRAINTS:
            return self._constrained(turn)
        return self._behind(turn)

    def _base(
        self, turn: _Turn, cause: WaitReason, sentence: str, obstacles: tuple[Obstacle, ...] = ()
    ) -> Reason:
        """Build a reason with its counts. A job that only waits its turn misses no hosts."""
        verdict, job = turn.verdict, turn.verdict.job
        room = min(verdict.free, verdict.allowed.pool, max(0, verdict.allowed.limit))
        missing = max(0, job.needed - room)
        return Reason(
            job.name,
            cause,
            sentence,
            job.needed,
            self._free,
            missing=missing,
            rooms=self._obstacles.rooms(verdict.allowed) if missing else (),
            obstacles=obstacles,
        )

    def _limited(self, turn: _Turn) -> Reason:
        job, allowed = turn.verdict.job, turn.verdict.allowed
        book, kind = self._quotas.book, ""
        holds, limit = book.held[allowed.whose], book.limit(allowed.whose)
        if allowed.kind:
            of_kind = self._quotas.kind_limit(allowed.whose, allowed.kind)
            holds, limit = self._quotas.count_held(allowed.whose, of_kind.hosts), of_kind.limit
            kind = f" on hosts of {allowed.kind}"
        reservation = self._outlook.limit_reservation(job, replace(allowed, limit=limit - holds))
        running = self._obstacles.running(reservation, tenant=allowed.whose)
        why = f"; tenant {allowed.whose} holds {holds:,} of its limit of {limit:,}{kind}"
        why += self._when(job, reservation, running)
        obstacles = (self._obstacles.limit(allowed.whose), *running)
        return self._until(turn, WaitReason.LIMIT, why, reservation, running, obstacles)

    def _promised(self, turn: _Turn) -> Reason:
        job, pool, beyond = turn.verdict.job, turn.verdict.allowed.pool, "guaranteed to others"
        if kind := turn.verdict.allowed.beyond:
            beyond = f"beyond its limit on hosts of {kind}, or {beyond}"
        reservation = self._own_reservation(job)
        running = self._obstacles.running(reservation)
        why = (
            f"; {turn.verdict.free:,} are free, of which tenant {job.tenant} can have {pool:,}:"
            f" the rest is {beyond}{self._when(job, reservation, running)}"
        )
        obstacles = (*self._obstacles.guarantees(job), *running)
        return self._until(turn, WaitReason.PROMISES, why, reservation, running, obstacles)

    def _constrained(self, turn: _Turn) -> Reason:
        job = turn.verdict.job
        reservation = self._own_reservation(job)
        running = self._obstacles.running(reservation, hosts_for=job)
        affinity = AffinityIndex(self._state)
        why = affinity.room_text(job, self._state.free)
        why += f"; {text}" if (text := affinity.reads_text(job)) else ""
        when = self._when(job, reservation, running)
        why += when or "; the ends of running jobs do not free enough hosts"
        return self._until(turn, WaitReason.CONSTRAINTS, why, reservation, running, running)

    def _closed_by_windows(self, turn: _Turn) -> Reason:
        """Enough hosts are free, and windows close too many of them."""
        job, free = turn.verdict.job, turn.verdict.free
        windows = self._obstacles.windows(job)
        reservation = self._own_reservation(job)
        running = self._obstacles.running(reservation, hosts_for=job)
        calendar, now_ns = self._outlook.calendar, self._now_ns
        lasts_ns = time_limit_ns(job, self._options)
        reach = self._quotas.allowance(job, self._state.free).reach
        passes_s = fits_s(calendar, job, reach, now_ns, lasts_ns)
        why = f"; {free:,} are free, {closed_text(self._state, job, windows, now_ns, lasts_ns)}"
        why += self._when(job, reservation, running, windows)
        why += f"; with a time limit of {duration(passes_s)} it would start now" if passes_s else ""
        obstacles = (*windows, *running)
        reason = self._until(turn, WaitReason.WINDOW, why, reservation, running, obstacles)
        return replace(reason, passes_s=passes_s)

    def _short(self, turn: _Turn) -> Reason:
        job, free = turn.verdict.job, self._free
        reservation = self._own_reservation(job)
        running = self._obstacles.running(reservation, hosts_for=job)
        windows = self._obstacles.windows(job)
        why = wish_text(self._state.loaded_fabric, job.request.where)
        if job.part_gpus:
            why += "; no host has as many free"
        else:
            why += f"; {free:,} {'is' if free == 1 else 'are'} free"
        obstacles = (*running, *windows, *self._obstacles.out_of_service())
        if reservation is None:
            why += f"; {self._hopeless()}"
            obstacles += self._obstacles.guarantees(job)
        else:
            why += self._when(job, reservation, running, windows)
        why += f"; {jobs_text(turn.ahead)} ahead of it" if turn.ahead else ""
        if turn.blocker is not None:
            obstacles += (self._obstacles.job_ahead(turn.blocker),)
        reason = self._until(turn, WaitReason.HOSTS, why, reservation, running, obstacles)
        if reservation is None or turn.blocker is not None or not self._backfill.reserves_places:
            return reason
        places = domains_of(self._state.loaded_fabric, reservation.hosts)
        return replace(reason, reserved_in=places)

    def _until(
        self,
        turn: _Turn,
        cause: WaitReason,
        why: str,
        reservation: BackfillReservation | None,
        running: tuple[Obstacle, ...],
        obstacles: tuple[Obstacle, ...],
    ) -> Reason:
        """Build a reason with the earliest start, and the `running` gangs whose ends make it.
        `why`: what follows after what the job needs."""
        sentence = f"needs {needs_text(turn.verdict.job)}{why}"
        base = self._base(turn, cause, sentence, obstacles)
        if reservation is None:
            return base
        waits_for = tuple(obstacle.name for obstacle in running)
        return replace(base, start_ns=reservation.start_ns, waits_for=waits_for)

    def _when(
        self,
        job: Job,
        reservation: BackfillReservation | None,
        running: tuple[Obstacle, ...],
        windows: tuple[Obstacle, ...] = (),
    ) -> str:
        """`; a, window w end in 2 h 00 min by stated limits`."""
        if reservation is None:
            return ""
        wait_s = max(0, reservation.start_ns - self._now_ns) // SECOND_NS
        names = tuple(obstacle.name for obstacle in running)
        passed = [
            w for w in windows if w.clear_ns is not None and w.clear_ns <= reservation.start_ns
        ]
        known = self._quotas.path(job.tenant)
        titles = (self._state.windows[w.name].window.named(known) for w in passed)
        everybody = (*names, *titles)
        late = [o.name for o in running if o.basis is Basis.OUTRUN]
        exceeded = f", which {', '.join(late)} exceeded" if late else ""
        owners = f" {self._whose_limits(names)}" if names else ""
        if count := reservation.repairs:
            repaired = f"{hosts_text(count)} should be repaired by then"
            repaired += f", and {ending(everybody)}{owners}{exceeded}" if everybody else ""
            return f"; it can start in {duration(wait_s)}: {repaired}"
        return f"; {ending(everybody)} in {duration(wait_s)}{owners}{exceeded}"

    def _own_reservation(self, job: Job) -> BackfillReservation | None:
        """As if the job were the first that waits."""
        return self._outlook.reservation(job, self._state.free)

    def _hopeless(self) -> str:
        out = self._state.index.unhealthy.bit_count()
        fabric = self._state.loaded_fabric
        if fabric.barred:
            return f"no gang may cross {barred_links(fabric)}"
        if not out:
            return "the rest is guaranteed to others"
        awaited = sum(host.awaits_agent for host in self._state.hosts.values())
        agents = f", {awaited:,} of them awaiting agents" if awaited else ""
        return f"it needs hosts that are out of service ({hosts_text(out)}{agents})"

    def _whose_limits(self, names: tuple[str, ...]) -> str:
        if all(self._state.jobs[name].spec.time_limit_s is not None for name in names):
            return "by stated limits"
        assumed = duration(self._options.assumed_limit_s)
        return f"by assumed limits ({assumed} where none is stated)"

    def _behind(self, turn: _Turn) -> Reason:
        first, behind = turn.blocker, turn.verdict.behind
        if behind is not None:
            first = self._state.jobs[behind.name]
        if first is None:
            return self._base(turn, WaitReason.SEARCH, UNDECIDED)
        passes_s = self._passes_s(turn.verdict)
        hint = f"; with a time limit of {duration(passes_s)} it would not" if passes_s else ""
        who = f"{first.name} ({hosts_text(first.needed)})"
        sentence = f"would fit, but {who} is ahead of it; {self._backfill.behind_text}{hint}"
        obstacle = self._obstacles.job_ahead(first, behind)
        base = self._base(turn, WaitReason.BEHIND, sentence, (obstacle,))
        return replace(base, waits_for=(first.name,), passes_s=passes_s)

    def _passes_s(self, verdict: QueueVerdict) -> int | None:
        """The longest time limit with which the job would delay nobody; None: there is none."""
        if verdict.passes_ns is None:
            return None
        return max(0, verdict.passes_ns - self._now_ns) // SECOND_NS or None


def _sizes(shrinks: tuple[Resize, ...]) -> tuple[Shrink, ...]:
    return tuple(Shrink(action.name, action.dp) for action in shrinks)


def needs_text(job: Job) -> str:
    """Say how many hosts the job needs to start, and at which size an elastic job then starts."""
    size = f" {dp_text(job)}" if len(job.sizes) > 1 else ""
    if job.part_gpus:
        return f"{job.part_gpus} GPU{'' if job.part_gpus == 1 else 's'} of one host"
    return f"{hosts_text(job.needed)}{size}"


def domains_of(fabric: Fabric, hosts: HostSet) -> tuple[str, ...]:
    """Return the outermost domains with a host of `hosts`, in the order of the fabric."""
    return tuple(name for name, mask in outer_domains(fabric) if mask & hosts)


def closed_text(
    state: State, job: Job, windows: tuple[Obstacle, ...], now_ns: int, lasts_ns: int
) -> str:
    """Say which hosts windows close: `4 in window w (firmware), which opens in 1 h 00 min, before
    ...`."""
    suspect = (state.free & state.index.probation).bit_count()
    if not windows:
        return f"{suspect:,} of them suspect and for preemptible jobs only"
    window = state.windows[windows[0].name].window
    known = state.tenants.path(job.tenant)
    more = f" and {len(windows) - 1:,} more" if len(windows) > 1 else ""
    subject = f"{windows[0].hosts:,} in {window.titled(known)}{more}, which"
    wait_s = (window.start_ns - now_ns) // SECOND_NS
    if wait_s > 0:
        lasts = duration(lasts_ns // SECOND_NS)
        origin = "states" if job.spec.time_limit_s is not None else "is assumed to need"
        return (
            f"{subject} opens in {duration(wait_s)}, before the {lasts} are over that it {origin}"
        )
    if window.kind is WindowKind.MAINTENANCE:
        return f"{subject} is open"
    return f"{subject} holds them for {_beneficiaries_text(window, known)}"


def _beneficiaries_text(window: Window, known: Collection[str]) -> str:
    """`tenant vision`, `jobs demo-*, eval`; what is of other tenants than these is not named."""
    named = [name for name in window.jobs if not (of := stated_tenant(name)) or of in known]
    jobs = f"job{'' if len(named) == 1 else 's'} {', '.join(named)}"
    whom = [f"tenant {window.tenant}"] * (window.tenant in known) + [jobs] * bool(named)
    return " and ".join(whom) or "others"


def fits_s(calendar: Calendar, job: Job, reach: HostSet, now_ns: int, lasts_ns: int) -> int | None:
    """Return the longest time limit, in seconds, with which windows leave `job` enough of `reach`
    now; None when no limit shorter than `lasts_ns` does."""
    starts = {b.window.start_ns for b in calendar.closing(job, now_ns, now_ns + lasts_ns)}
    for start_ns in sorted(starts, reverse=True):
        open_to = reach & ~calendar.closed(job, now_ns, start_ns)
        if start_ns - now_ns >= SECOND_NS and open_to.bit_count() >= job.needed:
            return (start_ns - now_ns) // SECOND_NS
    return None
