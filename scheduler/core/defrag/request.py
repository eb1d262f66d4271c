"""Moves that an operator asked for: checked again on the newest state, made all or none."""

from __future__ import annotations

from scheduler.core.admission.etag import digest
from scheduler.core.admission.idempotency import earlier
from scheduler.core.commit.commit import Conflict, commit
from scheduler.core.defrag.proposal import DefragProposal
from scheduler.core.model.events import Event, RequestAnswered
from scheduler.core.model.plan import Defragment, Plan
from scheduler.core.model.rejected import Rejected
from scheduler.core.model.state import State


def carried_out(
    proposal: DefragProposal, request_text: str, request_id: str, state: State, now_ns: int
) -> tuple[Event, ...] | Rejected | Conflict:
    """Return the moves of `proposal` as events; none when this request was answered before.

    `request_text`: what it was for, `4 hosts` or `job a`.
    """
    if before := earlier(state, request_id):
        return before.answer
    if not proposal.moves:
        purpose = f"defragment for {request_text}"
        answered = RequestAnswered(now_ns, request_id, purpose, answer=proposal.sentence)
        return (answered,) if request_id else ()
    swaps = tuple(move.swap for move in proposal.moves)
    tidy = Defragment(swaps, proposal.sentence, request_text, request_id)
    return commit(state, Plan(proposal.version, (tidy,)), now_ns)


def moves_etag(state: State, proposal: DefragProposal) -> str:
    """Return an etag that differs when other gangs would move, to other hosts, or have moved
    meanwhile; empty for no moves. Their price, which grows with time, is left out."""
    moves = [
        (state.jobs[name].uid, state.jobs[name].attempt, move.swap.moves, move.before)
        for move in proposal.moves
        for name in (move.swap.name,)
    ]
    return digest(proposal.domain, proposal.wanted, moves) if moves else ""
