"""The ways back to work of one gang that lost hosts: each weighed, the cheapest taken.

All hosts that it lost until now are one question. Hosts in the zones of those lost leave the
cut as it is, so nothing is cheaper and nothing else is looked at. Otherwise every option is
weighed in GPU-seconds; what cannot be had says why. Ranks on hosts that have not failed stay,
except where placing the gang again near where it was is the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from operator import or_

from muster.structs import replace, struct
from placement import Hint, Swaps, choose_swaps, measure, placed_near, shifted
from placement.fabric import hostset
from placement.fabric.constraints import ANYWHERE, gpus_wanted, joinable
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.objective.step_time import step_bound
from placement.workload.request import Limits as PlaceLimits
from placement.workload.request import Objective, TierCut
from placement.workload.segments import may_take, misplaced, usable_for
from scheduler.core.capacity.eviction import parted, yielding
from scheduler.core.capacity.shrink import resize, without_hosts
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.capacity.victims import unneeded_to_swap
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import JobState, RequeueCause
from scheduler.core.model.plan import Move, Requeue, Resize, Swap
from scheduler.core.model.restart_option import RestartOption, WeighedOption, WeighedOptions
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.preemption.reclaim import Reclaimer
from scheduler.core.restart.prices import RestartPrices
from scheduler.core.restart.recall import Recalls
from scheduler.core.restart.relief import MOST_RISE, relieved
from scheduler.core.rules.network.neighbours import (
    Neighbour,
    better_beside,
    find_neighbours,
    loads,
    subtract_loads,
)
from scheduler.core.wording import hosts_text, listed

REPLACED_TREES = 2_000  # slicing trees tried when a gang is placed again
WORTH_MOVING = 0.25  # of what every way costs: so much a larger cut costs at least
MOST_WIDENED = 8  # lost at once: beyond that a gang goes on first, and has room made later
MOST_REPLACED = 0.5  # of its hosts: a gang that lost more is not placed near where it was

Way = Swap | Resize | Requeue


@struct(frozen=True, slots=True)
class Loss:
    """Hosts that a gang has lost, and hosts that may replace them.

    `blocks`: blocks that leave their hosts. `own`, `free`: spares of its own and free hosts that it
    may use; `barred`: hosts that it may not. `lendable`: spares of others, and whose. `why`: what
    happened, for the case that it has to wait.
    """

    blocks: tuple[int, ...]
    own: HostSet
    free: HostSet
    barred: HostSet
    lendable: dict[int, str]
    why: str


@struct(frozen=True)
class RestartSearch:
    """Search for the cheapest way in which one gang goes on."""

    state: State
    job: Job
    loss: Loss
    reclaimer: Reclaimer
    pools: SparePools
    options: SchedulingOptions
    now_ns: int
    recalls: Recalls

    @cached_property
    def prices(self) -> RestartPrices:
        days = self.pools.sizing.repair_days
        terms = (self.now_ns, self.options, days, self.crowded)
        return RestartPrices(self.state, self.job, *terms)

    @cached_property
    def _neighbours(self) -> list[Neighbour]:
        return find_neighbours(self.state, self.job, self.options)

    @cached_property
    def crowded(self) -> Fabric:
        """Fabric with the uplink bandwidth that other gangs leave, by which steps are compared."""
        fabric = self.state.loaded_fabric
        return subtract_loads(fabric, loads(fabric, self._neighbours))

    @cached_property
    def end_ns(self) -> int:
        return self.now_ns + time_limit_ns(self.job, self.options)

    def best(self) -> Way:
        """The cheapest way, with the record of what was weighed."""
        weighed: list[tuple[WeighedOption, Way | None]] = []
        for step, way in self._rungs():
            weighed.append((step, way))
            if way is not None and self._is_settled(step):
                break  # what is lent was lent on that condition; else no option can cost less
        best, restart_options = self._marked(weighed)
        return self._wider(self._explainer(weighed[best][1], restart_options))

    def weighed(self) -> WeighedOptions:
        """Weigh every option, whatever the first ones cost, and mark the one that would be
        taken."""
        return self._marked(list(self._rungs()))[1]

    def _marked(
        self, weighed: Sequence[tuple[WeighedOption, Way | None]]
    ) -> tuple[int, WeighedOptions]:
        can = [i for i, (_, way) in enumerate(weighed) if way is not None]
        settled = [i for i in can if self._is_settled(weighed[i][0])]
        best = min(settled or can, key=lambda i: (0 if settled else weighed[i][0].gpu_s or 0, i))
        return best, tuple(replace(s, is_taken=i == best) for i, (s, _) in enumerate(weighed))

    def _is_settled(self, step: WeighedOption) -> bool:
        """Whether no later option is looked at."""
        return step.option is RestartOption.RECALL or (step.gpu_s or 0) <= self.prices.common_s

    def _wider(self, way: Way) -> Way:
        """Widen a swap by a zone with room for spares, where one has hardly any left."""
        if (
            not isinstance(way, Swap)
            or way.victims
            or way.lenders
            or self.job.present.stop_ns is None
        ):
            return way
        if len(self.loss.blocks) > MOST_WIDENED or way.recalls:
            return way
        hosts, idle = self._hosts_after_moves(way.moves), self.loss.own | self.loss.free
        relief = relieved(self.pools, self.job, hosts, idle)
        if relief is None:
            return way
        pairs = enumerate(zip(self.job.hosts, relief[0], strict=True))
        moves = tuple(Move(b, old, new) for b, (old, new) in pairs if old != new)
        step = self._step(RestartOption.REPLACE, moves, relief[1], note="makes room for spares")
        restart_options = (
            *(replace(s, is_taken=False) for s in way.restart_options),
            replace(step, is_taken=True),
        )
        return replace(way, moves=moves, cuts=relief[1], restart_options=restart_options)

    @staticmethod
    def _explainer(way: Way | None, restart_options: WeighedOptions) -> Way:
        assert way is not None  # waiting can always be had
        return replace(way, restart_options=restart_options)

    def _rungs(self) -> Iterator[tuple[WeighedOption, Way | None]]:
        """Each option with its step; None: it cannot be had."""
        plain = self._plain()
        is_home = plain is not None and self._is_home(plain)
        away: tuple[WeighedOption, Way] | None = None
        if plain is not None and is_home:
            yield self._swapped(RestartOption.ZONE, plain)
        else:
            yield WeighedOption(RestartOption.ZONE, note=self._short_text()), None
            yield self._lender()
            yield self._recalling()
            if plain is not None:
                away = self._swapped(RestartOption.AWAY, plain)
                yield away
            else:
                yield WeighedOption(RestartOption.AWAY, note=self._few_text()), None
        if not is_home:
            yield self._preempting()
        yield from self._shrinking()
        if self._is_worth(away[0] if away else None):
            yield from self._replacing(plain)
        yield self._waiting(plain is None)

    def _plain(self) -> Swaps | None:
        """Own and free hosts: those that cut the least, but in the zones of those lost where
        that cuts about as much."""
        swaps = self._swaps(self.loss.free)
        if swaps is None or self._is_home(swaps):
            return swaps
        fabric, hosts = self.state.loaded_fabric, self.job.hosts
        left = {fabric.zone_of(hosts[block]) for block in self.loss.blocks}
        near = self._swaps(self.loss.free, reduce(or_, map(self.pools.zones.__getitem__, left)))
        if near is None or not self._is_home(near):
            return swaps
        if self._is_by_time:
            return (
                near
                if not self._is_better(self._hosts_after_swaps(swaps), swaps.cuts, near)
                else swaps
            )
        saved = near.cuts[0].bytes_per_step - swaps.cuts[0].bytes_per_step
        return near if saved <= self._about else swaps

    @cached_property
    def _about(self) -> float:
        """Bytes over the outermost tier that are no reason to do otherwise."""
        return MOST_RISE * self.job.present.cuts[0].bytes_per_step if self.job.present.cuts else 0.0

    def _swaps(self, others: HostSet, among: HostSet = -1) -> Swaps | None:
        fabric, job, loss = self.state.loaded_fabric, self.job, self.loss
        own, free = loss.own & among, others & among
        swaps = choose_swaps(fabric, job.request, job.hosts, loss.blocks, own, free)
        if swaps is not None:
            return self._apart(swaps, own, free) if self._neighbours else swaps
        if job.request.where == ANYWHERE or not own:
            return None
        room = own | free  # its spares bind the gang to their domain, unless they stay behind
        if len(loss.blocks) == len(job.hosts):
            room = usable_for(fabric, job.request, room, len(job.hosts))
        return choose_swaps(fabric, job.request, job.hosts, loss.blocks, 0, room)

    def _apart(self, alone: Swaps, own: HostSet, free: HostSet) -> Swaps:
        """Return `alone`, or swaps that avoid others' traffic where that is better for all."""
        job, by_hosts = self.job, {tuple(self._hosts_after_swaps(alone)): alone}

        def solve(left: Fabric) -> tuple[int, ...] | None:
            swaps = choose_swaps(left, job.request, job.hosts, self.loss.blocks, own, free)
            if swaps is None:
                return None
            hosts = tuple(self._hosts_after_swaps(swaps))
            by_hosts[hosts] = swaps
            return hosts

        fabric, (hosts,) = self.state.loaded_fabric, by_hosts
        gang = Neighbour(job.request, hosts, step_bound(fabric, job.request, hosts))
        return by_hosts[better_beside(fabric, gang, self._neighbours, solve)]

    def _is_home(self, swaps: Swaps) -> bool:
        """Whether every host joins in the zone of the one lost, and nothing more is cut."""
        zone_of, hosts = self.state.loaded_fabric.zone_of, self.job.hosts
        stays = all(zone_of(hosts[block]) == zone_of(joined) for block, joined in swaps.joined)
        return stays and (self._is_by_time or self.prices.rise(swaps.cuts) <= 0)

    @property
    def _is_by_time(self) -> bool:
        return self.job.request.objective is Objective.TIME

    def _hosts_after_swaps(self, swaps: Swaps) -> list[int]:
        hosts = list(self.job.hosts)
        for block, joined in swaps.joined:
            hosts[block] = joined
        return hosts

    def _is_better(self, hosts: Sequence[int], cuts: tuple[TierCut, ...], plain: Swaps) -> bool:
        """Whether what the job is placed by is less on these hosts than after plain swaps."""
        fabric, request = self.crowded, self.job.request
        then = measure(fabric, request, self._hosts_after_swaps(plain), plain.cuts)
        return measure(fabric, request, hosts, cuts) < then

    def _swapped(
        self, option: RestartOption, swaps: Swaps, lenders: tuple[str, ...] = (), note: str = ""
    ) -> tuple[WeighedOption, Swap]:
        moves = tuple(Move(b, self.job.hosts[b], joined) for b, joined in swaps.joined)
        way = Swap(self.job.name, moves, swaps.cuts, end_ns=self.end_ns, lenders=lenders)
        return self._step(option, moves, swaps.cuts, note=note), way

    def _step(
        self,
        option: RestartOption,
        moves: Sequence[Move],
        cuts: tuple[TierCut, ...],
        more_s: int = 0,
        note: str = "",
    ) -> WeighedOption:
        rise = self.prices.rise(cuts)
        slower = (
            0.0
            if rise <= 0 and not self._is_by_time
            else self.prices.slower(self._hosts_after_moves(moves))
        )
        gpu_s = self.prices.common_s + self.prices.slow_s(slower) + more_s
        return WeighedOption(option, gpu_s, rise, slower, len(moves), note)

    def _hosts_after_moves(self, moves: Sequence[Move]) -> list[int]:
        hosts = list(self.job.hosts)
        for move in moves:
            hosts[move.block] = move.joined
        return hosts

    def _lender(self) -> tuple[WeighedOption, Way | None]:
        lendable = self.loss.lendable
        if not lendable:
            return WeighedOption(RestartOption.LENDER, note="no other job holds spares there"), None
        swaps = self._swaps(self.loss.free | hostset.of(lendable))
        if swaps is None or not self._is_home(swaps):
            return WeighedOption(
                RestartOption.LENDER, note="other jobs hold too few spares there"
            ), None
        names = [lendable[joined] for _, joined in swaps.joined if joined in lendable]
        lenders = tuple(dict.fromkeys(names))
        return self._swapped(RestartOption.LENDER, swaps, lenders, f"from {listed(lenders)}")

    def _recalling(self) -> tuple[WeighedOption, Way | None]:
        """The loss is the borrowers', and shown; the gang is served as if nothing was lent."""
        lent = self.pools.recallable(self.job) & ~self.loss.barred & ~self.recalls.taken
        if not lent:
            return WeighedOption(RestartOption.RECALL, note="no spare is lent there"), None

        def home(room: HostSet) -> Swaps | None:
            swaps = self._swaps(self.loss.free | hostset.of(self.loss.lendable) | room)
            return swaps if swaps is not None and self._is_home(swaps) else None

        recall = self.recalls.back(self.job, lent, home)
        if recall is None:
            return WeighedOption(RestartOption.RECALL, note="too few spares are lent there"), None
        holders = {**self.loss.lendable, **self.pools.loans.holders(lent)}
        names = (holders.get(joined, self.job.name) for _, joined in recall.swaps.joined)
        owners = tuple(dict.fromkeys(name for name in names if name != self.job.name))
        step, way = self._swapped(RestartOption.RECALL, recall.swaps, owners, recall.note)
        lost_s = recall.lost_ns * self._gpus_per_host // SECOND_NS
        step = replace(step, gpu_s=(step.gpu_s or 0) + lost_s)
        return step, replace(way, recalls=recall.recalls)

    @property
    def _gpus_per_host(self) -> int:
        return gpus_wanted(self.state.loaded_fabric, self.job.request.where)

    def _preempting(self) -> tuple[WeighedOption, Way | None]:
        loss, job = self.loss, self.job
        loan = self.reclaimer.back(job, loss.blocks, loss.own, loss.free, loss.barred)
        if loan is None:
            return WeighedOption(
                RestartOption.PREEMPT, note="no gang may be preempted for it"
            ), None
        moves = tuple(Move(b, job.hosts[b], joined) for b, joined in loan.swaps.joined)
        names, shrinks = parted(loan.victims)
        room = self.state.free | (hostset.of(job.spares) & ~self.state.index.unhealthy)
        is_counted = unneeded_to_swap(len(moves), loan.victims, room) is None
        lost_s = sum(v.cost_ns for v in loan.victims) * self._gpus_per_host // SECOND_NS
        note = yielding(("evicts", "shrinks"), names, shrinks)
        step = self._step(RestartOption.PREEMPT, moves, loan.swaps.cuts, lost_s, note)
        cuts, end_ns = loan.swaps.cuts, self.end_ns
        return step, Swap(job.name, moves, cuts, False, end_ns, names, shrinks, is_counted)

    def _shrinking(self) -> Iterator[tuple[WeighedOption, Way | None]]:
        """Only for elastic jobs."""
        job, loss = self.job, self.loss
        if not job.sizes:
            return
        lost = hostset.of(job.hosts[block] for block in loss.blocks)
        fit = job.allocation & ~(self.state.index.out_of_service | loss.barred | lost)
        fabric = self.state.loaded_fabric
        shrunk = without_hosts(fabric, job, lost, fit, loss.free, self.options.place)
        if shrunk is None:
            yield WeighedOption(RestartOption.SHRINK, note="it would fall below its minimum"), None
            return
        hosts = shrunk.placement.hosts
        gpu_s = self.prices.common_s + self.prices.shrunk_s(len(hosts))
        note = f"dp {shrunk.job.dp:,} of {job.dp:,}"
        longest_ns = self.now_ns + time_limit_ns(job.least, self.options)
        step = WeighedOption(RestartOption.SHRINK, gpu_s, note=note)
        yield step, resize(shrunk, job, self._waiting_text(), longest_ns)

    def _replacing(self, plain: Swaps | None) -> Iterator[tuple[WeighedOption, Way | None]]:
        """Blocks that have not lost their hosts may move, where that cuts less than a swap,
        or where a swap breaks what the job wants."""
        job, loss = self.job, self.loss
        if len(loss.blocks) > len(job.hosts) * MOST_REPLACED or not (loss.own | loss.free):
            return
        if plain is None and (loss.own | loss.free).bit_count() < len(loss.blocks):
            return
        hosts = self._near()
        if hosts is None:
            yield WeighedOption(RestartOption.REPLACE, note="no better placement exists"), None
            return
        cuts = cut(self.state.loaded_fabric, job.request, hosts)
        pairs = enumerate(zip(job.hosts, hosts, strict=True))
        moves = tuple(Move(b, old, new) for b, (old, new) in pairs if old != new)
        if plain is not None and not self._is_better(hosts, cuts, plain):
            note = "it would be no faster" if self._is_by_time else "it would cut no less"
            yield WeighedOption(RestartOption.REPLACE, note=note), None
            return
        step = self._step(RestartOption.REPLACE, moves, cuts)
        yield step, Swap(job.name, moves, cuts, end_ns=self.end_ns)

    def _is_worth(self, step: WeighedOption | None) -> bool:
        """Whether the larger cut of a swap costs enough that other blocks might move."""
        if step is None or step.gpu_s is None:
            return True
        return step.gpu_s > self.prices.common_s * (1 + WORTH_MOVING)

    def _near(self) -> tuple[int, ...] | None:
        """The gang on its hosts that are left, spares and free ones: with a few blocks at the
        borders of zones moved where that will do, else placed again."""
        job, loss, fabric = self.job, self.loss, self.state.loaded_fabric
        lost = {job.hosts[block] for block in loss.blocks}
        stays = hostset.of(host for host in job.hosts if host not in lost)
        room = stays | (
            (loss.own | loss.free) & ~self.pools.choose_spares_to_keep(job, loss.own | loss.free)
        )
        most = [(room & zone).bit_count() for zone in self.pools.zones]
        moved = shifted(fabric, job.request, job.hosts, room, most, self._about)
        if moved is not None and not misplaced(fabric, job.request, moved):
            return moved
        limits = PlaceLimits(0, min(self.options.place.trees, REPLACED_TREES))
        hint = Hint(tuple(-1 if host in lost else host for host in job.hosts))
        moved = placed_near(self.crowded, job.request, room, hint, limits)
        if moved is None or misplaced(fabric, job.request, moved):
            return None
        return moved

    def _waiting(self, is_short: bool) -> tuple[WeighedOption, Way]:
        gpu_s = self.prices.common_s + self.prices.waiting_s
        why = self._waiting_text() if is_short else self.loss.why
        is_stopped = self.job.state is JobState.INTERRUPTED
        cause = RequeueCause.FAILURE if is_stopped else RequeueCause.MAINTENANCE
        option = WeighedOption(RestartOption.WAIT, gpu_s, note="for room or a repair")
        return option, Requeue(self.job.name, why, cause)

    def _waiting_text(self) -> str:
        return f"{self.loss.why}; {self._few_text()}"

    def _few_text(self) -> str:
        blocks, job = self.loss.blocks, self.job
        stays = hostset.of(h for b, h in enumerate(job.hosts) if b not in blocks)
        may = self.loss.own | self.loss.free
        may &= joinable(self.state.loaded_fabric, job.request.where, stays | self.loss.own)
        if job.request.where.has_segments:
            gang = self.state.loaded_fabric, job.request, job.hosts
            may &= reduce(or_, (may_take(*gang, block, blocks, may) for block in blocks))
        lost = f"{len(blocks):,} {'failed' if job.present.stop_ns is not None else 'to leave'}"
        return f"no host to swap in ({lost}, {may.bit_count():,} to swap in)"

    def _short_text(self) -> str:
        count = len(self.loss.blocks)
        return f"too few spares and free hosts in the zone of {hosts_text(count)} lost"
