"""Defragmentation: the cheapest moves that free so many hosts in one outermost domain.

For each domain that could have the hosts free, the gangs to move out of it are the set
of least price that covers what is lacking: a covering knapsack. A gang moves by
swapping its blocks in the domain for free hosts outside, near where the rest of it is;
one whose step would be longer, or that would cut more than now on any tier, stays, and the next
best set is tried. A move stops the gang: its price is the work since the last checkpoint, and a
restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.structs import replace, struct
from placement import Hint, choose_swaps, measure, place
from placement.fabric import hostset
from placement.fabric.constraints import broken
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.workload.request import NO_SPARES, Objective, Placement, Request, TierCut
from placement.workload.segments import parted
from scheduler.core.capacity.victims import cost_ns
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Move, Plan, Swap
from scheduler.core.model.scheduling_options import SchedulingOptions, time_limit_ns
from scheduler.core.model.state import State
from scheduler.core.policies.costs import Costs
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.network.neighbours import find_neighbours, loads, subtract_loads
from scheduler.core.tenancy.quota import domain_masks
from scheduler.core.tenancy.quota_check import Quotas
from scheduler.core.wording import hosts_text

MOST_SETS = 20  # sets of gangs that are tried for one domain


@struct(frozen=True, slots=True)
class MoveCandidate:
    """A gang that runs in a domain. `blocks`: those on hosts of it. `lost_gpu_s`: the
    price of stopping it."""

    job: Job
    blocks: tuple[int, ...]
    lost_gpu_s: int


@struct(frozen=True, slots=True)
class Relocation:
    """One gang's move and its price. `before`: its cuts as it runs now. Of a gang that moves for
    shorter steps, what it saves until its expected end, and its steps now and then."""

    swap: Swap
    lost_gpu_s: int
    before: tuple[TierCut, ...]
    saved_gpu_s: int = 0
    step_s: float = 0.0
    then_s: float = 0.0


@struct(frozen=True, slots=True)
class DefragProposal:
    """Moves that leave `free_after` hosts free in `domain`; none when nothing helps or
    nothing is lacking, as the sentence says."""

    sentence: str
    wanted: int
    version: int
    domain: str = ""
    free_before: int = 0
    free_after: int = 0
    moves: tuple[Relocation, ...] = ()

    @property
    def lost_gpu_s(self) -> int:
        return sum(move.lost_gpu_s for move in self.moves)

    @property
    def plan(self) -> Plan:
        return Plan(self.version, tuple(move.swap for move in self.moves))


def propose(
    state: State, wanted: int, now_ns: int, options: SchedulingOptions, costs: Costs
) -> DefragProposal:
    """Propose the cheapest moves after which one outermost domain has `wanted` hosts free.

    Order: lost GPU time, then the number of moves, then the order of the fabric.
    """
    fabric, free = state.loaded_fabric, state.free
    if not fabric.tiers:
        return DefragProposal("this fabric has no domains to free", wanted, state.version)
    tier = fabric.tiers[0]
    masks = domain_masks(fabric, tier.name)
    at = max(range(len(masks)), key=lambda d: ((free & masks[d]).bit_count(), -d))
    most = (free & masks[at]).bit_count()
    if most >= wanted:
        sentence = f"nothing to move: {tier.domains[at]} has {hosts_text(most)} free"
        return DefragProposal(sentence, wanted, state.version, tier.domains[at], most, most)
    if max((mask & ~state.index.out_of_service).bit_count() for mask in masks) < wanted:
        sentence = f"no {tier.name} has {hosts_text(wanted)} in service"
        return DefragProposal(sentence, wanted, state.version)
    if free.bit_count() < wanted:
        sentence = f"only {hosts_text(free.bit_count())} are free in all, and moves free no more"
        return DefragProposal(sentence, wanted, state.version)
    return _cheapest(state, wanted, now_ns, options, costs)


def impossible_text(fabric: Fabric, wanted: int) -> str:
    """Say why no moves can ever free so many hosts together; "" when some might."""
    if not fabric.tiers:
        return ""
    tier = fabric.tiers[0]
    most = max(mask.bit_count() for mask in domain_masks(fabric, tier.name))
    if wanted <= most:
        return ""
    has = f"no {tier.name} has {hosts_text(wanted)}, the largest has {most:,}"
    return f"{has}: no moves can ever free them together"


def is_lacking(state: State, wanted: int) -> bool:
    """Return whether so many hosts are free, but in no outermost domain together."""
    fabric, free = state.loaded_fabric, state.free
    if not wanted or not fabric.tiers or free.bit_count() < wanted:
        return False
    masks = domain_masks(fabric, fabric.tiers[0].name)
    could = max((mask & ~state.index.unhealthy).bit_count() for mask in masks) >= wanted
    return could and max((mask & free).bit_count() for mask in masks) < wanted


def _cheapest(
    state: State, wanted: int, now_ns: int, options: SchedulingOptions, costs: Costs
) -> DefragProposal:
    tier = state.loaded_fabric.tiers[0]
    masks = domain_masks(state.loaded_fabric, tier.name)
    mover = GangMover(state, options, now_ns)
    best: tuple[tuple[int, int, int], DefragProposal] | None = None
    for at, mask in enumerate(masks):
        before = (state.free & mask).bit_count()
        if (mask & ~state.index.out_of_service).bit_count() < wanted:
            continue
        there = candidates(state, mask, now_ns, costs)
        moves = mover.moves(there, mask, wanted - before, best[0] if best else None)
        if moves is None:
            continue
        key = (sum(move.lost_gpu_s for move in moves), len(moves), at)
        if best is None or key < best[0]:
            freed = hostset.of(m.left for move in moves for m in move.swap.moves) & mask
            after = before + freed.bit_count()
            proposal = DefragProposal(
                "", wanted, state.version, tier.domains[at], before, after, moves
            )
            best = (key, replace(proposal, sentence=_sentence(proposal)))
    if best is None:
        room = f"{hosts_text(wanted)} in one {tier.name}"
        sentence = (
            f"no moves free {room} without a larger cut or a longer step for the gangs that move"
        )
        return DefragProposal(sentence, wanted, state.version)
    return best[1]


def _sentence(proposal: DefragProposal) -> str:
    moves = f"{len(proposal.moves)} move{'' if len(proposal.moves) == 1 else 's'}"
    hours = f"{proposal.lost_gpu_s / 3600:,.1f} GPU-hours"
    return f"frees {hosts_text(proposal.free_after)} in {proposal.domain} for {moves}, {hours}"


def candidates(state: State, mask: HostSet, now_ns: int, costs: Costs) -> list[MoveCandidate]:
    """Gangs that run on hosts of `mask`, all of them healthy, in order of start."""
    gpus = state.loaded_fabric.gpus_per_host
    options = []
    for job in state.in_state(JobState.RUNNING):
        if job.part_gpus:
            continue  # it leaves no host whole
        if job.allocation & mask and not job.allocation & state.index.out_of_service:
            blocks = tuple(b for b, host in enumerate(job.hosts) if hostset.has(mask, host))
            if blocks:
                options.append(
                    MoveCandidate(job, blocks, cost_ns(job, now_ns, costs) * gpus // SECOND_NS)
                )
    return options


def choose_cover(there: Sequence[MoveCandidate], lacking: int) -> list[MoveCandidate] | None:
    """Choose the gangs of least price that have at least `lacking` blocks together; None when all
    together have too few. Cost: O(gangs x lacking)."""
    least: list[tuple[int, int, tuple[int, ...]] | None] = [(0, 0, ())] + [None] * lacking
    for at, gang in enumerate(there):
        for short in range(lacking, 0, -1):
            before = least[max(0, short - len(gang.blocks))]
            if before is not None:
                with_it = (before[0] + gang.lost_gpu_s, before[1] + 1, (*before[2], at))
                now = least[short]
                least[short] = with_it if now is None else min(now, with_it)
    chosen = least[lacking]
    return None if chosen is None else [there[at] for at in chosen[2]]


class GangMover:
    """Finds places for gangs that move, where quotas, windows and other jobs leave them."""

    def __init__(self, state: State, options: SchedulingOptions, now_ns: int) -> None:
        self._state, self.options, self.now_ns = state, options, now_ns
        self._quotas, self._affinity = Quotas(state), AffinityIndex(state)
        self._calendar = Calendar(state)

    def moves(
        self,
        there: list[MoveCandidate],
        mask: HostSet,
        lacking: int,
        most: tuple[int, int, int] | None,
    ) -> tuple[Relocation, ...] | None:
        """Return the cheapest moves out of `mask`; None when there are none, or none cheaper than
        `most`."""
        for _ in range(MOST_SETS):
            chosen = choose_cover(there, lacking)
            if chosen is None:
                return None
            price = (sum(gang.lost_gpu_s for gang in chosen), len(chosen))
            if most is not None and price >= most[:2]:
                return None
            moves = list(self._relocations(chosen, mask))
            if len(moves) == len(chosen):
                return tuple(moves)
            stuck = sorted(chosen, key=lambda g: -len(g.blocks))[len(moves)]
            there = [gang for gang in there if gang is not stuck]
        return None

    def _relocations(self, chosen: list[MoveCandidate], mask: HostSet) -> Iterator[Relocation]:
        """Yield the chosen gangs' moves, the largest first, until one finds no place."""
        free = self._state.free & ~mask
        for gang in sorted(chosen, key=lambda g: -len(g.blocks)):
            swap = self._swap(gang, free, mask)
            if swap is None:
                return
            free &= ~hostset.of(move.joined for move in swap.moves)
            yield Relocation(swap, gang.lost_gpu_s, gang.job.present.cuts)

    def _swap(self, gang: MoveCandidate, free: HostSet, mask: HostSet) -> Swap | None:
        """The gang's blocks of the domain swapped one by one, or the gang placed near."""
        job, fabric = gang.job, self.crowded(gang.job)
        free, end_ns = self.room(job, free)
        stays = hostset.of(job.spares)
        chosen = choose_swaps(fabric, self._gang(job), job.hosts, gang.blocks, 0, free)
        if chosen is not None:
            moves = tuple(Move(b, job.hosts[b], host) for b, host in chosen.joined)
            if self._may(job, moves, chosen.cuts, free):
                return Swap(job.name, moves, chosen.cuts, is_requested=True, end_ns=end_ns)
        own = hostset.of(job.hosts) & ~mask & ~stays
        if (free | own).bit_count() < len(job.hosts):
            return None
        hint = Hint(job.hosts)
        answer = place(fabric, free | own, self._gang(job), self.options.place, hint)
        if not isinstance(answer, Placement):
            return None
        moves = tuple(
            Move(b, old, new)
            for b, (old, new) in enumerate(zip(job.hosts, answer.hosts, strict=True))
            if old != new
        )
        cuts = cut(fabric, job.request, answer.hosts)
        swap = Swap(job.name, moves, cuts, is_requested=True, end_ns=end_ns)
        return swap if self._may(job, moves, cuts, free) else None

    def room(self, job: Job, free: HostSet) -> tuple[HostSet, int]:
        """Return the free hosts that the gang may move to, and when it ends if it does."""
        free &= self._quotas.allowance(job, self._state.free).reach
        closed = self._affinity.closed(job.name, job.spec.affinity)
        free = self._affinity.powered(job, free & ~closed)
        end_ns = self.now_ns + time_limit_ns(job, self.options)
        return free & ~self._calendar.closed(job, self.now_ns, end_ns), end_ns

    def crowded(self, job: Job) -> Fabric:
        """Return the fabric with what other gangs leave of uplinks, for steps of `job`."""
        fabric = self._state.loaded_fabric
        return subtract_loads(
            fabric, loads(fabric, find_neighbours(self._state, job, self.options))
        )

    def _gang(self, job: Job) -> Request:
        """Its spares stay where they are."""
        return replace(job.request, spares=NO_SPARES)

    def _may(
        self, job: Job, moves: tuple[Move, ...], cuts: tuple[TierCut, ...], free: HostSet
    ) -> bool:
        """The step is no longer than now, or no tier is cut more, whichever the job is placed by;
        spares are where they serve, and nobody is in the way."""
        if not all(hostset.has(free, move.joined) for move in moves):
            return False
        left = hostset.of(move.left for move in moves)
        then = job.allocation & ~left | hostset.of(move.joined for move in moves)
        if broken(self._state.loaded_fabric, job.request.where, then):
            return False
        joined = {move.block: move.joined for move in moves}
        hosts = [joined.get(block, host) for block, host in enumerate(job.hosts)]
        fabric, request = self.crowded(job), job.request
        if parted(fabric, request, hosts):
            return False
        if request.objective is Objective.TIME:
            now = measure(fabric, request, job.hosts, job.present.cuts)
            return measure(fabric, request, hosts, cuts) <= now
        return all(
            new.bytes_per_step <= old.bytes_per_step
            for new, old in zip(cuts, job.present.cuts, strict=True)
        )
