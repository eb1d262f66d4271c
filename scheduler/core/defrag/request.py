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
    found: DefragProposal, asked: str, request_id: str, state: State, now_ns: int
) -> tuple[Event, ...] | Rejected | Conflict:
    """The moves of `found` as events; none when this request was answered before, and with an id
    that is remembered when there is nothing to move.

    `asked`: for what, `4 hosts` or `job a`.
    """
    if before := earlier(state, request_id):
        return before.answer
    if not found.moves:
        what = f"defragment for {asked}"
        answered = RequestAnswered(now_ns, request_id, what, answer=found.sentence)
        return (answered,) if request_id else ()
    swaps = tuple(move.swap for move in found.moves)
    tidy = Defragment(swaps, found.sentence, asked, request_id)
    return commit(state, Plan(found.version, (tidy,)), now_ns)


def moves_etag(state: State, found: DefragProposal) -> str:
    """Differs when other gangs would move, to other hosts, or have moved meanwhile; empty for no
    moves. Their price, which grows with time, is left out."""
    moves = [
        (state.jobs[name].uid, state.jobs[name].attempt, move.swap.moves, move.before)
        for move in found.moves
        for name in (move.swap.name,)
    ]
    return digest(found.domain, found.wanted, moves) if moves else ""
