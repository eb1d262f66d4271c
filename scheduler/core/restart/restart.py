"""Gangs that a failure stopped, or that are to leave hosts: which way each goes on.

Hosts are left because they drain, or because a window that opened says so. The ways and
what they cost are in `restart_options`; a gang that fails again and again is for
rules/crash_loop.py.
"""

from __future__ import annotations

from placement import choose_swaps
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import RUNS, HostState, JobState, RequeueCause
from scheduler.core.model.plan import Action, GiveUp, Move, Requeue, Resize, Swap, taken
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.preemption.reclaim import Reclaimer
from scheduler.core.queue.policies import queue_policy
from scheduler.core.restart.recall import Recalls
from scheduler.core.restart.search import Loss, RestartSearch
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.crash_loop import avoided, give_up_reason, is_soon, retry_ns
from scheduler.core.rules.hosts.evaluation import has_just_saved

FEW = 8  # hosts that are looked for one by one


def restarts(state: State, now_ns: int, options: SchedulingOptions) -> tuple[Action, ...]:
    """Plan how gangs go on that stopped, or have hosts to leave, most important first."""
    hit = state.index.unhealthy & state.index.held
    if not hit and not state.index.interrupted and not state.windows and not state.links:
        return ()
    calendar = Calendar(state)
    if not hit and not state.index.interrupted and not calendar.hosts_to_clear() & state.index.held:
        return ()
    moved = [
        job
        for job in state.in_state(JobState.INTERRUPTED, JobState.RUNNING)
        if job.state is JobState.INTERRUPTED or job.allocation & (hit | calendar.leaving(job)[0])
    ]
    if not moved:
        return ()
    return tuple(_RestartPlanner(state, now_ns, options, calendar, moved).actions())


def search_restart(
    state: State, job: Job, now_ns: int, options: SchedulingOptions, held_back: HostSet = 0
) -> RestartSearch:
    """Search for the restart options of a gang that has lost hosts, without the hosts
    `held_back`."""
    return _RestartPlanner(state, now_ns, options, Calendar(state), [job]).search(job, held_back)


class _RestartPlanner:
    """Gangs pass here one after the other; what one takes the next does not find."""

    def __init__(
        self,
        state: State,
        now_ns: int,
        options: SchedulingOptions,
        calendar: Calendar,
        moved: list[Job],
    ) -> None:
        self._state, self._now_ns, self._options = state, now_ns, options
        self._calendar, self._moved = calendar, sorted(moved, key=lambda j: j.order)
        self._free, self._affinity, self._pools = (
            state.free,
            AffinityIndex(state),
            SparePools(state),
        )
        names = frozenset(job.name for job in moved)
        may_preempt = queue_policy(options.policy).may_preempt
        self._reclaimer = Reclaimer(state, now_ns, options, names, may_preempt)
        self._borrowed = self._left = 0
        self._acted, self._recalled = set[str](), set[str]()  # gangs

    def actions(self) -> list[Action]:
        restarts = []
        for job in self._moved:
            if job.name in self._recalled:
                continue  # it was on spares that another gang has back
            action = self._plan_gang(job)
            if action is None or (self._left and _makes_others_leave(action)):
                continue  # its turn comes again at once, and with what others have left
            restarts.append(action)
            if isinstance(action, Requeue | GiveUp):
                self._left |= job.allocation & ~self._state.index.out_of_service
            self._acted.add(job.name)
            if isinstance(action, Swap | Resize):
                self._take(job, action)
        return restarts

    def _take(self, job: Job, action: Swap | Resize) -> None:
        joined = taken(action)
        if isinstance(action, Swap) and (action.victims or action.shrinks):
            self._free |= self._reclaimer.evict_for_swap(action)
        self._free &= ~joined
        self._borrowed |= joined
        if isinstance(action, Swap):
            self._recalled |= {recall.name for recall in action.recalls}
        self._affinity.record_allocation(job, job.allocation | joined)

    def _plan_gang(self, job: Job) -> Action | None:
        """Choose the action for one gang; None: it runs on, or stands still for a while."""
        state, terms, now_ns = self._state, self._state.tenants.restarts, self._now_ns
        is_stopped = job.state is JobState.INTERRUPTED
        if is_stopped and (why := give_up_reason(job, terms)):
            return GiveUp(job.name, why)
        leaving, must = self._calendar.leaving(job)
        has_to_go = bool(job.allocation & must)
        if is_stopped and retry_ns(job, terms) > now_ns:
            text, cause = self._calendar.leave_text(job), RequeueCause.MAINTENANCE
            return Requeue(job.name, text, cause) if has_to_go else None
        if job.part_gpus:
            return self._of_part(job)
        end_ns = now_ns + time_limit_ns(job, self._options)
        avoid = avoided(job, terms, now_ns) if is_stopped else 0
        away = {*_broken(state, job), *_blocks_in(job, must | avoid)}
        if is_stopped:
            leaving |= state.index.closed  # it stands still: a good moment to go
            leaving |= 0 if job.is_preemptible else state.index.probation
        if has_just_saved(state, job, now_ns):
            leaving |= hostset.of(job.hosts[b] for b in _blocks_on(state, job, HostState.RETIRING))
        rest = {*_blocks_on(state, job, HostState.DRAINING), *_blocks_in(job, leaving)}
        barred = self._barred(job, end_ns)
        loss = self._loss(job, tuple(sorted(away)), barred)
        if rest - away and (action := self._evacuate(job, sorted(away | rest), loss, end_ns)):
            return action
        if away:
            search = self._search(job, loss)
            way = search.best()
            is_back = (
                isinstance(way, Requeue)
                and not hostset.of(job.hosts[block] for block in away) & state.index.out_of_service
            )
            return None if is_back and not has_to_go and is_soon(job, terms, now_ns) else way
        if is_stopped:  # its hosts were repaired, long enough ago
            return Swap(job.name, (), job.present.cuts, end_ns=end_ns)
        return None

    def _of_part(self, job: Job) -> Action | None:
        """A job on a part of a host waits again and starts elsewhere, beside others if it can;
        it goes on where it was when its host is well."""
        state, now_ns = self._state, self._now_ns
        is_stopped = job.state is JobState.INTERRUPTED
        leaving, must = self._calendar.leaving(job)
        avoid = avoided(job, state.tenants.restarts, now_ns) if is_stopped else 0
        if _broken(state, job) or _blocks_in(job, avoid):
            return Requeue(job.name, job.reason, RequeueCause.FAILURE)
        if is_stopped:
            leaving |= state.index.out_of_service
        draining = bool(_blocks_on(state, job, HostState.DRAINING)) and bool(self._free)
        if draining or job.allocation & (must | (leaving if self._free else 0)):
            return Requeue(job.name, self._calendar.leave_text(job), RequeueCause.MAINTENANCE)
        if is_stopped:
            return Swap(
                job.name, (), job.present.cuts, end_ns=now_ns + time_limit_ns(job, self._options)
            )
        return None

    def _barred(self, job: Job, end_ns: int) -> HostSet:
        """Hosts that the gang may not use until then."""
        barred = self._calendar.closed(job, self._now_ns, end_ns)
        barred |= self._affinity.closed(job.name, job.spec.affinity)
        barred |= self._free & ~self._affinity.powered(job, self._free)
        return barred | avoided(job, self._state.tenants.restarts, self._now_ns)

    def search(self, job: Job, held_back: HostSet) -> RestartSearch:
        end_ns = self._now_ns + time_limit_ns(job, self._options)
        barred = self._barred(job, end_ns) | held_back
        return self._search(job, self._loss(job, tuple(_broken(self._state, job)), barred))

    def _search(self, job: Job, loss: Loss) -> RestartSearch:
        state, now_ns, options = self._state, self._now_ns, self._options
        busy = frozenset(self._acted | self._recalled)
        recalls = Recalls(state, now_ns, options, busy, self._borrowed)
        return RestartSearch(
            state, job, loss, self._reclaimer, self._pools, options, now_ns, recalls
        )

    def _loss(self, job: Job, blocks: tuple[int, ...], barred: HostSet) -> Loss:
        state = self._state
        own = hostset.of(self._pools.loans.idle(job)) & ~(
            state.index.out_of_service | barred | self._borrowed
        )
        lendable = (
            {
                host: name
                for host, name in self._pools.lent_to(job).items()
                if not hostset.has(barred | self._borrowed, host)
            }
            if blocks
            else {}
        )
        why = job.reason
        if job.state is JobState.RUNNING:
            why = self._calendar.leave_text(job)
        return Loss(blocks, own, self._free & ~barred, barred, lendable, why)

    def _evacuate(self, job: Job, blocks: list[int], loss: Loss, end_ns: int) -> Swap | None:
        """Everything that can be left is left at once, if there are hosts for all of it."""
        fabric = self._state.loaded_fabric
        swaps = choose_swaps(fabric, job.request, job.hosts, blocks, loss.own, loss.free)
        if swaps is None:
            return None
        moves = tuple(Move(b, job.hosts[b], joined) for b, joined in swaps.joined)
        return Swap(job.name, moves, swaps.cuts, end_ns=end_ns)


def _makes_others_leave(action: Action) -> bool:
    return isinstance(action, Swap) and bool(action.victims or action.shrinks or action.recalls)


def _broken(state: State, job: Job) -> list[int]:
    """Blocks of the gang whose host runs nothing."""
    broken = (i for i, host in state.hosts.items() if host.state not in RUNS)
    return _blocks_in(job, hostset.of(broken))


def _blocks_on(state: State, job: Job, host_state: HostState) -> list[int]:
    """Blocks of the gang whose host is in this state, which is not HEALTHY."""
    there = (i for i, host in state.hosts.items() if host.state is host_state)
    return _blocks_in(job, hostset.of(there))


def _blocks_in(job: Job, hosts: HostSet) -> list[int]:
    """Blocks of the gang on these hosts."""
    blocks = hostset.of(job.hosts) & hosts if hosts else 0
    if not blocks:
        return []
    if blocks.bit_count() < FEW:
        return sorted(job.hosts.index(host) for host in hostset.members(blocks))
    return [b for b, host in enumerate(job.hosts) if hostset.has(blocks, host)]
