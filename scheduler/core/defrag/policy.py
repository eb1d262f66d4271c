"""Defragmentation by policy: when it is due, and whether its moves are worth their price.

At most once in a period, when nothing else is to be done. Room is wanted for the job that
waits with a reservation and must lie inside one outermost domain, or at any time for as many
hosts as the policy says. Moves are made for a job only if it then starts, and for room in
reserve only while nobody waits with a reservation, whom they might delay. What came of it
is an event of its own, so that the next period counts from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.structs import replace
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.defrag.proposal import DefragProposal, is_lacking, propose
from scheduler.core.fold.apply import replay
from scheduler.core.model.events import Event, GangSwapped
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.plan import Defragment, Plan, Start
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.model.state import State
from scheduler.core.policies.tenants import Defragmentation
from scheduler.core.wording import hosts_text

Decide = Callable[[State], Plan]


def defragmented(
    state: State, now_ns: int, options: SchedulingOptions, idle: Plan, decide: Decide
) -> Plan:
    """Return the plan `idle`, which does nothing, with the moves that are due.

    `decide`: what would be done on another state, by the same rules without this one.
    """
    policy = state.tenants.defragmentation
    wanted, waiting = _find_demand(state, idle, policy)
    if policy is None or not state.index.running or not is_lacking(state, wanted):
        return idle
    due_ns = state.defragmented_ns + policy.every_s * SECOND_NS
    if state.defragmented_ns and now_ns < due_ns:
        return replace(idle, next_decision_ns=min(idle.next_decision_ns or due_ns, due_ns))
    proposal = propose(state, wanted, now_ns, options, state.tenants.preemption.costs)
    kept = _verdict(state, now_ns, proposal, policy, waiting, decide)
    if kept:
        return replace(
            idle,
            actions=(Defragment((), f"{kept}: {proposal.sentence}" if proposal.moves else kept),),
        )
    return replace(
        idle, actions=(Defragment(tuple(move.swap for move in proposal.moves), proposal.sentence),)
    )


def _find_demand(
    state: State, idle: Plan, policy: Defragmentation | None
) -> tuple[int, Job | None]:
    """Hosts wanted in one domain, and for whom; 0 when none are."""
    if policy is None or not state.loaded_fabric.tiers:
        return 0, None
    if not idle.reservations:
        return policy.hosts, None
    job = state.jobs[idle.reservations[0].name]
    is_inside = job.spec.request.where.same == state.loaded_fabric.tiers[0].name
    return (job.needed, job) if is_inside else (0, None)


def _verdict(
    state: State,
    now_ns: int,
    proposal: DefragProposal,
    policy: Defragmentation,
    waiting: Job | None,
    decide: Decide,
) -> str:
    """Why nothing is moved; empty when the moves are made."""
    if not proposal.moves:
        return proposal.sentence
    gained = proposal.free_after - proposal.free_before
    if gained * 3600 < policy.hosts_per_gpu_hour * proposal.lost_gpu_s:
        least = hosts_text(policy.hosts_per_gpu_hour)
        return f"nothing moved, less than {least} for a GPU-hour"
    answer = commit(state, proposal.plan, now_ns)
    if isinstance(answer, Conflict) or _swaps_in(answer) != len(proposal.moves):
        return "nothing moved, not all moves can be made"
    after = decide(replay(answer, state)) if waiting else None
    if after and waiting and waiting.name not in _started(after):
        return f"nothing moved, {waiting.name} would not start"
    return ""


def _swaps_in(events: Sequence[Event]) -> int:
    return sum(isinstance(event, GangSwapped) for event in events)


def _started(plan: Plan) -> set[str]:
    return {action.name for action in plan.actions if isinstance(action, Start)}
