"""Defragment: moves proposed, and made."""

from __future__ import annotations

from functools import partial

from scheduler.core import Rejected, SchedulingOptions, State
from scheduler.core.admission.etag import stale
from scheduler.core.admission.idempotency import earlier, repeated
from scheduler.core.defrag.faster import WANTED, propose_faster
from scheduler.core.defrag.proposal import DefragProposal, impossible_text, propose
from scheduler.core.defrag.request import carried_out, moves_etag
from scheduler.service.backend import Context, Servicer
from scheduler.service.errors import infeasible, invalid, rejected
from scheduler.service.names import full_name_of, job_of
from scheduler.v1 import service_pb2
from scheduler.wire.reasons import proposal_to_proto

Request = service_pb2.DefragmentRequest
Response = service_pb2.DefragmentResponse


class DefragServicer(Servicer):
    async def Defragment(self, request: Request, context: Context) -> Response:
        writer, state = self._backend.writer, self._backend.writer.state
        request_text = f"{request.hosts} hosts"
        if request.HasField("job"):
            request_text = f"job {full_name_of(state, request.job, field='job')}"
        elif request.HasField("slow_gangs"):
            request_text = WANTED
        if request.apply and (done := _done_before(state, request)):
            return done
        proposal = await self._backend.questions.ask_on(
            state, _proposed, writer.now_ns(), writer.options, request
        )
        etag = moves_etag(state, proposal)
        if refusal := stale(request.etag, lambda: etag, "the proposal"):
            raise rejected(refusal)
        applied = request.apply and bool(proposal.moves) and not request.validate_only
        if request.apply and (proposal.moves or not request.validate_only):
            make = partial(carried_out, proposal, request_text, request.request_id)
            events = await self._backend.carry_out(make, only_checked=request.validate_only)
            if proposal.moves and not events:  # the same request was under way twice
                return _repeat_answer(writer.state, request.request_id)
        return proposal_to_proto(state, proposal, etag, applied=applied)


def _done_before(state: State, request: Request) -> Response | None:
    """The answer to a request that has made its moves; None: it has not."""
    before = earlier(state, request.request_id)
    if before is None:
        return None
    if isinstance(before.answer, Rejected):
        raise rejected(before.answer)
    return _repeat_answer(state, request.request_id)


def _repeat_answer(state: State, request_id: str) -> Response:
    """As the first time, without the moves themselves."""
    done = repeated(state, request_id)
    sentence = done.answer if done is not None else ""
    return Response(sentence=sentence, applied=True, version=state.version)


def _proposed(
    state: State, now_ns: int, options: SchedulingOptions, request: Request
) -> DefragProposal:
    """Raises: ApiError."""
    costs = state.tenants.preemption.costs
    if request.slow_gangs:
        return propose_faster(state, now_ns, options, costs)
    wanted = (
        job_of(state, request.job, field="job").needed if request.HasField("job") else request.hosts
    )
    if wanted < 1:
        raise invalid("hosts", "must be at least 1")
    never = impossible_text(state.loaded_fabric, wanted)
    if never:
        raise infeasible(never)
    return propose(state, wanted, now_ns, options, costs)
