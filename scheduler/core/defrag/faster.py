"""Moves of gangs that degraded links hold up, where what they save is worth their price.

Each slow gang (rules/network/slow_gangs.py) is placed again on its own hosts and the free ones, by
what other gangs leave of uplinks, the one that loses most first. A move stops the gang: it pays
when the GPU time that the gang and its neighbours save until its expected end is more than the
work since its last checkpoint and a restart.
"""

from __future__ import annotations

from math import isfinite

from muster.structs import replace
from placement import place
from placement.fabric import hostset
from placement.fabric.constraints import broken
from placement.fabric.hostset import HostSet
from placement.objective.cut import cut
from placement.workload.request import NO_SPARES, Placement, StepBound
from scheduler.core.capacity.victims import cost_ns
from scheduler.core.defrag.proposal import DefragProposal, GangMover, Relocation
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.plan import Move, Swap
from scheduler.core.model.scheduling_options import SchedulingOptions, expected_end_ns
from scheduler.core.model.state import State
from scheduler.core.policies.costs import Costs
from scheduler.core.rules.network.gang_step import seconds_now
from scheduler.core.rules.network.neighbours import as_neighbour, count_idle_gpus, find_neighbours
from scheduler.core.rules.network.slow_gangs import SlowGang, slow_gangs

WANTED = "slow gangs"  # in the words of requests


def propose_faster(
    state: State, now_ns: int, options: SchedulingOptions, costs: Costs
) -> DefragProposal:
    """Propose moves of slow gangs that pay, the gang that loses most GPU time first. Cost: a
    placement for each slow gang."""
    slow = sorted(
        slow_gangs(state, options), key=lambda s: (-s.slower * len(s.job.hosts), s.job.name)
    )
    mover, free, moves = GangMover(state, options, now_ns), state.free, []
    for gang in slow:
        move = _relocation(state, gang, free, mover, costs)
        if move is not None:
            moves.append(move)
            free &= ~hostset.of(each.joined for each in move.swap.moves)
    proposal = DefragProposal("", 0, state.version, moves=tuple(moves))
    return replace(proposal, sentence=_sentence(slow, proposal))


def _relocation(
    state: State, slow: SlowGang, free: HostSet, mover: GangMover, costs: Costs
) -> Relocation | None:
    """None where no placement is so much faster that a move pays."""
    job, fabric, now_ns = slow.job, state.loaded_fabric, mover.now_ns
    gang, others = as_neighbour(state, job), find_neighbours(state, job, mover.options)
    if job.allocation & state.index.out_of_service:
        return None  # it has hosts to leave in any case
    free, end_ns = mover.room(job, free)
    stays = hostset.of(job.spares)
    request = replace(job.request, spares=NO_SPARES)
    answer = place(mover.crowded(job), free | hostset.of(job.hosts), request, mover.options.place)
    if not isinstance(answer, Placement):
        return None
    if broken(fabric, job.request.where, answer.allocation | stays):
        return None
    then_s = seconds_now(fabric, job.request, answer.hosts)
    if not isfinite(then_s):
        return None
    moved = replace(gang, hosts=answer.hosts, step=StepBound(then_s))
    idle_now, idle_then = (count_idle_gpus(fabric, each, others, then_s) for each in (gang, moved))
    left_s = (expected_end_ns(job, now_ns, mover.options) - now_ns) / SECOND_NS
    saved_gpu_s = round((idle_now - idle_then) * left_s)
    gpus = job.request.parallelism.world_size
    lost_gpu_s = cost_ns(job, now_ns, costs) * gpus // len(job.hosts) // SECOND_NS
    if saved_gpu_s <= lost_gpu_s:
        return None
    moves = tuple(
        Move(block, old, new)
        for block, (old, new) in enumerate(zip(job.hosts, answer.hosts, strict=True))
        if old != new
    )
    cuts = cut(fabric, job.request, answer.hosts)
    swap = Swap(job.name, moves, cuts, is_requested=True, end_ns=end_ns)
    return Relocation(swap, lost_gpu_s, job.present.cuts, saved_gpu_s, slow.step_s, then_s)


def _sentence(slow: list[SlowGang], proposal: DefragProposal) -> str:
    if not slow:
        return "no gang is slow because of its links"
    several = f"{len(slow)} gangs are slow because of their links"
    gangs = "1 gang is slow because of its links" if len(slow) == 1 else several
    if not proposal.moves:
        return f"{gangs}; no move pays"
    moves = f"{len(proposal.moves)} move{'' if len(proposal.moves) == 1 else 's'}"
    saved = sum(move.saved_gpu_s for move in proposal.moves) / 3600
    hours = f"{saved:,.1f} GPU-hours until they end for {proposal.lost_gpu_s / 3600:,.1f}"
    return f"{gangs}; {moves} save{'s' * (len(proposal.moves) == 1)} {hours}"
